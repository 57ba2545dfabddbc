"""Group commit: one `Flusher` for each data directory.

A round is: take the jobs of all dirty logs (owner's thread), do them (other threads), report to the
logs (owner's thread). Batches that are appended meanwhile share the next round. The owner's thread
is the one that appends, so no log needs a lock: other threads see only `FlushJob`s and descriptors.

`choose_path` decides which thread does a round: a hop to a thread and back costs as much as a sync
on a fast disk, so a lone append on a fast disk is synced by its own thread. Jobs of syncs only go
to the `SyncPool`, which syncs all their files at the same time. Jobs with names or small files go
to the flusher's thread, which is woken by a queue.

One log has one job under way at a time; rounds under way have no log in common. The next round
begins when the one before has ended, so that many appends share a sync, or when it lasted for
`ROUND_ALONE_SECONDS`: then each of its logs is completed as soon as its own files are synced.

Durability requires this order inside a job: epochs, data, names; only then does the durable offset
move. Files of data are synced in any order: the offset moves after all of them. A failed sync is
final (fsyncgate: a retry may succeed with the data gone): the directory is offline, and no later
append is acknowledged. Lack of space for the small files is not final, nor is a lack of
descriptors: the job is owed again.
"""

import os
import threading
from collections.abc import Callable
from enum import Enum
from queue import SimpleQueue
from typing import Final

from penstock.core.clock import Clock
from penstock.core.limits import (
    OWED_BYTES_MAX,
    ROUND_ALONE_SECONDS,
    SYNC_ON_LOOP_BYTES_MAX,
    SYNC_ON_LOOP_SECONDS_MAX,
)
from penstock.core.metrics import SECONDS_BOUNDS, Histogram
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS, DiskFile, File
from penstock.storage.disk.sync_pool import SyncPool
from penstock.storage.flush_work import ShortageError, execute_jobs, sync_in_turn
from penstock.storage.log.log_directory import Flushable, FlushJob, LogDirectory
from penstock.storage.log.log_settings import FlushMode
from penstock.storage.snapshot_writer import SnapshotWriter

_MEAN_WEIGHT = 0.2
"""Weight of the newest sync in the mean: five slow ones in a row change it, a single one hardly."""


class SyncPath(Enum):
    """The thread that does the next round."""

    NOBODY = "nothing to do, or a round is under way"
    CALLER = "the thread that asks"
    THREAD = "the flusher's thread"


def choose_path(
    *,
    jobs: int,
    appends_waiting: int,
    bytes_waiting: int,
    is_round_under_way: bool,
    mean_seconds: float,
    is_overdue: bool = False,
) -> SyncPath:
    """Choose the thread of the next round. Pure.

    The caller syncs only for one log with one small append, and only while syncs are fast: with
    more waiting, the loop is better used for reading more requests into the next round. A large
    append is seldom alone: its client sends the next one before the answer. A round under way that
    is overdue delays no other, and the loop does not sync beside it.
    """
    if jobs == 0 or (is_round_under_way and not is_overdue):
        return SyncPath.NOBODY
    if is_round_under_way:
        return SyncPath.THREAD
    is_small = appends_waiting == 1 and bytes_waiting <= SYNC_ON_LOOP_BYTES_MAX
    if jobs == 1 and is_small and mean_seconds < SYNC_ON_LOOP_SECONDS_MAX:
        return SyncPath.CALLER
    return SyncPath.THREAD


class FlushRound:
    """Jobs that are synced together."""

    __slots__ = (
        "began_at",
        "error",
        "is_full",
        "is_waited_for",
        "jobs",
        "outcomes",
        "seconds",
        "size_bytes",
    )

    def __init__(self, jobs: list[FlushJob], size_bytes: int) -> None:
        self.jobs = jobs
        self.outcomes: list[int] = []
        """Of a round in the pool: the result of each file, in the order of the jobs."""
        self.size_bytes = size_bytes
        """Bytes appended since the round before it."""
        self.is_waited_for = False
        """Whether its appends are acknowledged after it: mode `always`."""
        self.error: BaseException | None = None
        """The error that took the directory offline, or None."""
        self.is_full = False
        """No space for a small file, or no descriptor: no data is lost, the jobs are owed again."""
        self.began_at = 0.0
        """On the monotonic clock; 0 until a thread has begun it."""
        self.seconds = 0.0


