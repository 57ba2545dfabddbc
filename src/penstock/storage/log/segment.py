"""`Segment`: one data file with its indexes.

The data file `<base offset, 20 digits>.log` is record batches one after the other, nothing between
them. `size` is the end of valid data: bytes behind it are zeros for later appends (`room`), or a
failed write, which is cut before the next one. `.index` and `.timeindex` are caches over it
(`index`, `index_file`); `.txnindex` has the aborted transactions (`transaction_index`).

A segment has no lock: the log's owner thread appends; other threads may read below `size`, because
bytes there never change. It decides nothing about offsets: `partition_log` does.
"""

import errno
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from typing_extensions import Buffer

from penstock.core.errors import CorruptBatchError, CorruptIndexError, StorageError
from penstock.core.limits import MAPPED_READ_BYTES_MIN, RECOVERY_CHUNK_BYTES
from penstock.records.batch import HEADER_BYTES, BatchHeader, read_header
from penstock.storage.disk.file_place import FilePlace
from penstock.storage.disk.filesystem import File, FileSystem, read_fully, write_fully
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.batch_walk import batch_bytes, find_offset
from penstock.storage.log.index import (
    OFFSET_ENTRY,
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY,
    TIME_ENTRY_BYTES,
    OffsetEntry,
    entries_below,
    floor_by_offset,
    floor_by_position,
    floor_by_time,
    times_below,
)
from penstock.storage.log.index_file import IndexFile
from penstock.storage.log.transaction_index import TransactionIndex

LOG_SUFFIX: Final = ".log"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, ".index", ".timeindex", ".txnindex", ".snapshot")
"""All files that are removed with a segment."""
NO_TIMESTAMP: Final = -1
_TIMES_UNKNOWN: Final = -2
_NO_RECORD: Final = (-1, -1)
_WALK_BYTES: Final = 8_192
"""Bytes read at once while searching for a batch: two index intervals."""


def segment_name(base_offset: int) -> str:
    """File name of a segment without its suffix."""
    return f"{base_offset:020d}"


