"""`Lookups`: the driver's requests to the brokers; their number grows with the brokers only.

It sends one Metadata request for the topics, one ListOffsets for each leader and each kind of
offset (first, last, at a time), and one DescribeLogDirs for each leader if sizes are needed. A
thousand partitions cost the same calls as one.

It returns the input of `starting`, `planning` and `data_loss`. It makes one decision itself: a
response that would mean lost data is retried up to `fetchOffset.numRetries` times, from one broker
after another, before it is accepted. A broker that has not caught up or has just become leader may
return old values for a moment.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from penstock.client.cluster import Cluster
from penstock.client.cluster_view import TopicDescription
from penstock.client.epoch_ends import find_epoch_ends
from penstock.client.log_sizes import find_log_sizes
from penstock.client.offset_lookup import FoundOffset
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.spark.errors import SubscriptionError
from penstock.spark.loss.data_loss import ends_early, suspects
from penstock.spark.offsets import PartitionPosition, StreamOffset
from penstock.spark.planning import estimate_record_bytes
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.starting import (
    EARLIEST,
    LATEST,
    Position,
    lookups,
    offsets_from,
    without_match,
)
from penstock.spark.source.subscription import Assignment, assign, require_present

SIZES_SECONDS_MAX: Final = 60.0
"""The maximum age of the record size estimate: it changes slowly, and a micro-batch is short."""

Sleep = Callable[[float], None]


class Lookups:
    """The lookups of one query in one cluster."""

    def __init__(self, cluster: Cluster, options: SourceOptions, sleep: Sleep = time.sleep) -> None:
        self._cluster = cluster
        self._options = options
        self._sleep = sleep
        self._described: Mapping[str, TopicDescription] = {}
        self._described_seconds = float("-inf")
        self._record_bytes: dict[TopicPartition, float] = {}
        self._sized: frozenset[TopicPartition] = frozenset()
        self._sized_seconds = float("-inf")

    def assignment(self) -> Assignment:
        """Return the partitions to read; the options limit the age of this list."""
        ttl_seconds = self._options.lookups.topics_ttl_ms / 1000
        now_seconds = self._cluster.clock.monotonic()
        if ttl_seconds < 0 or now_seconds - self._described_seconds >= ttl_seconds:
            self._described = self._cluster.describe(self._options.subscription.names)
            self._described_seconds = now_seconds
        return assign(self._options.subscription, self._described)

    def first_assignment(self) -> Assignment:
        """Return the partitions for a new query; its named topics must exist.

        A new topic may need a moment until every broker knows it.
        """
        attempts_left = self._options.lookups.attempts
        while True:
            found = self.assignment()
            try:
                require_present(self._options.subscription, self._described, found)
            except SubscriptionError:
                attempts_left -= 1
                if attempts_left <= 0:
                    raise
                self._look_anew()
            else:
                return found

    def latest(self) -> StreamOffset:
        """Return the end of every partition to read."""
        attempts_left = self._options.lookups.attempts
        while True:
            try:
                return self._latest(self.assignment())
            except UnknownTopicOrPartitionError:
                # The partition was deleted between the two requests; the next list of topics is
                # without it.
                attempts_left -= 1
                if attempts_left <= 0:
                    raise
                self._look_anew()

    def settled(self, start: StreamOffset) -> StreamOffset:
        """Return the ends; retry the lookup while the ends would mean lost data."""
        attempts = self._options.lookups.attempts
        latest = self.latest()
        for _ in range(attempts - 1):
            if not suspects(start, latest):
                return latest
            self._look_anew()
            latest = self.latest()
        return self._with_unstable(start, latest) if self._options.is_read_committed else latest

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offsets of these partitions."""
        found = self._find(dict.fromkeys(partitions, EARLIEST))
        return {at: one.offset for at, one in found.items()}

    def positions(
        self, position: Position, assignment: Assignment, *, may_be_latest: bool
    ) -> dict[TopicPartition, PartitionPosition]:
        """Return the current offsets for a position of the options."""
        assigned = assignment.partitions
        found = self._found(lookups(position, assigned))
        missing = without_match(position, found, may_be_latest=may_be_latest)
        found |= self._found(dict.fromkeys(missing, LATEST))
        return offsets_from(position, assigned, found)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the end offsets of these leader epochs in the current logs."""
        return find_epoch_ends(self._cluster, epochs) if epochs else {}

    def record_bytes(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Return the mean size of a record by partition; partitions of unknown size are absent."""
        now_seconds = self._cluster.clock.monotonic()
        is_old = now_seconds - self._sized_seconds > SIZES_SECONDS_MAX
        if ends and (is_old or not self._sized.issuperset(ends)):
            try:
                sizes = find_log_sizes(self._cluster, ends)
                self._record_bytes = estimate_record_bytes(sizes, self.earliest(ends), ends)
            except UnknownTopicOrPartitionError:
                # The partition was just deleted; a missing estimate does not fail the plan.
                self._record_bytes = {}
            self._sized, self._sized_seconds = frozenset(ends), now_seconds
        return self._record_bytes

    def first_position(self) -> StreamOffset:
        """Return the start of a new stream."""
        found = self.first_assignment()
        positions = self.positions(
            self._options.start, found, may_be_latest=self._options.may_start_at_latest
        )
        return StreamOffset(positions, found.topic_ids, self._cluster_id(), is_initial=True)

    def _latest(self, found: Assignment) -> StreamOffset:
        ends = self._found(dict.fromkeys(found.partitions, LATEST))
        return StreamOffset(ends, found.topic_ids, self._cluster_id())

    def _with_unstable(self, start: StreamOffset, latest: StreamOffset) -> StreamOffset:
        """Return the ends; with `read_committed`, a position may be after the last stable offset.

        Such a position is not a loss while the log itself reaches that far: the query has read
        uncommitted records before.
        """
        short = ends_early(start, latest)
        ends = self._cluster.find_offsets(dict.fromkeys(short, LATEST)) if short else {}
        kept = {
            at: start.positions[at] for at, end in ends.items() if end >= start.positions[at].offset
        }
        return StreamOffset({**latest.positions, **kept}, latest.topic_ids, latest.cluster_id)

    def _look_anew(self) -> None:
        """Wait, and send the next request to another broker."""
        self._described_seconds = float("-inf")
        self._cluster.forget_leaders()
        self._sleep(self._options.lookups.pause_ms / 1000)

    def _found(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PartitionPosition]:
        return {
            at: PartitionPosition(one.offset, one.leader_epoch)
            for at, one in self._find(wanted).items()
        }

    def _find(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        if not wanted:
            return {}
        return self._cluster.look_up_offsets(
            wanted, is_read_committed=self._options.is_read_committed
        )

    def _cluster_id(self) -> str | None:
        return self._cluster.cluster_id() or None
