"""`IndexFile`: one index on disk with a short tail in memory.

Entries are collected in memory and written in small groups, so an append of a batch costs no system
call for its index, and the memory is bounded however large the segment grows. A search reads the
tail first, where nearly all readers are, then blocks of the file. Reads honour `nowait`: a cold
index sends the whole read to a thread, like cold data.

The file is a cache. It is synced when its segment is sealed or closed, never for an append.
"""

from collections.abc import Iterator
from typing import Final

from penstock.core.limits import INDEX_PENDING_BYTES_MAX
from penstock.storage.disk.file_place import FilePlace
from penstock.storage.disk.filesystem import File, FileSystem, read_fully, write_fully
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.index import trimmed_size

_BLOCK_BYTES_MAX: Final = 3_072
"""Read at once in a search: less than a page; of it, as many entries as fit."""


class IndexFile:
    """Entries of one kind, in order."""

    __slots__ = (
        "_block_bytes",
        "_entry_bytes",
        "_file",
        "_open_files",
        "_pending",
        "_place",
        "_stored_bytes",
        "was_used",
    )

    def __init__(
        self, filesystem: FileSystem, open_files: OpenFiles, path: str, entry_bytes: int
    ) -> None:
        self._place = FilePlace(filesystem, path)
        self._open_files = open_files
        self._entry_bytes = entry_bytes
        self._block_bytes = _BLOCK_BYTES_MAX - _BLOCK_BYTES_MAX % entry_bytes
        self._pending = bytearray()
        self._stored_bytes = -1
        self._file: File | None = None
        self.was_used = False

    @property
    def place(self) -> FilePlace:
        """The path of the file."""
        return self._place

    def begin_empty(self) -> None:
        """The segment is new: entries in an existing file do not belong to it."""
        self._stored_bytes = 0

    @property
    def size(self) -> int:
        """Bytes of all entries, written or not."""
        return self.stored_bytes + len(self._pending)

    @property
    def is_measured(self) -> bool:
        """Whether the sizes are known; if not, they are read when they are first asked for."""
        return self._stored_bytes >= 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of entries in the file. Zeros at its end do not count; measured once."""
        if self._stored_bytes < 0:
            try:
                self._stored_bytes = self._measure()
            except FileNotFoundError:
                self._stored_bytes = 0
        return self._stored_bytes

    def _measure(self) -> int:
        """Size of the entries in the file, searching for zeros from its end."""
        file = self._opened()
        end = file.size()
        end -= end % self._entry_bytes
        while end > 0:
            start = max(0, end - self._block_bytes)
            used = trimmed_size(read_fully(file, end - start, start), self._entry_bytes)
            if used > 0:
                return start + used
            end = start
        return 0

    def append(self, entry: bytes) -> None:
        """Add an entry; the file gets it later."""
        self._pending += entry

    @property
    def wants_write(self) -> bool:
        """Whether enough entries have gathered to be written."""
        return len(self._pending) >= INDEX_PENDING_BYTES_MAX

    def write_pending(self) -> None:
        """Write the gathered entries, creating the file if needed."""
        start = self.stored_bytes
        file = self._opened_or_created()
        if self._pending:
            write_fully(file, self._pending, start)
            self._stored_bytes = start + len(self._pending)
            self._pending = bytearray()

    def finish(self) -> File:
        """Write everything, cut the reserved zeros, and return the file, which must be synced."""
        self.write_pending()
        file = self._opened()
        if file.size() != self.stored_bytes:
            file.truncate(self.stored_bytes)
        return file

    def truncate(self, size: int) -> None:
        """Keep the first `size` bytes of entries."""
        stored = self.stored_bytes
        if size >= stored:
            del self._pending[size - stored :]
            return
        self._pending = bytearray()
        if stored:
            self._opened().truncate(size)
        self._stored_bytes = size

    def read_all(self) -> bytes:
        """All entries."""
        stored = self.stored_bytes
        data = read_fully(self._opened(), stored, 0) if stored else b""
        return bytes(data) + bytes(self._pending)

    def last(self) -> bytes | None:
        """The last entry."""
        if self._pending:
            return bytes(self._pending[-self._entry_bytes :])
        stored = self.stored_bytes
        if not stored:
            return None
        return bytes(read_fully(self._opened(), self._entry_bytes, stored - self._entry_bytes))

    def block_for(self, first_bytes: bytes, field: slice, *, nowait: bool) -> bytes:
        """A run of entries that holds the last one whose field is at most `first_bytes`.

        Fields are unsigned in every index we search, so big-endian bytes compare as numbers. The
        answer is empty when all entries lie above.
        """
        # Bounds and not the slice itself: mypyc takes any index of bytes for a number.
        start, stop = field.start, field.stop
        pending = bytes(self._pending)
        if pending and pending[start:stop] <= first_bytes:
            return pending
        number = self._block_number(first_bytes, start, stop, nowait=nowait)
        return b"" if number < 0 else self._block(number, nowait=nowait)

    def blocks_from(self, first_bytes: bytes, field: slice, *, nowait: bool) -> Iterator[bytes]:
        """As `block_for`, with all later entries, those in memory last.

        On a thread that does not own the index, the last entries of the file and those in memory
        may overlap; none is left out.
        """
        # In this order: entries leave the memory only when they are in the file.
        pending = bytes(self._pending)
        start, stop = field.start, field.stop
        count = self._block_count()
        number = max(0, self._block_number(first_bytes, start, stop, nowait=nowait))
        while number < count:
            yield self._block(number, nowait=nowait)
            number += 1
        if pending:
            yield pending

    def _block_count(self) -> int:
        return -(-self.stored_bytes // self._block_bytes)

    def _block_number(self, first_bytes: bytes, start: int, stop: int, *, nowait: bool) -> int:
        """The last block of the file whose first entry's field is at most `first_bytes`, or -1."""
        low, high = 0, self._block_count()
        while low < high:
            middle = (low + high) // 2
            entry = self._read(self._entry_bytes, middle * self._block_bytes, nowait=nowait)
            if entry[start:stop] <= first_bytes:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def _block(self, number: int, *, nowait: bool) -> bytes:
        start = number * self._block_bytes
        return self._read(min(self._block_bytes, self.stored_bytes - start), start, nowait=nowait)

    def _read(self, size: int, position: int, *, nowait: bool) -> bytes:
        """Exactly `size` bytes of the file."""
        file = self._opened()
        if not nowait:
            return bytes(read_fully(file, size, position))
        buffer = bytearray(size)
        if file.read_into_nowait(buffer, position) != size:
            raise BlockingIOError
        return bytes(buffer)

    def _opened(self) -> File:
        file = self._file
        self.was_used = True
        if file is None:
            file = self._file = self._place.open()
            self._open_files.opened(self)
        return file

    def _opened_or_created(self) -> File:
        try:
            return self._opened()
        except FileNotFoundError:
            file = self._file = self._place.create()
            self._open_files.opened(self)
            return file

    @property
    def is_dirty(self) -> bool:
        """Never: an index can be rebuilt from the data."""
        return False

    def release_file(self) -> None:
        """Drop the handle; the next use opens the file again."""
        self._file = None

    def close(self) -> None:
        """Drop the handle and the entry in the table."""
        if self._file is not None:
            self._file = None
            self._open_files.closed(self)
