"""Parked requests: a produce that waits to be committed, a fetch that waits for bytes. Pure.

The table is bounded, and an event wakes exactly the waits that it satisfies; nothing polls. A wait
is registered in the same step that found it unsatisfied, so no wake-up can fall in between.
Deadlines are in `core.deadlines`; the one timer is `replication.manager`'s.

A wait calls its `on_done` once. The caller that parked it decides what follows: an answer, an
error, or another read of the log.
"""

from collections import deque
from collections.abc import Callable

from penstock.core.deadlines import DeadlineTable
from penstock.core.errors import (
    NotLeaderError,
    PenstockError,
    RequestTimedOutError,
    TooManyWaitersError,
)
from penstock.core.limits import PARKED_PARTITIONS_MAX, PARKED_REQUESTS_MAX
from penstock.core.types import TopicPartition


class CommitWait:
    """A produce request: done when every batch it appended is committed, failed or timed out."""

    __slots__ = (
        "deadline_key",
        "errors",
        "is_done",
        "is_doubtful",
        "is_local",
        "on_done",
        "pending",
    )

    def __init__(self, on_done: Callable[[], None], *, is_local: bool = False) -> None:
        self.on_done = on_done
        self.is_local = is_local
        """Whether the leader's own sync is enough (`acks=1`)."""
        self.is_doubtful = False
        """Whether another broker may lead by now: then a timeout says so to the client."""
        self.pending: dict[TopicPartition, int] = {}
        """Partition to the offset that must be reached."""
        self.errors: dict[TopicPartition, PenstockError] = {}
        self.is_done = False
        self.deadline_key = -1


class FetchWait:
    """A fetch request: done when enough bytes may have come, or when anything else changed."""

    __slots__ = (
        "bytes_missing",
        "deadline_key",
        "is_done",
        "is_from_replica",
        "on_done",
        "partitions",
        "reads_committed",
    )

    def __init__(
        self,
        bytes_missing: int,
        on_done: Callable[[], None],
        *,
        reads_committed: bool = False,
        is_from_replica: bool = False,
    ) -> None:
        self.bytes_missing = bytes_missing
        self.reads_committed = reads_committed
        """Whether it sees only records below the last stable offset."""
        self.is_from_replica = is_from_replica
        """Whether any appended record ends the wait, committed or not."""
        self.on_done = on_done
        self.partitions: tuple[PartitionWaits, ...] = ()
        self.is_done = False
        self.deadline_key = -1


class PartitionWaits:
    """The waits for one partition."""

    __slots__ = (
        "commits",
        "failure",
        "fetches",
        "is_replicated",
        "local_commits",
        "name",
        "replica_fetches",
    )

    def __init__(self, name: TopicPartition, *, is_replicated: bool = False) -> None:
        self.name = name
        self.is_replicated = is_replicated
        """Whether a record is synced here before it is committed."""
        self.failure: PenstockError | None = None
        """Set when it commits no more. A produce in slices may be parked after that."""
        self.commits: deque[tuple[int, CommitWait]] = deque()
        """(offset to reach, wait), in the order of appends and so in the order of offsets."""
        self.local_commits: deque[tuple[int, CommitWait]] = deque()
        """The same for waits that the leader's own sync ends; empty with a single replica."""
        self.fetches: dict[FetchWait, None] = {}
        self.replica_fetches: dict[FetchWait, None] = {}


def _fetches(partition: PartitionWaits, wait: FetchWait) -> dict[FetchWait, None]:
    return partition.replica_fetches if wait.is_from_replica else partition.fetches


def _late(wait: CommitWait, name: TopicPartition) -> PenstockError:
    """Return the error of records that were not committed in time."""
    if wait.is_doubtful:
        return NotLeaderError(f"this broker does not know whether it leads {name}")
    return RequestTimedOutError(f"the records of {name} were appended but not committed in time")


def _nothing() -> None:
    """The callback of a wait that is over."""


