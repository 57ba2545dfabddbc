"""Connects a port of one layer to a class of another. Each class is a few lines of glue."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from inspect import iscoroutine
from typing import TypeVar

from penstock.broker.ports import LogDirectoryState
from penstock.cluster.service import MetadataService
from penstock.core.cancellation import Cancellation
from penstock.core.errors import PenstockError, StorageBusyError, StorageError
from penstock.core.limits import BATCHES_QUEUED_BYTES_MAX
from penstock.replication.admission import Fetcher
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.replication.read_result import PartitionRead
from penstock.storage.log.log_types import TimestampAndOffset
from penstock.storage.log.open_transactions import AbortedTransaction
from penstock.storage.service import StorageService
from penstock.storage.worker_pool import WorkClass

Result = TypeVar("Result")


class LoopTimer:
    """`replication.manager.Timer` on the event loop's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def now(self) -> float:
        """Return the loop's monotonic time in seconds."""
        return self._loop.time()

    def set_alarm(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at `moment`, instead of at the moment set before."""
        self.cancel()
        self._handle = self._loop.call_at(moment, action)

    def cancel(self) -> None:
        """Cancel the alarm."""
        if self._handle is not None:
            self._handle.cancel()


class LateStops:
    """Ends of parts that are created while the broker runs; they stop first."""

    def __init__(self) -> None:
        self._stops: list[Callable[[], Coroutine[object, object, None]]] = []

    def add(self, stop: Callable[[], Coroutine[object, object, None]]) -> None:
        """Await `stop` at the end of the broker, within its deadline."""
        self._stops.append(stop)

    async def run(self) -> None:
        """Stop the parts, the latest first."""
        while self._stops:
            await self._stops.pop()()


class RecordDeletions:
    """`broker.ports.RecordDeletion` on the storage service."""

    def __init__(self, storage: StorageService) -> None:
        self._storage = storage

    async def advance_starts(
        self, starts: Sequence[tuple[HostedPartition, int]]
    ) -> list[PenstockError | None]:
        """Advance the start of each log to its offset, durably."""
        return await self._storage.advance_starts(
            [(partition.log, offset) for partition, offset in starts]
        )


class DataDirectories:
    """`broker.ports.LogDirectories` on the storage service."""

    def __init__(self, storage: StorageService) -> None:
        self._directories = [
            (os.path.abspath(flusher.directory.path), flusher.directory)
            for flusher in storage.manager.flushers
        ]

    async def describe(self) -> list[LogDirectoryState]:
        """Return the state of each directory; a disk error is a problem of its directory."""
        states = []
        for path, directory in self._directories:
            problem: PenstockError | None = directory.failure
            free_bytes = total_bytes = -1
            if problem is None:
                try:
                    free_bytes, total_bytes = await asyncio.to_thread(
                        directory.filesystem.space, directory.path
                    )
                except OSError as error:
                    problem = StorageError(f"{directory.path} cannot be asked for room: {error}")
            states.append(LogDirectoryState(path, problem, free_bytes, total_bytes))
        return states


class GroupTasks:
    """`broker.ports.Tasks` on a task group."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    def start(self, coroutine: Coroutine[object, object, None]) -> None:
        """Run the coroutine; the group awaits it. A group that ends raises `RuntimeError`."""
        try:
            self._group.create_task(coroutine)
        except RuntimeError:
            close_unstarted(coroutine)
            raise


def close_unstarted(coroutine: Coroutine[object, object, object]) -> None:
    """Close a coroutine that nothing will await, and the coroutines among its arguments.

    Python warns about each of them otherwise. Compiled ones have no frame, and no warning.
    """
    frame = getattr(coroutine, "cr_frame", None)
    inner = [] if frame is None else [one for one in frame.f_locals.values() if iscoroutine(one)]
    coroutine.close()
    for one in inner:
        close_unstarted(one)


class HeavyBatches:
    """`broker.ports.HeavyWork` on the storage service's threads for batches."""

    def __init__(self, storage: StorageService) -> None:
        self._storage = storage
        self._waiting_bytes = 0

    async def run(
        self, call: Callable[[], Result], size_bytes: int, client: Cancellation | None
    ) -> Result:
        """Run `call` on a thread and return its result, unless too much work waits already."""
        waiting_bytes = self._waiting_bytes + size_bytes
        if size_bytes and self._waiting_bytes and waiting_bytes > BATCHES_QUEUED_BYTES_MAX:
            raise StorageBusyError(
                f"large batches with {self._waiting_bytes} bytes wait to be checked, at most "
                f"{BATCHES_QUEUED_BYTES_MAX}; retry later"
            )
        self._waiting_bytes += size_bytes
        try:
            return await self._storage.pool.run(WorkClass.BATCHES, call, client)
        finally:
            self._waiting_bytes -= size_bytes


class ProducerIdBlocks:
    """`broker.ports.ProducerIds`: uses up a block of ids, then gets the next from the store."""

    def __init__(self, metadata: MetadataService) -> None:
        self._metadata = metadata
        self._left = iter(range(0))
        self._one_at_a_time = asyncio.Lock()

    async def next_id(self) -> int:
        """Return an id that no other producer of this cluster has or had."""
        async with self._one_at_a_time:
            producer_id = next(self._left, None)
            if producer_id is None:
                self._left = iter(await self._metadata.allocate_producer_ids())
                producer_id = next(self._left)
            return producer_id


class ColdReads:
    """`broker.ports.ColdReader` over the storage service's threads."""

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
        reads_committed: bool,
        fetcher: Fetcher | None = None,
        client: Cancellation | None = None,
    ) -> PartitionRead:
        """Read as `ReplicaManager.read` does, but wait for the disk."""
        try:
            return self._replicas.read(
                partition,
                offset,
                bytes_max,
                current_leader_epoch=current_leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
                at_least_one=at_least_one,
                reads_committed=reads_committed,
                fetcher=fetcher,
            )
        except BlockingIOError:
            high_watermark, stable = partition.state.high_watermark, partition.last_stable_offset
            log, segments = partition.log, None
            limit = stable if reads_committed else high_watermark
            if fetcher is not None:
                limit = log.end_offset
            aborted: Sequence[AbortedTransaction] = ()
            while segments is not log.segments:
                # Compaction drops aborted records together with their entries: records of old
                # segments and entries of new ones would show aborted records.
                segments = log.segments
                found = await self._storage.read_cold(
                    log,
                    offset,
                    bytes_max,
                    offset_limit=limit,
                    at_least_one=at_least_one,
                    client=client,
                )
                if not reads_committed or not found.records:
                    break
                aborted = await self._storage.aborted_transactions(
                    log, offset, found.next_offset, client
                )
            return PartitionRead(
                high_watermark,
                log.log_start_offset,
                found.records,
                last_stable_offset=stable,
                aborted=aborted,
            )

    async def find_by_time(
        self,
        partition: HostedPartition,
        timestamp_ms: int | None,
        client: Cancellation | None = None,
    ) -> TimestampAndOffset | None:
        """Return the first record at or after a time; for None, the newest record."""
        if timestamp_ms is None:
            return await self._storage.max_timestamp(partition.log, client)
        return await self._storage.offset_for_timestamp(partition.log, timestamp_ms, client)

    async def load(self, load: Callable[[], None], client: Cancellation) -> None:
        """Run `load`, which reads a file into the page cache."""
        await self._storage.pool.run(WorkClass.READS, load, client)
