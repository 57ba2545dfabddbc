"""Decides which offsets a user skips: declared losses of a table (pure).

A pipeline reads each partition in order, so a record that can never be read, or a useless backlog,
delays everything behind it. A skip moves the position in the table forward, and
records the offsets in between as lost. It never moves back: rows would be there twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.core.types import TopicPartition
from penstock.spark.errors import SparkQueryError, first_of
from penstock.spark.offsets import NO_EPOCH
from penstock.spark.tables.commit.decisions import Driver, Offer
from penstock.spark.tables.commit.note import (
    SKIPPED,
    BatchRanges,
    CommitNote,
    LostRange,
    PartitionRange,
)

_NAMED_MAX: Final = 10
"""The number of partitions named in an error."""


class SkipRefusedError(SparkQueryError):
    """These offsets cannot be skipped; nothing was changed."""


class Bounds(NamedTuple):
    """The first offset of a partition, and its end."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class SkipPlan:
    """The offsets to skip, in the order of the partitions."""

    pipeline: str
    sequence: int
    """The number of the pipeline's last commit at the time of the plan."""
    ranges: tuple[PartitionRange, ...]
    topic_ids: Mapping[str, str]
    cluster_id: str | None

    @property
    def offset_count(self) -> int:
        """The number of skipped offsets."""
        return sum(one.end_offset - one.start_offset for one in self.ranges)

    def offer(self, driver: Driver, at_ms: int) -> Offer:
        """Return the batch without rows that declares the loss."""
        lost = tuple(
            LostRange(*one.at, one.start_offset, one.end_offset, at_ms, SKIPPED)
            for one in self.ranges
        )
        ranges = BatchRanges(self.ranges, self.topic_ids, self.cluster_id)
        return Offer(driver, ranges, lost=lost, at_ms=at_ms)


def plan_skip(
    note: CommitNote,
    targets: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, Bounds],
    topic_ids: Mapping[str, str],
    cluster_id: str | None,
) -> SkipPlan:
    """Return the offsets between the table's position and each target.

    A target at or before the position changes nothing. A partition that the pipeline has not begun
    is skipped from its first offset.
    """
    ranges = []
    for at, target in sorted(targets.items()):
        bound = _known(at, bounds)
        held = note.held.get(at)
        start = bound.begin if held is None else held.end_offset
        if target > bound.end:
            raise SkipRefusedError(
                f"{at} ends at offset {bound.end}, so offset {target} is not there yet. "
                f"Skip up to {bound.end} at most; `penstock table status --partitions` shows the "
                "ends."
            )
        if target > start:
            epoch = NO_EPOCH if held is None else held.leader_epoch
            ranges.append(PartitionRange(*at, start, target, epoch))
    topics = {one.topic for one in ranges}
    ids = {topic: topic_ids[topic] for topic in topics if topic in topic_ids}
    return SkipPlan(note.pipeline, note.sequence, tuple(ranges), ids, cluster_id)


def require_forward(note: CommitNote, at: TopicPartition, target: int) -> None:
    """Raise if the table has reached the target of this partition already."""
    held = note.held.get(at)
    if held is not None and target <= held.end_offset:
        raise SkipRefusedError(
            f"pipeline '{note.pipeline}' is at offset {held.end_offset} of {at} already, so there "
            f"is nothing to skip up to {target}. A pipeline never goes back; records before its "
            "first offset are written by `penstock table backfill`."
        )


def _known(at: TopicPartition, bounds: Mapping[TopicPartition, Bounds]) -> Bounds:
    if at in bounds:
        return bounds[at]
    raise SkipRefusedError(
        f"the pipeline reads no partition {at}. It reads {_first(sorted(bounds))}."
    )


def _first(partitions: Sequence[TopicPartition]) -> str:
    return first_of([str(one) for one in partitions], _NAMED_MAX)
