"""`IsrWriter`: writes the changes of in-sync replicas that this broker decides as a leader.

Guarantees:

- A follower that is not at the end of the log for `lag_seconds` leaves the in-sync replicas, and
  one that has caught up joins them, each by a compare-and-swap of the partition's state.
- Only partitions with a follower behind have a deadline: a broker with thousands of idle partitions
  looks at none of them.
- Changes of one moment are written together. While one partition's change is under way, others are
  decided and written.

Which change is right is decided by `replication.isr`.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.core.deadlines import DeadlineTable
from penstock.core.errors import NotLeaderError
from penstock.core.types import TopicPartition
from penstock.replication.ended_tasks import end_tasks
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr import IsrChange
from penstock.replication.manager import ReplicaManager
from penstock.replication.ports import PartitionMetadata

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.1
"""Until a refused change is decided again: the image may not show the reason yet."""
DEFECT_SECONDS: Final = 1.0
"""Until a decision or a write that failed with a defect is repeated."""


class IsrWriter:
    """`replication.manager.IsrWatch` over the metadata."""

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: PartitionMetadata,
        min_isr_of: Callable[[HostedPartition], int],
        *,
        lag_seconds: float,
    ) -> None:
        """`min_isr_of` returns the setting `min.insync.replicas` of a partition's topic."""
        self._replicas = replicas
        self._metadata = metadata
        self._min_isr_of = min_isr_of
        self.lag_seconds = lag_seconds
        self._loop = asyncio.get_running_loop()
        self._due: dict[TopicPartition, None] = {}
        """Partitions that are decided in the next turn."""
        self._watched: dict[TopicPartition, int] = {}
        """Partitions with a follower behind, with the key of their deadline."""
        self._deadlines: DeadlineTable[TopicPartition] = DeadlineTable()
        self._alarm: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._is_scheduled = False
        self._is_stopped = False
        self.shrinks = self.expansions = 0
        """Changes that were written: with fewer in-sync replicas, and with more."""

    async def stop(self) -> None:
        """Decide no more, and cancel the writes."""
        self._is_stopped = True
        if self._alarm is not None:
            self._alarm.cancel()
        await end_tasks(self._writes)

    # --- Events ---

    def appended(self, partition: HostedPartition) -> None:
        """Records were appended: a follower may be behind now."""
        if partition.name not in self._watched:
            self._watch(partition.name, self._loop.time() + self.lag_seconds)

    def reported(self, partition: HostedPartition, follower: int) -> None:
        """A follower has reported its synced offset."""
        state = partition.state
        in_sync = state.in_sync
        if in_sync is None or in_sync.change is not None:
            return
        broker = self._metadata.image.brokers.get(follower)
        if in_sync.may_join(follower, state.high_watermark, broker):
            self.decide_soon(partition.name)

    def decide_soon(self, name: TopicPartition) -> None:
        """Decide about a partition in the next turn of the event loop."""
        self._due[name] = None
        if not self._is_scheduled and not self._is_stopped:
            self._is_scheduled = True
            self._loop.call_soon(self._decide)

    # --- Deadlines of followers ---

    def _watch(self, name: TopicPartition, moment: float) -> None:
        self._watched[name] = self._deadlines.add(name, moment)
        self._set_alarm()

    def _set_alarm(self) -> None:
        deadline = self._deadlines.next_deadline()
        if deadline is None or self._is_stopped:
            return
        if self._alarm is None or deadline < self._alarm.when():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._loop.time()
        for name in self._deadlines.expire(now):
            del self._watched[name]
            partition = self._replicas.find(name.topic, name.partition)
            in_sync = None if partition is None else partition.state.in_sync
            if partition is None or in_sync is None:
                continue
            leaves_at = in_sync.leaves_at(partition.log.end_offset, self.lag_seconds)
            if leaves_at is None:
                continue
            if leaves_at <= now:
                give_up_if_isolated(self._replicas, partition)
                self.decide_soon(name)
                leaves_at = now + self.lag_seconds
            self._watch(name, leaves_at)
        self._set_alarm()

    # --- Changes ---

    def _decide(self) -> None:
        self._is_scheduled = False
        due, self._due = self._due, {}
        changes: list[tuple[HostedPartition, IsrChange]] = []
        for name in due:
            partition = self._replicas.find(name.topic, name.partition)
            try:
                change = None if partition is None else self._next_change(partition)
            except Exception:
                # A defect with one partition must not take the change of another one.
                logger.critical("the in-sync replicas of %s are not decided", name, exc_info=True)
                self._loop.call_later(DEFECT_SECONDS, self.decide_soon, name)
                continue
            if partition is not None and change is not None:
                changes.append((partition, change))
        if changes and not self._is_stopped:
            task = self._loop.create_task(self._write(changes))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    def _next_change(self, partition: HostedPartition) -> IsrChange | None:
        """Decide and begin the next change of a partition, if there is one."""
        in_sync = partition.state.in_sync
        if in_sync is None:
            return None
        change = in_sync.next_change(
            self._metadata.image.brokers,
            end_offset=partition.log.end_offset,
            high_watermark=partition.state.high_watermark,
            min_isr=self._min_isr_of(partition),
            now=self._loop.time(),
            lag_seconds=self.lag_seconds,
        )
        if change is not None:
            in_sync.begin(change)
        return change

    async def _outcomes(self, writes: list[PartitionWrite]) -> list[bool]:
        """Write until the outcome of each change is known: without it, a change never ends."""
        while True:
            try:
                return await self._metadata.write_partitions(writes)
            except Exception:
                logger.critical("changes of in-sync replicas are written again", exc_info=True)
            # Not in the `except` block: this module is compiled.
            await asyncio.sleep(DEFECT_SECONDS)

    async def _write(self, changes: list[tuple[HostedPartition, IsrChange]]) -> None:
        writes = [
            PartitionWrite(partition.topic_id, partition.name.partition, *change)
            for partition, change in changes
        ]
        outcomes = await self._outcomes(writes)
        now = self._loop.time()
        for (partition, change), has_landed in zip(changes, outcomes, strict=True):
            if has_landed:
                self._count(partition, change)
                continue
            in_sync = partition.state.in_sync
            if in_sync is not None and in_sync.change is change:
                in_sync.refused(change, now)
                self._replicas.isr_changed(partition)
                self._loop.call_later(RETRY_SECONDS, self.decide_soon, partition.name)

    def _count(self, partition: HostedPartition, change: IsrChange) -> None:
        before, after = change.before.isr, change.after.isr
        if len(after) < len(before):
            self.shrinks += 1
        elif len(after) > len(before):
            self.expansions += 1
        logger.info("in-sync replicas of %s: %s, were %s", partition.name, [*after], [*before])


def give_up_if_isolated(replicas: ReplicaManager, partition: HostedPartition) -> None:
    """An in-sync replica does not fetch: if this broker is isolated, another one may lead.

    Produces that wait are answered, so that their clients look for that leader.
    """
    if replicas.is_isolated():
        gone = f"this broker does not know whether it leads {partition.name}"
        replicas.waits.give_up(partition.waits, NotLeaderError(gone))
