"""A server for tests of logins: it answers four APIs, and a function may answer or fail instead.

It answers ApiVersions, SaslHandshake, SaslAuthenticate and Metadata as a broker does, unless
`handle` returns True for a request. `requests` has the API key of each request, and `connections`
is the number of accepted connections.
"""

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from penstock.client.security.options import Security, parse_security
from penstock.client.transport.addresses import Address
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.metadata import MetadataResponse
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeResponse

SERVED = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.METADATA: (0, 12),
    ApiKey.PRODUCE: (3, 9),
    ApiKey.SASL_HANDSHAKE: (1, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}
PLAIN_LOGIN: Security = parse_security(
    {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "canary",
    }
)


class Peer:
    """One connection of a client."""

    def __init__(self, server: "SaslServer", accepted: socket.socket) -> None:
        self.server = server
        self.socket = accepted
        self.request = (0, 0, 0)

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            received = self.socket.recv(count - len(data))
            if not received:
                raise ConnectionError
            data += received
        return data

    def run(self) -> None:
        try:
            while True:
                frame = self.exactly(int.from_bytes(self.exactly(4)))
                key, version = int.from_bytes(frame[:2]), int.from_bytes(frame[2:4])
                self.request = key, version, int.from_bytes(frame[4:8])
                self.server.requests.append(key)
                if not self.server.handle(self, key):
                    self.answer_rightly(key)
        except OSError:
            pass
        finally:
            self.socket.close()

    def answer(self, message: codec.Message) -> None:
        key, version, correlation_id = self.request
        body = codec.encode_response(message, version)
        head = headers.write_response_frame_head(key, version, correlation_id, len(body))
        self.socket.sendall(head + body)

    def answer_rightly(self, key: int) -> None:
        if key == ApiKey.API_VERSIONS:
            keys = tuple(
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in SERVED.items()
            )
            self.answer(ApiVersionsResponse(api_keys=keys))
        elif key == ApiKey.SASL_HANDSHAKE:
            self.answer(SaslHandshakeResponse(mechanisms=("PLAIN",)))
        elif key == ApiKey.SASL_AUTHENTICATE:
            lifetime_ms = self.server.lifetime_ms
            self.answer(SaslAuthenticateResponse(auth_bytes=b"", session_lifetime_ms=lifetime_ms))
        elif key == ApiKey.METADATA:
            self.answer(MetadataResponse(brokers=(), topics=(), cluster_id="c"))


class SaslServer:
    """Accepts connections until the block ends."""

    def __init__(
        self, handle: Callable[[Peer, int], bool] = lambda _peer, _key: False, lifetime_ms: int = 0
    ) -> None:
        self.handle = handle
        self.lifetime_ms = lifetime_ms
        self.requests: list[int] = []
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._accepted: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self._listening.getsockname()[1])

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._accepted.append(accepted)
            self._start(Peer(self, accepted).run)

    def _start(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def __enter__(self) -> Self:
        self._start(self._serve)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for accepted in self._accepted:
            try:
                accepted.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in self._threads:
            thread.join()
