"""The view of a run with many tables: converts events to lines (pure: the time is an argument).

A terminal shows `fields`, rewritten in place; other outputs get the line of each batch, as a single
pipeline does, and a line for each failure. Lines are bounded, and have no control characters.
"""

from typing import Final

from penstock.core.quantities import count_text, duration_text, printable
from penstock.spark.tables.inspection.run_view import PROBLEM_CHARACTERS_MAX, Field, RunView, Totals
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone

FAILURES_SHOWN_MAX: Final = 5
WINDOW_MS: Final = 60_000
"""The rate is that of the last minute."""
_BUCKET_MS: Final = 1_000


class ManyView:
    """The view of all tables, by their events so far."""

    def __init__(self, pipeline: str, template: str, *, began_ms: int) -> None:
        self._pipeline = printable(pipeline)
        self._template = printable(template)
        self._began_ms = began_ms
        self._totals = Totals()
        self._written: set[str] = set()
        self._failures: dict[str, str] = {}
        self._looks: dict[int, tuple[int, int]] = {}
        self._records: dict[int, int] = {}
        """The records by second."""
        self._away = ""
        self._maintained = 0
        self.is_stopping = False
        """Set without a lock, also by a signal handler."""

    @property
    def totals(self) -> Totals:
        """The totals since the start."""
        return self._totals

    @property
    def table_count(self) -> int:
        """The number of tables with a batch since the start."""
        return len(self._written)

    @property
    def failures(self) -> dict[str, str]:
        """The reasons of the topics whose last attempt failed."""
        return dict(self._failures)

    @property
    def title(self) -> str:
        """The name of the pipeline, and the names of its tables."""
        return f"{self._pipeline} → {self._template}"

    def batch_done(self, topic: str, line: RunView, event: BatchDone) -> str:
        """Record a batch of a topic; return its line for a log."""
        line.batch_done(event)
        self._written.add(topic)
        self._failures.pop(topic, None)
        self._away = ""
        self._totals.batches += 1
        if not event.was_skipped:
            self._totals.records += event.records
            self._totals.rows += event.rows
            self._totals.rejects += event.rejects
            self._totals.files += event.files
            bucket = event.committed_at_ms // _BUCKET_MS
            self._records[bucket] = self._records.get(bucket, 0) + event.records
            oldest = bucket - WINDOW_MS // _BUCKET_MS
            self._records = {at: count for at, count in self._records.items() if at > oldest}
        return line.batch_line(event)

    def maintenance_done(self, line: RunView, event: MaintenanceDone) -> str:
        """Record maintenance of a table; return its line for a log, empty without work."""
        self._maintained += not event.is_idle
        return line.maintenance_line(event)

    def topic_failed(self, topic: str, problem: str, retry_seconds: float | None) -> str:
        """Record a failure; return its line for a log."""
        text = printable(problem)[:PROBLEM_CHARACTERS_MAX]
        self._failures[topic] = text
        again = (
            "it ends until the next start"
            if retry_seconds is None
            else f"next attempt in {duration_text(retry_seconds * 1000)}"
        )
        return f"{self._pipeline}  {printable(topic)} failed: {text.rstrip('.')}; {again}"

    def looked(self, worker: int, topics: int, behind: int) -> str:
        """Record a look; return a line if brokers are reachable again."""
        self._looks[worker] = topics, behind
        was_away, self._away = self._away, ""
        return f"{self._pipeline}  a broker answers again" if was_away else ""

    def broker_away(self, problem: str) -> str:
        """Record that no broker responds; return the line for a log, the first time."""
        is_new = not self._away
        self._away = printable(problem)[:PROBLEM_CHARACTERS_MAX]
        return f"{self._pipeline}  no broker answers: {self._away}" if is_new else ""

    def fields(self, now_ms: int) -> tuple[Field, ...]:
        """Return the lines of the view."""
        topics = sum(one for one, _ in self._looks.values())
        behind = sum(one for _, one in self._looks.values())
        done = self._totals
        rows = [
            Field("state", self._state(now_ms)),
            Field("topics", f"{topics:,}, {behind:,} with new records at the last look"),
            Field("tables", f"{self.table_count:,} with a batch since the start"),
            Field("rate", f"{self._rate(now_ms):,.0f} records/s"),
            Field("commits", f"{done.batches:,}, {done.files:,} files"),
            Field("rejects", f"{done.rejects:,}"),
            Field("failed", self._failed()),
            Field("total", f"{count_text(done.records, 'record')}, {count_text(done.rows, 'row')}"),
        ]
        return tuple(rows)

    def end_line(self) -> str:
        """Return the totals, at the end."""
        done = self._totals
        batches = f"{done.batches:,} {'batch' if done.batches == 1 else 'batches'}"
        return (
            f"{self._pipeline}: {count_text(self.table_count, 'table')}, {batches}, "
            f"{count_text(done.records, 'record')}: {count_text(done.rows, 'row')}, "
            f"{count_text(done.rejects, 'reject')}"
        )

    def _state(self, now_ms: int) -> str:
        if self.is_stopping:
            return "stopping; the next run reads uncommitted records again"
        if self._away:
            return f"no broker answers ({self._away}); tries again"
        return f"runs for {duration_text(now_ms - self._began_ms)}"

    def _rate(self, now_ms: int) -> float:
        oldest = (now_ms - WINDOW_MS) // _BUCKET_MS
        count = sum(count for at, count in self._records.items() if at > oldest)
        seconds = min(WINDOW_MS, max(_BUCKET_MS, now_ms - self._began_ms)) / 1000
        return count / seconds

    def _failed(self) -> str:
        if not self._failures:
            return "0"
        shown = [
            f"{printable(topic)}: {problem}"
            for topic, problem in sorted(self._failures.items())[:FAILURES_SHOWN_MAX]
        ]
        more = len(self._failures) - len(shown)
        return f"{len(self._failures):,}: {'; '.join(shown)}" + (f"; {more:,} more" if more else "")