def _descriptors(files: list[File]) -> list[int] | None:
    """The descriptors of files on a real disk; None when one is of another kind."""
    descriptors = []
    for file in files:
        if not isinstance(file, DiskFile):
            return None
        descriptors.append(file.descriptor)
    return descriptors


def _sync_error(number: int) -> OSError:
    return OSError(number, f"fdatasync: {os.strerror(number)}")


class Flusher:
    """Syncs the logs of one data directory."""

    def __init__(self, directory: LogDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._under_way: dict[FlushRound, None] = {}
        """Rounds that are begun and not completed, the oldest first."""
        self._pool: SyncPool | None = None
        self._in_pool: dict[int, FlushRound] = {}
        """Rounds in the pool by ticket."""
        self._owed: dict[Flushable, None] = {}
        """Logs whose appends were acknowledged and not synced: modes `interval` and `os`."""
        self._owed_bytes = 0
        self.moved: set[Flushable] = set()
        """Logs whose synced offset moved since the last recovery-point checkpoint, which empties
        it."""
        self._mean_seconds = 0.0
        self.durations: Final = Histogram(SECONDS_BOUNDS)
        """Durations of rounds, also of failed ones."""
        self.flushed_bytes = 0
        """Appended bytes that rounds have synced."""
        self._rounds: SimpleQueue[FlushRound | None] = SimpleQueue()
        self._syncer: threading.Thread | None = None
        self._report: Callable[[FlushRound], None] | None = None
        self.snapshots: Final = SnapshotWriter(directory, clock)
        """Stores producer snapshots, apart from the rounds."""

    @property
    def directory(self) -> LogDirectory:
        """The data directory that this flusher serves."""
        return self._directory

    @property
    def mean_seconds(self) -> float:
        """Mean time of recent rounds."""
        return self._mean_seconds

    @property
    def is_round_under_way(self) -> bool:
        """Whether a round runs or its report is not yet taken."""
        return bool(self._under_way)

    def under_way_seconds(self) -> float:
        """Seconds since the oldest round under way began; 0 when there is none."""
        for oldest in self._under_way:
            if oldest.began_at:
                return self._clock.monotonic() - oldest.began_at
        return 0.0

    @property
    def is_overdue(self) -> bool:
        """Whether a round takes so long that the next does not wait for it."""
        return self.under_way_seconds() >= ROUND_ALONE_SECONDS

    def path(self) -> SyncPath:
        """The thread for the next round."""
        directory = self._directory
        jobs, is_overdue = len(directory.dirty), False
        if self._under_way:
            is_overdue = self.is_overdue
            jobs = sum(not log.is_flushing for log in directory.dirty) if is_overdue else 0
        return choose_path(
            jobs=jobs,
            appends_waiting=directory.appends_waiting,
            bytes_waiting=directory.bytes_waiting,
            is_round_under_way=bool(self._under_way),
            mean_seconds=self._mean_seconds,
            is_overdue=is_overdue,
        )

    # --- One round ---

    def begin_round(self) -> FlushRound:
        """Take the jobs of all dirty logs that have none under way. Mode `always`."""
        directory = self._directory
        logs, directory.dirty = directory.dirty, []
        size_bytes = directory.bytes_waiting
        directory.appends_waiting = directory.bytes_waiting = 0
        flushing: list[Flushable] = []
        if self._under_way:
            flushing = [log for log in logs if log.is_flushing]
            logs = [log for log in logs if not log.is_flushing]
        jobs, waiting = self._take_jobs(logs, sealed_only=False)
        directory.dirty = flushing + waiting
        directory.bytes_waiting_max -= size_bytes
        flush_round = FlushRound(jobs, size_bytes)
        flush_round.is_waited_for = True
        flush_round.is_full = bool(waiting) and not jobs
        self._under_way[flush_round] = None
        return flush_round

    def _take_jobs(
        self, logs: list[Flushable], *, sealed_only: bool
    ) -> tuple[list[FlushJob], list[Flushable]]:
        """The logs' jobs, and the logs that have to wait for the next round.

        A round holds its files open, so their number is bounded. A file that cannot be opened for
        another reason than their number is a failed sync.
        """
        jobs: list[FlushJob] = []
        files_left = self._directory.open_files.files_max
        for number, log in enumerate(logs):
            if files_left <= 0:
                return jobs, logs[number:]
            try:
                job = log.take_flush_job(sealed_only=sealed_only)
            except OSError as error:
                if error.errno not in RETRIABLE_ERRNOS:
                    raise self._directory.fail(error) from error
                return jobs, logs[number:]
            log.is_flushing = True
            jobs.append(job)
            files_left -= len(job.files)
        return jobs, []

    def execute(self, flush_round: FlushRound) -> None:
        """Do the round's work; errors are kept in it, never raised."""
        filesystem = self._directory.filesystem
        flush_round.began_at = started = self._clock.monotonic()
        try:
            execute_jobs(filesystem, flush_round.jobs, self.sync_files)
        except ShortageError:
            flush_round.is_full = True
        except OSError as error:
            # Without its frames: they refer to the round, and to files that may be deleted.
            flush_round.error = error.with_traceback(None)
        flush_round.seconds = self._clock.monotonic() - started

    def complete_round(self, flush_round: FlushRound) -> list[Flushable]:
        """Report to the logs; return the logs that moved. Raises when the directory is offline."""
        del self._under_way[flush_round]
        jobs = [job for job in flush_round.jobs if not job.is_done]
        for job in jobs:
            job.log.is_flushing = False
        if flush_round.is_waited_for:
            self._directory.bytes_waiting_max += flush_round.size_bytes
        self._mean_seconds += _MEAN_WEIGHT * (flush_round.seconds - self._mean_seconds)
        self.durations.observe(flush_round.seconds)
        if flush_round.error is not None:
            raise self._directory.fail(flush_round.error) from flush_round.error
        if self._directory.failure is not None:
            raise self._directory.failure.again()
        if flush_round.is_full:
            for job in jobs:
                job.log.flush_undone(job)
            self._directory.bytes_waiting += flush_round.size_bytes
            return []
        self.flushed_bytes += flush_round.size_bytes
        moved = [job.log for job in jobs if job.log.flush_done(job)]
        self.moved.update(moved)
        return moved

    def sync_now(self) -> list[Flushable]:
        """Do a whole round on the caller's thread; return the logs whose durable offset moved."""
        flush_round = self.begin_round()
        self.execute(flush_round)
        return self.complete_round(flush_round)

    # --- Modes that acknowledge before they sync ---

    def take_acknowledged(self) -> list[Flushable]:
        """Logs that were appended to since the last call: already acknowledged, sync owed."""
        directory = self._directory
        logs, directory.dirty = directory.dirty, []
        self._owed_bytes += directory.bytes_waiting
        directory.appends_waiting = directory.bytes_waiting = 0
        for log in logs:
            log.is_dirty = False
            self._owed[log] = None
        return logs

    def begin_owed_round(self) -> FlushRound | None:
        """Take the owed syncs: all in mode `interval`, sealed segments in mode `os`."""
        assert not self._under_way, "one owed round at a time"
        self.take_acknowledged()
        sealed_only = self._directory.flush_mode is FlushMode.OS
        logs = [log for log in self._owed if not sealed_only or log.owes_sealed]
        if not logs:
            return None
        jobs, _ = self._take_jobs(logs, sealed_only=sealed_only)
        for log in logs[: len(jobs)]:
            del self._owed[log]
        if not jobs:
            return None
        size_bytes = 0
        if not sealed_only and not self._owed:
            size_bytes, self._owed_bytes = self._owed_bytes, 0
        flush_round = FlushRound(jobs, size_bytes)
        self._under_way[flush_round] = None
        return flush_round

    @property
    def is_owing_much(self) -> bool:
        """Whether acknowledged data should be synced before its time."""
        return self._owed_bytes > OWED_BYTES_MAX

    def forget(self, log: Flushable) -> None:
        """Forget a log that is deleted."""
        self._owed.pop(log, None)
        self.moved.discard(log)

    # --- The pool ---

    def sync_files(self, files: list[File]) -> None:
        """Sync all of these files, at the same time where the pool can."""
        pool = self._pool
        descriptors = _descriptors(files) if pool is not None and len(files) > 1 else None
        if pool is None or descriptors is None:
            sync_in_turn(files)
            return
        for outcome in pool.sync_all(descriptors):
            if outcome:
                raise _sync_error(outcome)

    def take_synced(self) -> list[FlushRound]:
        """Rounds that the pool has finished; the caller completes them."""
        assert self._pool is not None
        rounds = []
        for ticket, seconds, outcomes in self._pool.take():
            flush_round = self._in_pool.pop(ticket)
            flush_round.seconds = seconds
            flush_round.outcomes = outcomes
            failed = [outcome for outcome in outcomes if outcome]
            if failed:
                flush_round.error = _sync_error(failed[0])
            rounds.append(flush_round)
        return rounds

    def complete_early(self) -> list[Flushable]:
        """Report synced files of overdue rounds to their logs; return the logs that moved.

        A sync that failed is left to the end of its round, which is near.
        """
        pool = self._pool
        moved: list[Flushable] = []
        if pool is None or not self.is_overdue:
            return moved
        for ticket, flush_round in self._in_pool.items():
            outcomes = pool.watch(ticket)
            number = 0
            for job in flush_round.jobs:
                mine = outcomes[number : number + len(job.files)]
                number += len(job.files)
                if not job.is_done and not any(mine) and self._directory.failure is None:
                    job.is_done = True
                    job.log.is_flushing = False
                    if job.log.flush_done(job):
                        moved.append(job.log)
        self.moved.update(moved)
        return moved

    # --- The thread ---

    def start(self, report: Callable[[FlushRound], None], pool: SyncPool | None = None) -> None:
        """Start the thread; `report` is called on it once for each finished round.

        With a `pool`, `take_synced` returns the rounds that it finished.
        """
        assert self._syncer is None
        self._pool = pool
        self._report = report
        self._syncer = threading.Thread(
            target=self._run, name=f"flusher {self._directory.path}", daemon=True
        )
        self._syncer.start()

    def submit(self, flush_round: FlushRound) -> None:
        """Start a round's work: plain jobs on the pool, others on the thread."""
        assert self._syncer is not None
        pool = self._pool
        if pool is not None:
            plain = [job for job in flush_round.jobs if job.is_plain]
            descriptors = _descriptors([file for job in plain for file in job.files])
            if descriptors:
                if len(plain) < len(flush_round.jobs):
                    rest = FlushRound([job for job in flush_round.jobs if not job.is_plain], 0)
                    self._under_way[rest] = None
                    self._rounds.put(rest)
                    flush_round.jobs = plain
                flush_round.began_at = self._clock.monotonic()
                self._in_pool[pool.submit(descriptors)] = flush_round
                return
        self._rounds.put(flush_round)

    def stop(self) -> None:
        """End the thread; no round is under way. The pool keeps running: a clean close uses it."""
        if self._syncer is not None:
            self._rounds.put(None)
            self._syncer.join()
            self._syncer = None

    def stop_pool(self) -> None:
        """End the pool's threads; the pool is empty."""
        if self._pool is not None:
            self._pool.stop()
            self._pool = None

    def _run(self) -> None:
        assert self._report is not None
        while (flush_round := self._rounds.get()) is not None:
            self.execute(flush_round)
            self._report(flush_round)
            # While the thread waits it holds no file: a deleted one would keep its disk space.
            flush_round = None
