"""`InstallRunner`: replaces logs by prepared ones from the event loop; file work is on threads.

Guarantees: the loop never waits for a file. While logs are replaced they refuse appends and reads
with `LogBusyError`, which clients retry; other logs are not delayed. The lock over file removals is
held, so neither retention nor compaction nor a deletion touches the same files. Before the decision
an error leaves the logs as they were; after it they are out of service until the next start
finishes the replacement.

It must not be cancelled in the middle: `StorageService` runs it in a task of its own.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.core.errors import (
    DiskFullError,
    PenstockError,
    QuarantinedLogError,
    StorageBusyError,
    StorageError,
)
from penstock.core.types import TopicPartition
from penstock.storage.cut_runner import Errors, WaitUnused
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.exclusive import Exclusive, Rest, Work
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_installation import (
    LogInstallation,
    NewLog,
    conclude,
    decide,
    finish_decided,
)
from penstock.storage.log_manager import LogManager

_SWAP_RETRY_SECONDS: Final = 1.0
_BUSY_RETRY_SECONDS: Final = 0.1
_FULL_TRIES: Final = 30
_FULL_RETRY_SECONDS: Final = 1.0
"""A decided replacement that finds no room is tried again; the other logs are served meanwhile."""


class InstallRunner:
    """Replaces logs of a manager."""

    def __init__(
        self,
        manager: LogManager,
        work: Work,
        file_removal: Exclusive,
        rest: Rest,
        wait_unused: WaitUnused,
        on_restart: Callable[[PartitionLog], None],
    ) -> None:
        self._manager = manager
        self._work = work
        self._file_removal = file_removal
        self._rest = rest
        self._wait_unused = wait_unused
        self._on_restart = on_restart
        """Called when all files of a log's old segments were removed."""

    async def install(self, logs: Sequence[NewLog]) -> Errors:
        """Replace all these logs, or none; return the error for each if it failed."""
        while True:
            async with self._file_removal:
                found = [self._manager.logs.get(one.partition) for one in logs]
                present = [log for log in found if log is not None]
                if len(present) < len(logs):
                    return _all(logs, StorageError("a log to replace does not exist any more"))
                if not any(log.is_swapping for log in present):
                    cuts = [
                        LogInstallation(log, self._manager.home_of(one.partition), one)
                        for log, one in zip(present, logs, strict=True)
                    ]
                    error = await self._install(cuts)
                    return {} if error is None else _all(logs, error)
            await self._rest(_SWAP_RETRY_SECONDS)

    async def _install(self, cuts: list[LogInstallation]) -> PenstockError | None:
        error = await self._begin(cuts)
        if error is None:
            error = await self._decide(cuts)
        if error is not None:
            return error
        for cut in cuts:
            cut.move_checkpoints()
        try:
            await self._finish(cuts)
        except (OSError, PenstockError) as failure:
            return self._broken(cuts, failure)
        for cut in cuts:
            cut.settle()
            self._on_restart(cut.log)
        return None

    async def _begin(self, cuts: list[LogInstallation]) -> PenstockError | None:
        begun: list[LogInstallation] = []
        try:
            for cut in cuts:
                cut.begin()
                begun.append(cut)
            await self._wait_unused({cut.log for cut in begun})
        except PenstockError as error:
            _undo(begun)
            return error
        except BaseException:
            _undo(begun)
            raise
        for cut in cuts:
            cut.exclude()
        return None

    async def _decide(self, cuts: list[LogInstallation]) -> PenstockError | None:
        """Step 2; after an error the logs are served as they were."""
        home = cuts[0].home
        filesystem = home.shared.filesystem
        try:
            await self._work(partial(decide, filesystem, home.path, [cut.new for cut in cuts]))
        except StorageBusyError as error:
            _undo(cuts)
            return error
        except OSError as error:
            try:
                await self._insist(partial(conclude, filesystem, home.path))
            except OSError as second:
                # Whether the next start replaces the logs is not known.
                return self._broken(cuts, second)
            _undo(cuts)
            if error.errno in RETRIABLE_ERRNOS:
                return DiskFullError(f"no room in {home.path} to replace logs: {error}")
            return home.shared.fail(error)
        except BaseException:
            _undo(cuts)
            raise
        return None

    async def _insist(self, call: Callable[[], None]) -> None:
        while True:
            try:
                return await self._work(call)
            except StorageBusyError:
                await self._rest(_BUSY_RETRY_SECONDS)

    async def _finish(self, cuts: list[LogInstallation]) -> None:
        """Steps 3 to 5; each may be repeated."""
        for left in reversed(range(_FULL_TRIES)):
            try:
                return await self._insist(partial(finish_decided, cuts))
            except OSError as error:
                if error.errno not in RETRIABLE_ERRNOS:
                    raise
                if not left:
                    # A full disk is not a failed one: only these logs wait for the next start.
                    raise DiskFullError(f"no room to replace logs: {error}") from error
            await self._rest(_FULL_RETRY_SECONDS)
        raise AssertionError("the last try raises")

    def _broken(self, cuts: list[LogInstallation], error: OSError | PenstockError) -> PenstockError:
        """Keep logs whose replacement is decided out of service until the next start."""
        home = cuts[0].home
        problem: StorageError
        if isinstance(error, OSError):
            problem = home.shared.fail(error.with_traceback(None))
        else:
            problem = QuarantinedLogError(
                f"{cuts[0].log.topic_partition}: the installed log is not served: {error}; restart"
                " the broker to finish its replacement"
            )
        for cut in cuts:
            cut.log.problem = problem
        return problem.again()


def _all(logs: Sequence[NewLog], error: PenstockError) -> dict[TopicPartition, PenstockError]:
    return {one.partition: error for one in logs}


def _undo(cuts: Sequence[LogInstallation]) -> None:
    for cut in cuts:
        cut.undo()