class WaitTable:
    """All parked requests of this node."""

    __slots__ = (
        "_deadlines",
        "fetched_partitions",
        "parked_max",
        "partition_refusals",
        "partitions_max",
        "refusals",
    )

    def __init__(
        self,
        parked_max: int = PARKED_REQUESTS_MAX,
        partitions_max: int = PARKED_PARTITIONS_MAX,
    ) -> None:
        self._deadlines: DeadlineTable[CommitWait | FetchWait] = DeadlineTable()
        self.fetched_partitions = 0
        self.parked_max = parked_max
        self.partitions_max = partitions_max
        self.refusals = 0
        """Requests that found no room and were answered at once."""
        self.partition_refusals = 0
        """Fetches that found no room for their partitions and were answered at once."""

    def __len__(self) -> int:
        return len(self._deadlines)

    def park_commit(
        self, wait: CommitWait, targets: list[tuple[PartitionWaits, int]], deadline: float
    ) -> None:
        """Wait until each target is reached; `on_done` may be called at once."""
        self._require_room()
        for partition, offset in targets:
            if partition.failure is not None:
                wait.errors[partition.name] = partition.failure
                continue
            wait.pending[partition.name] = offset
            is_local = wait.is_local and partition.is_replicated
            (partition.local_commits if is_local else partition.commits).append((offset, wait))
        wait.deadline_key = self._deadlines.add(wait, deadline)
        if not wait.pending:
            self._finish(wait)

    def park_fetch(
        self, wait: FetchWait, partitions: tuple[PartitionWaits, ...], deadline: float
    ) -> None:
        """Wait until enough bytes are visible in these partitions together."""
        self._require_room()
        if self.fetched_partitions + len(partitions) > self.partitions_max:
            self.partition_refusals += 1
            raise TooManyWaitersError(f"{self.partitions_max} partitions are waited for already")
        self.fetched_partitions += len(partitions)
        wait.partitions = partitions
        for partition in partitions:
            _fetches(partition, wait)[wait] = None
        wait.deadline_key = self._deadlines.add(wait, deadline)

    def committed(
        self, partition: PartitionWaits, high_watermark: int, new_bytes: int, stable_bytes: int
    ) -> None:
        """The high watermark reached `high_watermark`; `new_bytes` became visible.

        To consumers with `read_committed`, up to `stable_bytes` did: the bytes that the last stable
        offset has passed now.
        """
        self._reach(partition.commits, partition.name, high_watermark)
        if partition.fetches:
            self._bytes_came(partition, new_bytes, stable_bytes)

    def locally_synced(self, partition: PartitionWaits, durable_offset: int) -> None:
        """The leader's own log is synced up to `durable_offset`."""
        self._reach(partition.local_commits, partition.name, durable_offset)

    def appended(self, partition: PartitionWaits) -> None:
        """Records were appended: followers read them before they are committed."""
        for fetch in tuple(partition.replica_fetches):
            self._finish(fetch)

    def wake_fetches(self, partition: PartitionWaits) -> None:
        """A follower's high watermark moved, by unknown sizes: consumers read again, or wait on."""
        for fetch in tuple(partition.fetches):
            self._finish(fetch)

    def _reach(
        self, commits: deque[tuple[int, CommitWait]], name: TopicPartition, offset: int
    ) -> None:
        while commits and commits[0][0] <= offset:
            _, wait = commits.popleft()
            if not wait.is_done:
                # One request may append to a partition once; the key is there until satisfied.
                wait.pending.pop(name, None)
                if not wait.pending:
                    self._finish(wait)

    def failed(self, partition: PartitionWaits, error: PenstockError) -> None:
        """The partition commits no more: its produces fail, its fetches read again."""
        partition.failure = error
        self.give_up(partition, error)
        for fetch in (*partition.fetches, *partition.replica_fetches):
            self._finish(fetch)

    def give_up(self, partition: PartitionWaits, error: PenstockError) -> None:
        """Answer the produces that wait now; later ones may be committed."""
        for commits in (partition.commits, partition.local_commits):
            while commits:
                _, wait = commits.popleft()
                if not wait.is_done and wait.pending.pop(partition.name, None) is not None:
                    wait.errors[partition.name] = error
                    if not wait.pending:
                        self._finish(wait)

    def cancel(self, wait: CommitWait | FetchWait) -> None:
        """Forget a wait whose connection is gone; `on_done` is not called."""
        if not wait.is_done:
            self._remove(wait)

    def expire(self, now: float) -> None:
        """End every wait whose deadline has passed."""
        for wait in self._deadlines.expire(now):
            if isinstance(wait, CommitWait):
                for name in wait.pending:
                    wait.errors[name] = _late(wait, name)
                wait.pending.clear()
            self._finish(wait)

    def end_fetches(self) -> None:
        """Answer every fetch with the records available: the broker stops."""
        for wait in tuple(self._deadlines):
            if isinstance(wait, FetchWait) and not wait.is_done:
                self._finish(wait)

    def end_commits(self, error: PenstockError) -> None:
        """Answer every produce that still waits: nothing will be committed here any more."""
        for wait in tuple(self._deadlines):
            if isinstance(wait, CommitWait) and not wait.is_done:
                wait.errors.update(dict.fromkeys(wait.pending, error))
                wait.pending.clear()
                self._finish(wait)

    def next_deadline(self) -> float | None:
        """When `expire` is worth calling next."""
        return self._deadlines.next_deadline()

    def _require_room(self) -> None:
        if len(self._deadlines) >= self.parked_max:
            self.refusals += 1
            raise TooManyWaitersError(f"{self.parked_max} requests are waiting already")

    def _bytes_came(self, partition: PartitionWaits, new_bytes: int, stable_bytes: int) -> None:
        for fetch in tuple(partition.fetches):
            came_bytes = stable_bytes if fetch.reads_committed else new_bytes
            fetch.bytes_missing -= came_bytes
            if came_bytes > 0 and fetch.bytes_missing <= 0:
                self._finish(fetch)

    def _finish(self, wait: CommitWait | FetchWait) -> None:
        on_done = wait.on_done
        self._remove(wait)
        on_done()

    def _remove(self, wait: CommitWait | FetchWait) -> None:
        wait.is_done = True
        # The callback refers to its wait: without this, every request would leave a cycle.
        wait.on_done = _nothing
        self._deadlines.discard(wait, wait.deadline_key)
        if isinstance(wait, FetchWait):
            self.fetched_partitions -= len(wait.partitions)
            for partition in wait.partitions:
                _fetches(partition, wait).pop(wait, None)

    def validate(self) -> None:
        """Assert the invariants."""
        self._deadlines.validate()
        assert len(self._deadlines) <= self.parked_max
        assert self.fetched_partitions == sum(
            len(wait.partitions) for wait in self._deadlines if isinstance(wait, FetchWait)
        )
