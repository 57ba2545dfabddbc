"""`DiskWatch`: measures the free space of every data directory and logs changes.

Each directory has a `DiskGuard`, which decides; this class measures the disk and writes the log. A
disk is measured once when the broker starts, so that it refuses produce from the first request if
it must, and then in each call of `sample`. A measurement that fails changes nothing. The caller
decides what to do about a low disk.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

from penstock.storage.disk.disk_guard import DiskGuard, DiskState
from penstock.storage.disk.filesystem import FileSystem, Space

logger = logging.getLogger(__name__)

MEBIBYTE = 1_048_576


class Measured(Protocol):
    """A data directory."""

    @property
    def path(self) -> str:
        """Path of the directory."""
        ...

    @property
    def filesystem(self) -> FileSystem:
        """The file system of the directory."""
        ...


class DiskWatch:
    """The guards of all data directories."""

    def __init__(
        self, directories: Iterable[Measured], *, free_bytes_min: int, free_share_min: float
    ) -> None:
        self._directories = list(directories)
        self.guards = {
            directory.path: DiskGuard(free_bytes_min=free_bytes_min, free_share_min=free_share_min)
            for directory in self._directories
        }
        self._relieved: set[str] = set()
        """Directories that were low or full at the last report of `sample`."""

    def measure_all(self) -> None:
        """Measure now, on this thread."""
        for directory in self._directories:
            try:
                self._take(directory.path, directory.filesystem.space(directory.path))
            except OSError as error:
                logger.warning("the free space of %s is not known: %s", directory.path, error)

    async def sample(self, work: Callable[[Callable[[], Space]], Awaitable[Space]]) -> bool:
        """Measure on a worker thread; whether a disk has become low since the last report."""
        is_relief_needed = False
        for directory in self._directories:
            path = directory.path
            try:
                space = await work(partial(directory.filesystem.space, path))
            except OSError:
                continue
            if self._take(path, space) is DiskState.OPEN:
                self._relieved.discard(path)
            elif path not in self._relieved:
                self._relieved.add(path)
                is_relief_needed = True
        return is_relief_needed

    def _take(self, path: str, space: Space) -> DiskState:
        guard = self.guards[path]
        before = guard.state
        state = guard.sample(space)
        if state is not before:
            _log_state(path, guard)
        return state


def _log_state(path: str, guard: DiskGuard) -> None:
    free, marks = guard.space.free_bytes // MEBIBYTE, guard.marks
    if guard.state is DiskState.FULL:
        logger.error(
            "the disk of %s has %d MiB free: produce is refused until %d MiB are free, fetch goes "
            "on. Delete topics or records, shorten retention, or give the disk more room.",
            path,
            free,
            marks.resume_at_bytes // MEBIBYTE,
        )
    elif guard.state is DiskState.LOW:
        logger.warning(
            "the disk of %s is low: %d MiB free, produce is refused below %d MiB",
            path,
            free,
            marks.refuse_below_bytes // MEBIBYTE,
        )
    else:
        logger.info("the disk of %s has room again: %d MiB free", path, free)
