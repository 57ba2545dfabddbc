"""The size of a micro-batch, and the offsets of each task (pure, no Spark, no clock).

A limit is divided among the partitions by their backlogs, as in Spark's Kafka source, so that none
is starved: every partition with records gets at least one. Offsets stand for records; in compacted
or transactional topics there are fewer.

A task reads one range of one partition. Large ranges are cut into equal pieces: by bytes as they
are stored, by `maxRecordsPerPartition`, and into at least `minPartitions` in all, the large ones
first. Tasks that follow one another read different partitions, so that neighbours do not queue at
one broker.

The size of a record is estimated as the size of the partition's log over the offsets in it: one
request for each broker. It is the mean over the whole log, stored and compressed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.core.types import TopicPartition
from penstock.spark.errors import OptionError

TASK_BYTES: Final = 268_435_456
"""Stored bytes in a task, 256 MiB: one second of reading, so that Spark's cost of a task is small,
and enough pieces of a large partition to keep every core busy."""
TASKS_BY_BYTES_MAX: Final = 10_000
"""The maximum number of tasks by bytes; above it, tasks become larger. Spark's driver keeps about a
kilobyte for each task and starts about a thousand in a second."""
TASKS_MAX: Final = 100_000
"""The maximum number of tasks that options may request."""
RECORD_BYTES_ASSUMED: Final = 1_000
"""The assumed size of a record of unknown size; it only affects the size of a task."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The limits of one micro-batch; None is no limit."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    """With fewer waiting offsets the batch is delayed, for `delay_ms_max` at most."""
    delay_ms_max: int = 900_000
    bytes_max: int | None = None


@dataclass(frozen=True, slots=True)
class Splitting:
    """The limits for splitting ranges; None does not split."""

    partitions_min: int | None = None
    records_max: int | None = None
    bytes_max: int = TASK_BYTES


class OffsetRange(NamedTuple):
    """Offsets of one partition; the last one is excluded."""

    at: TopicPartition
    from_offset: int
    until_offset: int

    @property
    def size(self) -> int:
        """The number of offsets; there may be fewer records."""
        return self.until_offset - self.from_offset


class LossAddress(NamedTuple):
    """The address for a task's loss reports: see `loss.channel`."""

    host: str
    port: int
    secret: str
    """The secret of one run of a query; reports with another secret are ignored."""
    batch: int
    """The number of the task's plan in that run."""


class SealedPart(NamedTuple):
    """Whole batches of one leased file."""

    path: str
    begin: int
    end: int
    """The position after the last batch."""
    base_offset: int
    next_offset: int
    """The bounds of its offsets: those of the segment."""


class SealedSplit(NamedTuple):
    """The files of a task that reads them without the broker."""

    parts: tuple[SealedPart, ...]
    """In the order of their offsets."""
    aborted: tuple[tuple[int, int, int], ...]
    """Aborted transactions with records here: producer id, first offset, offset of the marker."""


class ReadTask(NamedTuple):
    """The input of one task: a range, the id of its topic, and the newest leader epoch."""

    range: OffsetRange
    topic_id: str | None
    leader_epoch: int
    losses_to: LossAddress | None = None
    """None: the task only logs its losses."""
    sealed: SealedSplit | None = None
    """None: the task reads through Fetch."""


def estimate_record_bytes(
    log_bytes: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, float]:
    """Return the mean stored size of an offset by partition; empty partitions are absent."""
    return {
        at: size / (ends[at] - starts[at])
        for at, size in log_bytes.items()
        if size > 0 and at in starts and ends.get(at, 0) > starts[at]
    }


def lag_bytes(
    ranges: Iterable[OffsetRange],
    ends: Mapping[TopicPartition, int],
    record_bytes: Mapping[TopicPartition, float],
) -> float:
    """Return the stored bytes from the start of a batch to the ends of its partitions."""
    return sum((ends[one.at] - one.from_offset) * _size_of(record_bytes, one.at) for one in ranges)


def must_wait(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limits: ReadLimits,
    waited_ms: int,
) -> bool:
    """Return whether a batch is delayed because too few records are waiting."""
    if limits.offsets_min is None or waited_ms >= limits.delay_ms_max:
        return False
    return sum(_waiting(starts, ends).values()) < limits.offsets_min


