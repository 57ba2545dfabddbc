"""`ServerConnection` and `ClientConnection`: one connection's protocol without its socket.

The owner moves bytes; these two parse them. A server connection takes bytes and returns requests in
order, refusing an API or version that is not served before its body is read; it encodes the frame
of a response. A client connection numbers requests, encodes their frames, and matches responses,
which a broker sends in the order of the requests.

ApiVersions is special (KIP-511): a version that is not served is not refused, but answered in
version 0 with UNSUPPORTED_VERSION and the list, so that the client learns what to use. The request
is returned with `api_version` 0, no body and `is_version_unsupported`; a client connection
recognises such an answer.

Every error of the peer is a `PeerError`; the owner closes. These classes do NOT keep order among
responses, time, or budgets: the owner does.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from penstock.core.errors import (
    MalformedRequestError,
    MalformedResponseError,
    UnsupportedApiError,
)
from penstock.core.limits import (
    CONTROL_FRAME_BYTES_MAX,
    ELEMENTS_PER_REQUEST_MAX,
    FRAME_BYTES_MAX,
    REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX,
    RESPONSE_FRAME_BYTES_MAX,
)
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.encoder_source import Buffer
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.framing import (
    FRAME_BYTES_AT_ONCE,
    LENGTH_BYTES,
    FrameReader,
    ReadArena,
)

BOUNDED_BYTES_AT_ONCE: Final = 8_192
"""Memory of a frame of a peer that is not known; it doubles as its bytes arrive."""
CORRELATION_ID_MAX: Final = 2_147_483_647
"""A correlation id is an int32; after the largest comes 0."""


class Request:
    """One request as received: header fields and the undecoded body."""

    __slots__ = (
        "api_key",
        "api_version",
        "body",
        "client_id",
        "correlation_id",
        "frame_bytes",
        "is_version_unsupported",
    )

    def __init__(
        self, head: headers.RequestHead, frame: memoryview, *, is_version_unsupported: bool
    ) -> None:
        self.api_key = head.api_key
        self.api_version = 0 if is_version_unsupported else head.api_version
        self.correlation_id = head.correlation_id
        self.client_id = head.client_id
        self.body = frame[len(frame) :] if is_version_unsupported else frame[head.body_start :]
        self.frame_bytes = len(frame)
        self.is_version_unsupported = is_version_unsupported

    def __repr__(self) -> str:
        return (
            f"Request(api_key={self.api_key}, api_version={self.api_version}, "
            f"correlation_id={self.correlation_id}, client_id={self.client_id!r}, "
            f"frame_bytes={self.frame_bytes})"
        )

    def forget_body(self) -> None:
        """Release the frame: the request was decoded and refers to none of its bytes."""
        self.body = memoryview(b"")
        self.frame_bytes = 0

    def decode(self, elements_max: int = ELEMENTS_PER_REQUEST_MAX) -> codec.Message:
        """The message in the body; raises `MalformedRequestError`, also for too many elements."""
        return codec.decode_request(self.api_key, self.api_version, self.body, elements_max)


class ServerConnection:
    """The broker's side of one connection."""

    __slots__ = ("_served", "reader")

    def __init__(self, served: Mapping[int, tuple[int, int]], arena: ReadArena) -> None:
        """`served` has the lowest and highest version of each API that requests may use."""
        self._served = served
        self.reader = FrameReader(
            arena,
            bytes_max=CONTROL_FRAME_BYTES_MAX,
            bytes_min=headers.REQUEST_HEADER_BYTES_MIN,
            produce_bytes_max=FRAME_BYTES_MAX,
        )

    def receive_data(self, data: Buffer) -> None:
        """Add bytes of the peer, for owners that do not use the reader's buffers."""
        self.reader.receive_data(data)

    def bound_frames(self, bytes_max: int | None) -> None:
        """Accept only frames of up to this size, of any content; None: requests as usual.

        A frame then has memory for the bytes that have arrived, not for those it announces.
        """
        reader = self.reader
        if bytes_max is None:
            reader.bytes_max = CONTROL_FRAME_BYTES_MAX
            reader.bytes_min = headers.REQUEST_HEADER_BYTES_MIN
            reader.produce_bytes_max = FRAME_BYTES_MAX
            reader.at_once_bytes = FRAME_BYTES_AT_ONCE
        else:
            reader.bytes_max, reader.bytes_min, reader.produce_bytes_max = bytes_max, 1, None
            reader.at_once_bytes = BOUNDED_BYTES_AT_ONCE

    def next_request(self) -> Request | None:
        """The next whole request, or None until more bytes arrive; raises a `PeerError`."""
        frame = self.reader.next_frame()
        return None if frame is None else self.read_request(frame)

    def read_request(self, frame: memoryview) -> Request:
        """The request in a frame; raises a `PeerError`."""
        if len(frame) < headers.REQUEST_HEADER_BYTES_MIN:
            raise MalformedRequestError(f"a frame of {len(frame)} bytes is not a request")
        head = headers.read_request_head(frame)
        versions = self._served.get(head.api_key)
        if versions is None:
            raise UnsupportedApiError(head.api_key, head.api_version)
        if versions[0] <= head.api_version <= versions[1]:
            return Request(head, frame, is_version_unsupported=False)
        if head.api_key != ApiKey.API_VERSIONS:
            raise UnsupportedApiError(head.api_key, head.api_version)
        return Request(head, frame, is_version_unsupported=True)


