"""`Target`: a broker that the matrix runs on, and the connection to it over a socket.

A target accepts each user of `grants` with the rules of the user's cell, and a super user. Every
user connects from `grants.HOST`. `SocketConnection` logs in with SASL/PLAIN on a plain socket.
"""

import socket
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self

from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.access_matrix.grants import HOST

SECONDS_MAX: Final = 60.0
"""No request waits that long, also on a machine that is busy with other work."""
REQUESTS_AT_ONCE: Final = 16
"""Requests that are sent before the answer of the first one is read."""
VERSIONS_REQUEST: Final = ApiVersionsRequest(
    client_software_name="matrix", client_software_version="1"
)


class Connection(Protocol):
    """One connection of one user; after the broker closed it, nothing more can be sent."""

    def ask(self, requests: Sequence[tuple[Message, int]]) -> list[Message]:
        """Send requests, each with its version; fewer answers: the broker closed the connection."""
        ...

    def is_open_after(self, message: Message, version: int) -> bool:
        """Send a request that has no answer; return whether the connection stays open."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class Target(Protocol):
    """A broker with an authorizer, users and rules."""

    def connect(self, user: str | None) -> Connection:
        """Open a connection of a user; None is the super user."""
        ...


class SocketConnection:
    """A connection on a socket; with a user it logs in with PLAIN."""

    def __init__(self, port: int, user: str | None = None, password: str = "") -> None:
        self._socket = socket.create_connection((HOST, port), SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._protocol = ClientConnection("matrix")
        if user is not None:
            self._log_in(user, password)

    def _log_in(self, user: str, password: str) -> None:
        token = f"\0{user}\0{password}".encode()
        self.ask([(SaslHandshakeRequest(mechanism="PLAIN"), 1)])
        (answer,) = self.ask([(SaslAuthenticateRequest(auth_bytes=token), 2)])
        assert isinstance(answer, SaslAuthenticateResponse)
        assert answer.error_code == ErrorCode.NONE, answer.error_message

    def ask(self, requests: Sequence[tuple[Message, int]]) -> list[Message]:
        """Send requests, each with its version; fewer answers: the broker closed the connection."""
        answers: list[Message] = []
        sent = 0
        with suppress(ConnectionError):
            while len(answers) < len(requests):
                while sent < min(len(requests), len(answers) + REQUESTS_AT_ONCE):
                    self._send(*requests[sent])
                    sent += 1
                answers.append(self._receive())
        return answers

    def is_open_after(self, message: Message, version: int) -> bool:
        """Send a request that has no answer; return whether the connection stays open."""
        self._send(message, version, is_answered=False)
        return len(self.ask([(VERSIONS_REQUEST, 4)])) == 1

    def _send(self, message: Message, version: int, *, is_answered: bool = True) -> None:
        _, frame = self._protocol.send_request(message, version, expects_response=is_answered)
        self._socket.sendall(b"".join(frame))

    def _receive(self) -> Message:
        while (response := self._protocol.next_response()) is None:
            data = self._socket.recv(1_048_576)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._protocol.receive_data(data)
        return response.message

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
