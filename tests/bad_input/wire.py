"""Bytes that no client library would send, and a bare socket to send them on.

Guarantees: every builder defines the exact bytes that are sent; nothing is checked or corrected.
`Peer` reads whole frames or reports that the broker closed the connection; it waits a bounded time
for either. Well-formed messages come from the codec, which has tests of its own.

It is NOT a client: it keeps no state between requests and knows no answers but bytes.
"""

import contextlib
import socket
import struct
import time
from types import TracebackType
from typing import Self

from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey

HOST = "127.0.0.1"
ANSWER_SECONDS_MAX = 20.0
"""For a machine that is busy with other things; nothing here waits that long on purpose."""


def int16(value: int) -> bytes:
    return struct.pack(">h", value)


def int32(value: int) -> bytes:
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


def varint(value: int) -> bytes:
    """An unsigned varint, in as few bytes as it takes."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def zigzag(value: int) -> bytes:
    """A signed varint, as in records."""
    return varint(2 * value if value >= 0 else -2 * value - 1)


def string(data: bytes) -> bytes:
    """A legacy string."""
    return int16(len(data)) + data


def compact_string(data: bytes) -> bytes:
    """A string of flexible versions."""
    return varint(len(data) + 1) + data


def tags(*fields: tuple[int, bytes]) -> bytes:
    """A section of tagged fields, in the order given, right or wrong."""
    return varint(len(fields)) + b"".join(
        varint(tag) + varint(len(data)) + data for tag, data in fields
    )


def frame(content: bytes) -> bytes:
    """The content behind its length."""
    return int32(len(content)) + content


def request(
    api_key: int,
    version: int,
    body: bytes,
    *,
    client_id: bytes | None = b"bad-input",
    header_tags: bytes = b"\x00",
    correlation_id: int = 7,
) -> bytes:
    """A request frame; `header_tags` count only where the version has them."""
    head = struct.pack(">hhi", api_key, version, correlation_id)
    head += int16(-1) if client_id is None else string(client_id)
    if headers.is_flexible(api_key, version):
        head += header_tags
    return frame(head + body)


def well_formed(message: codec.Message, version: int, *, correlation_id: int = 7) -> bytes:
    """A request frame as a client writes it."""
    body = codec.encode_request(message, version)
    return request(key_of(message), version, body, correlation_id=correlation_id)


def key_of(message: codec.Message) -> int:
    """The API key of a request."""
    return int(vars(type(message))["API_KEY"])


def body_of(api_key: int, version: int, answer: bytes) -> memoryview:
    """The body of an answer, without its header."""
    view = memoryview(bytearray(answer))
    return view[headers.response_body_start(api_key, version, view) :]


def decoded(api_key: int, version: int, answer: bytes) -> codec.Message:
    """The message in an answer; ApiVersions falls back to version 0 as clients do."""
    body = body_of(api_key, version, answer)
    if api_key == ApiKey.API_VERSIONS and body[:2] == int16(35):
        version = 0
    return codec.decode_response(api_key, version, body)


class Peer:
    """One bare connection."""

    def __init__(self, port: int, *, receive_buffer_bytes: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(ANSWER_SECONDS_MAX)
        self.socket.connect((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Send all of it; a connection that is closed already is no error."""
        with contextlib.suppress(OSError):
            self.socket.sendall(data)

    def answer(self) -> bytes | None:
        """The next frame without its length, or None when the connection was closed before it."""
        length = self._read(4)
        if length is None:
            return None
        return self._read(struct.unpack(">i", length)[0])

    def is_closed_within(self, seconds: float) -> bool:
        """Whether the broker closes the connection in this time, without a further byte."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(ANSWER_SECONDS_MAX)

    def finish_sending(self) -> None:
        """Send FIN and go on reading."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close with RST."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def abandon(self) -> None:
        """Close while another thread may be sending: that one must notice."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def close(self) -> None:
        self.socket.close()

    def call(self, message: codec.Message, version: int) -> codec.Message:
        """A well-formed request and its answer."""
        self.send(well_formed(message, version))
        answer = self.answer()
        assert answer is not None, f"closed instead of an answer to {message}"
        return decoded(key_of(message), version, answer)

    def _read(self, count: int) -> bytes | None:
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        data = bytearray()
        while len(data) < count:
            assert time.monotonic() < deadline, "the broker is too slow"
            try:
                part = self.socket.recv(count - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
