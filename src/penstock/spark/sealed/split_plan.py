"""Splits by bytes: which batches of leased segments each task reads (pure).

A segment is cut into pieces of about equal size, none much larger than the target, at batches that
its offset index names. Neighbours that are small together become one split. Guarantees: the splits
of a partition follow each other in the order of offsets, do not overlap, and cover each wanted
offset of the leased segments once. Offsets that no segment has are left to Fetch.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from penstock.core.types import TopicPartition
from penstock.spark.planning import OffsetRange
from penstock.spark.sealed.lease_answers import LeaseSegment
from penstock.spark.sealed.segment_indexes import IndexEntry

SPLIT_BYTES: Final = 134_217_728
"""Stored bytes of a split, 128 MiB: half a second of reading."""
SPLITS_MAX: Final = 10_000
"""Splits of a batch; with more bytes they become larger, as tasks by Fetch do."""

FirstOffset = Callable[[IndexEntry], int | None]
"""Returns the base offset of an entry's batch; None if the entry is wrong."""


class Piece(NamedTuple):
    """Batches of one segment that hold these offsets."""

    segment: LeaseSegment
    from_offset: int
    until_offset: int
    begin: int
    end: int
    """Positions in the file."""

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read."""
        return self.end - self.begin


class Split(NamedTuple):
    """The pieces of one task."""

    pieces: tuple[Piece, ...]

    @property
    def from_offset(self) -> int:
        """The first offset."""
        return self.pieces[0].from_offset

    @property
    def until_offset(self) -> int:
        """The end of the offsets."""
        return self.pieces[-1].until_offset

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read."""
        return sum(one.size_bytes for one in self.pieces)


def split_bytes(total_bytes: int, wanted_bytes: int, splits_min: int | None) -> int:
    """Return the size of a split: smaller for a minimum of splits, larger for too many."""
    size = max(wanted_bytes, -(-total_bytes // (SPLITS_MAX // 2)))
    if splits_min is not None:
        size = min(size, -(-total_bytes // splits_min))
    return max(size, 1)


def cut_segment(
    segment: LeaseSegment,
    wanted: OffsetRange,
    entries: Sequence[IndexEntry],
    first_offset: FirstOffset,
    bytes_max: int,
) -> list[Piece]:
    """Return the pieces of one segment with wanted offsets."""
    from_offset = max(wanted.from_offset, segment.base_offset)
    until_offset = min(wanted.until_offset, segment.next_offset)
    if from_offset >= until_offset:
        return []
    begin, end = _bounds(segment, from_offset, until_offset, entries, first_offset)
    cuts = [(begin, from_offset)]
    count = -(-(end - begin) // bytes_max)
    for number in range(1, count):
        target = begin + (end - begin) * number // count
        at = bisect_right(entries, target, key=lambda one: one.position) - 1
        if at < 0 or entries[at].position <= cuts[-1][0]:
            continue
        offset = first_offset(entries[at])
        if offset is not None and cuts[-1][1] < offset < until_offset:
            cuts.append((entries[at].position, offset))
    ends = [*cuts[1:], (end, until_offset)]
    return [
        Piece(segment, offset, next_offset, position, next_position)
        for (position, offset), (next_position, next_offset) in zip(cuts, ends, strict=True)
    ]


def _bounds(
    segment: LeaseSegment,
    from_offset: int,
    until_offset: int,
    entries: Sequence[IndexEntry],
    first_offset: FirstOffset,
) -> tuple[int, int]:
    """Return the positions between which all batches with these offsets are."""
    begin, end = 0, segment.size_bytes
    if from_offset > segment.base_offset:
        at = bisect_right(entries, from_offset, key=lambda one: one.last_offset) - 1
        if at >= 0 and first_offset(entries[at]) is not None:
            begin = entries[at].position
    if until_offset < segment.next_offset:
        # The batch of this entry is the first one that may begin behind the end.
        at = bisect_left(entries, until_offset, key=lambda one: one.last_offset) + 1
        if at < len(entries) and first_offset(entries[at]) is not None:
            end = entries[at].position
    return begin, end


def merged(pieces: Iterable[Piece], bytes_max: int) -> list[Split]:
    """Return the splits of a partition's pieces: neighbours that are small together are one."""
    splits: list[Split] = []
    for piece in pieces:
        last = splits[-1] if splits else None
        if (
            last is not None
            and last.until_offset == piece.from_offset
            and last.size_bytes + piece.size_bytes <= bytes_max
        ):
            splits[-1] = Split((*last.pieces, piece))
        else:
            splits.append(Split((piece,)))
    return splits


def uncovered(wanted: OffsetRange, splits: Iterable[Split]) -> list[OffsetRange]:
    """Return the wanted offsets that no split has, in order."""
    rest, begin = [], wanted.from_offset
    for split in splits:
        rest.append(OffsetRange(wanted.at, begin, split.from_offset))
        begin = split.until_offset
    rest.append(OffsetRange(wanted.at, begin, wanted.until_offset))
    return [one for one in rest if one.size > 0]


class PlannedRange(NamedTuple):
    """A range of one task, with its split if it has one."""

    range: OffsetRange
    split: Split | None


def in_starting_order(
    planned: Iterable[tuple[TopicPartition, Sequence[PlannedRange]]],
) -> list[PlannedRange]:
    """Return the tasks of all partitions in turn; those of a partition keep their order."""
    numbered = [
        (number, at, one)
        for at, ranges in planned
        for number, one in enumerate(sorted(ranges, key=lambda each: each.range.from_offset))
    ]
    return [one for _, _, one in sorted(numbered, key=lambda each: each[:2])]
