"""Size-prefixed frames: bytes in, whole frames out, bounded before anything is allocated.

A frame is an int32 length and that many bytes. `FrameReader` fits `asyncio.BufferedProtocol`
(`get_buffer`, then the socket's read, then `buffer_updated`) and has `receive_data` for other
owners. Guarantees:

- a returned frame is a writable memoryview over a bytearray of its own: it may be patched in place,
  written to disk later, kept for ever; nothing else refers to it;
- a length that is negative, too small or above the bound is a `FrameError` from `next_frame`, and
  no memory was allocated for it. The bound depends on the API: for requests the key is in the two
  bytes behind the length, and only Produce may be large. All bounds may be changed at any time,
  for instance when the peer has authenticated;
- never more memory than twice the received bytes, and 1 MiB (`at_once_bytes`): a peer that
  announces 100 MiB and sends ten bytes occupies 1 MiB, and that only when `get_buffer` is next
  called, so that the owner can check `needs_bytes` and stop reading first;
- an owner that reads many large frames may reuse their memory (`buffers_kept_max`): only when
  nothing refers to the frame any more, so the first guarantee holds;
- without that, an idle connection holds no buffer. Reads go to a `ReadArena` that all connections
  of one loop share: an event loop calls `get_buffer`, reads, and calls `buffer_updated` without
  running anything in between, and the bytes read are taken out of the arena before `buffer_updated`
  returns. The rest of a large frame is read straight into the frame.

Many small frames in one read stay one chunk and are cut one by one as `next_frame` is called. This
file does NOT know headers beyond the API key, nor time: the owner handles slow peers
(`frame_started` says that a frame is incomplete).
"""

import struct
from typing import Final

from penstock.core.errors import FrameError
from penstock.protocol.api_keys import ApiKey

READ_ARENA_BYTES: Final = 262_144
"""Bytes of one read at most; most produce requests fit, and one copy of them is cheap."""

FRAME_BYTES_AT_ONCE: Final = 1_048_576
"""A frame up to this size gets its memory at once; a larger one doubles as its bytes arrive."""

LENGTH_BYTES: Final = 4
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AND_KEY: Final = struct.Struct(">ih")


class ReadArena:
    """The buffer that the connections of one event loop read into, one after the other."""

    __slots__ = ("view",)

    def __init__(self, size: int = READ_ARENA_BYTES) -> None:
        self.view = memoryview(bytearray(size))


