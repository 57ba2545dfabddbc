"""`ReplicaManager`: append and read for any partition of this node, called by every front door.

It joins three things that know nothing of each other: the log (`storage`), the watermark
(`replication.partition`) and the parked requests (`replication.waits`). Guarantees:

- a produce is answered only when the high watermark has passed its records;
- a fetch sees no record at or above the high watermark, and one with `read_committed` none at or
  above the last stable offset, which is where the first undecided transaction begins;
- checking and parking happen in one step, so no append can fall in between unseen.

Everything here runs on one event loop and nothing in it waits; reads that would block are refused
with `BlockingIOError` and done again by the caller through the storage service.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.core.deferred import Deferred
from penstock.core.errors import (
    OffsetOutOfRangeError,
    PenstockError,
    UnknownTopicOrPartitionError,
)
from penstock.core.limits import PRODUCE_WAIT_MS_MAX
from penstock.core.types import INTERNAL_TOPICS, TopicPartition
from penstock.records.control import MARKER_BYTES, Marker
from penstock.records.validation import ProduceRules, ValidatedBatch
from penstock.replication.partition import NO_EPOCH, PartitionState
from penstock.replication.read_result import DivergingEpoch, PartitionRead
from penstock.replication.waits import CommitWait, FetchWait, PartitionWaits, WaitTable
from penstock.storage.log.leader_epochs import EpochEnd
from penstock.storage.log.log_types import AppendInfo
from penstock.storage.log.markers import append_marker
from penstock.storage.log.open_transactions import NO_GUARD, AbortedTransaction
from penstock.storage.log.partition_log import PartitionLog

EMPTY = memoryview(b"")


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction, and the coordinator that decided it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    is_strict: bool = False
    """Whether the epoch must be higher than the one of the records, as it is with transactions of
    version 2; a repeated marker has no effect."""


class Timer(Protocol):
    """The one timer: call `WaitTable.expire` at a moment of the loop's clock."""

    def now(self) -> float:
        """The loop's monotonic time in seconds."""
        ...

    def set_alarm(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at `moment`, instead of at the moment set before."""
        ...


class HostedPartition:
    """One partition that this node holds: log, watermark, rules for producers, waiting requests."""

    __slots__ = (
        "appended_bytes",
        "appended_records",
        "fetched_bytes",
        "is_internal",
        "log",
        "name",
        "rules",
        "state",
        "topic_id",
        "unseen",
        "unstable_bytes",
        "waits",
    )

    def __init__(
        self, log: PartitionLog, topic_id: UUID, leader_epoch: int, rules: ProduceRules
    ) -> None:
        self.name: TopicPartition = log.topic_partition
        self.is_internal: bool = self.name.topic in INTERNAL_TOPICS
        """Whether a coordinator writes here; clients do not."""
        self.topic_id = topic_id
        self.log = log
        self.rules = rules
        self.state = PartitionState(
            self.name, leader_epoch=leader_epoch, is_leader=True, durable_offset=log.durable_offset
        )
        self.waits = PartitionWaits(self.name)
        self.unseen: deque[tuple[int, int]] = deque()
        """(last offset, bytes) of each batch that the high watermark has not passed yet."""
        self.unstable_bytes = 0
        """Bound of the bytes that came below the high watermark while a transaction was open."""
        self.appended_bytes = self.appended_records = self.fetched_bytes = 0
        """Totals since it is served: appended, and returned by fetches."""

    @property
    def last_stable_offset(self) -> int:
        """All records below it are committed and their transactions decided."""
        high_watermark = self.state.high_watermark
        if self.log.producers.transactions.is_all_decided:
            return high_watermark
        return self.log.first_undecided(high_watermark)

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
        self.unserved: dict[TopicPartition, PenstockError] = {}
        self._partitions: dict[TopicPartition, HostedPartition] = {}
        self._by_topic: dict[str | bytes, dict[int, HostedPartition]] = {}
        """The same by topic, under its name and under the 16 bytes of its id."""
        self.waits = WaitTable()
        self.appended_bytes = self.appended_batches = self.fetched_bytes = 0
        """Totals of all partitions, also of dropped ones."""
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
        self.unserved.pop(partition.name, None)
        return partition

    def drop(self, name: TopicPartition) -> None:
        """Stop serving a partition; requests that wait for it are answered."""
        self.unserved.pop(name, None)
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
        self.unserved[name] = error

    def partition(self, name: TopicPartition) -> HostedPartition:
        """The partition; raises `UnknownTopicOrPartitionError`, or the error of its log."""
        partition = self._partitions.get(name)
        if partition is None:
            if name in self.unserved:
                raise self.unserved[name]
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
        """Answer waiting and later fetches at once with the records available: the broker stops."""
        self._is_stopping = True
        self.waits.end_fetches()

    # --- Append ---

    def append(
        self, partition: HostedPartition, batch: ValidatedBatch, guard: int = NO_GUARD
    ) -> AppendInfo:
        """Append one validated batch. When this returns, it is only in the page cache.

        The first batch of a transaction needs the guard that `begin_verification` returned. A batch
        without sequences, which only a coordinator writes, needs that verification confirmed.
        """
        state = partition.state
        state.require_leader(NO_EPOCH)
        info = partition.log.append(batch, leader_epoch=state.leader_epoch, guard=guard)
        if not info.is_duplicate:
            self._appended(partition, info, len(batch.buffer))
        elif partition.log.durable_offset != state.high_watermark:
            self._advance(partition)
        return info

    def _appended(self, partition: HostedPartition, info: AppendInfo, size: int) -> None:
        partition.unseen.append((info.last_offset, size))
        partition.appended_records += info.last_offset - info.base_offset + 1
        partition.appended_bytes += size
        self.appended_bytes += size
        self.appended_batches += 1
        self._on_append()
        if partition.log.durable_offset != partition.state.high_watermark:
            self._advance(partition)

    # --- Transactions ---

    def begin_verification(
        self,
        partition: HostedPartition,
        producer: tuple[int, int],
        base_sequence: int,
        now_ms: int,
        *,
        adds: bool,
    ) -> int:
        """Before a transaction's coordinator is asked about a producer (id, epoch): the guard.

        `NO_GUARD` means that the transaction is open here already and the coordinator need not be
        asked. `adds` says that the coordinator adds the partition instead of checking whether it is
        added.
        """
        partition.state.require_leader(NO_EPOCH)
        producer_id, epoch = producer
        producers = partition.log.producers
        entry = producers.entries.get(producer_id)
        if entry is not None and entry.epoch == epoch and entry.open_offset >= 0:
            return NO_GUARD
        return producers.verifications.begin(producer_id, base_sequence, epoch, now_ms, adds=adds)

    def confirm_verification(
        self, partition: HostedPartition, producer_id: int, guard: int
    ) -> None:
        """The coordinator confirmed: a coordinator of this node may append its next batch."""
        partition.log.producers.verifications.confirm(producer_id, guard)

    def append_marker(
        self,
        partition: HostedPartition,
        end: TransactionEnd,
        now_ms: int,
        timeout_ms: int = PRODUCE_WAIT_MS_MAX,
        on_appended: Callable[[], None] | None = None,
    ) -> Deferred[PenstockError | None]:
        """End a transaction here; the result is set when the marker is committed or refused.

        `on_appended` is called at once if it was not refused: a coordinator that keeps state of
        this partition in memory must see the marker before any later record.
        """
        answer: Deferred[PenstockError | None] = Deferred()
        wait = CommitWait(lambda: answer.set(wait.errors.get(partition.name)))
        state = partition.state
        try:
            state.require_leader(NO_EPOCH)
            info = append_marker(
                partition.log,
                Marker(end.commits, end.coordinator_epoch),
                producer_id=end.producer_id,
                producer_epoch=end.producer_epoch,
                leader_epoch=state.leader_epoch,
                now_ms=now_ms,
                is_strict=end.is_strict,
            )
            if on_appended is not None:
                on_appended()
            self._appended(partition, info, MARKER_BYTES)
            if info.last_offset >= state.high_watermark:
                self.wait_committed(wait, [(partition, info.last_offset)], timeout_ms)
            else:
                answer.set(None)
        except PenstockError as error:
            answer.set(error)
        return answer

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
        reads_committed: bool = False,
    ) -> PartitionRead:
        """Whole batches from `offset` up to the high watermark, or to the last stable offset.

        Raises `BlockingIOError` when the bytes are not in the page cache.
        """
        state, log = partition.state, partition.log
        state.require_leader(current_leader_epoch)
        high_watermark, start = state.high_watermark, log.log_start_offset
        stable = partition.last_stable_offset
        if last_fetched_epoch > NO_EPOCH:
            diverging = self._divergence(partition, last_fetched_epoch, offset)
            if diverging is not None:
                return PartitionRead(
                    high_watermark, start, EMPTY, diverging, last_stable_offset=stable
                )
        if not start <= offset <= log.end_offset:
            raise OffsetOutOfRangeError(offset, start, log.end_offset)
        limit = stable if reads_committed else high_watermark
        if offset >= limit or (bytes_max <= 0 and not at_least_one):
            partition.require_readable()
            return PartitionRead(high_watermark, start, EMPTY, last_stable_offset=stable)
        found = log.read(
            offset, bytes_max, offset_limit=limit, at_least_one=at_least_one, nowait=True
        )
        aborted: Sequence[AbortedTransaction] = ()
        if reads_committed and found.records:
            aborted = log.aborted_transactions(offset, found.next_offset, nowait=True)
        return PartitionRead(
            high_watermark, start, found.records, last_stable_offset=stable, aborted=aborted
        )

    def fetched(self, partition: HostedPartition, size: int) -> None:
        """Count the records of a partition in an answer."""
        partition.fetched_bytes += size
        self.fetched_bytes += size

    def wait_bytes(
        self, wait: FetchWait, partitions: Iterable[HostedPartition], timeout_ms: int
    ) -> bool:
        """Park a fetch until enough bytes became visible, something changed, or time is up.

        False when the broker stops: the fetch is not parked and must be answered now.
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

    # --- Reports of storage ---

    def on_durable(self, logs: Iterable[PartitionLog]) -> None:
        """These logs are on disk up to their `durable_offset`."""
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None and partition.log is log:
                self._advance(partition)

    def on_failure(self, logs: Iterable[PartitionLog], error: PenstockError) -> None:
        """These logs accept no more appends; their waiting appends will not be acknowledged."""
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None and partition.log is log:
                self.waits.failed(partition.waits, error)

    def _advance(self, partition: HostedPartition) -> None:
        is_undecided = not partition.log.producers.transactions.is_all_decided
        stable_before = partition.last_stable_offset if is_undecided else 0
        if partition.state.local_durable(partition.log.durable_offset):
            high_watermark = partition.state.high_watermark
            new_bytes = 0
            # Batches that were appended during the sync are not visible yet, and count later.
            unseen = partition.unseen
            while unseen and unseen[0][0] < high_watermark:
                new_bytes += unseen.popleft()[1]
            stable_bytes = new_bytes
            if is_undecided:
                stable_bytes = _stable_bytes(partition, stable_before, new_bytes)
            waits = partition.waits
            if waits.commits or waits.fetches:
                self.waits.committed(waits, high_watermark, new_bytes, stable_bytes)

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


def _stable_bytes(partition: HostedPartition, stable_before: int, new_bytes: int) -> int:
    """At most how many bytes came below the last stable offset as the high watermark moved.

    Too many wake a fetch that then waits on; too few would leave one waiting. When the last stable
    offset moves and does not catch up, the bytes between are not subtracted.
    """
    partition.unstable_bytes += new_bytes
    stable_offset = partition.last_stable_offset
    if stable_offset == stable_before:
        return 0
    stable_bytes = partition.unstable_bytes
    if stable_offset == partition.state.high_watermark:
        partition.unstable_bytes = 0
    return stable_bytes
