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

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from penstock.core.deferred import Deferred
from penstock.core.errors import (
    NotLeaderError,
    OffsetOutOfRangeError,
    PenstockError,
    UnknownTopicOrPartitionError,
)
from penstock.core.limits import FETCH_BYTES_MAX, PRODUCE_WAIT_MS_MAX
from penstock.core.types import TopicPartition
from penstock.records.control import MARKER_BYTES, Marker
from penstock.records.validation import ProduceRules, ValidatedBatch
from penstock.replication.admission import (
    Fetcher,
    divergence,
    follower_divergence,
    require_marker_place,
    require_replica,
)
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr import InSyncReplicas
from penstock.replication.partition import NO_EPOCH, PartitionState
from penstock.replication.partition_table import PartitionTable
from penstock.replication.ports import IsrWatch, SendThrottle, Timer
from penstock.replication.read_result import PartitionRead
from penstock.replication.stable_bytes import stable_bytes, stable_offset
from penstock.replication.waits import CommitWait, FetchWait, WaitTable
from penstock.storage.log.log_types import AppendInfo
from penstock.storage.log.markers import append_marker
from penstock.storage.log.open_transactions import NO_GUARD, AbortedTransaction
from penstock.storage.log.partition_log import PartitionLog

EMPTY = memoryview(b"")
ISOLATED_WAIT_SECONDS: Final = 2.0
"""Longest wait while the metadata store is not reached: late followers have another leader."""


