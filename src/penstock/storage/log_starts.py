"""`LogStarts`: moves the start of logs, durably, for DeleteRecords.

Guarantees: when `advance` returns without an error for a log, the records below never reappear,
also after a restart: the checkpoint of log starts is synced. A call that arrives while a checkpoint
is being written shares the next one. Without disk space for it the start has moved in memory only,
and the call returns the error; the records can reappear after a crash.

It removes no files; retention does, as soon as a segment lies wholly below the start.
"""

from collections.abc import Callable, Sequence

from penstock.core.errors import DiskFullError, PenstockError
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.exclusive import Exclusive, Work
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.storage.managed_directory import ManagedDirectory


class _Writes:
    """The checkpoint of one data directory: requested and written numbers."""

    __slots__ = ("asked", "one_at_a_time", "written")

    def __init__(self, one_at_a_time: Exclusive) -> None:
        self.asked = 0
        self.written = 0
        """All requests up to this number are in the file."""
        self.one_at_a_time = one_at_a_time


class LogStarts:
    """Advances log starts of all data directories."""

    def __init__(self, manager: LogManager, work: Work, new_lock: Callable[[], Exclusive]) -> None:
        self._manager = manager
        self._work = work
        self._new_lock = new_lock
        self._writes: dict[str, _Writes] = {}

    async def advance(
        self, starts: Sequence[tuple[PartitionLog, int]]
    ) -> list[PenstockError | None]:
        """Move the start of each log up to its offset; one outcome for each."""
        outcomes: list[PenstockError | None] = []
        homes: dict[str, ManagedDirectory] = {}
        for log, offset in starts:
            outcomes.append(self._move(log, offset, homes))
        for home in homes.values():
            error = await self._write(home)
            if error is not None:
                outcomes = [
                    error if outcome is None and self._home_of(log) is home else outcome
                    for (log, _), outcome in zip(starts, outcomes, strict=True)
                ]
        return outcomes

    def _home_of(self, log: PartitionLog) -> ManagedDirectory | None:
        """The log's data directory, or None if the log is deleted."""
        name = log.topic_partition
        return self._manager.home_of(name) if self._manager.logs.get(name) is log else None

    def _move(
        self, log: PartitionLog, offset: int, homes: dict[str, ManagedDirectory]
    ) -> PenstockError | None:
        """Move a start in memory; adds its directory to `homes`, to be written."""
        try:
            log.advance_start(offset)
        except PenstockError as error:
            return error
        home = self._home_of(log)
        assert home is not None, "a deleted log refuses"
        # Also when no start moved: an earlier one may be in memory only, for lack of disk space.
        home.log_starts[log.topic_partition] = log.log_start_offset
        homes[home.path] = home
        return None

    async def _write(self, home: ManagedDirectory) -> PenstockError | None:
        """Return when a checkpoint that was begun after now is on the disk."""
        writes = self._writes.get(home.path)
        if writes is None:
            writes = self._writes[home.path] = _Writes(self._new_lock())
        writes.asked += 1
        number = writes.asked
        async with writes.one_at_a_time:
            if writes.written >= number:
                return None
            covered = writes.asked
            try:
                await self._work(home.write_log_starts)
            except OSError as error:
                if error.errno not in RETRIABLE_ERRNOS:
                    return home.shared.fail(error)
                return DiskFullError(f"no room in {home.path} for the log starts: {error}")
            writes.written = covered
        return None
