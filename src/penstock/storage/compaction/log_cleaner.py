"""`LogCleaner`: chooses the next compacted log and cleans it beside all other work.

Guarantees: the loop never waits for a file; a pass runs on a worker thread in slices of a few
milliseconds with a rest between them. The log with the largest dirty share comes first. A log that
cannot be cleaned is set aside, reported in `LogManager.problems`, and served uncleaned; the others
go on. On a failed disk no log is cleaned; on a full one the pass is given up and retried later.

While a half of a swap is carried out the lock over file removals is held, so that neither retention
nor a deletion touches the same names. A half that finds no disk space releases the lock until it is
retried, because deletions may free some; `PartitionLog.is_swapping` keeps them from this log's
segments. A swap that the end of the process interrupts is finished or undone by the next start
(`segment_swap`).

It is NOT retention, which drops whole segments, and decides nothing about records (`compaction`).
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.limits import (
    COMPACTION_KEYS_MAX,
    COMPACTION_REST_RATIO,
    COMPACTION_SLICE_SECONDS,
)
from penstock.core.types import TopicPartition
from penstock.records.batch import HEADER_BYTES, read_header
from penstock.storage.compaction.cleaner import CleaningJob, CleaningSource
from penstock.storage.compaction.decisions import CleanableRange, cleanable_range
from penstock.storage.disk.filesystem import RETRIABLE_ERRNOS
from penstock.storage.exclusive import Exclusive, Rest, Work
from penstock.storage.log.log_types import LogProblem
from penstock.storage.log.partition_log import PartitionLog
from penstock.storage.log.segment import Segment
from penstock.storage.log.segment_swap import SegmentSwap
from penstock.storage.log_manager import LogManager
from penstock.storage.managed_directory import ManagedDirectory

logger = logging.getLogger(__name__)


_RETRY_SECONDS: Final = 1.0
"""Until a half of a swap that found no disk space or no descriptor is retried."""


class _Done:
    """The result of a slice when the pass has ended."""


_DONE: Final = _Done()


class LogView(NamedTuple):
    """A log as it was at one moment of the loop; a thread may read it."""

    log: PartitionLog
    segments: list[Segment]
    cleaned_offset: int | None
    log_start_offset: int
    end_offset: int
    offset_limit: int
    """All records below it are synced, committed and decided."""
    truncations: int
    """The log's count of truncations: a pass must not use records that were cut off since."""

    def cleanable(self, now_ms: int) -> CleanableRange:
        """The cleanable part of the log. May read a little; not on the loop."""
        settings = self.log.settings
        return cleanable_range(
            self.segments,
            cleaned_offset=self.cleaned_offset,
            log_start_offset=self.log_start_offset,
            end_offset=self.end_offset,
            offset_limit=self.offset_limit,
            lag_ms_min=settings.compaction_lag_ms_min,
            lag_ms_max=settings.compaction_lag_ms_max,
            now_ms=now_ms,
            first_timestamp_ms=self._first_timestamp_ms,
        )

    def _first_timestamp_ms(self, number: int) -> int:
        data = self.segments[number].read(0, HEADER_BYTES, nowait=False)
        return read_header(data).max_timestamp_ms


def view_of(log: PartitionLog, home: ManagedDirectory) -> LogView:
    """The log as it is now; on the owner's thread."""
    return LogView(
        log,
        log.segments,
        home.cleaned_offsets.get(log.topic_partition),
        log.log_start_offset,
        log.end_offset,
        log.first_undecided(log.deletion_limit),
        log.truncations,
    )


def source_of(view: LogView, home: ManagedDirectory) -> CleaningSource:
    """The input of a pass; on the owner's thread."""
    log = view.log
    return CleaningSource(
        home.shared.filesystem,
        home.shared.open_files,
        log.directory,
        view.segments,
        log.settings,
        log.producers.snapshot(),
        partial(log.aborted_transactions, nowait=False),
    )


