"""`link`: two protocols in one process, connected by memory instead of a socket.

Guarantees, as a socket has them: bytes arrive in order and in a later turn of the event loop; a
writer above its high mark is paused until the other side has read; `close` sends what was written,
`abort` does not; both protocols learn the end once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

HIGH_BYTES: Final = 65_536


class MemoryTransport(asyncio.Transport):
    """One end of a link."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        receive: Callable[[bytes], None],
    ) -> None:
        super().__init__()
        self._loop = loop
        self._protocol = protocol
        self._receive = receive
        self.other: MemoryTransport | None = None
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        self._high = HIGH_BYTES
        self._is_flushing = self._is_reading_paused = self._is_writing_paused = False
        self._is_closing = self._is_lost = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        if self._is_closing or not data:
            return
        self._output.append(bytes(data))
        self._output_bytes += len(data)
        if self._output_bytes > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_flushing and not self._is_lost:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        other = self.other
        while self._output and other is not None and not other._is_reading_paused:
            data = self._output.popleft()
            self._output_bytes -= len(data)
            if not other._is_lost:
                other._receive(data)
        if self._is_writing_paused and self._output_bytes <= self._high // 4:
            self._is_writing_paused = False
            if not self._is_lost:
                self._protocol.resume_writing()
        if self._is_closing and not self._output:
            self._lose()

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._output.clear()
        self._loop.call_soon(self._protocol.connection_lost, None)
        other, self.other = self.other, None
        if other is not None:
            other._lose()

    def close(self) -> None:
        """Send what was written, then end."""
        self._is_closing = True
        self._flush_soon()

    def abort(self) -> None:
        """End at once."""
        self._lose()

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        """Receive again."""
        self._is_reading_paused = False
        if self.other is not None:
            self.other._flush_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002 (asyncio's)
        """Set the mark above which the writer is paused."""
        self._high = HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the other side has not read."""
        return self._output_bytes


def link(
    loop: asyncio.AbstractEventLoop,
    first: asyncio.BaseProtocol,
    receive_first: Callable[[bytes], None],
    second: asyncio.BaseProtocol,
    receive_second: Callable[[bytes], None],
) -> None:
    """Connect two protocols; each one's function receives the bytes of the other."""
    ends = (
        MemoryTransport(loop, first, receive_first),
        MemoryTransport(loop, second, receive_second),
    )
    ends[0].other, ends[1].other = ends[1], ends[0]
    first.connection_made(ends[0])
    second.connection_made(ends[1])