class Segment:
    """One stretch of a log."""

    __slots__ = (
        "_file",
        "_filesystem",
        "_max_record",
        "_max_timestamp_ms",
        "_max_timestamp_offset",
        "_open_files",
        "_path",
        "_place",
        "_torn",
        "base_offset",
        "bytes_since_index",
        "directory",
        "first_timestamp_ms",
        "is_dirty",
        "offset_index",
        "room_end",
        "size",
        "time_index",
        "transactions",
        "untimed_since_ms",
        "wants_index_write",
        "was_used",
    )

    def __init__(
        self,
        filesystem: FileSystem,
        open_files: OpenFiles,
        directory: str,
        base_offset: int,
        size: int,
    ) -> None:
        name = f"{directory}/{segment_name(base_offset)}"
        self._filesystem = filesystem
        self._open_files = open_files
        self._path = name + LOG_SUFFIX
        self._place = FilePlace(filesystem, self._path)
        self._file: File | None = None
        self._torn: File | None = None
        """The file of a write that failed, until its bytes are cut."""
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.room_end = 0  # of the zeros that `room` wrote, if that is behind `size`
        self.is_dirty = False
        self.was_used = False
        self.wants_index_write = False
        """Whether enough index entries have gathered to be written."""
        self.bytes_since_index = 0
        self.first_timestamp_ms = NO_TIMESTAMP
        self.untimed_since_ms = NO_TIMESTAMP
        """When retention first saw it as the active one with a first batch without a timestamp."""
        self._max_timestamp_ms = _TIMES_UNKNOWN if size else NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._max_record = _NO_RECORD
        """Last offset of a batch, and offset of its first record with the highest timestamp. One
        value: a search on a thread and an append may both set it; the batch says whose it is."""
        self.offset_index = IndexFile(filesystem, open_files, name + ".index", OFFSET_ENTRY_BYTES)
        self.time_index = IndexFile(filesystem, open_files, name + ".timeindex", TIME_ENTRY_BYTES)
        self.transactions = TransactionIndex(filesystem, open_files, name)

    @classmethod
    def create(
        cls,
        filesystem: FileSystem,
        open_files: OpenFiles,
        directory: str,
        base_offset: int,
        early_suffix: str = "",
    ) -> "Segment":
        """A new, empty segment; its name is durable after the directory is synced.

        With `early_suffix` its files get other names first; `segment_swap` gives them their own.
        """
        segment = cls(filesystem, open_files, directory, base_offset, 0)
        for place in segment.places():
            place.begin_early(early_suffix)
        segment._file = segment._place.create()
        segment.offset_index.begin_empty()
        segment.time_index.begin_empty()
        segment.transactions.begin_empty()
        open_files.opened(segment)
        return segment

    # --- Writing ---

    def append(
        self,
        buffer: Buffer,
        size: int,
        last_offset: int,
        timestamp_ms: int,
        interval_bytes: int,
        max_record_offset: int = -1,
    ) -> None:
        """Write one batch behind the others. After an `OSError`, `cut_back` is due."""
        position = self.write(buffer, size)
        if timestamp_ms > self._max_timestamp_ms:
            self._max_record = (last_offset, max_record_offset)
        self.note(position, size, last_offset, timestamp_ms, interval_bytes)

    def write(self, buffer: Buffer, size: int) -> int:
        """Write bytes behind the others; return their position. `note` adds their batches."""
        position, file = self.size, self._file or self.file()
        try:
            written = file.write_at(buffer, position)
            if written != size:
                write_fully(file, memoryview(buffer)[written:], position + written)
        except OSError:
            self._torn = file
            raise
        self.size = position + size
        self.was_used = True
        return position

    def note(
        self, position: int, size: int, last_offset: int, timestamp_ms: int, interval_bytes: int
    ) -> None:
        """Add a batch that is in the file to the indexes."""
        if position == 0:
            self.first_timestamp_ms = timestamp_ms
        if timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
            self._max_timestamp_offset = last_offset
        since = self.bytes_since_index
        if since > interval_bytes:
            self.offset_index.append(OFFSET_ENTRY.pack(last_offset - self.base_offset, position))
            self._note_time()
            self.wants_index_write = self.offset_index.wants_write or self.time_index.wants_write
            since = 0
        self.bytes_since_index = since + size

    def _note_time(self) -> None:
        """Add the highest timestamp to the time index if it is a new one."""
        if self._max_timestamp_ms < 0:
            return
        last = self.time_index.last()
        if last is None or TIME_ENTRY.unpack(last)[0] < self._max_timestamp_ms:
            relative_offset = self._max_timestamp_offset - self.base_offset
            self.time_index.append(TIME_ENTRY.pack(self._max_timestamp_ms, relative_offset))

    def write_indexes(self) -> None:
        """Hand gathered index entries to the files if there are enough."""
        if self.offset_index.wants_write:
            self.offset_index.write_pending()
        if self.time_index.wants_write:
            self.time_index.write_pending()
        self.wants_index_write = False

    def cut_back(self) -> None:
        """Remove the bytes of a failed write behind `size`; does nothing without one."""
        torn, self._torn = self._torn, None
        if torn is not None:
            torn.truncate(self.size)

    def finish(self) -> list[File]:
        """Complete the indexes, as sealing does; return the files to sync."""
        files = [self.file(), *self.finish_indexes()]
        return [*files, self.transactions.finish()] if self.transactions.size else files

    def finish_indexes(self) -> list[File]:
        """Write all entries of both indexes, and cut the room; return the index files."""
        self.load_times()
        self._note_time()
        if self.room_end > self.size:
            self.file().truncate(self.size)
            self.room_end = 0
        return [self.offset_index.finish(), self.time_index.finish()]

    def truncate(self, position: int) -> None:
        """Keep the bytes below `position`, where a batch begins or the data ends."""
        self.file().truncate(position)
        self.size, self.room_end = position, 0
        self.rewind_indexes(position)

    def rewind_indexes(self, position: int) -> None:
        """Keep index entries of batches that begin before `position`; times are searched again."""
        offsets = self.offset_index.read_all()
        kept = floor_by_position(offsets, position - 1)
        limit = 0 if kept is None else kept.relative_offset + 1
        self.offset_index.truncate(entries_below(offsets, limit) * OFFSET_ENTRY_BYTES)
        times = self.time_index.read_all()
        self.time_index.truncate(times_below(times, limit) * TIME_ENTRY_BYTES)
        self._max_timestamp_ms = _TIMES_UNKNOWN if position else NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset
        self._max_record = _NO_RECORD
        self.bytes_since_index = 0
        self.first_timestamp_ms = NO_TIMESTAMP
        if position:
            self.load_first_time()

    def resume_times(self) -> bool:
        """Take the highest timestamp from the last time entry; whether there is one."""
        last = self.time_index.last()
        entry = (NO_TIMESTAMP, 0) if last is None else TIME_ENTRY.unpack(last)
        self._max_timestamp_ms, relative_offset = entry
        self._max_timestamp_offset = self.base_offset + relative_offset
        return last is not None

    # --- Times ---

    def load_times(self) -> None:
        """Find the highest timestamp of a segment that was opened, not written."""
        if self._max_timestamp_ms != _TIMES_UNKNOWN:
            return
        start = 0
        if self.resume_times():
            start = self._start_for(self._max_timestamp_offset, nowait=False)
        for _, header in self.headers(start):
            if header.max_timestamp_ms > self._max_timestamp_ms:
                self._max_timestamp_ms = header.max_timestamp_ms
                self._max_timestamp_offset = header.last_offset

    def load_first_time(self) -> None:
        """Find the first batch's timestamp, from which the segment's span is counted."""
        if self.size:
            header = read_header(self.read(0, HEADER_BYTES, nowait=False))
            self.first_timestamp_ms = header.max_timestamp_ms

    def trust_times(self) -> None:
        """Take the last time entry as the highest timestamp: right for a sealed segment."""
        if self._max_timestamp_ms == _TIMES_UNKNOWN and not self.resume_times():
            self._max_timestamp_ms = _TIMES_UNKNOWN
            self.load_times()

    def age_by(self, timestamp_ms: int) -> None:
        """Set the age of a segment without records too, as after a start."""
        if self._max_timestamp_ms == NO_TIMESTAMP:
            self._max_timestamp_ms = timestamp_ms

    @property
    def max_timestamp_ms(self) -> int:
        """Highest timestamp in the segment, or -1."""
        self.trust_times()
        return self._max_timestamp_ms

    @property
    def modified_ms(self) -> int:
        """When its data was last written: its age if no record has a timestamp. A system call."""
        return self._place.modified_ms

    def set_modified_ms(self, modified_ms: int) -> None:
        """Keep the age of the segments that compaction replaces."""
        self._place.set_modified_ms(modified_ms)

    @property
    def max_timestamp_offset(self) -> int:
        """Last offset of the batch that has the highest timestamp."""
        self.trust_times()
        return self._max_timestamp_offset

    def max_record_offset(self, batch_last_offset: int) -> int:
        """The first record with the highest timestamp of this batch, or -1 when it is not known."""
        last_offset, offset = self._max_record
        return offset if last_offset == batch_last_offset else -1

    def note_max_record(self, batch_last_offset: int, offset: int) -> None:
        """Store the result of a search; from any thread."""
        self._max_record = (batch_last_offset, offset)

    # --- Reading ---

    def read(self, position: int, size: int, *, nowait: bool) -> memoryview:
        """Exactly `size` bytes at `position`."""
        file = self._file or self.file()
        self.was_used = True
        if nowait:
            if size >= MAPPED_READ_BYTES_MIN:
                return file.view_nowait(position, size)
            buffer = bytearray(size)
            if file.read_into_nowait(buffer, position) != size:
                raise BlockingIOError(errno.EAGAIN, "not in memory")
            return memoryview(buffer)
        buffer = read_fully(file, size, position)
        if len(buffer) != size:
            raise StorageError(f"{self._path} ends at {position + len(buffer)}, not {self.size}")
        return memoryview(buffer)

    def find(self, offset: int, *, nowait: bool) -> int:
        """Position of the first batch that reaches `offset`; `size` when none does."""
        return self.find_batch(offset, nowait=nowait)[0]

    def find_batch(self, offset: int, *, nowait: bool) -> tuple[int, int]:
        """The first batch that reaches `offset`: position and base offset, or the end and -1."""
        position = start = self._start_for(offset, nowait=nowait)
        while position < self.size:
            chunk = self.read(position, min(_WALK_BYTES, self.size - position), nowait=nowait)
            try:
                step, base_offset = find_offset(chunk, offset)
            except CorruptBatchError:
                if start == 0:
                    raise
                step, base_offset = 0, offset + 1
            if base_offset > offset and position + step == start and start > 0:
                raise CorruptIndexError(
                    f"{self._path}: index entry for {offset} is wrong", self.base_offset
                )
            if base_offset >= 0:
                return position + step, base_offset
            if step == 0:
                raise CorruptBatchError(f"{self._path}: no batch at {position}")
            position += step
        return position, -1

    def _start_for(self, offset: int, *, nowait: bool) -> int:
        """The position where a search for `offset` begins."""
        relative_offset = offset - self.base_offset
        target = min(relative_offset, 0x7FFFFFFF).to_bytes(4, "big")
        block = self.offset_index.block_for(target, slice(0, 4), nowait=nowait)
        entry = floor_by_offset(block, relative_offset)
        if entry is None:
            return 0
        if entry.position >= self.size:
            raise CorruptIndexError(f"{self._path}: index points behind the end", self.base_offset)
        return entry.position

    def boundary_before(self, position: int, *, nowait: bool) -> OffsetEntry | None:
        """The last batch known to the index that begins at or before `position`."""
        block = self.offset_index.block_for(position.to_bytes(4, "big"), slice(4, 8), nowait=nowait)
        return floor_by_position(block, position)

    def start_for_time(self, timestamp_ms: int) -> int:
        """Position before which every batch is older than `timestamp_ms`."""
        target = max(timestamp_ms - 1, 0).to_bytes(8, "big")
        block = self.time_index.block_for(target, slice(0, 8), nowait=False)
        entry = floor_by_time(block, timestamp_ms - 1)
        if entry is None:
            return 0
        return self._start_for(self.base_offset + entry.relative_offset, nowait=False)

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch, starting at `position`, read in chunks."""
        while self.size - position >= HEADER_BYTES:
            chunk = self.read(
                position, min(RECOVERY_CHUNK_BYTES, self.size - position), nowait=False
            )
            step = 0
            while len(chunk) - step >= HEADER_BYTES:
                header = read_header(chunk, step)
                size = batch_bytes(header.batch_length)
                yield position + step, header
                step += size
            position += step

    # --- Files ---

    def file(self) -> File:
        """The data file, opened at need."""
        file = self._file
        self.was_used = True
        if file is None:
            file = self._file = self._place.open()
            self._open_files.opened(self)
        return file

    def places(self) -> list[FilePlace]:
        """The places of its files, the data file first."""
        indexes = (self.offset_index, self.time_index)
        return [self._place, *(index.place for index in indexes), self.transactions.place]

    @property
    def index_bytes(self) -> int:
        """Size of the larger index."""
        return max(self.offset_index.size, self.time_index.size)

    def keep_file(self, file: File) -> None:
        """Keep the file of a failed round open: its writes are still unsynced."""
        self._file = self._file or file
        self._open_files.opened(self)

    def release_file(self) -> None:
        """Drop the handle; the next use opens the file again."""
        self._file = None

    def close(self) -> None:
        """Drop all handles."""
        if self._file is not None:
            self._file = None
            self._open_files.closed(self)
        self.offset_index.close()
        self.time_index.close()
        self.transactions.close()

    def remove(self) -> None:
        """Remove the segment's files."""
        self.close()
        name = f"{self.directory}/{segment_name(self.base_offset)}"
        for suffix in SEGMENT_SUFFIXES:
            with suppress(FileNotFoundError):
                self._filesystem.remove_file(name + suffix)
