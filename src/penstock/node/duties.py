"""The periodic work of storage: the schedule of each duty; a failure does not end a duty.

Guarantees: every duty runs again after its interval, a changed interval takes effect at once, and
all duties end with `run`. `storage.service` implements the duties.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypedDict

from penstock.core.settings.tree import DiskSettings, Settings
from penstock.node.pace import Pace
from penstock.storage.service import StorageService

logger = logging.getLogger(__name__)

SPACE_SECONDS = 1.0
"""Interval between two samples of free space."""

Duty: TypeAlias = Callable[[], Awaitable[None]]


class DiskMarks(TypedDict):
    """The arguments of storage that define a full disk."""

    free_bytes_min: int
    free_share_min: float


def disk_marks(settings: DiskSettings) -> DiskMarks:
    """Return the marks of the settings, in storage's units."""
    return DiskMarks(
        free_bytes_min=settings.free_bytes_min, free_share_min=settings.free_percent_min / 100
    )


class StorageDuties:
    """Checkpoints, retention, compaction, free space and, in one mode, syncs."""

    def __init__(self, storage: StorageService, settings: Settings) -> None:
        self._storage = storage
        self._checkpoint = Pace(settings.log.checkpoint_interval_ms)
        self._retention = Pace(settings.log.retention_check_interval_ms)
        self._compaction = Pace(settings.log.compaction_check_interval_ms)
        self._sync = Pace(settings.flush.interval_ms)
        self._syncs = settings.flush.mode == "interval"

    def follow(self, settings: Settings) -> None:
        """Use other intervals, and other marks for the disks, from now on."""
        self._storage.change_guards(**disk_marks(settings.disk))
        self._checkpoint.change(settings.log.checkpoint_interval_ms)
        self._retention.change(settings.log.retention_check_interval_ms)
        self._compaction.change(settings.log.compaction_check_interval_ms)
        self._sync.change(settings.flush.interval_ms)

    async def run(self) -> None:
        """Run all duties, until cancelled."""
        storage = self._storage
        async with asyncio.TaskGroup() as group:
            group.create_task(_paced(self._checkpoint, storage.checkpoint))
            group.create_task(_paced(self._retention, storage.run_retention))
            group.create_task(_paced(self._compaction, storage.clean_logs))
            group.create_task(_sample(storage.sample_space))
            if self._syncs:
                group.create_task(_paced(self._sync, storage.flush_owed))


async def _paced(pace: Pace, duty: Duty) -> None:
    while True:
        await pace.rest()
        await _done(duty)


async def _sample(duty: Duty) -> None:
    while True:
        await asyncio.sleep(SPACE_SECONDS)
        await _done(duty)


async def _done(duty: Duty) -> None:
    try:
        await duty()
    except Exception:
        # The next run may succeed; logs are served without these duties.
        logger.exception("a periodic duty of storage failed")
