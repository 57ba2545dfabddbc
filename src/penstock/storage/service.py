"""`StorageService`: the asyncio interface of storage.

What runs where:

- On the loop: appends, reads from memory, the start and the end of flush rounds; and the sync
  itself when
  one append waits alone and the disk is fast (`flusher.choose_path`).
- On each flusher's thread: all other syncs. It reports once for each round.
- On worker threads, in classes that cannot starve each other (`worker_pool`): duties (checkpoints,
  file work of retention, deletion and truncation, compaction, free-space samples), cold reads with
  checksums verified, and searches by time.
- On one thread for each data directory: producer snapshots (`snapshot_writer`).

`schedule_flush` is called after appends; `group_commit` drives the rounds. `on_durable` is called
with the logs that moved, `on_failure` with a directory that failed; both on the loop. It decides
neither watermarks nor when a periodic duty is due: `node.duties` does the latter.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.core.clock import Clock
from penstock.core.errors import LogDirectoryOfflineError, PenstockError, StorageBusyError
from penstock.core.stopping import WORK_STOP_SECONDS_MAX, StopDeadline
from penstock.core.types import TopicPartition
from penstock.storage.cut_runner import CutRunner
from penstock.storage.disk.disk_guard import FREE_BYTES_MIN_DEFAULT, DiskGuard
from penstock.storage.disk.disk_watch import DiskWatch
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.group_commit import GroupCommit
from penstock.storage.leases.lease_book import Lease, LeaseBook
from penstock.storage.leases.lease_rules import LeaseRefusedError, LeaseWish
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.storage.log_starts import LogStarts
from penstock.storage.managed_directory import DetachedSegments, ManagedDirectory
from penstock.storage.threaded_reads import ThreadedReads
from penstock.storage.worker_pool import WorkClass, WorkerPool

if TYPE_CHECKING:
    from penstock.storage.compaction.log_cleaner import LogCleaner
    from penstock.storage.log_installation import NewLog

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_RETENTION_SLICE: Final = 200
"""Logs checked at once, about half a millisecond."""


class StorageService(ThreadedReads):
    """Storage for a process with an event loop."""

    def __init__(
        self,
        manager: LogManager,
        clock: Clock,
        *,
        on_durable: Callable[[list[PartitionLog]], None],
        on_failure: Callable[[str, LogDirectoryOfflineError], None],
        free_bytes_min: int = FREE_BYTES_MIN_DEFAULT,
        free_share_min: float = 0.0,
    ) -> None:
        super().__init__()
        self.manager = manager
        self._clock = clock
        self._commit = GroupCommit(
            manager.flushers,
            on_durable=on_durable,
            on_failure=on_failure,
            on_idle=self._note_round,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._disks = DiskWatch(
            (flusher.directory for flusher in manager.flushers),
            free_bytes_min=free_bytes_min,
            free_share_min=free_share_min,
        )
        self._unremoved: list[DetachedSegments] = []
        """Segments that retention detached and could not remove: the disk was full."""
        self._has_ages = False
        """Whether the times of the segments that the start found were loaded."""
        self._file_removal = asyncio.Lock()
        """Held while files of segments or logs are removed: a name may be used again afterwards."""
        self._cleaner: LogCleaner | None = None
        self.leases = LeaseBook(
            manager, clock, self._disks.guards, self._work, self._file_removal, asyncio.sleep
        )
        self._log_starts = LogStarts(manager, self._work, asyncio.Lock)
        self._round_done = asyncio.Event()
        self._runner = CutRunner(
            manager,
            self._work,
            self._file_removal,
            asyncio.sleep,
            self._wait_unused,
            self._forget_detached,
            self._note_damage,
        )
        self._cuts: set[asyncio.Task[object]] = set()
        """Truncations and grants under way. They end when their callers are cancelled, too."""

    # --- Life ---

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the threads. The manager has loaded its logs."""
        self._loop = loop
        self._pool = WorkerPool(loop)
        self._disks.measure_all()
        self.leases.load()
        for flusher in self.manager.flushers:
            directory = flusher.directory
            # An append on the loop, a sync or a removal on a thread: each may detect the failure.
            directory.on_failure = partial(
                loop.call_soon_threadsafe, self._commit.report_failure, directory
            )
        self._commit.start(loop)

    async def stop(self, deadline: StopDeadline | None = None) -> None:
        """Finish the appends, end the threads, sync and close everything, by the `deadline`.

        Appends that wait for `on_durable` get it or `on_failure` before this returns. Reads and
        searches are cancelled. A sync or a duty that does not end in time keeps its files: the stop
        is then not clean, and the next start verifies as after a crash.
        """
        if deadline is None:
            deadline = StopDeadline(self._clock)
        deadline.begin()
        await self._finish_cuts(deadline)
        self._commit.begin_stop()
        try:
            async with asyncio.timeout(deadline.seconds_left):
                await self._wait_between_rounds(set(self.manager.logs.values()))
        except TimeoutError:
            self._commit.abandon()
        else:
            self._commit.finish_stop(deadline)
        is_between_rounds = not self._commit.is_syncing
        assert self._pool is not None
        is_idle = await self._pool.stop(min(WORK_STOP_SECONDS_MAX, deadline.seconds_left))
        for flusher in self.manager.flushers:
            flusher.directory.on_failure = None
        if is_idle and is_between_rounds:
            self.manager.close(deadline)
            self._commit.stop_pools()
        else:
            logger.error(
                "work on files did not end before the deadline of the stop; no acknowledged record "
                "is lost; the next start verifies the logs as after a crash"
            )

    # --- Flushing ---

    def schedule_flush(self) -> None:
        """Schedule the sync of appended batches; call it after every append."""
        self._commit.schedule()

    async def flush_owed(self) -> None:
        """Sync data that was acknowledged without a sync, in flush mode `interval`."""
        for flusher in self.manager.flushers:
            self._commit.begin_owed(flusher)

    async def delete_logs(self, partitions: Sequence[TopicPartition]) -> None:
        """Take logs out of service; their files are removed on a worker thread.

        Between rounds: a round under way, or a snapshot, may still write into the logs'
        directories. The caller creates no log of the same name before this returns.
        """
        async with self._file_removal:
            going = {self.manager.logs.get(partition) for partition in partitions}
            await self._wait_between_rounds(going)
            # A lease that cannot end now has the files by its own names, and their bytes stay.
            with suppress(StorageBusyError):
                await self.leases.break_all(partitions)
            for removal in self.manager.take_out(partitions):
                await self._work(removal.rename)
            logs = self.manager.logs
            self._unremoved = [
                entry
                for entry in self._unremoved
                if logs.get(entry.log.topic_partition) is entry.log
            ]
        await self._work(self.manager.purge_deleted)

    # --- Cutting ---

    async def truncate_log(self, topic_partition: TopicPartition, offset: int) -> None:
        """Remove the batches at and above `offset`, durably, and the batch that holds it.

        Meanwhile the log refuses appends and reads with `LogBusyError`. Afterwards its offsets are
        lower: `synced_offset` and `durable_offset` are at most the new `end_offset`, and a round
        of the flusher follows if the remaining records were not synced.
        """
        errors = await self.truncate_logs({topic_partition: offset})
        for error in errors.values():
            raise error

    async def truncate_logs(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, PenstockError]:
        """As `truncate_log`, with one write of the checkpoints; return the errors by partition."""
        return await self._run_cut(self._runner.truncate(offsets))

    async def restart_log(self, topic_partition: TopicPartition, offset: int) -> None:
        """Drop all records of a log, durably; it is empty and begins at `offset`."""
        errors = await self._run_cut(self._runner.restart({topic_partition: offset}))
        for error in errors.values():
            raise error

    async def install_logs(self, logs: Sequence["NewLog"]) -> None:
        """Replace logs by prepared ones, durably: all of them, or none."""
        from penstock.storage.install_runner import InstallRunner

        runner = InstallRunner(
            self.manager,
            self._work,
            self._file_removal,
            asyncio.sleep,
            self._wait_unused,
            self._forget_detached,
        )
        for error in (await self._run_cut(runner.install(logs))).values():
            raise error
        await self._work(self.manager.purge_deleted)

    async def grant_lease(self, wishes: Sequence[LeaseWish], seconds: int, principal: str) -> Lease:
        """Lease sealed segments; see `leases.lease_book`. A cancelled caller gets no lease."""
        task = self._begin_cut(self.leases.grant(wishes, seconds, principal))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._release_unwanted)
            raise

    def _release_unwanted(self, task: "asyncio.Task[Lease]") -> None:
        if not task.cancelled() and task.exception() is None and task.result().partitions:
            self._begin_cut(self.leases.release(task.result().note.lease_id))

    async def _run_cut(self, cut: Coroutine[None, None, Result]) -> Result:
        """Run a cut to its end, also if the caller is cancelled; `stop` waits for it."""
        return await asyncio.shield(self._begin_cut(cut))

    def _begin_cut(self, cut: Coroutine[None, None, Result]) -> "asyncio.Task[Result]":
        assert self._loop is not None, "the service is not started"
        task = self._loop.create_task(cut)
        self._cuts.add(task)
        task.add_done_callback(self._cut_ended)
        return task

    def _cut_ended(self, task: "asyncio.Task[Result]") -> None:
        self._cuts.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, LeaseRefusedError):
            logger.warning("a truncation or a lease did not end: %s", error)
        if self._pool is not None:
            self.schedule_flush()

    async def _finish_cuts(self, deadline: StopDeadline) -> None:
        """Let the cuts under way end before the deadline."""
        if self._cuts:
            seconds = min(WORK_STOP_SECONDS_MAX, deadline.seconds_left)
            _, late = await asyncio.wait(self._cuts, timeout=seconds)
            for task in late:
                task.cancel()

    async def _wait_unused(self, logs: set[PartitionLog]) -> None:
        """Return when no round and no snapshot works on these logs; other rounds go on.

        Their files will change, so their leases end, too.
        """
        while any(log.is_flushing for log in logs) or self._commit.is_storing(logs):
            self._round_done.clear()
            await self._round_done.wait()
        await self.leases.break_all(log.topic_partition for log in logs)

    def _forget_detached(self, log: PartitionLog) -> None:
        """Forget segments of a restarted log that wait for their removal: their files are gone."""
        self._unremoved = [entry for entry in self._unremoved if entry.log is not log]

    def _note_round(self) -> None:
        self._round_done.set()

    async def _wait_between_rounds(
        self, logs: AbstractSet[PartitionLog | None] = frozenset()
    ) -> None:
        """Return when no round is under way and no snapshot of these logs."""
        while self._commit.is_storing(logs):
            self._round_done.clear()
            await self._round_done.wait()
        self._commit.hold()
        try:
            while self._commit.is_syncing:
                self._round_done.clear()
                await self._round_done.wait()
        finally:
            self._commit.let_go()

    # --- Duties ---

    async def _work(self, call: Callable[[], Result]) -> Result:
        """Run a duty on a worker thread."""
        return await self.pool.run(WorkClass.DUTIES, call)

    async def checkpoint(self) -> None:
        """Write recovery points and high watermarks, where they moved."""
        for directory, _ in self.manager.take_moved():
            await self._write_checkpoint(directory, directory.write_recovery_points)
        for directory in self.manager.take_high_watermarks():
            await self._write_checkpoint(directory, directory.write_high_watermarks)
        self.schedule_flush()

    async def _write_checkpoint(
        self, directory: ManagedDirectory, write: Callable[[], None]
    ) -> None:
        try:
            await self._work(write)
        except OSError as error:
            # Without disk space the old file stays: a start after a crash has more work.
            if error.errno not in RETRIABLE_ERRNOS:
                directory.shared.fail(error)

    async def run_retention(self) -> None:
        """Delete segments by retention, a few logs at a time."""
        logs = list(self.manager.logs.values())
        if not self._has_ages:
            # Only segments that a start found: the times of newer ones are known.
            self._has_ages = True
            for log in logs:
                if len(log.segments) > 1:
                    await self.pool.run(WorkClass.READS, partial(self._load_ages, log))
        await self._retain_in_slices(logs)
        await self._work(self.manager.purge_deleted)

    def _load_ages(self, log: PartitionLog) -> None:
        """Find the highest timestamps of sealed segments; on a thread.

        A segment whose records have no timestamps has none in its index: it is read as a whole.
        """
        # A damaged segment is reported by the request that reads it.
        with suppress(OSError, PenstockError):
            for segment in log.segments[:-1]:
                if self.pool.stopping.is_cancelled:
                    return
                segment.trust_times()

    async def _retain_in_slices(self, logs: list[PartitionLog]) -> None:
        for start in range(0, len(logs), _RETENTION_SLICE):
            await self._retain(logs[start : start + _RETENTION_SLICE])
            await asyncio.sleep(0)

    async def _retain(self, logs: list[PartitionLog]) -> None:
        """Delete segments of these logs by retention."""
        manager = self.manager
        async with self._file_removal:
            detached = manager.detach_old_segments(logs, self._clock.now_ms())
            if detached or self._unremoved:
                detached += self._unremoved
                self._unremoved = await self._work(partial(manager.remove_segments, detached))
        # A log that began a new segment must be synced.
        self.schedule_flush()

    async def advance_starts(
        self, starts: Sequence[tuple[PartitionLog, int]]
    ) -> list[PenstockError | None]:
        """Hide the records below the given offsets, durably; one outcome for each log."""
        outcomes = await self._log_starts.advance(starts)
        # Segments without visible records are removed at once, not only at the next retention.
        await self._retain_in_slices([log for log, _ in starts if log.problem is None])
        return outcomes

    async def clean_logs(self) -> None:
        """Compact the logs that are due."""
        if not any(log.settings.compacts for log in self.manager.logs.values()):
            return
        if self._cleaner is None:
            # A broker's start does not wait for the codecs, nor does the loop.
            kind = await self._work(_load_cleaner)
            self._cleaner = kind(
                self.manager, self._clock, self._work, self._file_removal, asyncio.sleep
            )
        await self._cleaner.clean_logs()

    async def sample_space(self) -> None:
        """Measure the free disk space; when it is low, retention runs early, and leases end."""
        if await self._disks.sample(self._work):
            # Retention deletes nothing above a log's last producer snapshot; take those missed.
            await self.checkpoint()
            await self.run_retention()
        await self.leases.keep()

    def disk_guard(self, path: str) -> DiskGuard:
        """The guard of a data directory: whether it accepts new data, and its free space."""
        return self._disks.guards[path]

    def change_guards(self, *, free_bytes_min: int, free_share_min: float) -> None:
        """Use other marks for the disks, starting with the next sample."""
        for guard in self._disks.guards.values():
            guard.change_marks(free_bytes_min=free_bytes_min, free_share_min=free_share_min)


def _load_cleaner() -> type["LogCleaner"]:
    from penstock.storage.compaction.log_cleaner import LogCleaner

    return LogCleaner
