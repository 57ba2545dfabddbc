"""One connection of a client that breaks rules: where it comes from, and how it was ended.

`dial` opens it and asks for the versions that the broker serves, so that a connection that was
refused at the door is never mistaken for one that was ended later for another reason.
"""

import contextlib
import socket
import struct
import time

from tests.bad_input.wire import HOST

DIAL_SECONDS_MAX = 10.0
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions, version 0, without a client id."""


class RefusedError(Exception):
    """The broker closed the connection before it said anything."""


class RudePeer:
    """A bare socket from a chosen address."""

    def __init__(self, port: int, source: str, *, receive_buffer_bytes: int = 0) -> None:
        self._socket = socket.socket()
        if receive_buffer_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.settimeout(DIAL_SECONDS_MAX)
        self._socket.bind((source, 0))
        self._socket.connect((HOST, port))

    def ping(self) -> None:
        """Ask for the versions and read the answer; `RefusedError` when there is none."""
        try:
            self._socket.sendall(API_VERSIONS)
            length = self._read(4)
            self._read(struct.unpack(">i", length)[0])
        except (ConnectionError, EOFError) as error:
            raise RefusedError from error

    def send(self, data: bytes, seconds_max: float = DIAL_SECONDS_MAX) -> None:
        """Send as much as the broker takes in this time; being closed meanwhile is no error."""
        self._socket.settimeout(seconds_max)
        with contextlib.suppress(OSError):
            self._socket.sendall(data)

    def answer(self) -> bytes:
        """The next answer without its length."""
        self._socket.settimeout(DIAL_SECONDS_MAX)
        return self._read(struct.unpack(">i", self._read(4))[0])

    def is_ended(self, seconds_max: float) -> bool:
        """Whether the broker ends the connection in this time; what it sent before is read."""
        deadline = time.monotonic() + seconds_max
        try:
            while True:
                self._socket.settimeout(max(0.001, deadline - time.monotonic()))
                if not self._socket.recv(1 << 20):
                    return True
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


def dial(port: int, source: str, *, receive_buffer_bytes: int = 0) -> RudePeer:
    """A connection that the broker has accepted; `RefusedError` when it did not."""
    peer = RudePeer(port, source, receive_buffer_bytes=receive_buffer_bytes)
    try:
        peer.ping()
    except BaseException:
        peer.close()
        raise
    return peer
