"""`TransactionIndex`: the aborted transactions of one segment, in Kafka's `.txnindex` format.

34 bytes an entry, big-endian, in the order of the markers, written when an abort marker is appended
to the segment: version int16 = 0, producer id int64, first offset of the transaction int64, offset
of its marker int64, last stable offset once the marker is committed int64. A segment without
aborted transactions has no file.

Unlike the other indexes this one is not a mere cache: a consumer with `read_committed` would treat
an aborted record as committed if an entry were missing. So the file is synced in the round that
syncs its marker, and no entry below the recovery point is ever missing. Entries above it are
rebuilt from the log after a crash, never trusted.

The owner's thread appends; other threads may search. It does NOT know which transactions are open.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from penstock.core.errors import StorageError
from penstock.storage.disk.file_place import FilePlace
from penstock.storage.disk.filesystem import File, FileSystem
from penstock.storage.disk.open_files import OpenFiles
from penstock.storage.log.index_file import IndexFile
from penstock.storage.log.open_transactions import AbortedTransaction

TRANSACTION_ENTRY: Final = Struct(">hqqqq")
TRANSACTION_SUFFIX: Final = ".txnindex"
_VERSION: Final = 0
_LAST_OFFSET: Final = slice(18, 26)


def pack_entry(aborted: AbortedTransaction) -> bytes:
    """The bytes of an entry."""
    return TRANSACTION_ENTRY.pack(_VERSION, *aborted)


def unpack_entries(data: bytes) -> Iterator[AbortedTransaction]:
    """The entries in whole multiples of their size."""
    for version, *fields in TRANSACTION_ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise StorageError(f"a transaction index of version {version}, which is not known")
        yield AbortedTransaction(*fields)


def sound_bytes(data: bytes, offset_limit: int) -> int:
    """Bytes of the first entries that are valid and whose markers lie below `offset_limit`."""
    previous, size = -1, 0
    for version, _, first, last, _ in TRANSACTION_ENTRY.iter_unpack(data):
        if version != _VERSION or not previous < last < offset_limit or not 0 <= first < last:
            break
        previous = last
        size += TRANSACTION_ENTRY.size
    return size


class TransactionIndex:
    """The aborted transactions whose markers are in one segment."""

    __slots__ = ("_file", "is_new", "is_unsynced")

    def __init__(self, filesystem: FileSystem, open_files: OpenFiles, stem: str) -> None:
        """`stem` is the segment's path without a suffix."""
        self._file = IndexFile(
            filesystem, open_files, stem + TRANSACTION_SUFFIX, TRANSACTION_ENTRY.size
        )
        self.is_unsynced = False
        """Whether entries were added or removed since the file was last handed to the flusher."""
        self.is_new = False
        """Whether the file, if there is one, has no durable name yet."""

    @property
    def place(self) -> FilePlace:
        """The place of the file, whether it exists or not."""
        return self._file.place

    def begin_empty(self) -> None:
        """The segment is new: there is no file."""
        self._file.begin_empty()
        self.is_new = True

    @property
    def is_measured(self) -> bool:
        """Whether `size` is known without the disk."""
        return self._file.is_measured

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self._file.size

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry; the flusher syncs the file together with the segment's."""
        self._file.append(pack_entry(aborted))
        self.is_unsynced = True

    def finish(self) -> File:
        """Write everything, and return the file, which must be synced."""
        return self._file.finish()

    def truncate(self, offset: int) -> None:
        """Keep the transactions whose markers lie below `offset`.

        An entry that reappeared after a crash would name a transaction that does not exist, so the
        cut must be synced as well.
        """
        size = self.size
        if size:
            kept = sound_bytes(self._file.read_all(), offset)
            self._file.truncate(kept)
            self.is_unsynced |= kept < size

    def from_offset(self, offset: int, *, nowait: bool) -> Iterator[AbortedTransaction]:
        """Transactions whose markers are at `offset` or later, in the order of the markers."""
        target = max(offset - 1, 0).to_bytes(8, "big")
        previous = -1
        for block in self._file.blocks_from(target, _LAST_OFFSET, nowait=nowait):
            for aborted in unpack_entries(block):
                # Entries that another thread writes may be seen twice: in memory and in the file.
                if aborted.last_offset >= offset and aborted.last_offset > previous:
                    previous = aborted.last_offset
                    yield aborted

    def entries(self) -> list[AbortedTransaction]:
        """All entries."""
        return list(unpack_entries(self._file.read_all()))

    def close(self) -> None:
        """Drop the handle."""
        self._file.close()
