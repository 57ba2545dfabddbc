"""`ReplicaManager`: append and read for any partition this node holds; what every front door calls.

It joins three things that know nothing of each other: the log (`storage`), the watermark
(`replication.partition`) and the parked requests (`replication.waits`). What it guarantees:

- a produce is answered only when the high watermark has passed its records;
- a fetch sees nothing at or above the high watermark;
- checking and parking happen in one step, so no append can fall in between unseen.

Everything here runs on one event loop and nothing in it waits; reads that would block are refused
with `BlockingIOError` and done again by the caller through the storage service.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.core.errors import (
    OffsetOutOfRangeError,
    PenstockError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.records.validation import ProduceRules, ValidatedBatch
from penstock.replication.partition import NO_EPOCH, PartitionState
from penstock.replication.waits import CommitWait, FetchWait, PartitionWaits, WaitTable
from penstock.storage.leader_epochs import EpochEnd
from penstock.storage.log_types import AppendInfo
from penstock.storage.partition_log import PartitionLog

EMPTY = memoryview(b"")


class Timer(Protocol):
    """The one timer: call `WaitTable.expire` at a moment of the loop's clock."""

    def now(self) -> float:
        """The loop's monotonic time in seconds."""
        ...

    def set_alarm(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at `moment`, instead of at the moment set before."""
        ...


class DivergingEpoch(NamedTuple):
    """Where the reader's history leaves ours (KIP-595): the largest epoch we share, and its end."""

    epoch: int
    end_offset: int


class PartitionRead:
    """What a fetch of one partition found."""

    __slots__ = ("diverging_epoch", "high_watermark", "log_start_offset", "records")

    def __init__(
        self,
        high_watermark: int,
        log_start_offset: int,
        records: memoryview | bytes,
        diverging_epoch: DivergingEpoch | None = None,
    ) -> None:
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.records = records
        self.diverging_epoch = diverging_epoch


class HostedPartition:
    """One partition that this node holds: log, watermark, rules for producers, waiting requests."""

    __slots__ = (
        "log",
        "name",
        "rules",
        "state",
        "topic_id",
        "unseen",
        "waits",
    )

    def __init__(
        self, log: PartitionLog, topic_id: UUID, leader_epoch: int, rules: ProduceRules
    ) -> None:
        self.name: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.log = log
        self.rules = rules
        self.state = PartitionState(
            self.name, leader_epoch=leader_epoch, is_leader=True, durable_offset=log.durable_offset
        )
        self.waits = PartitionWaits(self.name)
        self.unseen: deque[tuple[int, int]] = deque()
        """(last offset, bytes) of each batch that the high watermark has not passed yet."""

    def require_readable(self) -> None:
        """Raise the reason why the log is not served, if there is one."""
        if self.log.problem is not None:
            raise self.log.problem

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where the largest epoch that is not above `epoch` ends.

        The current one ends where the log does, also before anything was written in it.
        """
        if epoch == self.state.leader_epoch:
            return EpochEnd(epoch, self.log.end_offset)
        return self.log.end_offset_for_epoch(epoch)


class ReplicaManager:
    """All partitions of this node."""

    def __init__(self, timer: Timer, on_append: Callable[[], None]) -> None:
        """`on_append` is called after each append, so that it is flushed."""
        self._timer = timer
        self._on_append = on_append
        self._is_stopping = False
        self._unserved: dict[TopicPartition, PenstockError] = {}
        self._partitions: dict[TopicPartition, HostedPartition] = {}
        self._by_topic: dict[str | bytes, dict[int, HostedPartition]] = {}
        """The same by topic, under its name and under the 16 bytes of its id."""
        self.waits = WaitTable()
        self._alarm: float | None = None

    # --- Which partitions are here ---

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, name: TopicPartition) -> bool:
        return name in self._partitions

    def __iter__(self) -> Iterator[HostedPartition]:
        return iter(self._partitions.values())

    def host(
        self, log: PartitionLog, topic_id: UUID, leader_epoch: int, rules: ProduceRules
    ) -> HostedPartition:
        """Start serving a partition."""
        assert log.topic_partition not in self._partitions, log.topic_partition
        partition = HostedPartition(log, topic_id, leader_epoch, rules)
        self._partitions[partition.name] = partition
        for topic in (partition.name.topic, topic_id.bytes):
            self._by_topic.setdefault(topic, {})[partition.name.partition] = partition
        self._unserved.pop(partition.name, None)
        return partition

    def drop(self, name: TopicPartition) -> None:
        """Stop serving a partition; whoever waits for it is told."""
        self._unserved.pop(name, None)
        partition = self._partitions.pop(name, None)
        if partition is not None:
            for topic in (name.topic, partition.topic_id.bytes):
                siblings = self._by_topic[topic]
                del siblings[name.partition]
                if not siblings:
                    del self._by_topic[topic]
            self.waits.failed(partition.waits, UnknownTopicOrPartitionError(f"{name} was deleted"))

    def refuse(self, name: TopicPartition, error: PenstockError) -> None:
        """Answer every request for a partition with an error: its log cannot be served."""
        self._unserved[name] = error

    def partition(self, name: TopicPartition) -> HostedPartition:
        """The partition, or `UnknownTopicOrPartitionError`, or why it is not served."""
        partition = self._partitions.get(name)
        if partition is None:
            if name in self._unserved:
                raise self._unserved[name]
            raise UnknownTopicOrPartitionError(f"there is no partition {name} here")
        return partition

    def find(self, topic: str | bytes, partition: int) -> HostedPartition | None:
        """The partition of a topic, by its name or the 16 bytes of its id, if it is served."""
        siblings = self._by_topic.get(topic)
        return None if siblings is None else siblings.get(partition)

    def is_served(self, name: TopicPartition) -> bool:
        """Whether the partition is here and its log is whole."""
        partition = self._partitions.get(name)
        return partition is not None and partition.log.problem is None

    def stop_waiting(self) -> None:
        """Answer waiting fetches with what there is, now and from now on: the broker stops."""
        self._is_stopping = True
        self.waits.end_fetches()

    # --- Append ---

    def append(self, partition: HostedPartition, batch: ValidatedBatch) -> AppendInfo:
        """Append one validated batch. It is in the page cache when this returns, no more."""
        state = partition.state
        state.require_leader(NO_EPOCH)
        info = partition.log.append(batch, leader_epoch=state.leader_epoch)
        if not info.is_duplicate:
            partition.unseen.append((info.last_offset, len(batch.buffer)))
            self._on_append()
        if partition.log.durable_offset != state.high_watermark:
            self._advance(partition)
        return info

    def wait_committed(
        self, wait: CommitWait, targets: list[tuple[HostedPartition, int]], timeout_ms: int
    ) -> None:
        """Park a produce until each partition's high watermark has passed the given last offset."""
        deadline = self._timer.now() + timeout_ms / 1000
        self.waits.park_commit(
            wait, [(partition.waits, last + 1) for partition, last in targets], deadline
        )
        self._set_alarm()

    # --- Read ---

    def read(
        self,
        partition: HostedPartition,
        offset: int,
        bytes_max: int,
        *,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        at_least_one: bool,
        nowait: bool = True,
    ) -> PartitionRead:
        """Whole batches from `offset` up to the high watermark.

        With `nowait`, raises `BlockingIOError` when the bytes are not in the page cache.
        """
        state, log = partition.state, partition.log
        state.require_leader(current_leader_epoch)
        high_watermark, start = state.high_watermark, log.log_start_offset
        if last_fetched_epoch > NO_EPOCH:
            diverging = self._divergence(partition, last_fetched_epoch, offset)
            if diverging is not None:
                return PartitionRead(high_watermark, start, EMPTY, diverging)
        if not start <= offset <= log.end_offset:
            raise OffsetOutOfRangeError(offset, start, log.end_offset)
        if offset >= high_watermark or (bytes_max <= 0 and not at_least_one):
            partition.require_readable()
            return PartitionRead(high_watermark, start, EMPTY)
        found = log.read(
            offset,
            bytes_max,
            offset_limit=high_watermark,
            at_least_one=at_least_one,
            nowait=nowait,
        )
        return PartitionRead(high_watermark, start, found.records)

    def wait_bytes(
        self, wait: FetchWait, partitions: Iterable[HostedPartition], timeout_ms: int
    ) -> bool:
        """Park a fetch until enough bytes became visible, something changed, or time is up.

        False when the broker stops: nobody waits any more, so the fetch is to be answered now.
        """
        if self._is_stopping:
            return False
        deadline = self._timer.now() + timeout_ms / 1000
        self.waits.park_fetch(wait, tuple(p.waits for p in partitions), deadline)
        self._set_alarm()
        return True

    def _divergence(
        self, partition: HostedPartition, last_fetched_epoch: int, offset: int
    ) -> DivergingEpoch | None:
        log = partition.log
        if last_fetched_epoch == partition.state.leader_epoch and offset <= log.end_offset:
            return None
        epoch, end_offset = partition.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise OffsetOutOfRangeError(offset, log.log_start_offset, log.end_offset)
        if epoch < last_fetched_epoch or end_offset < offset:
            return DivergingEpoch(epoch, end_offset)
        return None

    # --- What storage reports ---

    def on_durable(self, logs: Iterable[PartitionLog]) -> None:
        """These logs are on disk up to their `durable_offset`."""
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None and partition.log is log:
                self._advance(partition)

    def on_failure(self, logs: Iterable[PartitionLog], error: PenstockError) -> None:
        """These logs take no more appends; nothing of them that waits will be acknowledged."""
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None and partition.log is log:
                self.waits.failed(partition.waits, error)

    def _advance(self, partition: HostedPartition) -> None:
        if partition.state.local_durable(partition.log.durable_offset):
            high_watermark = partition.state.high_watermark
            new_bytes = 0
            # What was appended while the disk synced is not seen yet, and counts later.
            unseen = partition.unseen
            while unseen and unseen[0][0] < high_watermark:
                new_bytes += unseen.popleft()[1]
            waits = partition.waits
            if waits.commits or waits.fetches:
                self.waits.committed(waits, high_watermark, new_bytes)

    # --- Deadlines ---

    def _set_alarm(self) -> None:
        deadline = self.waits.next_deadline()
        if deadline is not None and (self._alarm is None or deadline < self._alarm):
            self._alarm = deadline
            self._timer.set_alarm(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self.waits.expire(self._timer.now())
        self._set_alarm()
