"""`GroupCommit`: drives the flushers of all data directories from an event loop.

Rounds begin at the end of a turn of the loop, so all appends of one turn share a round; appends
during a round share the next. `on_durable` is called with the logs that moved, `on_failure` with a
directory that failed; both on the loop. Producer snapshots are stored beside the rounds
(`snapshot_writer`), one at a time for each directory, and never delay one.

It decides nothing about files: `flusher.choose_path` chooses the thread of a round, and a log knows
its unsynced data.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final, Protocol

from penstock.core.errors import LogDirectoryOfflineError
from penstock.core.limits import ROUND_ALONE_SECONDS, SYNC_THREADS_MAX
from penstock.core.stopping import StopDeadline
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.storage.disk.sync_pool import open_sync_pool
from penstock.storage.flusher import Flusher, FlushRound, SyncPath
from penstock.storage.log.log_directory import LogDirectory
from penstock.storage.log.log_settings import FlushMode
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.snapshot_writer import SnapshotJob

FULL_RETRY_SECONDS: Final = 1.0
"""Until a flush or a snapshot that found no disk space is retried."""


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class Loop(Protocol):
    """The part of an event loop that is used here."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        """Call `callback` in the next turn."""
        ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object:
        """As `call_soon`, from any thread."""
        ...

    def add_reader(self, fd: int, callback: Callable[..., object], *args: object) -> object:
        """Call `callback` whenever the descriptor can be read."""
        ...

    def remove_reader(self, fd: int) -> object:
        """Stop watching the descriptor."""
        ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call `callback` after `delay` seconds."""
        ...


