"""Entries of the published index files of a segment (pure).

    .index      8 bytes an entry: last offset of a batch, relative to the segment's base, uint32;
                position of that batch, uint32
    .txnindex   34 bytes an entry: version int16 = 0, producer id, first offset, offset of the
                marker, last stable offset, int64 each

Both formats are Kafka's: see docs/formats/log-directory.md. An offset index is a cache that may be
damaged: entries are used while they rise, and the planner compares each one that it uses with the
header of its batch. A transaction index must be whole, because a missing entry would turn aborted
records into committed ones.
"""

from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.core.errors import CorruptIndexError
from penstock.spark.sealed.lease_answers import AbortedSpan

_OFFSET_ENTRY: Final = Struct(">II")
_TRANSACTION_ENTRY: Final = Struct(">hqqqq")


class IndexEntry(NamedTuple):
    """A batch of a segment: its last offset and its position."""

    last_offset: int
    position: int


def read_offset_index(data: bytes, base_offset: int, size_bytes: int) -> list[IndexEntry]:
    """Return the entries up to the first one that cannot be right."""
    entries: list[IndexEntry] = []
    whole = len(data) - len(data) % _OFFSET_ENTRY.size
    last_relative, last_position = -1, 0
    for relative_offset, position in _OFFSET_ENTRY.iter_unpack(data[:whole]):
        if relative_offset <= last_relative or not last_position < position < size_bytes:
            break
        entries.append(IndexEntry(base_offset + relative_offset, position))
        last_relative, last_position = relative_offset, position
    return entries


def read_transaction_index(data: bytes, name: str) -> list[AbortedSpan]:
    """Return the aborted transactions, in the order of their markers."""
    if len(data) % _TRANSACTION_ENTRY.size:
        raise CorruptIndexError(f"{name} has {len(data)} bytes, which are not whole entries")
    found: list[AbortedSpan] = []
    for version, producer_id, first_offset, last_offset, _ in _TRANSACTION_ENTRY.iter_unpack(data):
        if version != 0 or not 0 <= first_offset < last_offset:
            raise CorruptIndexError(f"{name} has an entry that cannot be read")
        found.append(AbortedSpan(producer_id, first_offset, last_offset))
    return found


def aborted_within(
    aborted: Sequence[AbortedSpan], from_offset: int, until_offset: int
) -> tuple[AbortedSpan, ...]:
    """Return the transactions with records in these offsets; `aborted` is in order of markers."""
    first = bisect_right(aborted, from_offset - 1, key=lambda one: one.last_offset)
    return tuple(one for one in aborted[first:] if one.first_offset < until_offset)
