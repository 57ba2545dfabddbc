"""Maintains a pipeline's table, between two batches and by the pipeline's own committer.

So it never conflicts with the pipeline itself. If another writer commits in the meantime, it stops
and retries later. It never raises: failed maintenance must not stop the pipeline, so the error is
in `MaintenanceDone.problem`. `files.maintenance` decides which tasks are due.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from penstock.core.clock import Clock
from penstock.spark.tables.definition.model import MaintenanceSettings
from penstock.spark.tables.files.maintenance import (
    EVERYTHING,
    Due,
    Extent,
    MaintenancePolicy,
    MaintenanceTimes,
    extents_of,
    may_maintain,
    plan_compaction,
    plan_expiry,
    times_after,
    what_is_due,
)
from penstock.spark.tables.files.table_facts import LiveFile, Partition
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.events import MaintenanceDone

PROBLEM_CHARACTERS_MAX: Final = 1_000
NOT_OURS: Final = (
    "the table was not created by Penstock, so it is left alone. Set maintenance.enabled = true to "
    "let Penstock compact it, expire its snapshots and remove its orphaned files"
)
_NOTHING: Final = MaintenanceDone(0, 0, 0, 0, 0, 0, None, 0.0)


class TableMaintenance:
    """The maintenance of one table. The committing thread uses it, and not during a commit."""

    def __init__(
        self,
        committer: TableCommitter,
        settings: MaintenanceSettings,
        clock: Clock,
        policy: MaintenancePolicy | None = None,
    ) -> None:
        self._committer = committer
        self._settings = settings
        self._clock = clock
        self._policy = policy or MaintenancePolicy()
        self._times = MaintenanceTimes()
        self._seen: dict[Partition, Extent] = {}
        self._fruitless: dict[Partition, Extent] = {}
        self._commits = 0
        """The number of commits since the last expiry."""
        self._files: list[LiveFile] | None = None
        """The files for the current maintenance, after they are listed."""

    def after_batch(self) -> MaintenanceDone | None:
        """Run the due tasks; return None if none is due, which only needs the clock."""
        if not may_maintain(self._settings, self._committer.table.retention()):
            return None
        self._commits += 1
        due = what_is_due(
            self._times, self._settings, self._policy, self._clock.now_ms(), self._commits
        )
        return self._maintain(due) if due else None

    def maintain_now(self) -> MaintenanceDone:
        """Maintain the table now, due or not, even if maintenance is turned off.

        A table of another owner is left alone unless the definition enables its maintenance.
        """
        table = self._committer.table
        if self._settings.is_enabled is None and not table.retention().is_own:
            return replace(_NOTHING, problem=NOT_OURS)
        return self._maintain(EVERYTHING)

    def _maintain(self, due: Due) -> MaintenanceDone:
        begun = self._clock.monotonic()
        self._files = None
        done, is_read = self._tried(_NOTHING, self._reloaded)
        failed = due
        if is_read:
            done, is_compacted = self._tried(done, self._compacted, is_due=due.compaction)
            done, is_expired = self._tried(done, self._expired, is_due=due.expiry)
            done, is_cleaned = self._tried(done, self._cleaned, is_due=due.orphans)
            done, _ = self._tried(done, self._measured)
            failed = Due(not is_compacted, not is_expired, not is_cleaned)
        now_ms = self._clock.now_ms()
        self._times = times_after(self._times, due, failed, self._settings, self._policy, now_ms)
        return replace(done, duration_ms=(self._clock.monotonic() - begun) * 1_000)

    def _tried(
        self,
        done: MaintenanceDone,
        step: Callable[[MaintenanceDone], MaintenanceDone],
        *,
        is_due: bool = True,
    ) -> tuple[MaintenanceDone, bool]:
        """Run the step; return its result, and whether it succeeded."""
        if not is_due:
            return done, True
        try:
            return step(done), True
        except Exception as error:  # noqa: BLE001 (storage and catalogs fail in many ways)
            text = f"{type(error).__name__}: {error}"[:PROBLEM_CHARACTERS_MAX]
            problem = "; ".join(filter(None, (done.problem, text)))
            return replace(done, problem=problem), False

    # --- Steps ---

    def _reloaded(self, done: MaintenanceDone) -> MaintenanceDone:
        self._committer.reload()
        return done

    def _compacted(self, done: MaintenanceDone) -> MaintenanceDone:
        self._files = files = self._committer.table.live_files()
        extents = extents_of(files)
        plan = plan_compaction(
            files,
            self._settings.target_file_bytes,
            self._policy,
            before=self._seen,
            fruitless=self._fruitless,
        )
        self._times = replace(self._times, is_left=plan.is_left)
        self._fruitless = {
            partition: extent
            for partition, extent in self._fruitless.items()
            if extents.get(partition) == extent
        }
        removed, written = 0, 0
        for job in plan.jobs:
            made = self._committer.compact(target_bytes=job.target_bytes, partitions=job.partitions)
            removed += made.removed_count
            written += made.added_count
            if made.removed_count == 0:
                self._fruitless.update((one, extents[one]) for one in job.partitions)
        if removed:
            self._files = self._committer.table.live_files()
        self._seen = extents_of(self._files)
        return replace(done, compacted_files=removed, written_files=written)

    def _expired(self, done: MaintenanceDone) -> MaintenanceDone:
        table = self._committer.table
        jobs = plan_expiry(
            table.snapshots(),
            self._settings,
            self._policy,
            table.retention(),
            self._clock.now_ms(),
        )
        expired = 0
        for older_than_ms, keep_count in jobs:
            made = self._committer.expire(older_than_ms=older_than_ms, keep_count=keep_count)
            expired += made.removed_count
        self._commits = 0
        return replace(done, expired_snapshots=expired)

    def _cleaned(self, done: MaintenanceDone) -> MaintenanceDone:
        table = self._committer.table
        kept_ms = table.retention().file_age_ms_min
        age_ms = max(self._policy.orphan_age_ms, kept_ms) if kept_ms else self._policy.orphan_age_ms
        removed = table.remove_orphans(older_than_ms=self._clock.now_ms() - age_ms)
        return replace(done, removed_orphans=removed)

    def _measured(self, done: MaintenanceDone) -> MaintenanceDone:
        files = self._files
        if files is None:
            files = self._committer.table.live_files()
        snapshots = self._committer.table.snapshots()
        return replace(
            done,
            live_files=len(files),
            live_bytes=sum(one.size_bytes for one in files),
            oldest_snapshot_ms=snapshots.oldest_ms,
            snapshots=snapshots.count,
        )