class GroupCommit:
    """Rounds and snapshots of all data directories."""

    def __init__(
        self,
        flushers: list[Flusher],
        *,
        on_durable: Callable[[list[PartitionLog]], None],
        on_failure: Callable[[str, LogDirectoryOfflineError], None],
        on_idle: Callable[[], object],
    ) -> None:
        self._flushers = flushers
        self._flush_mode = flushers[0].directory.flush_mode
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._on_idle = on_idle
        """Called after each round and snapshot: `is_syncing` and `is_storing` may have changed."""
        self._loop: Loop | None = None
        self._is_scheduled = False
        self._is_stopping = False
        self._holds = 0
        self._retry: Timer | None = None
        self._watched: dict[Flusher, int] = {}
        """Descriptors by which pools report."""
        self._is_looking: set[Flusher] = set()
        """Flushers with a scheduled check for an overdue round."""
        self._reported: set[str] = set()
        """Directories whose failure was reported."""

    def start(self, loop: Loop) -> None:
        """Start the flushers' threads."""
        self._loop = loop
        for flusher in self._flushers:

            def report(flush_round: FlushRound, flusher: Flusher = flusher) -> None:
                # The loop is closed: a stop abandoned this round.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._finish_round, flusher, flush_round)

            def report_snapshot(job: SnapshotJob, flusher: Flusher = flusher) -> None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._finish_snapshot, flusher, job)

            pool = None
            if isinstance(flusher.directory.filesystem, DiskFileSystem):
                pool = open_sync_pool(SYNC_THREADS_MAX)
            if pool is not None:
                self._watched[flusher] = pool.report_descriptor
                loop.add_reader(pool.report_descriptor, self._take_synced, flusher)
            flusher.start(report, pool)
            flusher.snapshots.start(report_snapshot)

    def begin_stop(self) -> None:
        """Begin no more rounds and no more snapshots."""
        self._is_stopping = True
        if self._retry is not None:
            self._retry.cancel()

    def finish_stop(self, deadline: StopDeadline) -> None:
        """End the flushers' threads and do the last rounds on this one; nothing is under way."""
        for flusher in self._flushers:
            flusher.snapshots.stop()
            self._stop_watching(flusher)
            flusher.stop()
            self._finish_appends(flusher, deadline)

    def abandon(self) -> None:
        """Give up rounds that have not ended: the disk does not answer, and the process ends."""
        for flusher in self._flushers:
            self._stop_watching(flusher)
            self._fail_late(flusher.directory)

    def stop_pools(self) -> None:
        """End the threads that sync; a clean close was the last to use them."""
        for flusher in self._flushers:
            flusher.stop_pool()

    def _stop_watching(self, flusher: Flusher) -> None:
        if flusher in self._watched and self._loop is not None:
            self._loop.remove_reader(self._watched.pop(flusher))

    def _fail_late(self, directory: LogDirectory) -> None:
        """Fail the appends that wait for a late sync; they were never acknowledged."""
        directory.fail(TimeoutError("syncs did not end before the deadline of the stop"))
        self.report_failure(directory)

    def _finish_appends(self, flusher: Flusher, deadline: StopDeadline) -> None:
        """Do the last rounds of a directory, on this thread."""
        while flusher.directory.dirty and flusher.directory.failure is None:
            if self._flush_mode is not FlushMode.ALWAYS:
                logs = flusher.take_acknowledged()
                self._on_durable([log for log in logs if isinstance(log, PartitionLog)])
                return
            if deadline.is_over:
                self._fail_late(flusher.directory)
                return
            try:
                flush_round = flusher.begin_round()
            except LogDirectoryOfflineError:
                self.report_failure(flusher.directory)
                return
            flusher.execute(flush_round)
            self._finish_round(flusher, flush_round)
            if flush_round.is_full:
                return

    @property
    def is_syncing(self) -> bool:
        """Whether a round is under way: it may write into the directory of a log."""
        return any(flusher.is_round_under_way for flusher in self._flushers)

    def is_storing(self, logs: AbstractSet[object]) -> bool:
        """Whether a snapshot of one of these logs is being stored, which then ends soon."""
        is_storing = False
        for flusher in self._flushers:
            log = flusher.snapshots.log_under_way
            if log is not None and log in logs:
                flusher.snapshots.abandon()
                is_storing = True
        return is_storing

    def hold(self) -> None:
        """Begin no round until `let_go`, so that the rounds under way end."""
        self._holds += 1

    def let_go(self) -> None:
        """Resume rounds; the caller's own turn ends first."""
        self._holds -= 1
        self.schedule()

    # --- Rounds ---

    def schedule(self) -> None:
        """Schedule the sync of appended batches; call it after every append."""
        if not self._is_scheduled and not self._is_stopping:
            self._is_scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Begin rounds for all directories with unsynced data."""
        self._is_scheduled = False
        if self._holds:
            return
        for flusher in self._flushers:
            directory = flusher.directory
            if directory.failure is not None:
                continue
            if directory.dirty:
                if self._flush_mode is FlushMode.ALWAYS:
                    self._begin(flusher)
                else:
                    self._acknowledge(flusher)
            if directory.snapshots_ready:
                self._begin_snapshot(flusher)

    def _begin(self, flusher: Flusher) -> None:
        path = flusher.path()
        if path is SyncPath.NOBODY:
            if flusher not in self._is_looking and flusher in self._watched:
                assert self._loop is not None
                self._is_looking.add(flusher)
                self._loop.call_later(ROUND_ALONE_SECONDS, self._look_again, flusher)
            return
        try:
            flush_round = flusher.begin_round()
        except LogDirectoryOfflineError:
            self.report_failure(flusher.directory)
            return
        if path is SyncPath.THREAD:
            flusher.submit(flush_round)
        else:
            flusher.execute(flush_round)
            self._finish_round(flusher, flush_round)

    def _take_synced(self, flusher: Flusher) -> None:
        """The pool reports finished rounds, or synced logs of an overdue one."""
        for flush_round in flusher.take_synced():
            self._finish_round(flusher, flush_round)
        if flusher.is_round_under_way:
            self._look_at_overdue(flusher)

    def _look_again(self, flusher: Flusher) -> None:
        """Begin the next round if appends wait for an overdue one."""
        self._is_looking.discard(flusher)
        self._look_at_overdue(flusher)
        if flusher.directory.dirty:
            self.schedule()

    def _look_at_overdue(self, flusher: Flusher) -> None:
        """Acknowledge the synced logs of an overdue round, and begin the next round."""
        moved = flusher.complete_early()
        if moved:
            self._on_durable([log for log in moved if isinstance(log, PartitionLog)])
            if flusher.directory.dirty:
                self.schedule()

    def _acknowledge(self, flusher: Flusher) -> None:
        """Modes that sync later: acknowledge at once, then sync sealed segments."""
        logs = flusher.take_acknowledged()
        if self._flush_mode is FlushMode.OS:
            is_due = any(log.owes_sealed for log in logs)
        else:
            is_due = flusher.is_owing_much
        if is_due:
            self.begin_owed(flusher)
        self._on_durable([log for log in logs if isinstance(log, PartitionLog)])

    def begin_owed(self, flusher: Flusher) -> None:
        """Sync data that was acknowledged without a sync."""
        if not flusher.is_round_under_way and flusher.directory.failure is None:
            try:
                flush_round = flusher.begin_owed_round()
            except LogDirectoryOfflineError:
                self.report_failure(flusher.directory)
                return
            if flush_round is not None:
                flusher.submit(flush_round)

    def _finish_round(self, flusher: Flusher, flush_round: FlushRound) -> None:
        """A round is done: notify the logs and the waiting requests, and begin the next."""
        try:
            moved = flusher.complete_round(flush_round)
        except LogDirectoryOfflineError:
            self._on_idle()
            self.report_failure(flusher.directory)
            return
        self._on_idle()
        if flush_round.is_full:
            self._try_again()
            return
        if moved and self._flush_mode is FlushMode.ALWAYS:
            self._on_durable([log for log in moved if isinstance(log, PartitionLog)])
        if flusher.directory.dirty or flusher.directory.snapshots_ready:
            self.schedule()

    def _try_again(self) -> None:
        """Retry in a second: disk space may be free then."""
        assert self._loop is not None
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(FULL_RETRY_SECONDS, self.schedule)

    def report_failure(self, directory: LogDirectory) -> None:
        """Report a directory that failed, once; on the loop."""
        if directory.failure is not None and directory.path not in self._reported:
            self._reported.add(directory.path)
            self._on_failure(directory.path, directory.failure)

    # --- Snapshots ---

    def _begin_snapshot(self, flusher: Flusher) -> None:
        job = flusher.snapshots.begin()
        if job is not None:
            flusher.snapshots.submit(job)

    def _finish_snapshot(self, flusher: Flusher, job: SnapshotJob) -> None:
        """A snapshot is stored, or failed: begin the next, or retry later."""
        is_owed = flusher.snapshots.complete(job)
        self._on_idle()
        if flusher.directory.failure is not None:
            self.report_failure(flusher.directory)
        elif is_owed and job.error is not None:
            self._try_again()
        elif flusher.directory.snapshots_ready:
            self.schedule()
