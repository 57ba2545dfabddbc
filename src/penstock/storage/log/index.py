"""Sparse offset and time indexes: bytes and search, pure over a buffer.

Offset index, 8 bytes an entry, big-endian: last offset of a batch relative to the segment's base
(int32), position where that batch begins in the data file (int32). Both grow strictly.

Time index, 12 bytes an entry: the highest timestamp so far (int64), last offset of the batch that
has it relative to the base (int32). Timestamps grow strictly, offsets grow.

A batch gets an entry when more than `index.interval.bytes` were appended since the last one. Apache
Kafka reserves index files in advance, so a file may end in zeros; `trimmed_size` finds its end.
There is no checksum: an index is a cache, checked when it is used and rebuilt from the data when
wrong.

This module knows no files; `index_file` does.
"""

from struct import Struct, iter_unpack
from typing import Final, NamedTuple

from typing_extensions import Buffer

OFFSET_ENTRY: Final = Struct(">ii")
OFFSET_ENTRY_BYTES: Final = OFFSET_ENTRY.size
TIME_ENTRY: Final = Struct(">qi")
TIME_ENTRY_BYTES: Final = TIME_ENTRY.size


class OffsetEntry(NamedTuple):
    """A batch: its last offset relative to the base, and where it begins."""

    relative_offset: int
    position: int


class TimeEntry(NamedTuple):
    """The highest timestamp up to a batch, and that batch's last relative offset."""

    timestamp_ms: int
    relative_offset: int


def offset_entry(buffer: Buffer, number: int) -> OffsetEntry:
    """Entry `number` of an offset index."""
    return OffsetEntry._make(OFFSET_ENTRY.unpack_from(buffer, number * OFFSET_ENTRY_BYTES))


def time_entry(buffer: Buffer, number: int) -> TimeEntry:
    """Entry `number` of a time index."""
    return TimeEntry._make(TIME_ENTRY.unpack_from(buffer, number * TIME_ENTRY_BYTES))


def _floor(buffer: Buffer, entry: Struct, field: int, target: int) -> int:
    """Number of the last entry whose `field` is at most `target`, or -1."""
    low, high = 0, len(memoryview(buffer)) // entry.size
    unpack, width = entry.unpack_from, entry.size
    while low < high:
        middle = (low + high) // 2
        if unpack(buffer, middle * width)[field] <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1


def floor_by_offset(buffer: Buffer, relative_offset: int) -> OffsetEntry | None:
    """The last entry at or before the offset; reading begins at its position."""
    number = _floor(buffer, OFFSET_ENTRY, 0, relative_offset)
    return None if number < 0 else offset_entry(buffer, number)


def floor_by_position(buffer: Buffer, position: int) -> OffsetEntry | None:
    """The last entry at or before a position: a place where a batch is known to begin."""
    number = _floor(buffer, OFFSET_ENTRY, 1, position)
    return None if number < 0 else offset_entry(buffer, number)


def floor_by_time(buffer: Buffer, timestamp_ms: int) -> TimeEntry | None:
    """The last entry whose timestamp is at most `timestamp_ms`."""
    number = _floor(buffer, TIME_ENTRY, 0, timestamp_ms)
    return None if number < 0 else time_entry(buffer, number)


def entries_below(buffer: Buffer, relative_offset: int) -> int:
    """How many offset entries lie below the offset."""
    return _floor(buffer, OFFSET_ENTRY, 0, relative_offset - 1) + 1


def times_below(buffer: Buffer, relative_offset: int) -> int:
    """How many time entries lie below the offset."""
    return _floor(buffer, TIME_ENTRY, 1, relative_offset - 1) + 1


def trimmed_size(buffer: bytes | bytearray, entry_bytes: int) -> int:
    """Bytes of whole entries before the zeros that an unfinished file ends with."""
    whole = len(buffer) - len(buffer) % entry_bytes
    used = len(buffer[:whole].rstrip(b"\0"))
    return used + -used % entry_bytes


def offsets_are_sound(buffer: Buffer, segment_bytes: int) -> bool:
    """Whether the entries of an offset index grow and stay inside the data file."""
    last_offset, last_position = -1, -1
    for relative_offset, position in iter_unpack(">ii", buffer):
        if relative_offset <= last_offset or position <= last_position:
            return False
        last_offset, last_position = relative_offset, position
    return last_position < segment_bytes


def times_are_sound(buffer: Buffer) -> bool:
    """Whether the entries of a time index grow."""
    last_timestamp, last_offset = -1, -1
    for timestamp_ms, relative_offset in iter_unpack(">qi", buffer):
        if timestamp_ms <= last_timestamp or relative_offset < last_offset:
            return False
        last_timestamp, last_offset = timestamp_ms, relative_offset
    return True