def admit(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    limits: ReadLimits,
    record_bytes: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Return the end of the batch in each partition: within the limits, never before its start."""
    waiting = _waiting(starts, ends)
    allowed = dict(waiting)
    if limits.offsets_max is not None:
        total = sum(waiting.values())
        for at, count in waiting.items():
            allowed[at] = min(count, max(1, limits.offsets_max * count // total))
    if limits.bytes_max is not None:
        sizes = {at: _size_of(record_bytes, at) for at in waiting}
        total_bytes = sum(count * sizes[at] for at, count in waiting.items())
        for at, count in waiting.items():
            share = int(limits.bytes_max * (count / total_bytes))
            allowed[at] = min(allowed[at], max(1, share))
    return {at: starts[at] + allowed.get(at, 0) for at in ends}


def split_ranges(
    ranges: Iterable[OffsetRange],
    splitting: Splitting,
    record_bytes: Mapping[TopicPartition, float],
) -> list[OffsetRange]:
    """Return the ranges of the tasks, in starting order; empty ranges are left out."""
    whole = [one for one in ranges if one.size > 0]
    pieces = _pieces_by_bytes(whole, splitting, record_bytes)
    if splitting.records_max is not None:
        limit = splitting.records_max
        pieces = [
            max(count, -(-one.size // limit)) for one, count in zip(whole, pieces, strict=True)
        ]
        _require_few(sum(pieces), "maxRecordsPerPartition")
    if splitting.partitions_min is not None:
        pieces = _at_least(whole, pieces, splitting.partitions_min)
    cut = [
        (number, piece)
        for one, count in zip(whole, pieces, strict=True)
        for number, piece in enumerate(_cut(one, count))
    ]
    return [piece for _, piece in sorted(cut)]


def _waiting(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    return {at: end - starts[at] for at, end in ends.items() if end > starts[at]}


def _size_of(record_bytes: Mapping[TopicPartition, float], at: TopicPartition) -> float:
    return record_bytes.get(at, RECORD_BYTES_ASSUMED)


def _pieces_by_bytes(
    ranges: Sequence[OffsetRange],
    splitting: Splitting,
    record_bytes: Mapping[TopicPartition, float],
) -> list[int]:
    sizes = [one.size * _size_of(record_bytes, one.at) for one in ranges]
    # With a large backlog the tasks grow: half the bound for the cuts, half for the rounding up.
    task_bytes = max(splitting.bytes_max, sum(sizes) / (TASKS_BY_BYTES_MAX / 2))
    return [
        max(1, min(one.size, -int(-size // task_bytes)))
        for one, size in zip(ranges, sizes, strict=True)
    ]


def _at_least(ranges: Sequence[OffsetRange], pieces: Sequence[int], wanted: int) -> list[int]:
    """Return more pieces of large ranges, until there are about `wanted` pieces.

    As in Spark: ranges that are not split are set aside first, and the others share the rest.
    """
    if wanted <= sum(pieces):
        return list(pieces)
    total = sum(one.size for one in ranges)
    first = [_share(one.size, total, wanted) for one in ranges]
    stays = [max(1, share) <= count for share, count in zip(first, pieces, strict=True)]
    kept = sum(count for count, is_kept in zip(pieces, stays, strict=True) if is_kept)
    rest = sum(one.size for one, is_kept in zip(ranges, stays, strict=True) if not is_kept)
    return [
        count
        if is_kept
        else min(one.size, max(count, _share(one.size, rest, max(wanted - kept, 1))))
        for one, count, is_kept in zip(ranges, pieces, stays, strict=True)
    ]


def _share(size: int, total: int, wanted: int) -> int:
    """Return the nearest whole number to the share of `size` in `wanted`."""
    return (2 * size * wanted + total) // (2 * total)


def _cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [one.from_offset + one.size * number // count for number in range(count + 1)]
    return [OffsetRange(one.at, first, last) for first, last in pairwise(edges)]


def _require_few(count: int, option: str) -> None:
    if count > TASKS_MAX:
        raise OptionError(
            option,
            f"it asks for {count} tasks in one batch.",
            f"Set it so that there are at most {TASKS_MAX}, or limit a micro-batch with "
            "maxOffsetsPerTrigger.",
        )
