"""`FileRange`: part of a log file that an answer refers to instead of copying it.

A large read from the page cache maps its range (decision 0005). The mapping is not populated: a
reader touches the headers of a few batches, and the socket takes the rest straight from the file by
`sendfile` (decision 0015). Anything else may still treat the view as bytes.

Guarantees:

- The range keeps its file open. A segment that retention deletes or compaction replaces stays
  readable until the last view of it is gone.
- `sendable_range` returns the range of a view only if the view begins where the range begins, so
  that the file position of its first byte is known. Other views are sent as bytes.

It knows nothing of sockets: the caller passes a descriptor.
"""

import mmap
import time
from typing import Final, Protocol

CHECK_TRUSTED_SECONDS: Final = 1.0
"""How long a range that was found in the page cache is assumed to be there. The kernel evicts the
least recently used pages; a page that it evicts sooner costs one wait for the disk."""

_PREFIX_BYTES: Final = 16
"""Base offset, length and leader epoch of a batch: no two batches of a segment begin alike."""


class CutFileError(OSError):
    """A file ended before the bytes that an answer had promised."""


class Sendable(Protocol):
    """An open file that can go to a socket."""

    @property
    def is_open(self) -> bool:
        """Whether the descriptor is still open."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether the range is in the page cache."""
        ...

    def load(self, position: int, size: int) -> None:
        """Read the range into the page cache; waits for the disk."""
        ...

    def send_to(self, descriptor: int, position: int, size: int) -> int:
        """Send bytes of the file to a socket; return the number sent, 0 at the end of file."""
        ...


class FileRange(mmap.mmap):
    """A mapped range of a file that knows its file."""

    source: Sendable
    position: int
    """Where in the file the range begins."""
    _skip: int
    """Bytes of the mapping before the range: a mapping begins at a page."""
    checked_at: float
    """When the range was found in the page cache."""

    def view(self) -> memoryview:
        """The bytes of the range."""
        return memoryview(self)[self._skip :]

    def begins(self, view: memoryview) -> bool:
        """Whether a view of this mapping begins where the range begins."""
        return view[:_PREFIX_BYTES] == self[self._skip : self._skip + _PREFIX_BYTES]


def map_range(source: Sendable, descriptor: int, position: int, size: int) -> FileRange:
    """Map a range that is in the page cache; `OSError` or `ValueError` when it cannot be mapped."""
    start = position - position % mmap.ALLOCATIONGRANULARITY
    mapped = FileRange(
        descriptor,
        position + size - start,
        flags=mmap.MAP_SHARED,
        prot=mmap.PROT_READ,
        offset=start,
    )
    mapped.source = source
    mapped.position = position
    mapped._skip = position - start
    mapped.checked_at = time.monotonic()
    return mapped


def is_in_file(part: object) -> bool:
    """Whether a part of an answer is a view of a file."""
    return isinstance(part, memoryview) and isinstance(part.obj, FileRange)


def sendable_range(part: object) -> FileRange | None:
    """The range that a part of an answer is the beginning of, if its file can be sent."""
    if isinstance(part, memoryview):
        owner = part.obj
        if isinstance(owner, FileRange) and owner.source.is_open and owner.begins(part):
            return owner
    return None
