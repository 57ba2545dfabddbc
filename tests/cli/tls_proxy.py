"""A TLS server in front of a plain one, for tests of clients: it decrypts and forwards bytes."""

import socket
import ssl
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self


class TlsProxy:
    """Accepts TLS connections on a free port and forwards each of them to one target port."""

    def __init__(
        self, certificate: Path, key: Path, target_port: int, client_ca: Path | None = None
    ) -> None:
        """With `client_ca`, clients must have a certificate of this authority."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        if client_ca is not None:
            self._context.load_verify_locations(client_ca)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self._target_port = target_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]
        self._opened: list[socket.socket] = []
        self.port = int(self._listening.getsockname()[1])

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join()
        for one in self._opened:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self._opened.append(accepted)
            thread = threading.Thread(target=self._serve, args=(accepted,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, accepted: socket.socket) -> None:
        with ExitStack() as stack:
            stack.enter_context(suppress(OSError))
            stack.callback(accepted.close)
            secured = stack.enter_context(self._context.wrap_socket(accepted, server_side=True))
            self._opened.append(secured)
            target = stack.enter_context(socket.create_connection(("127.0.0.1", self._target_port)))
            self._opened.append(target)
            back = threading.Thread(target=_forward, args=(target, secured))
            back.start()
            stack.callback(back.join)
            stack.callback(_end, target)
            _forward(secured, target)


def _forward(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)


def _end(opened: socket.socket) -> None:
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
