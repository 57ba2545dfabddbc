"""`LineageRuns`: the OpenLineage events of the runs of one command.

A start of the pipeline begins a run; RUNNING follows at most once in `RUNNING_MS`, with the totals
of the run so far, so a pipeline with ten commits a second sends an event a minute. Every run has
exactly one end. One thread at a time uses it.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from penstock.core.clock import Clock
from penstock.spark.tables.operation.lineage_events import (
    Document,
    EventType,
    LineageJob,
    RunTotals,
    event,
)
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone

RUNNING_MS: Final = 60_000


class LineageRuns:
    """The runs of one pipeline; an observer of its batches."""

    def __init__(self, job: LineageJob, emit: Callable[[Document], None], clock: Clock) -> None:
        self._job = job
        self._emit = emit
        self._clock = clock
        self._run_id = ""
        self._totals = RunTotals()
        self._last_ms = 0

    def started(self, columns: tuple[tuple[str, str], ...]) -> None:
        """Begin a run."""
        self._run_id = str(uuid4())
        self._totals = RunTotals(columns=columns)
        self._last_ms = 0
        self._send(EventType.START)

    def batch_done(self, done: BatchDone) -> None:
        """Add a batch to the totals, and report them if that is due."""
        if not self._run_id:
            return
        ends = {at: one.offset for at, one in done.position.positions.items()}
        counts: Counter[str] = Counter()
        if not done.was_skipped:
            counts.update(
                rows=done.rows, rejects=done.rejects, files=done.files, bytes=done.file_bytes
            )
        self._totals.add(done.starts, ends, counts, done.columns)
        now_ms = self._clock.now_ms()
        if now_ms - self._last_ms >= RUNNING_MS:
            self._last_ms = now_ms
            self._send(EventType.RUNNING)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Do nothing."""

    def ended(self, error: str = "") -> None:
        """End the run, with the error that ended it."""
        if self._run_id:
            self._send(EventType.FAIL if error else EventType.COMPLETE, error)
            self._run_id = ""

    def _send(self, kind: EventType, error: str = "") -> None:
        self._emit(
            event(
                self._job,
                kind,
                run_id=self._run_id,
                at_ms=self._clock.now_ms(),
                totals=self._totals,
                error=error,
            )
        )
