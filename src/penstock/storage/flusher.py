"""Group commit: one `Flusher` for each data directory.

A round is: take the jobs of all dirty logs (owner's thread), do them (any one thread), tell the
logs (owner's thread). One round at a time; what is appended meanwhile shares the next. The owner's
thread is the one that appends, so no log needs a lock: the flusher's thread sees only `FlushJob`s.

Where a round is done is decided by `choose_path`: a hop to a thread and back costs as much as a
sync on a fast disk, so a lone append on a fast disk is synced by its own thread; everything else
goes to the flusher's thread, which is woken by a queue, not by an executor, and reports once for
each round.

The order inside a job is the law of durability: epochs, data, snapshots, names; only then does the
durable offset move. A failed sync is final (fsyncgate: a retry may succeed with the data gone): the
directory is offline, nothing after it is acknowledged. Lack of room for the small files is not, nor
is a lack of descriptors: the job is owed again.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from queue import SimpleQueue
from typing import Final

from penstock.core.clock import Clock
from penstock.core.limits import SYNC_ON_LOOP_BYTES_MAX, SYNC_ON_LOOP_SECONDS_MAX
from penstock.core.metrics import SECONDS_BOUNDS, Histogram
from penstock.storage.filesystem import (
    DESCRIPTOR_ERRNOS,
    RETRIABLE_ERRNOS,
    File,
    FileSystem,
    write_fully,
)
from penstock.storage.log_directory import Flushable, FlushJob, LogDirectory
from penstock.storage.log_loader import LEADER_EPOCH_FILE
from penstock.storage.log_settings import FlushMode
from penstock.storage.snapshot_writer import SnapshotWriter

_MEAN_WEIGHT = 0.2
"""Weight of the newest sync in the mean: five slow ones in a row move it, a single one hardly."""


class SyncPath(Enum):
    """Who does the next round."""

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
) -> SyncPath:
    """Who does the next round. Pure.

    The caller syncs only for one log with one small append, and only while syncs are fast: with
    more waiting, the loop is better used for reading more requests into the next round. A large
    append seldom comes alone: its client sends the next one before the answer.
    """
    if jobs == 0 or is_round_under_way:
        return SyncPath.NOBODY
    is_small = appends_waiting == 1 and bytes_waiting <= SYNC_ON_LOOP_BYTES_MAX
    if jobs == 1 and is_small and mean_seconds < SYNC_ON_LOOP_SECONDS_MAX:
        return SyncPath.CALLER
    return SyncPath.THREAD


class FlushRound:
    """Jobs that are synced together."""

    __slots__ = ("began_at", "error", "is_full", "jobs", "seconds", "size_bytes")

    def __init__(self, jobs: list[FlushJob], size_bytes: int) -> None:
        self.jobs = jobs
        self.size_bytes = size_bytes
        """What was appended since the round before it."""
        self.error: BaseException | None = None
        """Why the directory is dead, or None."""
        self.is_full = False
        """No room for a small file, or no descriptor: nothing is lost, the jobs are owed again."""
        self.began_at = 0.0
        """On the monotonic clock; 0 until a thread has taken it up."""
        self.seconds = 0.0


class _ShortageError(Exception):
    """A small file found no room, or nothing could be opened; caught in this module."""


def execute_jobs(filesystem: FileSystem, jobs: list[FlushJob]) -> None:
    """Put the work of several logs on the disk, in the order that durability needs.

    Step by step over all jobs, not job by job: a file system with a journal commits for the first
    file of a step what the others then find done.
    """
    _replace_epochs(filesystem, jobs)
    for job in jobs:
        for file in job.files:
            file.sync()
    _write_snapshots(filesystem, jobs)
    try:
        for job in jobs:
            if job.sync_directory or job.epochs is not None:
                filesystem.sync_directory(job.log.directory)
        parents = {job.log.directory.rpartition("/")[0] for job in jobs if job.sync_parent}
        for parent in parents:
            filesystem.sync_directory(parent)
    except OSError as error:
        if error.errno in DESCRIPTOR_ERRNOS:
            raise _ShortageError from error
        raise


def _replace_epochs(filesystem: FileSystem, jobs: list[FlushJob]) -> None:
    """Write leader epochs aside, sync, rename; their names are synced with the others."""
    written: list[tuple[str, File]] = []
    with _telling_full():
        for job in jobs:
            if job.epochs is not None:
                path = f"{job.log.directory}/{LEADER_EPOCH_FILE}"
                file = filesystem.create_file(f"{path}.tmp")
                write_fully(file, job.epochs, 0)
                written.append((path, file))
        for _, file in written:
            file.sync()
        for path, _ in written:
            filesystem.rename(f"{path}.tmp", path)


def _write_snapshots(filesystem: FileSystem, jobs: list[FlushJob]) -> None:
    """Write the producers of a clean stop. An older snapshot can stand in for each."""
    written: list[File] = []
    with _telling_full():
        for job in jobs:
            if job.snapshot is not None:
                name, snapshot = job.snapshot
                file = filesystem.create_file(f"{job.log.directory}/{name}")
                write_fully(file, snapshot.to_bytes(), 0)
                written.append(file)
        for file in written:
            file.sync()


@contextmanager
def _telling_full() -> Iterator[None]:
    """Tell a full disk from a broken one while a small file is written."""
    try:
        yield
    except OSError as error:
        if error.errno in RETRIABLE_ERRNOS:
            raise _ShortageError from error
        raise


class Flusher:
    """Syncs what the logs of one data directory wrote."""

    def __init__(self, directory: LogDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._under_way: FlushRound | None = None
        self._owed: dict[Flushable, None] = {}
        """Logs whose appends were acknowledged and not synced: modes `interval` and `os`."""
        self._owed_bytes = 0
        self.moved: set[Flushable] = set()
        """Logs whose synced offset moved since the last recovery-point checkpoint, who empties
        it."""
        self._mean_seconds = 0.0
        self.durations: Final = Histogram(SECONDS_BOUNDS)
        """How long rounds took, those that failed too."""
        self.flushed_bytes = 0
        """What was appended and is on the disk by a round of ours."""
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
        """Whether the thread is at work or its report is not yet taken."""
        return self._under_way is not None

    def under_way_seconds(self) -> float:
        """How long the round that is under way takes already; 0 when there is none."""
        under_way = self._under_way
        if under_way is None or not under_way.began_at:
            return 0.0
        return self._clock.monotonic() - under_way.began_at

    def path(self) -> SyncPath:
        """Who should do the next round."""
        directory = self._directory
        return choose_path(
            jobs=len(directory.dirty),
            appends_waiting=directory.appends_waiting,
            bytes_waiting=directory.bytes_waiting,
            is_round_under_way=self._under_way is not None,
            mean_seconds=self._mean_seconds,
        )

    # --- One round ---

    def begin_round(self) -> FlushRound:
        """Take the jobs of all dirty logs. Mode `always`."""
        assert self._under_way is None, "one round at a time"
        directory = self._directory
        logs, directory.dirty = directory.dirty, []
        size_bytes = directory.bytes_waiting
        directory.appends_waiting = directory.bytes_waiting = 0
        jobs, directory.dirty = self._take_jobs(logs, sealed_only=False)
        self._under_way = FlushRound(jobs, size_bytes)
        self._under_way.is_full = bool(directory.dirty) and not jobs
        return self._under_way

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
            jobs.append(job)
            files_left -= len(job.files)
        return jobs, []

    def execute(self, flush_round: FlushRound) -> None:
        """Do the round's work; errors are kept in it, never raised."""
        filesystem = self._directory.filesystem
        flush_round.began_at = started = self._clock.monotonic()
        try:
            execute_jobs(filesystem, flush_round.jobs)
        except _ShortageError:
            flush_round.is_full = True
        except OSError as error:
            flush_round.error = error
        flush_round.seconds = self._clock.monotonic() - started

    def complete_round(self, flush_round: FlushRound) -> list[Flushable]:
        """Tell the logs; those whose durable offset moved. Raises when the directory is dead."""
        assert flush_round is self._under_way
        self._under_way = None
        self._mean_seconds += _MEAN_WEIGHT * (flush_round.seconds - self._mean_seconds)
        self.durations.observe(flush_round.seconds)
        if flush_round.error is not None:
            raise self._directory.fail(flush_round.error)
        if self._directory.failure is not None:
            raise self._directory.failure
        if flush_round.is_full:
            for job in flush_round.jobs:
                job.log.flush_undone(job)
            self._directory.bytes_waiting += flush_round.size_bytes
            return []
        self.flushed_bytes += flush_round.size_bytes
        moved = [job.log for job in flush_round.jobs if job.log.flush_done(job)]
        self.moved.update(moved)
        return moved

    def sync_now(self) -> list[Flushable]:
        """A whole round on the caller's thread; the logs whose durable offset moved."""
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
        """Take what is owed: everything in mode `interval`, sealed segments in mode `os`."""
        assert self._under_way is None, "one round at a time"
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
        self._under_way = FlushRound(jobs, size_bytes)
        return self._under_way

    def forget(self, log: Flushable) -> None:
        """A log is deleted: nothing of it is owed any more."""
        self._owed.pop(log, None)
        self.moved.discard(log)

    # --- The thread ---

    def start(self, report: Callable[[FlushRound], None]) -> None:
        """Start the thread; `report` is called on it once for each finished round."""
        assert self._syncer is None
        self._report = report
        self._syncer = threading.Thread(
            target=self._run, name=f"flusher {self._directory.path}", daemon=True
        )
        self._syncer.start()

    def submit(self, flush_round: FlushRound) -> None:
        """Have the thread do a round that was begun."""
        assert self._syncer is not None
        self._rounds.put(flush_round)

    def stop(self) -> None:
        """End the thread after the round it is at; waits for it."""
        if self._syncer is not None:
            self._rounds.put(None)
            self._syncer.join()
            self._syncer = None

    def _run(self) -> None:
        assert self._report is not None
        while (flush_round := self._rounds.get()) is not None:
            self.execute(flush_round)
            self._report(flush_round)
