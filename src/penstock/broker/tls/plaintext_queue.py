"""`PlaintextQueue`: answers that are not encrypted yet, as references, in order.

Encryption needs the bytes in memory of this process. Records of a large fetch are a view of a
mapped file (`FileRange`). Touching a mapped page waits for the disk if the page was evicted, and
ends the process (SIGBUS) if the disk cannot read it. So the bytes of a file are read into the
caller's buffer by a read that never waits. Guarantees:

- `take` returns the bytes in the order of `add`, at most one buffer full;
- small answers are joined into one piece, because each piece becomes a TLS record of its own;
- answers in memory of more than `JOIN_BYTES_MAX` are not copied;
- a file that is shorter than the answer, or that cannot be read, is an `OSError`.

It does NOT load bytes that are missing in the page cache: `cold_part` returns them, and the owner
loads them on a thread.
"""

from collections import deque
from collections.abc import Iterable
from typing import Protocol, cast

from penstock.broker.tls.tls_limits import JOIN_BYTES_MAX
from penstock.core.limits import SEND_CHUNK_BYTES
from penstock.protocol.encoder_source import Buffer
from penstock.storage.disk.file_range import CutFileError, sendable_range


class ReadableFile(Protocol):
    """A file of the log."""

    def read_into_nowait(self, buffer: memoryview, position: int) -> int:
        """Read into `buffer` from the page cache; raise `BlockingIOError` on a miss."""
        ...

    def load(self, position: int, size: int) -> None:
        """Read the range into the page cache; waits for the disk."""
        ...


class FilePart:
    """Bytes of a file that are still to be encrypted."""

    __slots__ = ("_owner", "position", "size_bytes", "source")

    def __init__(self, source: ReadableFile, position: int, size_bytes: int, owner: object) -> None:
        self.source = source
        self.position = position
        self.size_bytes = size_bytes
        self._owner = owner
        """The view of the file, which keeps the file open."""

    def read_into(self, buffer: memoryview) -> int:
        """Fill the buffer, or a part of it; raise `BlockingIOError` if the bytes must be loaded."""
        count = self.source.read_into_nowait(buffer, self.position)
        if count == 0:
            raise CutFileError(f"a log file ends {self.size_bytes} bytes before the answer does")
        self.position += count
        self.size_bytes -= count
        return count

    def load(self) -> None:
        """Read the next bytes into the page cache; waits for the disk."""
        self.source.load(self.position, min(self.size_bytes, SEND_CHUNK_BYTES))


class PlaintextQueue:
    """The answers of one connection that wait to be encrypted."""

    __slots__ = ("_parts", "size_bytes")

    def __init__(self) -> None:
        self._parts: deque[memoryview | FilePart] = deque()
        self.size_bytes = 0

    def add(self, buffers: Iterable[Buffer]) -> None:
        """Add buffers. They are kept, not copied, so they must not change."""
        for buffer in buffers:
            size = len(buffer)
            if not size:
                continue
            self.size_bytes += size
            file_range = sendable_range(buffer)
            if file_range is None:
                self._parts.append(memoryview(buffer))
            else:
                source = cast("ReadableFile", file_range.source)
                self._parts.append(FilePart(source, file_range.position, size, buffer))

    def put_back(self, pieces: list[memoryview]) -> None:
        """Put pieces that could not be encrypted in front of everything else."""
        for piece in reversed(pieces):
            # Copied: a piece may lie in the buffer of `take`, which others use.
            self._parts.appendleft(memoryview(bytes(piece)))
            self.size_bytes += len(piece)

    def clear(self) -> None:
        """Drop everything."""
        self._parts.clear()
        self.size_bytes = 0

    def take(self, room: memoryview) -> list[memoryview]:
        """Return the next pieces, together at most as many bytes as `room` has.

        Small and stored answers are copied into `room`. Returns no piece if the next bytes are not
        in the page cache.
        """
        parts = self._parts
        pieces: list[memoryview] = []
        left = len(room)
        start = used = 0
        while parts and left:
            part = parts[0]
            if isinstance(part, FilePart):
                try:
                    count = part.read_into(room[used : used + min(left, part.size_bytes)])
                except BlockingIOError:
                    break
                used += count
                if not part.size_bytes:
                    parts.popleft()
            else:
                count = min(len(part), left)
                if len(part) <= JOIN_BYTES_MAX:
                    room[used : used + count] = part[:count]
                    used += count
                else:
                    if start < used:
                        pieces.append(room[start:used])
                        start = used
                    pieces.append(part[:count])
                if count < len(part):
                    parts[0] = part[count:]
                else:
                    parts.popleft()
            left -= count
        if start < used:
            pieces.append(room[start:used])
        self.size_bytes -= len(room) - left
        return pieces

    def cold_part(self) -> FilePart | None:
        """Return the part at the front if it lies in a file."""
        first = self._parts[0] if self._parts else None
        return first if isinstance(first, FilePart) else None
