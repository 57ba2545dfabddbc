"""`BlockingConnection`: a `ClientConnection` over a blocking socket, one request at a time.

For scripts, the command line and whoever has a thread to spare. Opening it asks the broker for its
versions, with the fallback of KIP-511; each call then goes out in the highest version that broker,
message and caller know.

A failure says whether the request can have been carried out. A broker acts on whole frames only, so
while one byte of a request was not handed to the kernel, nothing happened:
`BrokerUnreachableError`, safe to repeat. After the last byte it is `AnswerLostError`: it may have
happened. After either the connection is of no use; the owner closes it.
"""

import socket
from collections.abc import Mapping
from typing import Final, TypeVar

from penstock.client.addresses import Address
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    PenstockError,
)
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import ClientConnection
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CLIENT_NAME: Final = "penstock"
CLIENT_VERSION: Final = "0.1.0"
RESPONSE_BYTES_MAX: Final = 268_435_456
"""Metadata of 100,000 partitions takes about 10 MiB, a fetch what it asks for."""

CONNECT_SECONDS_MAX: Final = 10.0
"""Time to open a connection; less when the caller has less."""

Answer = TypeVar("Answer")


def connect(
    address: Address,
    *,
    timeout_seconds: float,
    client_id: str = CLIENT_NAME,
    clock: Clock | None = None,
) -> "BlockingConnection":
    """Open a connection and learn the broker's versions; `BrokerUnreachableError` if it fails."""
    try:
        opened = socket.create_connection(address, min(timeout_seconds, CONNECT_SECONDS_MAX))
    except OSError as error:
        raise BrokerUnreachableError(
            f"cannot reach a broker at {address}: {_reason(error)}."
        ) from error
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = BlockingConnection(
        opened, address, timeout_seconds=timeout_seconds, client_id=client_id, clock=clock
    )
    try:
        connection.negotiate()
    except PenstockError as error:
        connection.close()
        raise BrokerUnreachableError(f"{address} does not answer as a broker: {error}") from error
    return connection


class BlockingConnection:
    """One connection to one broker, used by one thread."""

    def __init__(
        self,
        opened: socket.socket,
        address: Address,
        *,
        timeout_seconds: float,
        client_id: str = CLIENT_NAME,
        clock: Clock | None = None,
    ) -> None:
        self._socket = opened
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._clock: Clock = clock or SystemClock()
        self._protocol = ClientConnection(client_id, response_bytes_max=RESPONSE_BYTES_MAX)
        self._versions: Mapping[int, tuple[int, int]] = {}

    def negotiate(self) -> None:
        """Ask for the versions that the broker serves."""
        highest = ApiVersionsRequest.VERSIONS[1]
        response = self._ask_versions(highest)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker is older than this client; its answer says what it knows, or at least 0.
            known = {one.api_key: one.max_version for one in response.api_keys}
            response = self._ask_versions(min(highest, known.get(ApiKey.API_VERSIONS, 0)))
        if response.error_code != ErrorCode.NONE:
            code = response.error_code
            raise BrokerAnswerError(code.value, code.name, "asking for versions")
        self._versions = {
            one.api_key: (one.min_version, one.max_version) for one in response.api_keys
        }

    def call(
        self, request: Message, answer_type: type[Answer], version_max: int | None = None
    ) -> Answer:
        """Send the request and wait for its answer."""
        return self._exchange(request, self._version_for(request, version_max), answer_type)

    def send_unanswered(self, request: Message, version_max: int | None = None) -> None:
        """Send a request that has no answer: Produce with acks=0."""
        version = self._version_for(request, version_max)
        _, frame = self._protocol.send_request(request, version, expects_response=False)
        self._send(b"".join(frame), self._clock.monotonic() + self._timeout_seconds)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _ask_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(
            client_software_name=CLIENT_NAME, client_software_version=CLIENT_VERSION
        )
        return self._exchange(request, version, ApiVersionsResponse)

    def _version_for(self, request: Message, version_max: int | None) -> int:
        api_key: ApiKey = vars(type(request))["API_KEY"]
        lowest, highest = request.VERSIONS
        if version_max is not None:
            highest = min(highest, version_max)
        served = self._versions.get(api_key)
        if served is None or max(lowest, served[0]) > min(highest, served[1]):
            code = ErrorCode.UNSUPPORTED_VERSION
            offered = "not at all" if served is None else f"in versions {served[0]}-{served[1]}"
            raise BrokerAnswerError(
                code.value,
                code.name,
                f"{self._address} serves {api_key.name} {offered}; "
                f"versions {lowest}-{highest} are needed.",
            )
        return min(highest, served[1])

    def _exchange(self, request: Message, version: int, answer_type: type[Answer]) -> Answer:
        _, frame = self._protocol.send_request(request, version)
        deadline = self._clock.monotonic() + self._timeout_seconds
        self._send(b"".join(frame), deadline)
        answer = self._receive(deadline)
        assert isinstance(answer, answer_type)
        return answer

    def _send(self, frame: bytes, deadline: float) -> None:
        view = memoryview(frame)
        sent = 0
        try:
            while sent < len(view):
                self._socket.settimeout(self._seconds_left(deadline))
                sent += self._socket.send(view[sent:])
        except OSError as error:
            raise BrokerUnreachableError(
                f"the connection to {self._address} failed before the request was sent: "
                f"{_reason(error)}."
            ) from error

    def _receive(self, deadline: float) -> Message:
        reader = self._protocol.reader
        while True:
            response = self._protocol.next_response()
            if response is not None:
                return response.message
            try:
                self._socket.settimeout(self._seconds_left(deadline))
                received = self._socket.recv_into(reader.get_buffer(-1))
            except OSError as error:
                raise AnswerLostError(
                    f"{self._address} did not answer: {_reason(error)}."
                ) from error
            if received == 0:
                raise AnswerLostError(f"{self._address} closed the connection before it answered.")
            reader.buffer_updated(received)

    def _seconds_left(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