def encode_response_frame(request: Request, message: codec.Message) -> list[Buffer]:
    """The frame of a response as buffers in order; large records are in it uncopied."""
    version = request.api_version
    parts = codec.encode_buffers(message, version)
    body_bytes = sum(map(len, parts))
    head = headers.write_response_frame_head(
        request.api_key, version, request.correlation_id, body_bytes
    )
    parts.insert(0, head)
    return codec.join_small(parts, body_bytes)


def encode_wide_response_frame(request: Request, message: codec.Message) -> list[Buffer]:
    """As `encode_response_frame`, on a thread, for a message with very many elements."""
    version = request.api_version
    parts = codec.join_in_steps(codec.encode_buffers(message, version, is_wide=True))
    body_bytes = sum(map(len, parts))
    head = headers.write_response_frame_head(
        request.api_key, version, request.correlation_id, body_bytes
    )
    return [head, *parts]


class Response:
    """One response that arrived."""

    __slots__ = ("api_key", "api_version", "correlation_id", "message")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, message: codec.Message
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.message = message


class ClientConnection:
    """A client's side of one connection."""

    __slots__ = ("_client_id", "_in_flight", "_next_correlation_id", "reader")

    def __init__(
        self,
        client_id: str | None,
        *,
        response_bytes_max: int = RESPONSE_FRAME_BYTES_MAX,
        at_once_bytes: int = FRAME_BYTES_AT_ONCE,
        buffers_kept_max: int = 0,
    ) -> None:
        """The last two are for clients that fetch much: see `framing.FrameReader`."""
        self._client_id = client_id
        self._next_correlation_id = 0
        self._in_flight: deque[tuple[int, int, int]] = deque()
        # A client has few connections, and small reads: no arena is shared.
        self.reader = FrameReader(
            ReadArena(65_536),
            bytes_max=response_bytes_max,
            bytes_min=LENGTH_BYTES,
            at_once_bytes=at_once_bytes,
            buffers_kept_max=buffers_kept_max,
        )

    @property
    def requests_in_flight(self) -> int:
        """Requests sent whose responses have not arrived."""
        return len(self._in_flight)

    @property
    def can_send(self) -> bool:
        """Whether another request may be sent before a response has arrived."""
        return len(self._in_flight) < REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX

    def send_request(
        self, message: codec.Message, version: int, *, expects_response: bool = True
    ) -> tuple[int, list[Buffer]]:
        """The correlation id and the frame of a request; a Produce with acks=0 has no response."""
        assert self.can_send, "more requests in flight than allowed"
        api_key: int = vars(type(message))["API_KEY"]
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (
            0 if correlation_id == CORRELATION_ID_MAX else correlation_id + 1
        )
        head = headers.write_request_head(api_key, version, correlation_id, self._client_id)
        body = codec.encode_buffers(message, version)
        length = len(head) + sum(map(len, body))
        if expects_response:
            self._in_flight.append((correlation_id, api_key, version))
        parts = [length.to_bytes(LENGTH_BYTES), head, *body]
        return correlation_id, codec.join_small(parts, length)

    def receive_data(self, data: Buffer) -> None:
        """Add bytes of the broker."""
        self.reader.receive_data(data)

    def next_response(self) -> Response | None:
        """The next whole response, or None until more bytes arrive; raises a `PeerError`."""
        frame = self.reader.next_frame()
        if frame is None:
            return None
        correlation_id = headers.read_correlation_id(frame)
        if not self._in_flight or self._in_flight[0][0] != correlation_id:
            raise MalformedResponseError(f"a response to {correlation_id}, which is not the oldest")
        _, api_key, version = self._in_flight.popleft()
        body = frame[headers.response_body_start(api_key, version, frame) :]
        if api_key == ApiKey.API_VERSIONS and body[:2] == UNSUPPORTED_VERSION_BYTES:
            version = 0
        message = codec.decode_response(api_key, version, body)
        return Response(api_key, version, correlation_id, message)


UNSUPPORTED_VERSION_BYTES: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)
"""The first bytes of an ApiVersions response that a broker had to write in version 0."""