class TransactionEnd(NamedTuple):
    """The end of a producer's transaction, and the coordinator that decided it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    is_strict: bool = False
    """Whether the epoch must be higher than the one of the records, as it is with transactions of
    version 2; a repeated marker has no effect."""


class ReplicaManager(PartitionTable):
    """All partitions of this node."""

    def __init__(
        self,
        timer: Timer,
        on_append: Callable[[], None],
        call_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`on_append` is called after each append, so that it is flushed.

        `call_soon` runs a call at the end of this turn of the event loop; replicas need it.
        """
        super().__init__()
        self._timer = timer
        self._on_append = on_append
        self._call_soon = call_soon
        self._is_stopping = False
        self.waits = WaitTable()
        self.appended_bytes = self.appended_batches = self.fetched_bytes = 0
        """Totals of all partitions, also of dropped ones."""
        self._alarm: float | None = None
        self.isr_watch: IsrWatch | None = None
        self.throttle: SendThrottle | None = None
        self.on_follower_synced: Callable[[HostedPartition], None] | None = None
        """Called when more of a follower's log is on the disk."""
        self.is_isolated: Callable[[], bool] = lambda: False
        """Whether this broker has not reached the metadata store for most of its session."""
        self.refused_cuts = self.refused_answers = 0
        """Answers of leaders that a follower did not carry out: a cut of committed records, and
        records that do not fit."""
        self._appended_to: dict[HostedPartition, None] = {}
        """Partitions whose followers are woken at the end of this turn."""

    # --- Which partitions are here ---

    def host(
        self, log: PartitionLog, topic_id: UUID, leader_epoch: int, rules: ProduceRules
    ) -> HostedPartition:
        """Start serving a partition whose only replica is here."""
        state = PartitionState(
            log.topic_partition,
            leader_epoch=leader_epoch,
            is_leader=True,
            durable_offset=log.durable_offset,
        )
        return self.host_replica(log, topic_id, rules, state)

    def host_replica(
        self, log: PartitionLog, topic_id: UUID, rules: ProduceRules, state: PartitionState
    ) -> HostedPartition:
        """Start serving a partition in a role."""
        assert log.topic_partition not in self, log.topic_partition
        partition = HostedPartition(log, topic_id, rules, state)
        self._add(partition)
        self._begin_role(partition)
        return partition

    def change_role(self, partition: HostedPartition, state: PartitionState) -> HostedPartition:
        """Begin another role or epoch; requests that wait for the former one are answered."""
        successor = partition.with_role(state)
        self._add(successor)
        gone = f"this broker does not lead {partition.name} any more"
        self.waits.failed(partition.waits, NotLeaderError(gone))
        self._begin_role(successor)
        return successor

    def _begin_role(self, partition: HostedPartition) -> None:
        state, log = partition.state, partition.log
        log.is_replicated = not (state.is_leader and state.in_sync is None)
        log.high_watermark = state.high_watermark
        if state.in_sync is not None:
            if log.end_offset > state.high_watermark:
                # Their sizes are not known: too many bytes wake a fetch that then waits on.
                partition.unseen.append((log.end_offset - 1, FETCH_BYTES_MAX))
            self._advance(partition)

    def add_followers(self, partition: HostedPartition, in_sync: InSyncReplicas) -> None:
        """The partition that this broker leads alone gets more replicas in the same epoch."""
        partition.state.in_sync = in_sync
        partition.waits.is_replicated = True
        partition.log.is_replicated = True
        partition.log.high_watermark = partition.state.high_watermark

    def now(self) -> float:
        """The time of the timer, in seconds."""
        return self._timer.now()

    def isr_changed(self, partition: HostedPartition) -> None:
        """The in-sync replicas of a partition that this broker leads have changed."""
        stable_before = stable_offset(partition)
        if partition.state.replicas_moved():
            self._moved(partition, stable_before)

    def drop(self, name: TopicPartition) -> None:
        """Stop serving a partition; requests that wait for it are answered."""
        partition = self._take_out(name)
        if partition is not None:
            partition.state.resign()
            self.waits.failed(partition.waits, UnknownTopicOrPartitionError(f"{name} was deleted"))

    def stop_waiting(self) -> None:
        """Answer waiting and later fetches at once with the records available: the broker stops."""
        self._is_stopping = True
        self.waits.end_fetches()

    def stop(self) -> None:
        """Answer all that waits still, after the last sync: a request would keep the broker."""
        self._timer.cancel()
        self.waits.end_commits(NotLeaderError("this broker stops"))

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
            self.note_append(partition, info, len(batch.buffer))
        elif partition.log.durable_offset != state.high_watermark:
            self._advance(partition)
        return info

    def note_append(self, partition: HostedPartition, info: AppendInfo, size: int) -> None:
        """Count a batch that is in the log, and let its sync begin."""
        partition.unseen.append((info.last_offset, size))
        partition.appended_records += info.last_offset - info.base_offset + 1
        partition.appended_bytes += size
        self.appended_bytes += size
        self.appended_batches += 1
        self._on_append()
        if partition.state.in_sync is not None:
            self._wake_followers(partition)
        elif partition.log.durable_offset != partition.state.high_watermark:
            self._advance(partition)

    def _wake_followers(self, partition: HostedPartition) -> None:
        """Let followers fetch at the end of this turn, when more records may have come."""
        self.answer_soon(partition)
        if self.isr_watch is not None:
            self.isr_watch.appended(partition)
        if partition.log.durable_offset != partition.state.local_durable_offset:
            self._advance(partition)

    def answer_soon(self, partition: HostedPartition) -> None:
        """Let followers whose fetches wait read again at the end of this turn."""
        if partition.waits.replica_fetches:
            if not self._appended_to:
                assert self._call_soon is not None, "a broker with replicas has an event loop"
                self._call_soon(self._answer_followers)
            self._appended_to[partition] = None

    def _answer_followers(self) -> None:
        partitions, self._appended_to = self._appended_to, {}
        for partition in partitions:
            self.waits.appended(partition.waits)

    def append_copied(self, partition: HostedPartition, records: memoryview) -> None:
        """Append records of the leader as they are. The caller follows in this epoch."""
        epoch = partition.state.leader_epoch
        copied = partition.log.append_replica(records, leader_epoch=epoch, allow_gaps=True)
        partition.appended_records += copied.last_offset - copied.first_offset + 1
        partition.appended_bytes += len(records)
        self.appended_bytes += len(records)
        self.appended_batches += copied.batch_count
        self._on_append()

    # --- Transactions ---

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
            require_marker_place(partition)
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
            self.note_append(partition, info, MARKER_BYTES)
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
        for partition, _ in targets:
            if partition.state.in_sync is not None and self.is_isolated():
                wait.is_doubtful = True
                deadline = min(deadline, self._timer.now() + ISOLATED_WAIT_SECONDS)
                break
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
        fetcher: Fetcher | None = None,
    ) -> PartitionRead:
        """Whole batches from `offset` up to the high watermark, or to the last stable offset.

        A follower reads up to the end of the log, synced or not, and its offset is its report.
        Raises `BlockingIOError` when the bytes are not in the page cache.
        """
        state, log = partition.state, partition.log
        if state.is_leader or fetcher is not None:
            state.require_leader(current_leader_epoch)
        else:
            state.require_follower(current_leader_epoch)
        high_watermark, start = state.high_watermark, log.log_start_offset
        stable = partition.last_stable_offset
        diverging = None
        if fetcher is not None:
            require_replica(partition, fetcher, current_leader_epoch)
            diverging = follower_divergence(partition, last_fetched_epoch, offset)
        elif last_fetched_epoch > NO_EPOCH:
            diverging = divergence(partition, last_fetched_epoch, offset)
        if diverging is not None or (fetcher is not None and offset < start):
            return PartitionRead(high_watermark, start, EMPTY, diverging, last_stable_offset=stable)
        if not start <= offset <= log.end_offset:
            raise OffsetOutOfRangeError(offset, start, log.end_offset)
        limit = stable if reads_committed else high_watermark
        if fetcher is not None:
            limit = self._follower_fetched(partition, fetcher, offset)
            high_watermark = state.high_watermark
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

    def _follower_fetched(self, partition: HostedPartition, fetcher: Fetcher, offset: int) -> int:
        """A follower has synced everything below its offset; return the end of what it may read."""
        in_sync, end_offset = partition.state.in_sync, partition.log.end_offset
        assert in_sync is not None, "`require_replica` has checked it"
        if fetcher.is_counted:
            now = self._timer.now()
            in_sync.report(fetcher.broker_id, fetcher.broker_epoch, offset, end_offset, now)
            self.isr_changed(partition)
            if self.isr_watch is not None:
                self.isr_watch.reported(partition, fetcher.broker_id)
        throttle = self.throttle
        if throttle is None or offset >= end_offset:
            return end_offset
        return offset if throttle.holds_back(partition, fetcher.broker_id) else end_offset

    def fetched(self, partition: HostedPartition, size: int, fetcher: Fetcher | None) -> None:
        """Count the records of a partition in an answer; `fetcher` is None for a consumer."""
        partition.fetched_bytes += size
        self.fetched_bytes += size
        if fetcher is not None and self.throttle is not None:
            self.throttle.sent(partition, fetcher.broker_id, size)

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

    # --- Reports of storage ---

    def on_durable(self, logs: Iterable[PartitionLog]) -> None:
        """These logs are on disk up to their `durable_offset`."""
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None and partition.log is log:
                self._advance(partition)

    def on_failure(self, logs: Iterable[PartitionLog], error: PenstockError) -> None:
        """These logs accept no more appends; their waiting appends will not be acknowledged."""
        pairs = [(self._partitions.get(log.topic_partition), log) for log in logs]
        failed = [one for one, log in pairs if one is not None and one.log is log]
        for partition in failed:
            self.waits.failed(partition.waits, error)
        if self.on_logs_failed is not None:
            self.on_logs_failed([partition.name for partition in failed])

    def _advance(self, partition: HostedPartition) -> None:
        """More of the local log is on the disk."""
        state = partition.state
        stable_before = stable_offset(partition)
        if state.local_durable(partition.log.durable_offset):
            self._moved(partition, stable_before)
        if partition.waits.local_commits:
            self.waits.locally_synced(partition.waits, state.local_durable_offset)
        elif not state.is_leader and self.on_follower_synced is not None:
            self.on_follower_synced(partition)

    def _moved(self, partition: HostedPartition, stable_before: int) -> None:
        """The high watermark has moved: answer the requests that waited for it."""
        high_watermark = partition.state.high_watermark
        if partition.state.in_sync is not None:
            partition.log.high_watermark = high_watermark
            if self.readers and self.readers.has(partition, self._timer.now()):
                self.answer_soon(partition)
        new_bytes = partition.take_visible(high_watermark)
        came_bytes = stable_bytes(partition, stable_before, new_bytes)
        if partition.waits.commits or partition.waits.fetches:
            self.waits.committed(partition.waits, high_watermark, new_bytes, came_bytes)

    def was_cut(self, partition: HostedPartition) -> None:
        """The end of a follower's log was removed, or all of it."""
        log = partition.log
        partition.state.cut(log.log_start_offset, log.end_offset, log.durable_offset)
        log.high_watermark = partition.state.high_watermark

    def follower_learned(self, partition: HostedPartition, high_watermark: int) -> None:
        """A follower got the high watermark of its leader."""
        state, log = partition.state, partition.log
        if state.leader_committed(high_watermark, log.end_offset):
            log.high_watermark = state.high_watermark
            self.waits.wake_fetches(partition.waits)

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
