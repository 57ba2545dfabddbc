"""Joins a port of one layer to a class of another. Each class is a few lines of glue, no more."""

import asyncio
from collections.abc import Callable, Coroutine

from penstock.cluster.service import MetadataService
from penstock.replication.manager import HostedPartition, PartitionRead, ReplicaManager
from penstock.storage.log_types import TimestampAndOffset
from penstock.storage.service import StorageService


class LoopTimer:
    """`replication.manager.Timer` on the event loop's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """The loop's monotonic time in seconds."""
        return self._loop.time()

    def set_alarm(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at `moment`, instead of at the moment set before."""
        self.cancel()
        self._handle = self._loop.call_at(moment, action)

    def cancel(self) -> None:
        """No alarm is wanted any more."""
        if self._handle is not None:
            self._handle.cancel()


class GroupTasks:
    """`broker.context.Tasks` on a task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run it; the group awaits it."""
        self._group.create_task(coroutine)


class ProducerIdBlocks:
    """`broker.context.ProducerIds`: hands out a block, then takes the next from the store."""

    def __init__(self, metadata: MetadataService) -> None:
        self._metadata = metadata
        self._left = iter(range(0))
        self._one_at_a_time = asyncio.Lock()

    async def next_id(self) -> int:
        """An id that no other producer of this cluster has or had."""
        async with self._one_at_a_time:
            producer_id = next(self._left, None)
            if producer_id is None:
                self._left = iter(await self._metadata.allocate_producer_ids())
                producer_id = next(self._left)
            return producer_id


class ColdReads:
    """`broker.context.ColdReader` over the storage service's threads."""

    def __init__(self, replicas: ReplicaManager, storage: StorageService) -> None:
        self._replicas = replicas
        self._storage = storage

    async def read_cold(
        self,
        partition: HostedPartition,
        offset: int,
        bytes_max: int,
        *,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        at_least_one: bool,
    ) -> PartitionRead:
        """As `ReplicaManager.read`, but waits for the disk."""
        try:
            return self._replicas.read(
                partition,
                offset,
                bytes_max,
                current_leader_epoch=current_leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
                at_least_one=at_least_one,
            )
        except BlockingIOError:
            high_watermark = partition.state.high_watermark
            found = await self._storage.read_cold(
                partition.log,
                offset,
                bytes_max,
                offset_limit=high_watermark,
                at_least_one=at_least_one,
            )
            return PartitionRead(high_watermark, partition.log.log_start_offset, found.records)

    async def find_by_time(
        self, partition: HostedPartition, timestamp_ms: int | None
    ) -> TimestampAndOffset | None:
        """The first record at or after a time; None asks for the newest record."""
        if timestamp_ms is None:
            return await self._storage.max_timestamp(partition.log)
        return await self._storage.offset_for_timestamp(partition.log, timestamp_ms)
