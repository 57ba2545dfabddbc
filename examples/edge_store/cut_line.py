"""`Line`: the network between a shop and its parent, which can be cut: a relay on this machine."""

import contextlib
import socket
import threading


class Line:
    """Forwards connections to a port, until it is cut."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._is_cut = False
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Drop all connections, and each new one."""
        self._is_cut = True
        for one in list(self._open):
            _close(one)

    def mend(self) -> None:
        """Forward connections again."""
        self._is_cut = False

    def close(self) -> None:
        """End the relay."""
        self.cut()
        _close(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            if self._is_cut:
                _close(near)
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                _close(near)
                continue
            self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for one in (source, sink):
            self._open.discard(one)
            _close(one)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
