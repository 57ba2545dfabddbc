"""`SnapshotWriter`: stores the producer snapshots of one data directory, on a thread of its own.

Clients determine the size of the producer table, so packing holds the interpreter for
`SNAPSHOT_SLICE_PRODUCERS` producers at a time and rests as long as each slice took. The order is:
the file, its sync, a sync of the directory's names; only then does the log count it as stored, and
only then are older snapshots removed. A crash in between leaves a file that is whole or that its
checksum refuses, and an older one beside it.

An error has the same effect as in a round of the flusher: without space or descriptors it is
retried, a failed write or sync takes the directory out of service. A stop, or the deletion of the
log, abandons the snapshot that is being packed: `clean_close` stores the producers of a clean stop.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from penstock.core.clock import Clock
from penstock.core.limits import SNAPSHOT_SLICE_PRODUCERS
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS, write_fully
from penstock.storage.log.log_directory import LogDirectory
from penstock.storage.log.log_snapshots import SnapshotLog, TakenSnapshot
from penstock.storage.log.producer_state import snapshot_header
from penstock.storage.thread_priority import lower_priority

_REST_RATIO: Final = 1.0
"""Rest after each slice, as a multiple of the time that it took."""


class SnapshotJob:
    """One snapshot that is being stored."""

    __slots__ = ("error", "is_stored", "snapshot")

    def __init__(self, snapshot: TakenSnapshot) -> None:
        self.snapshot = snapshot
        self.is_stored = False
        self.error: OSError | None = None
        """Why it is not stored; None also when it was abandoned."""


class SnapshotWriter:
    """Stores the snapshots of the logs of one data directory."""

    def __init__(self, directory: LogDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._jobs: SimpleQueue[SnapshotJob | None] = SimpleQueue()
        self._under_way: SnapshotJob | None = None
        self._thread: threading.Thread | None = None
        self._report: Callable[[SnapshotJob], None] | None = None
        self._abandon = threading.Event()

    @property
    def log_under_way(self) -> SnapshotLog | None:
        """The log whose snapshot is being stored, or whose report is not taken yet."""
        return None if self._under_way is None else self._under_way.snapshot.log

    # --- One snapshot ---

    def begin(self) -> SnapshotJob | None:
        """Take the next snapshot whose data is on the disk; owner's thread."""
        ready = self._directory.snapshots_ready
        if self._under_way is not None or self._directory.failure is not None:
            return None
        while ready:
            log = next(iter(ready))
            del ready[log]
            snapshot = log.snapshots.begin()
            if snapshot is not None:
                self._abandon.clear()
                self._under_way = SnapshotJob(snapshot)
                return self._under_way
        return None

    def execute(self, job: SnapshotJob) -> None:
        """Pack and store it; errors are kept in the job, never raised."""
        try:
            parts = self._pack(job.snapshot)
            if parts is not None:
                self._store(job.snapshot, parts)
                job.is_stored = True
        except OSError as error:
            # Without its frames: they refer to the job, and to a file that may be deleted.
            job.error = error.with_traceback(None)

    def _pack(self, snapshot: TakenSnapshot) -> list[bytes] | None:
        """The file in parts, or None when it is not needed any more."""
        parts = []
        packing = snapshot.producers.parts(SNAPSHOT_SLICE_PRODUCERS)
        started = self._clock.monotonic()
        for part in packing:
            parts.append(part)
            if len(part) and self._rest(started):
                return None
            started = self._clock.monotonic()
        return parts

    def _rest(self, started: float) -> bool:
        """Release the interpreter; return whether to give up."""
        return self._abandon.wait((self._clock.monotonic() - started) * _REST_RATIO)

    def _store(self, snapshot: TakenSnapshot, parts: list[bytes]) -> None:
        filesystem, directory = self._directory.filesystem, snapshot.log.directory
        file = filesystem.create_file(f"{directory}/{snapshot.name}")
        position = 0
        for part in (snapshot_header(parts), *parts):
            write_fully(file, part, position)
            position += len(part)
        file.sync()
        filesystem.sync_directory(directory)
        for name in snapshot.obsolete:
            with suppress(FileNotFoundError):
                filesystem.remove_file(f"{directory}/{name}")

    def complete(self, job: SnapshotJob) -> bool:
        """Report to the log; return whether the job must be retried later. Owner's thread."""
        assert job is self._under_way
        self._under_way = None
        snapshot = job.snapshot
        snapshots = snapshot.log.snapshots
        assert snapshots.taken is snapshot, "a log is cut or deleted while nothing is under way"
        if job.is_stored:
            snapshots.stored(snapshot)
            return False
        snapshot.is_begun = False
        if job.error is not None and job.error.errno not in RETRIABLE_ERRNOS:
            self._directory.fail(job.error)
            return False
        snapshots.offer(snapshot.log, self._directory)
        return True

    def write_ready(self) -> None:
        """Store all snapshots that are ready, on the caller's thread."""
        while (job := self.begin()) is not None:
            self.execute(job)
            if self.complete(job):
                return

    # --- The thread ---

    def start(self, report: Callable[[SnapshotJob], None]) -> None:
        """Call `report` on the writer's thread after each job."""
        self._report = report

    def submit(self, job: SnapshotJob) -> None:
        """Store a snapshot on the thread; the first one starts the thread."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"snapshots {self._directory.path}", daemon=True
            )
            self._thread.start()
        self._jobs.put(job)

    def abandon(self) -> None:
        """Give up a snapshot that is being packed; one that is being written is finished."""
        self._abandon.set()

    def stop(self) -> None:
        """End the thread; no job is under way."""
        assert self._under_way is None
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        assert self._report is not None
        lower_priority()
        while (job := self._jobs.get()) is not None:
            self.execute(job)
            self._report(job)
            # While the thread waits it refers to no log, which may be deleted.
            job = None
