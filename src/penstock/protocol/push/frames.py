"""Frames of the push protocol: bytes to frames and back.

A frame, big-endian:

    type            1   DATA 1, ACK 2, SUBSCRIBE 3, COMMIT_OFFSET 4, RESET 5, READY 6,
                        DISCONNECT 7, HEARTBEAT 8
    message id      8   chosen by the sender of a request; an ACK repeats it
    payload length  4
    payload

Guarantees: `FrameReader` returns the frames of a byte stream in order, however the bytes are cut.
The length of a frame is checked against the bound of its type before the payload is received, so it
holds memory for received bytes only. A stream that is not frames raises `PushFrameError`, which is
an error of the peer.

It knows no conversation: which frame may follow which is decided by `edge.push.session`. The
payload of DATA is in `data`, the JSON of the other frames in `payloads`.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from penstock.core.errors import PeerError

HEAD: Final = Struct(">BQI")
HEAD_BYTES: Final = HEAD.size
_SUBSCRIPTION: Final = Struct(">H")
CONTROL_BYTES_MAX: Final = 1_048_576
"""Payload of every frame but DATA."""

assert HEAD_BYTES == 13


class FrameType(IntEnum):
    """The first byte of a frame."""

    DATA = 1
    ACK = 2
    SUBSCRIBE = 3
    COMMIT_OFFSET = 4
    RESET = 5
    READY = 6
    DISCONNECT = 7
    HEARTBEAT = 8


_TYPES: Final = {int(one): one for one in FrameType}
_DATA: Final = int(FrameType.DATA)


class PushFrameError(PeerError):
    """The peer sent bytes that are not frames of the push protocol."""


class Frame(NamedTuple):
    """One frame as received."""

    type: FrameType
    message_id: int
    payload: bytes


def encode_frame(frame_type: FrameType, message_id: int, payload: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    return HEAD.pack(frame_type, message_id, len(payload)) + payload


def _same_bound(bytes_max: int) -> Callable[[int], int]:
    return lambda _: bytes_max


class FrameReader:
    """Cuts the bytes of one direction of a connection into frames."""

    __slots__ = ("_buffer", "_data_bound", "_start", "control_bytes_max")

    def __init__(
        self,
        data_bound: Callable[[int], int] | int,
        control_bytes_max: int = CONTROL_BYTES_MAX,
    ) -> None:
        """`data_bound` is the largest payload of DATA, or returns it for a subscription."""
        self._buffer = bytearray()
        self._start = 0
        self._data_bound = _same_bound(data_bound) if isinstance(data_bound, int) else data_bound
        self.control_bytes_max = control_bytes_max

    @property
    def held_bytes(self) -> int:
        """Received bytes of frames that were not returned yet."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or None until more bytes arrive."""
        buffer, start = self._buffer, self._start
        held = len(buffer) - start
        if held < HEAD_BYTES:
            self._release()
            return None
        number, message_id, length = HEAD.unpack_from(buffer, start)
        frame_type = _TYPES.get(number)
        if frame_type is None:
            raise PushFrameError(f"frame type {number} is unknown; types are 1 to 8")
        if number != _DATA:
            bound = self.control_bytes_max
        elif held < HEAD_BYTES + _SUBSCRIPTION.size:
            return None
        else:
            bound = self._data_bound(_SUBSCRIPTION.unpack_from(buffer, start + HEAD_BYTES)[0])
        if length > bound:
            raise PushFrameError(
                f"a {frame_type.name} frame has {length} bytes, at most {bound} are accepted"
            )
        end = start + HEAD_BYTES + length
        if len(buffer) < end:
            return None
        payload = bytes(memoryview(buffer)[start + HEAD_BYTES : end])
        self._start = end
        return Frame(frame_type, message_id, payload)

    def _release(self) -> None:
        """Hold no memory of returned frames while nothing arrives."""
        if self._start and self._start == len(self._buffer):
            self._buffer = bytearray()
            self._start = 0