class LogCleaner:
    """Cleans the logs of a manager, one after the other."""

    def __init__(
        self,
        manager: LogManager,
        clock: Clock,
        work: Work,
        file_removal: Exclusive,
        rest: Rest,
        *,
        keys_max: int = COMPACTION_KEYS_MAX,
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._work = work
        self._file_removal = file_removal
        self._rest = rest
        self._keys_max = keys_max
        self._set_aside: dict[TopicPartition, PartitionLog] = {}
        """Logs that could not be cleaned."""

    async def clean_logs(self) -> int:
        """Clean until no log is due; return the number of passes."""
        passes = 0
        while (chosen := await self._choose()) is not None:
            if not await self._clean(*chosen):
                break
            passes += 1
        return passes

    async def _choose(self) -> tuple[LogView, CleanableRange] | None:
        """The log that is due and has the largest dirty share."""
        now_ms, manager = self._clock.now_ms(), self._manager
        views = [
            view_of(log, manager.home_of(name))
            for name, log in manager.logs.items()
            if log.settings.compacts and len(log.segments) > 1 and self._is_well(log)
        ]
        due = []
        for view in views:
            try:
                cleanable = await self._work(partial(view.cleanable, now_ms))
            except FileNotFoundError:
                # Retention was faster; the next check sees the remaining segments.
                continue
            except (OSError, PenstockError) as error:
                self._put_aside(view.log, error)
                continue
            if cleanable.is_due(view.log.settings.dirty_ratio_min):
                due.append((view, cleanable))
        return max(due, key=lambda entry: entry[1].dirty_ratio, default=None)

    def _is_well(self, log: PartitionLog) -> bool:
        """Whether the log is served, writable, and was not set aside."""
        name = log.topic_partition
        return (
            log.problem is None
            and self._manager.logs.get(name) is log
            and self._manager.home_of(name).shared.failure is None
            and self._set_aside.get(name) is not log
        )

    def _is_same(self, view: LogView) -> bool:
        """Whether the log is still as it was in the view."""
        log = view.log
        return self._is_well(log) and log.settings.compacts and log.truncations == view.truncations

    async def _clean(self, view: LogView, cleanable: CleanableRange) -> bool:
        """One pass over one log; False when it was given up for now."""
        log = view.log
        if not self._is_same(view):
            return True
        home = self._manager.home_of(log.topic_partition)
        job = CleaningJob(
            source_of(view, home), cleanable, self._clock.now_ms(), keys_max=self._keys_max
        )
        try:
            await self._note_cleaned(view, home, cleanable.first_dirty_offset)
            if not await self._run(job, view):
                return False
            await self._note_cleaned(view, home, job.end_offset, is_done=True)
        except FileNotFoundError as error:
            if log.segments == view.segments and self._is_well(log):
                self._put_aside(log, error)
            return True
        except PenstockError as error:
            # A truncation removes records while they are read: that is not damage.
            if self._is_same(view):
                self._put_aside(log, error)
            return True
        except OSError as error:
            if error.errno not in RETRIABLE_ERRNOS:
                home.shared.fail(error)
            logger.warning("compaction of %s is given up for now: %s", log.topic_partition, error)
            return False
        statistics = job.statistics
        logger.info(
            "compacted %s up to %d: %d bytes became %d",
            log.topic_partition,
            job.end_offset,
            statistics.bytes_copied,
            statistics.bytes_written,
        )
        return True

    async def _note_cleaned(
        self, view: LogView, home: ManagedDirectory, offset: int, *, is_done: bool = False
    ) -> None:
        """Checkpoint how far the log is clean.

        It has an entry before its first gap, so that a start knows that gaps are not damage even if
        the topic is not compacted any more.
        """
        name = view.log.topic_partition
        is_noted = name in home.cleaned_offsets
        if not self._is_same(view) or (not is_done and is_noted):
            return
        home.cleaned_offsets[name] = offset
        try:
            await self._work(home.write_cleaned_offsets)
        except OSError:
            if not is_noted:
                # The next pass must not treat it as written.
                home.cleaned_offsets.pop(name, None)
            raise

    async def _run(self, job: CleaningJob, view: LogView) -> bool:
        """Do a pass in slices; False when the log has changed meanwhile."""
        steps = job.steps()
        while True:
            begun = self._clock.monotonic()
            outcome = await self._work(partial(self._slice, steps, begun))
            if isinstance(outcome, _Done):
                return True
            if outcome is not None and not await self._swap(view, outcome):
                return False
            if not self._is_same(view):
                # On a thread, because it removes a file that may be large.
                await self._work(steps.close)
                return False
            elapsed = self._clock.monotonic() - begun
            await self._rest(elapsed * COMPACTION_REST_RATIO)

    def _slice(
        self, steps: Iterator[SegmentSwap | None], begun: float
    ) -> SegmentSwap | _Done | None:
        """A few milliseconds of a pass; on a thread."""
        for outcome in steps:
            if outcome is not None:
                return outcome
            if self._clock.monotonic() - begun >= COMPACTION_SLICE_SECONDS:
                return None
        return _DONE

    async def _swap(self, view: LogView, swap: SegmentSwap) -> bool:
        """Replace old segments by a new one; False when the log does not have them any more."""
        log = view.log
        async with self._file_removal:
            if not self._is_same(view) or not swap.fits(log):
                await self._work(swap.discard)
                return False
            log.is_swapping = True
        try:
            if not await self._insist(log, swap.decide):
                swap.new.close()
                return False
            swap.exchange(log)
            return await self._insist(log, partial(_finish, log, swap))
        finally:
            log.is_swapping = False

    async def _insist(self, log: PartitionLog, half: Callable[[], None]) -> bool:
        """Do one half of a swap; retry it until done if only space or descriptors are short.

        False when the log was deleted, and all its files with it. Any other error takes the
        directory out of service; the next start finishes or undoes it.
        """
        while True:
            async with self._file_removal:
                if self._manager.logs.get(log.topic_partition) is not log:
                    return False
                try:
                    await self._work(half)
                except OSError as error:
                    if error.errno not in RETRIABLE_ERRNOS:
                        raise
                else:
                    return True
            await self._rest(_RETRY_SECONDS)

    def _put_aside(self, log: PartitionLog, error: Exception) -> None:
        """Exclude this log from cleaning until the next start, and report it."""
        self._set_aside[log.topic_partition] = log
        text = f"is not compacted any more until a restart: {error}"
        logger.error("%s %s", log.topic_partition, text)
        self._manager.problems.append(
            LogProblem(log.directory, log.topic_partition, text, is_served=True)
        )


def _finish(log: PartitionLog, swap: SegmentSwap) -> None:
    """The second half of a swap. No thread rebuilds an index meanwhile: it has the same name."""
    with log.rebuild_lock:
        swap.finish()
