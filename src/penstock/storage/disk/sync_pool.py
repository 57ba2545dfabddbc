"""`SyncPool`: many files synced at the same time, beside the event loop.

The port, and its implementation with Python's threads. `native_sync` has the same with threads that
never take the interpreter's lock; `open_sync_pool` prefers it. Both pass
tests/contracts/test_sync_pool.py.

A batch is the descriptors of one `submit`. The caller keeps the files open until it has taken the
batch. Each sync has its own outcome: 0 when the file is on the disk, otherwise the error number of
fdatasync, which is called once. `flusher` decides what an outcome means for a log.
"""

import os
import threading
import time
from collections import deque
from importlib import import_module
from typing import Final, NamedTuple, Protocol

UNFINISHED: Final = -1
"""The outcome of a sync that has not ended."""


class FinishedBatch(NamedTuple):
    """A batch of which every sync has ended."""

    ticket: int
    seconds: float
    """From `submit` to the end of the last sync."""
    outcomes: list[int]
    """In the order of the descriptors."""


class SyncPool(Protocol):
    """Syncs batches of files."""

    @property
    def report_descriptor(self) -> int:
        """Becomes readable when `take` has a batch, or a watched batch has progressed."""
        ...

    def submit(self, descriptors: list[int]) -> int:
        """Begin to sync these files; return the batch's ticket."""
        ...

    def take(self) -> list[tuple[int, float, list[int]]]:
        """Batches that are finished, each once: ticket, seconds and outcomes."""
        ...

    def watch(self, ticket: int) -> list[int]:
        """The outcomes so far; from now on each single sync of the batch is reported."""
        ...

    def sync_all(self, descriptors: list[int]) -> list[int]:
        """Sync these files, wait for it, and return the outcomes."""
        ...

    def stop(self) -> None:
        """End the threads after everything that was submitted."""
        ...


class _Batch:
    __slots__ = ("began_at", "descriptors", "ended_at", "is_watched", "left", "outcomes", "ticket")

    def __init__(self, ticket: int, descriptors: list[int]) -> None:
        self.ticket = ticket
        self.descriptors = descriptors
        self.outcomes = [UNFINISHED] * len(descriptors)
        self.left = len(descriptors)
        self.is_watched = False
        self.began_at = time.monotonic()
        self.ended_at = 0.0


class ThreadSyncPool:
    """The pool with Python's threads: fdatasync releases the interpreter, the rest does not."""

    def __init__(self, threads_max: int) -> None:
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        self._report = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._work = threading.Condition()
        self._queue: deque[tuple[_Batch, int]] = deque()
        self._finished: deque[_Batch] = deque()
        self._batches: dict[int, _Batch] = {}
        self._last_ticket = 0
        self._idle = 0
        self._is_stopping = False

    def __del__(self) -> None:
        os.close(self._report)

    @property
    def report_descriptor(self) -> int:
        """Readable when there is a batch to take."""
        return self._report

    def submit(self, descriptors: list[int]) -> int:
        """Begin to sync these files."""
        self._last_ticket += 1
        batch = self._batches[self._last_ticket] = _Batch(self._last_ticket, descriptors)
        with self._work:
            self._queue += [(batch, number) for number in range(len(descriptors))]
            missing = len(descriptors) - self._idle
            self._work.notify(len(descriptors))
        for _ in range(min(missing, self._threads_max - len(self._threads))):
            thread = threading.Thread(target=self._run, name="sync", daemon=True)
            self._threads.append(thread)
            thread.start()
        return batch.ticket

    def take(self) -> list[tuple[int, float, list[int]]]:
        """Batches that are finished, each once."""
        try:
            os.eventfd_read(self._report)
        except BlockingIOError:
            return []
        taken: list[tuple[int, float, list[int]]] = []
        while self._finished:
            batch = self._finished.popleft()
            self._batches.pop(batch.ticket, None)
            seconds = batch.ended_at - batch.began_at
            taken.append(FinishedBatch(batch.ticket, seconds, batch.outcomes))
        return taken

    def watch(self, ticket: int) -> list[int]:
        """The outcomes so far."""
        batch = self._batches[ticket]
        with self._work:
            batch.is_watched = True
            return list(batch.outcomes)

    def sync_all(self, descriptors: list[int]) -> list[int]:
        """Sync these files one by one: the caller's thread is one of several already."""
        outcomes = []
        for descriptor in descriptors:
            outcomes.append(_sync(descriptor))
            if outcomes[-1]:
                break
        return outcomes

    def stop(self) -> None:
        """End the threads."""
        with self._work:
            self._is_stopping = True
            self._work.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _run(self) -> None:
        while True:
            with self._work:
                while not self._queue:
                    if self._is_stopping:
                        return
                    self._idle += 1
                    self._work.wait()
                    self._idle -= 1
                batch, number = self._queue.popleft()
            outcome = _sync(batch.descriptors[number])
            with self._work:
                batch.outcomes[number] = outcome
                batch.left -= 1
                if batch.left == 0:
                    batch.ended_at = time.monotonic()
                    self._finished.append(batch)
                is_news = batch.left == 0 or batch.is_watched
            if is_news:
                os.eventfd_write(self._report, 1)


def _sync(descriptor: int) -> int:
    try:
        os.fdatasync(descriptor)
    except OSError as error:
        return error.errno or -1
    return 0


def open_sync_pool(threads_max: int) -> SyncPool | None:
    """A pool, with native threads where they were compiled; None without eventfd."""
    try:
        # By name: import-linter knows no modules but those of Python.
        native = import_module("penstock.storage.native_sync")
    except ImportError:
        return ThreadSyncPool(threads_max) if hasattr(os, "eventfd") else None
    pool: SyncPool = native.NativeSyncPool(threads_max)
    return pool
