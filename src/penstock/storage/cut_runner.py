"""`CutRunner`: truncates and restarts logs from the event loop; all file work is on worker threads.

Guarantees: the loop never waits for a file. While a log is cut it refuses appends and reads with
`LogBusyError`, which clients retry; other logs are not delayed, and their rounds go on. Many logs
share one write of the checkpoints. When a call returns without an error for a log, its cut is on
the disk.

The lock over file removals is held meanwhile, so neither retention nor compaction nor a deletion
touches the same files. A swap of segments ends first, without the lock.

It does NOT decide where a log is cut, and must not be cancelled in the middle: `StorageService`
runs it in a task of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from penstock.core.errors import (
    DiskFullError,
    PenstockError,
    QuarantinedLogError,
    StorageBusyError,
    StorageError,
)
from penstock.core.types import TopicPartition
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.exclusive import Exclusive, Rest, Work
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log_manager import LogManager
from penstock.storage.log_truncation import LogCut, Restart, Truncation, write_lowered
from penstock.storage.managed_directory import ManagedDirectory

_SWAP_RETRY_SECONDS: Final = 1.0
"""Until a cut that a swap delayed is retried."""
_BUSY_RETRY_SECONDS: Final = 0.1
"""Until a restart that was decided is continued, while too much work waits for the threads."""
_CUTS_AT_ONCE: Final = 16
"""Logs that one job of a worker thread cuts: each is served again as soon as its job has ended."""

AnyCut = TypeVar("AnyCut", bound=LogCut)
Errors = dict[TopicPartition, PenstockError]


class WaitUnused(Protocol):
    """Waits for the flusher and the snapshot writer."""

    async def __call__(self, logs: set[PartitionLog]) -> None:
        """Return when no round and no snapshot works on these logs."""
        ...


class CutRunner:
    """Cuts logs of a manager."""

    def __init__(
        self,
        manager: LogManager,
        work: Work,
        file_removal: Exclusive,
        rest: Rest,
        wait_unused: WaitUnused,
        on_restart: Callable[[PartitionLog], None],
        on_damage: Callable[[PartitionLog, StorageError], None],
    ) -> None:
        self._manager = manager
        self._work = work
        self._file_removal = file_removal
        self._rest = rest
        self._wait_unused = wait_unused
        self._on_restart = on_restart
        """Called when all files of a log's segments were removed."""
        self._on_damage = on_damage
        """Called with a log that is not served any more."""

    async def truncate(self, offsets: Mapping[TopicPartition, int]) -> Errors:
        """Truncate logs; below its start a log begins anew. Return the errors by partition."""
        return await self._cut(offsets, is_restart=False)

    async def restart(self, offsets: Mapping[TopicPartition, int]) -> Errors:
        """Drop all records of logs, which begin at their offsets. Return the errors."""
        return await self._cut(offsets, is_restart=True)

    async def _cut(self, offsets: Mapping[TopicPartition, int], *, is_restart: bool) -> Errors:
        errors: Errors = {}
        waiting = dict(offsets)
        while waiting:
            async with self._file_removal:
                truncations: list[Truncation] = []
                restarts: list[Restart] = []
                swapping: dict[TopicPartition, int] = {}
                for partition, offset in waiting.items():
                    log = self._manager.logs.get(partition)
                    if log is None:
                        errors[partition] = StorageError(f"{partition} has no log to truncate")
                        continue
                    home = self._manager.home_of(partition)
                    if log.is_swapping:
                        swapping[partition] = offset
                    elif is_restart or offset < log.log_start_offset:
                        restarts.append(Restart(log, home, offset))
                    elif offset < log.end_offset:
                        truncations.append(Truncation(log, home, offset))
                await self._truncate(await self._begin(truncations, errors), errors)
                await self._restart(await self._begin(restarts, errors), errors)
            waiting = swapping
            if waiting:
                await self._rest(_SWAP_RETRY_SECONDS)
        return errors

    async def _begin(self, cuts: Sequence[AnyCut], errors: Errors) -> list[AnyCut]:
        """Take logs out of service; return the cuts that have begun."""
        begun = []
        for cut in cuts:
            try:
                cut.begin()
            except PenstockError as error:
                errors[cut.log.topic_partition] = error
            else:
                begun.append(cut)
        try:
            if begun:
                await self._wait_unused({cut.log for cut in begun})
        except BaseException:
            _undo(begun)
            raise
        for cut in begun:
            cut.exclude()
        return begun

    # --- Truncations ---

    async def _truncate(self, cuts: list[Truncation], errors: Errors) -> None:
        try:
            ready = await self._attempt(cuts, Truncation.find_start, errors)
            for cut in ready:
                cut.lower_checkpoints()
            ready = await self._write_lowered(ready, errors)
        except BaseException:
            # A full queue or the end of the process: no file has changed.
            _undo(cuts)
            raise
        for first in range(0, len(ready), _CUTS_AT_ONCE):
            await self._change_files(ready[first : first + _CUTS_AT_ONCE], errors)

    async def _write_lowered(self, cuts: list[Truncation], errors: Errors) -> list[Truncation]:
        """Write the lowered checkpoints once; return the cuts, or none after an error."""
        try:
            if cuts:
                await self._work(partial(write_lowered, cuts))
        except OSError as error:
            for cut in cuts:
                errors[cut.log.topic_partition] = _early_error(cut.home, error)
            _undo(cuts)
            return []
        return cuts

    async def _change_files(self, cuts: list[Truncation], errors: Errors) -> None:
        """Cut the files of a few logs, and serve the logs again."""
        try:
            outcomes = await self._work(partial(_outcomes, cuts, Truncation.cut_files))
        except StorageBusyError as error:
            _undo(cuts)
            errors.update({cut.log.topic_partition: error for cut in cuts})
            return
        for cut, outcome in zip(cuts, outcomes, strict=True):
            if outcome is None:
                cut.settle()
            else:
                errors[cut.log.topic_partition] = self._broken(cut, outcome)

    # --- Restarts ---

    async def _restart(self, cuts: list[Restart], errors: Errors) -> None:
        """Restart logs one after the other: a rare and long step."""
        for number, cut in enumerate(cuts):
            try:
                error = await self._decide(cut)
            except BaseException:
                _undo(cuts[number:])
                raise
            if error is not None:
                errors[cut.log.topic_partition] = error
                continue
            cut.move_checkpoints()
            try:
                outcome = await self._replaced(cut)
            except BaseException:
                _undo(cuts[number + 1 :])
                raise
            if outcome is not None:
                errors[cut.log.topic_partition] = self._broken(cut, outcome)
                continue
            cut.settle()
            self._on_restart(cut.log)

    async def _replaced(self, cut: Restart) -> OSError | PenstockError | None:
        """The other steps; they are waited for, because the next start would do them."""
        while True:
            try:
                return (await self._work(partial(_outcomes, [cut], Restart.replace_files)))[0]
            except StorageBusyError:
                await self._rest(_BUSY_RETRY_SECONDS)

    async def _decide(self, cut: Restart) -> PenstockError | None:
        """Step 1 of a restart; after an error the log is served as it was."""
        try:
            await self._work(cut.decide)
        except OSError as error:
            try:
                await self._work(cut.withdraw)
            except OSError as second:
                # Whether the next start restarts the log is not known.
                return self._broken(cut, second)
            cut.undo()
            return _early_error(cut.home, error)
        return None

    async def _attempt(
        self, cuts: list[AnyCut], step: Callable[[AnyCut], None], errors: Errors
    ) -> list[AnyCut]:
        """Do a step that changes no file; a log whose step failed is served as it was."""
        if not cuts:
            return []
        done = []
        for cut, outcome in zip(
            cuts, await self._work(partial(_outcomes, cuts, step)), strict=True
        ):
            if outcome is None:
                done.append(cut)
                continue
            _undo([cut])
            errors[cut.log.topic_partition] = (
                StorageError(f"the disk could not be read: {outcome}")
                if isinstance(outcome, OSError)
                else outcome
            )
        return done

    def _broken(self, cut: LogCut, error: OSError | PenstockError) -> StorageError:
        """Keep a log whose files are half cut out of service until the next start recovers it."""
        problem: StorageError
        if isinstance(error, OSError):
            cut.log.problem = problem = cut.home.shared.fail(error)
        else:
            cut.log.problem = problem = QuarantinedLogError(
                f"{cut.log.topic_partition}: a truncation found damage: {error}; restart the broker"
                " to recover the log"
            )
            self._on_damage(cut.log, problem)
        return problem.again()


def _outcomes(
    cuts: Sequence[AnyCut], step: Callable[[AnyCut], None]
) -> list[OSError | PenstockError | None]:
    """Do a step of each cut; return the error of each, or None. Any thread."""
    outcomes: list[OSError | PenstockError | None] = []
    for cut in cuts:
        try:
            step(cut)
        except (OSError, PenstockError) as error:
            # Without its frames: they refer to files that may be deleted.
            outcomes.append(error.with_traceback(None))
        else:
            outcomes.append(None)
    return outcomes


def _undo(cuts: Sequence[LogCut]) -> None:
    for cut in cuts:
        cut.undo()


def _early_error(home: ManagedDirectory, error: OSError) -> StorageError:
    """The error of a cut before any file of the log changed."""
    if error.errno in RETRIABLE_ERRNOS:
        return DiskFullError(f"no room in {home.path} to truncate a log: {error}")
    return home.shared.fail(error)