class FrameReader:
    """Cuts the bytes of one connection into frames."""

    __slots__ = (
        "_arena",
        "_buffers_kept_max",
        "_error",
        "_filled",
        "_frame",
        "_kept",
        "_length",
        "_pending",
        "_position",
        "_ready",
        "at_once_bytes",
        "bytes_max",
        "bytes_min",
        "produce_bytes_max",
    )

    def __init__(
        self,
        arena: ReadArena,
        *,
        bytes_max: int,
        bytes_min: int,
        produce_bytes_max: int | None = None,
        at_once_bytes: int = FRAME_BYTES_AT_ONCE,
        buffers_kept_max: int = 0,
    ) -> None:
        """`produce_bytes_max` is given for requests, and then bounds those of the Produce API.

        A client that requests large answers knows their size: `at_once_bytes` of a frame are
        allocated when the frame begins, and `buffers_kept_max` such buffers are reused.
        """
        self._arena = arena
        self.bytes_max = bytes_max
        self.bytes_min = bytes_min
        self.produce_bytes_max = produce_bytes_max
        # A whole frame, then the unread rest of the chunk behind it, then a frame being filled:
        # a later one of the three exists only when the earlier ones are empty or older.
        self._ready: memoryview | None = None
        self._pending = b""
        self._position = 0
        self._frame = bytearray()
        self._length = 0
        self._filled = 0
        self._error: FrameError | None = None
        self.at_once_bytes = at_once_bytes
        self._buffers_kept_max = buffers_kept_max
        self._kept: tuple[bytearray, ...] = ()

    @property
    def frame_started(self) -> bool:
        """Whether, with all whole frames taken, a part of another has arrived."""
        return self._length > 0 or self._position < len(self._pending)

    @property
    def needs_bytes(self) -> int:
        """Bytes that the started frame still lacks; 0 when none is known to be started."""
        return self._length - self._filled

    @property
    def received_bytes(self) -> int:
        """Bytes received of the started frame; 0 when none is known to be started."""
        return self._filled

    @property
    def has_unread(self) -> bool:
        """Whether `next_frame` has a frame or an error, or a part of a frame was received."""
        return self._ready is not None or self._error is not None or self.frame_started

    def get_buffer(self, sizehint: int = -1) -> memoryview:  # noqa: ARG002 - BufferedProtocol's
        """The buffer for the next read; call `buffer_updated` before any other reader reads."""
        if not self._length:
            return self._arena.view
        if self._filled == len(self._frame):
            size = min(self._length, max(2 * self._filled, self.at_once_bytes))
            larger = self._buffer_of(size) if self._buffers_kept_max else bytearray(size)
            larger[: self._filled] = self._frame
            self._frame = larger
        return memoryview(self._frame)[self._filled : self._length]

    def buffer_updated(self, count: int) -> None:
        """`count` bytes were read into the buffer of `get_buffer`."""
        if self._length:
            self._filled += count
            if self._filled == self._length:
                self._ready = memoryview(self._frame)[: self._length]
                self._forget_started()
        else:
            self._take_chunk(self._arena.view[:count])

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes that the caller has read; they are copied."""
        view = memoryview(data)
        while self._length and view:
            room = self.get_buffer()
            taken = min(len(room), len(view))
            room[:taken] = view[:taken]
            self.buffer_updated(taken)
            view = view[taken:]
        if view:
            self._take_chunk(view)

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None; raises `FrameError`."""
        ready = self._ready
        if ready is not None:
            self._ready = None
            return ready
        if self._error is not None:
            raise self._error
        if self._position == len(self._pending):
            return None
        frame, used = self._cut(memoryview(self._pending)[self._position :])
        self._position += used
        if self._position == len(self._pending):
            self._pending, self._position = b"", 0
        return frame

    def forget_all(self) -> None:
        """Release all memory: the connection is closed, and its owner may exist a little longer."""
        self._ready = None
        self._pending, self._position = b"", 0
        self._kept = ()
        self._forget_started()

    def _take_chunk(self, chunk: memoryview) -> None:
        """Copy the bytes read out of a buffer that is not ours."""
        if self._error is not None:
            return
        if self._ready is not None or self._pending:
            self._pending = self._pending[self._position :] + bytes(chunk)
            self._position = 0
            return
        try:
            self._ready, used = self._cut(chunk)
        except FrameError as error:
            self._error = error
            return
        if used < len(chunk):
            self._pending = bytes(chunk[used:])

    def _cut(self, chunk: memoryview) -> tuple[memoryview | None, int]:
        """A frame of its own from the start of a chunk, and how many bytes were used."""
        if len(chunk) < LENGTH_BYTES:
            return None, 0
        length = self._checked_length(chunk)
        if length == 0:
            return None, 0
        stop = LENGTH_BYTES + length
        if stop <= len(chunk):
            return memoryview(bytearray(chunk[LENGTH_BYTES:stop])), stop
        self._length = length
        self._frame = bytearray(chunk[LENGTH_BYTES:])
        self._filled = len(self._frame)
        return None, len(chunk)

    def _buffer_of(self, size: int) -> bytearray:
        """A buffer of at least this size: of a frame that nothing refers to any more, or new."""
        for buffer in self._kept:
            if len(buffer) >= size and buffer is not self._frame and _is_free(buffer):
                return buffer
        fresh = bytearray(size)
        if size >= FRAME_BYTES_AT_ONCE:
            self._kept = (fresh, *self._kept)[: self._buffers_kept_max]
        return fresh

    def _checked_length(self, chunk: memoryview) -> int:
        """The length of the frame; 0 when its API key must be seen first."""
        bound = self.bytes_max
        if self.produce_bytes_max is None:
            (length,) = _LENGTH.unpack_from(chunk)
        elif len(chunk) < _LENGTH_AND_KEY.size:
            (length,) = _LENGTH.unpack_from(chunk)
            if self.bytes_min <= length <= max(bound, self.produce_bytes_max):
                return 0
        else:
            length, api_key = _LENGTH_AND_KEY.unpack_from(chunk)
            if api_key == ApiKey.PRODUCE:
                bound = self.produce_bytes_max
        if not self.bytes_min <= length <= bound:
            raise FrameError(
                f"a frame of {length} bytes: at least {self.bytes_min}, at most {bound}",
                length=length,
            )
        assert isinstance(length, int)
        return length

    def _forget_started(self) -> None:
        self._frame = bytearray()
        self._length = 0
        self._filled = 0


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of a buffer exists: Python refuses to resize it while there is one."""
    try:
        buffer.append(0)
    except BufferError:
        return False
    buffer.pop()
    return True
