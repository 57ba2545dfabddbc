"""Reads log files for `penstock log dump`: checks every batch, reports all damage (pure).

It parses Kafka's file formats byte by byte and uses no code of the storage engine: a tool that
finds damage must not repeat the engine's bugs. It never changes a file.

    NAME.log         batches, one after another
    NAME.index       entries of 8 bytes: offset - NAME (int32), position in the log (int32)
    NAME.timeindex   entries of 12 bytes: timestamp (int64), offset - NAME (int32)

A batch with a wrong checksum is reported and skipped, because its length still leads to the next
batch. An impossible length, another magic or a batch that extends past the end of the file ends the
walk, because later batches cannot be found. While a broker writes, its index files have their full
size, filled with zeros, and a log file is longer than its batches. Therefore zeros at the end are
not damage, in a log file up to `_ROOM_BYTES_MAX`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from penstock.core.errors import RecordsError
from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.builder import read_records
from penstock.records.record import Record

ReadAt = Callable[[int, int], bytes]
"""Returns bytes of the file, by position and count; fewer only at the end of the file."""

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")

_BLOCK_BYTES: Final = 4_096
"""The preallocated space ends at a block boundary."""
_ROOM_BYTES_MAX: Final = 65_536 + _BLOCK_BYTES
"""The most zeros behind the last batch of a file that a broker writes, or wrote until it was
killed: a step of 64 KiB and a block. More zeros may be lost records."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A complete batch with a correct checksum."""

    position: int
    header: BatchHeader
    records: list[Record]


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One entry of an index; `value` is a position or a timestamp in milliseconds."""

    offset: int
    value: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Invalid data in a file."""

    position: int
    reason: str


def walk_segment(read_at: ReadAt, size_bytes: int) -> Iterator[Batch | Damage]:
    """Yield every batch of a segment and all damage, in file order."""
    position = 0
    next_offset = -1
    while position < size_bytes:
        head = read_at(position, layout.HEADER_BYTES)
        problem = _header_problem(head, size_bytes - position)
        if problem:
            if not _is_room(read_at, position, size_bytes):
                yield Damage(position, problem)
            return
        header = layout.read_header(head)
        if header.base_offset < next_offset:
            yield Damage(
                position, f"base offset {header.base_offset} where {next_offset} or more must be"
            )
        yield _checked_batch(read_at(position, header.size_bytes), position, header)
        next_offset = max(next_offset, header.next_offset)
        position += header.size_bytes


def _is_room(read_at: ReadAt, position: int, size_bytes: int) -> bool:
    bytes_left = size_bytes - position
    if bytes_left > _ROOM_BYTES_MAX or size_bytes % _BLOCK_BYTES:
        return False
    return not any(read_at(position, bytes_left))


def _header_problem(head: bytes, bytes_left: int) -> str:
    if len(head) < layout.HEADER_BYTES:
        return f"{len(head)} bytes are too few for a batch"
    header = layout.read_header(head)
    if header.magic != layout.MAGIC:
        return f"magic {header.magic} where {layout.MAGIC} must be"
    if header.size_bytes < layout.HEADER_BYTES:
        return f"batch length {header.batch_length} is impossible"
    if header.size_bytes > bytes_left:
        return f"a batch of {header.size_bytes} bytes where the file has {bytes_left} left"
    return ""


def _checked_batch(data: bytes, position: int, header: BatchHeader) -> Batch | Damage:
    if not layout.checksum_matches(data, 0, header):
        return Damage(position, f"checksum of the batch at offset {header.base_offset} is wrong")
    try:
        return Batch(position, header, read_records(data))
    except RecordsError as error:
        return Damage(position, f"records of the batch at offset {header.base_offset}: {error}")


def walk_offset_index(data: bytes, base_offset: int) -> Iterator[IndexEntry | Damage]:
    """Yield every entry of an offset index."""
    last: tuple[int, int] | None = None
    for at, (relative_offset, position) in _entries(_OFFSET_ENTRY, data):
        if last is not None and (relative_offset <= last[0] or position <= last[1]):
            yield Damage(at, f"entry {(relative_offset, position)} does not follow {last}")
        last = (relative_offset, position)
        yield IndexEntry(base_offset + relative_offset, position)
    yield from _odd_bytes(_OFFSET_ENTRY, data)


def walk_time_index(data: bytes, base_offset: int) -> Iterator[IndexEntry | Damage]:
    """Yield every entry of a time index."""
    last: tuple[int, int] | None = None
    for at, (timestamp_ms, relative_offset) in _entries(_TIME_ENTRY, data):
        entry = (timestamp_ms, relative_offset)
        if last is not None and (entry[0] <= last[0] or entry[1] < last[1]):
            yield Damage(at, f"entry {entry} does not follow {last}")
        last = entry
        yield IndexEntry(base_offset + relative_offset, timestamp_ms)
    yield from _odd_bytes(_TIME_ENTRY, data)


def _entries(layout_of_entry: Struct, data: bytes) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield position and fields of each entry, without the zeros that fill the file's end."""
    size = layout_of_entry.size
    used = len(data.rstrip(b"\0"))
    # If the first entry is all zeros and nothing follows, it has no information.
    count = min(-(-used // size), len(data) // size)
    for at in range(0, count * size, size):
        first, second = layout_of_entry.unpack_from(data, at)
        yield at, (first, second)


def _odd_bytes(layout_of_entry: Struct, data: bytes) -> Iterator[Damage]:
    odd = len(data) % layout_of_entry.size
    if odd:
        yield Damage(len(data) - odd, f"{odd} bytes after the last entry")
