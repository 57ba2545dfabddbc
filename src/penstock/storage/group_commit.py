"""`GroupCommit`: drives the flushers of all data directories from an event loop.

The decision when a round begins falls at the end of a turn of the loop, so all appends of one turn
share a round; what is appended during a round shares the next. `on_durable` is called with the logs
that moved, `on_failure` with a directory that died; both on the loop. Producer snapshots are stored
beside the rounds (`snapshot_writer`), one at a time for each directory, and never delay one.

It decides nothing about files: which path a round takes is `flusher.choose_path`'s decision, and
what a log owes is the log's.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from penstock.core.errors import LogDirectoryOfflineError
from penstock.storage.flusher import Flusher, FlushRound, SyncPath
from penstock.storage.log_directory import LogDirectory
from penstock.storage.log_settings import FlushMode
from penstock.storage.partition_log import PartitionLog
from penstock.storage.snapshot_writer import SnapshotJob

FULL_RETRY_SECONDS: Final = 1.0
"""Until a flush or a snapshot that found no room is tried again."""


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Never make it."""
        ...


class Loop(Protocol):
    """What is used of an event loop."""

    def call_soon(self, callback: Callable[..., object], *args: object) -> object:
        """Call it in the next turn."""
        ...

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> object:
        """The same, from any thread."""
        ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Timer:
        """Call it after so many seconds."""
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
        """Called after each round and each snapshot: `is_busy_with` may have changed."""
        self._loop: Loop | None = None
        self._is_scheduled = False
        self._is_stopping = False
        self._retry: Timer | None = None
        self._reported: set[str] = set()
        """Directories whose failure was reported."""

    def start(self, loop: Loop) -> None:
        """Start the flushers' threads."""
        self._loop = loop
        for flusher in self._flushers:

            def report(flush_round: FlushRound, flusher: Flusher = flusher) -> None:
                loop.call_soon_threadsafe(self._finish_round, flusher, flush_round)

            def report_snapshot(job: SnapshotJob, flusher: Flusher = flusher) -> None:
                loop.call_soon_threadsafe(self._finish_snapshot, flusher, job)

            flusher.start(report)
            flusher.snapshots.start(report_snapshot)

    def begin_stop(self) -> None:
        """Begin no more rounds and no more snapshots."""
        self._is_stopping = True
        if self._retry is not None:
            self._retry.cancel()

    def finish_stop(self) -> None:
        """End the threads and do the last rounds on this one; nothing is under way."""
        for flusher in self._flushers:
            flusher.snapshots.stop()
            flusher.stop()
            self._finish_appends(flusher)

    def _finish_appends(self, flusher: Flusher) -> None:
        """The last rounds of a directory, on this thread."""
        while flusher.directory.dirty and flusher.directory.failure is None:
            if self._flush_mode is not FlushMode.ALWAYS:
                logs = flusher.take_acknowledged()
                self._on_durable([log for log in logs if isinstance(log, PartitionLog)])
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

    def is_busy_with(self, logs: AbstractSet[object]) -> bool:
        """Whether a round is under way, or a snapshot of one of these logs, which then ends soon.

        Either may write into the directory of a log.
        """
        is_busy = False
        for flusher in self._flushers:
            log = flusher.snapshots.log_under_way
            is_snapshot = log is not None and log in logs
            if is_snapshot:
                flusher.snapshots.abandon()
            is_busy |= is_snapshot or flusher.is_round_under_way
        return is_busy

    # --- Rounds ---

    def schedule(self) -> None:
        """Have what was appended synced; call it after every append."""
        if not self._is_scheduled and not self._is_stopping:
            self._is_scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Begin rounds for all directories that have something to sync."""
        self._is_scheduled = False
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

    def _acknowledge(self, flusher: Flusher) -> None:
        """The modes that sync later: tell at once; sealed segments are synced behind it."""
        logs = flusher.take_acknowledged()
        if self._flush_mode is FlushMode.OS and any(log.owes_sealed for log in logs):
            self.begin_owed(flusher)
        self._on_durable([log for log in logs if isinstance(log, PartitionLog)])

    def begin_owed(self, flusher: Flusher) -> None:
        """Sync what was acknowledged without a sync."""
        if not flusher.is_round_under_way and flusher.directory.failure is None:
            try:
                flush_round = flusher.begin_owed_round()
            except LogDirectoryOfflineError:
                self.report_failure(flusher.directory)
                return
            if flush_round is not None:
                flusher.submit(flush_round)

    def _finish_round(self, flusher: Flusher, flush_round: FlushRound) -> None:
        """A round is done: tell the logs and the requests that wait, and begin the next."""
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
        """Look again in a second: room may have been made."""
        assert self._loop is not None
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(FULL_RETRY_SECONDS, self.schedule)

    def report_failure(self, directory: LogDirectory) -> None:
        """Report a directory that is dead, once; on the loop."""
        if directory.failure is not None and directory.path not in self._reported:
            self._reported.add(directory.path)
            self._on_failure(directory.path, directory.failure)

    # --- Snapshots ---

    def _begin_snapshot(self, flusher: Flusher) -> None:
        job = flusher.snapshots.begin()
        if job is not None:
            flusher.snapshots.submit(job)

    def _finish_snapshot(self, flusher: Flusher, job: SnapshotJob) -> None:
        """A snapshot is stored, or could not be: begin the next, or try again later."""
        is_owed = flusher.snapshots.complete(job)
        self._on_idle()
        if flusher.directory.failure is not None:
            self.report_failure(flusher.directory)
        elif is_owed and job.error is not None:
            self._try_again()
        elif flusher.directory.snapshots_ready:
            self.schedule()
