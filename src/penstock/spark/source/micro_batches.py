"""`MicroBatches`: the offsets of a stream's micro-batches, and the tasks of each batch.

It implements Spark's stream API without Spark: the first offset, the end of the next batch within
the limits, and the tasks of a batch. The pure modules around it decide; this module calls them in
order.

Guarantees: the two offset documents of a batch alone decide it, so a repeated batch reads the same
offsets, even if the topics have changed. Records that are no longer readable are reported as a
loss. No offset is read twice or left out: each batch begins at the end of the previous one. While
nothing has changed, the same document is returned, text for text, and Spark runs no batch.

With AvailableNow the ends are looked up once, and no batch goes beyond them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.spark import planning
from penstock.spark.errors import OptionError
from penstock.spark.loss import data_loss
from penstock.spark.loss.channel import LossChannel
from penstock.spark.loss.losses import LossCounter
from penstock.spark.offsets import PartitionPosition, StreamOffset, read_offset, write_offset
from penstock.spark.planning import (
    OffsetRange,
    ReadLimits,
    ReadTask,
    SealedSplit,
    split_ranges,
)
from penstock.spark.sealed.sealed_segments import Known, SealedSegments
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.segments import segments_of

Document = dict[str, Any]

SEALED_LAG_BYTES_MIN: Final = 1_073_741_824
"""The lag, 1 GiB, above which a micro-batch asks for a lease: about a second of reading. A smaller
one costs the broker less through Fetch than many leases do."""


class _Decided(NamedTuple):
    """The last decided batch."""

    document: Document
    """The end of the batch."""
    ranges: list[OffsetRange]
    """The readable ranges of the batch."""
    latest: StreamOffset
    """The partition ends at the time of the decision."""


class MicroBatches:
    """The batches of one run of one stream."""

    def __init__(
        self,
        lookups: Lookups,
        options: SourceOptions,
        clock: Clock | None = None,
        channel: LossChannel | None = None,
        sealed: SealedSegments | None = None,
    ) -> None:
        """Create the batches; tasks report their losses through `channel`."""
        self._lookups = lookups
        self._options = options
        self._clock: Clock = clock or SystemClock()
        self._channel = channel
        self._sealed = sealed or segments_of(options)
        self._losses = LossCounter(fail_on_data_loss=options.fail_on_data_loss)
        self._first: Document | None = None
        self._target: StreamOffset | None = None
        """The end of an AvailableNow run."""
        self._seen: StreamOffset | None = None
        """The partition ends of the last lookup."""
        self._checked_epochs: dict[TopicPartition, tuple[PartitionPosition, int]] = {}
        self._triggered_ms: int | None = None
        self._plan: tuple[Document, Document, list[ReadTask]] | None = None
        self._decided: _Decided | None = None

    def initial_offset(self) -> Document:
        """Return the start of the stream; all calls of Spark in a run return the same."""
        if self._first is None:
            self._first = write_offset(self._lookups.first_position())
        return self._first

    def prepare_available_now(self) -> None:
        """Exclude records that are written after this call."""
        self._target = self._lookups.latest()

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets of these partitions; deleted partitions are left out."""
        wanted = list(partitions)
        try:
            return self._lookups.earliest(wanted)
        except UnknownTopicOrPartitionError:
            if len(wanted) <= 1:
                return {}
            return {at: first for one in wanted for at, first in self.earliest([one]).items()}

    def latest_offset(self, document: Document, limits: ReadLimits) -> Document:
        """Return the end of the batch that begins at `document`; without a batch, `document`."""
        self._hear_tasks()
        start = read_offset(document)
        latest = self._ends_for(start)
        epoch_ends = self._epoch_ends(start, latest)
        losses = data_loss.changes(start, latest, epoch_ends)
        earliest = self._lookups.earliest(data_loss.needs_earliest(start, latest, losses))
        losses += data_loss.late_starts(start, earliest, losses)
        self._losses.report(losses)
        begins = data_loss.begins(start, latest, losses, epoch_ends, earliest)
        ends = {at: max(end.offset, begins[at]) for at, end in latest.positions.items()}
        # Record the loss now; otherwise every trigger would report it again.
        if not losses and self._must_wait(begins, ends, limits):
            return document
        untils = planning.admit(begins, ends, limits, self._sizes_for(limits, ends))
        moved = {at: begin for at, begin in begins.items() if _moves(start, at, begin)}
        is_same = {at: one.offset for at, one in start.positions.items()} == untils
        if is_same and not moved and not losses and not start.is_initial:
            return document
        end = StreamOffset(
            {
                at: PartitionPosition(until, latest.positions[at].leader_epoch)
                for at, until in untils.items()
            },
            latest.topic_ids,
            latest.cluster_id,
            begins if start.is_initial else moved,
        )
        return self._decide(begins, end, latest)

    def report(self) -> Document | None:
        """Return the partition ends of the last lookup, for the progress of the query."""
        self._hear_tasks()
        if self._seen is None:
            return None
        document = write_offset(self._seen)
        group = {"id": self._options.group_id, "prefix": self._options.group_prefix}
        if known := {name: text for name, text in group.items() if text is not None}:
            document["group"] = known
        if self._losses.partitions:
            document["skipped"] = {
                "records": self._losses.offsets,
                "partitions": self._losses.partitions,
            }
        return document

    def plan(self, start_document: Document, end_document: Document) -> list[ReadTask]:
        """Return the tasks of a batch. Spark may call several times; losses are reported once."""
        if start_document == end_document:
            # The `begins` of a document belong to the batch that ends with this document.
            return []
        if self._plan is not None and self._plan[:2] == (start_document, end_document):
            return self._plan[2]
        tasks = self._planned(read_offset(start_document), end_document)
        self._plan = (start_document, end_document, tasks)
        return tasks

    def _decide(
        self, begins: Mapping[TopicPartition, int], end: StreamOffset, latest: StreamOffset
    ) -> Document:
        """Report losses before the progress report, so that the batch's progress has them."""
        document = write_offset(end)
        try:
            ranges = self._readable(_ranges(begins, end), end, latest)
            self._decided = _Decided(document, ranges, latest)
        except UnknownTopicOrPartitionError:
            # The partition was deleted after the lookup of the ends; the plan looks it up again and
            # reports it.
            self._decided = None
        return document

    def _planned(self, start: StreamOffset, end_document: Document) -> list[ReadTask]:
        end = read_offset(end_document)
        decided = self._decided
        if decided is not None and decided.document == end_document:
            ranges, latest = decided.ranges, decided.latest
            is_fresh = self._target is None
        else:
            ranges, latest = _ranges(self._begins(start, end), end), end
            is_fresh = False
        if ranges and not is_fresh:
            # A repeated batch may be days old, and AvailableNow has the ends of the start of its
            # run.
            latest = self._lookups.settled(end)
            ranges = self._readable(ranges, end, latest)
        if not ranges:
            return []
        ends = {one.at: latest.positions[one.at].offset for one in ranges}
        self._hear_tasks()  # The last call for the tasks of the previous batch.
        losses_to = None if self._channel is None else self._channel.begin_batch()
        sizes = self._lookups.record_bytes(ends)
        known = {
            one.at: Known(end.topic_ids.get(one.at.topic), latest.positions[one.at].leader_epoch)
            for one in ranges
        }
        return [
            ReadTask(one, *known[one.at], losses_to, split)
            for one, split in self._split(ranges, ends, known, end.cluster_id, sizes)
        ]

    def _split(
        self,
        ranges: list[OffsetRange],
        ends: Mapping[TopicPartition, int],
        known: Mapping[TopicPartition, Known],
        cluster_id: str | None,
        sizes: Mapping[TopicPartition, float],
    ) -> list[tuple[OffsetRange, SealedSplit | None]]:
        """Return the ranges of the tasks; a batch that lags reads sealed segments as files."""
        if self._sealed.is_on:
            # The tasks of the last batch have ended.
            self._sealed.release()
            if planning.lag_bytes(ranges, ends, sizes) > SEALED_LAG_BYTES_MIN:
                return self._sealed.plan(ranges, known, cluster_id, sizes)
        return [(one, None) for one in split_ranges(ranges, self._options.splitting, sizes)]

    def stop(self) -> None:
        """End the leases of the last batch."""
        self._sealed.release()

    def _begins(self, start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, int]:
        """Return the first offsets of a batch, from its two documents."""
        unknown = [at for at in end.positions if at not in end.begins and at not in start.positions]
        return {
            **{at: position.offset for at, position in start.positions.items()},
            **self._lookups.earliest(unknown),
            **end.begins,
        }

    def _readable(
        self, ranges: list[OffsetRange], end: StreamOffset, latest: StreamOffset
    ) -> list[OffsetRange]:
        """Return the readable parts of these ranges; report the rest as lost."""
        present = [one.at for one in ranges if one.at in latest.positions]
        kept, losses = data_loss.readable(ranges, end, latest, self._lookups.earliest(present))
        self._losses.report(losses)
        return kept

    def _hear_tasks(self) -> None:
        """Report the tasks' losses on the driver, too: the tasks' logs are on the executors."""
        if self._channel is not None:
            self._losses.report(self._channel.heard())

    def _ends_for(self, start: StreamOffset) -> StreamOffset:
        """Return the ends for the comparison and for the batch."""
        latest = self._target or self._lookups.latest()
        if data_loss.suspects(start, latest):
            latest = self._lookups.settled(start)
            if self._target is not None:
                latest = data_loss.within(latest, self._target, start)
        self._seen = latest
        return latest

    def _epoch_ends(self, start: StreamOffset, latest: StreamOffset) -> dict[TopicPartition, int]:
        """Return the end offsets of our positions' epochs, for partitions with a newer leader.

        A verified position is not looked up again while the leader stays.
        """
        seen = {
            at: (start.positions[at], latest.positions[at].leader_epoch)
            for at in data_loss.doubtful_epochs(start, latest)
        }
        wanted = {
            at: pair[0].leader_epoch
            for at, pair in seen.items()
            if self._checked_epochs.get(at) != pair
        }
        ends = self._lookups.epoch_ends(wanted)
        right = {at: seen[at] for at in wanted if not 0 <= ends[at] < seen[at][0].offset}
        self._checked_epochs = {
            **{at: pair for at, pair in self._checked_epochs.items() if seen.get(at) == pair},
            **right,
        }
        return ends

    def _must_wait(
        self,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        limits: ReadLimits,
    ) -> bool:
        if limits.offsets_min is None or self._target is not None:
            # An AvailableNow run does not wait for more records.
            return False
        now_ms = self._clock.now_ms()
        waited_ms = limits.delay_ms_max
        if self._triggered_ms is not None:
            waited_ms = now_ms - self._triggered_ms
        if planning.must_wait(begins, ends, limits, waited_ms):
            return True
        self._triggered_ms = now_ms
        return False

    def _sizes_for(
        self, limits: ReadLimits, ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, float]:
        if limits.bytes_max is None:
            return {}
        sizes = self._lookups.record_bytes(ends)
        if not sizes and any(ends.values()):
            raise OptionError(
                "maxBytesPerTrigger",
                "the brokers do not report the sizes of logs (DescribeLogDirs) to this client.",
                "Set maxOffsetsPerTrigger instead, or allow Describe on the cluster.",
            )
        return sizes


def _ranges(begins: Mapping[TopicPartition, int], end: StreamOffset) -> list[OffsetRange]:
    return [
        OffsetRange(at, begins[at], position.offset)
        for at, position in end.positions.items()
        if position.offset > begins[at]
    ]


def _moves(start: StreamOffset, at: TopicPartition, begin: int) -> bool:
    return at not in start.positions or start.positions[at].offset != begin
