"""The view of a running pipeline: converts events to lines (pure: the time is an argument).

A terminal shows `fields`, rewritten in place; other outputs get a line for each batch and
maintenance, and when the broker becomes unreachable or returns. Both show the same: rate, lag,
freshness, number of files, commit time, rejects, and the last maintenance of the table. Lines are
bounded, and have no control characters.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from penstock.core.quantities import count_text, duration_text, printable, size_text
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone

WINDOW_MS: Final = 60_000
"""The rate is that of the last minute."""
WINDOW_BATCHES_MAX: Final = 1_000
NAMES_SHOWN_MAX: Final = 5
"""The maximum number of topics, and of rules, in a line."""
STALE_INTERVALS: Final = 3
"""After this number of triggers without a batch, the view shows the time since the last batch."""


PROBLEM_CHARACTERS_MAX: Final = 200
RESTART_CHARACTERS_MAX: Final = 700


class Field(NamedTuple):
    """One line of the view."""

    label: str
    text: str


@dataclass(slots=True)
class Totals:
    """The totals since the start."""

    batches: int = 0
    records: int = 0
    rows: int = 0
    rejects: int = 0
    files: int = 0


class RunView:
    """The view of one pipeline, by its events so far."""

    def __init__(
        self,
        pipeline: str,
        table: str,
        *,
        interval_ms: int,
        row_word: str = "row",
        began_ms: int | None = None,
    ) -> None:
        """Create the view; `row_word` is the word for a row, in an upsert "change"."""
        self._pipeline = printable(pipeline)
        self._table = printable(table)
        self._mode = ""
        self._interval_ms = interval_ms
        self._totals = Totals()
        self._broken: dict[str, int] = {}
        self._last: BatchDone | None = None
        self._maintenance: MaintenanceDone | None = None
        self._maintained_at_ms = 0
        self._row_word = row_word
        self._began_ms = began_ms
        self._lags: Mapping[str, int] = {}
        self._away_since_ms: int | None = None
        self._away_problem = ""
        self._restart = ""
        """The line of a restart that has not happened yet."""
        self.is_stopping = False
        """Set without a lock, also by a signal handler."""
        self._window: deque[BatchDone] = deque(maxlen=WINDOW_BATCHES_MAX)

    @property
    def totals(self) -> Totals:
        """The totals since the start."""
        return self._totals

    @property
    def title(self) -> str:
        """The name of the pipeline."""
        mode = f" ({self._mode})" if self._mode else ""
        return f"{self._pipeline} → {self._table}{mode}"

    def started(self, mode: str, reasons: Sequence[str]) -> str:
        """Record the start of the query in this mode; return the line for a log."""
        self._mode = printable(mode)
        self._restart = ""
        return f"{self._pipeline}  runs {self._mode}: {printable('; '.join(reasons))}"

    def restarts(self, line: str) -> str:
        """Record a failure after which the pipeline starts again; return the line for a log."""
        self._restart = printable(line)[:RESTART_CHARACTERS_MAX]
        return f"{self._pipeline}  {self._restart}"

    def batch_done(self, event: BatchDone) -> None:
        """Record a committed batch."""
        self._last = event
        self._lags = event.lags
        self._window.append(event)
        self._totals.batches += 1
        if event.was_skipped:
            return
        self._totals.records += event.records
        self._totals.rows += event.rows
        self._totals.rejects += event.rejects
        self._totals.files += event.files
        for name, count in event.expectations.items():
            self._broken[name] = self._broken.get(name, 0) + count

    def maintenance_done(self, event: MaintenanceDone, now_ms: int) -> None:
        """Record maintenance of the table; maintenance of the rejects' table is not shown."""
        if event.table in {"", self._table}:
            self._maintenance, self._maintained_at_ms = event, now_ms

    def broker_away(self, problem: str, now_ms: int) -> str:
        """Record that no broker responds; return the line for a log, the first time."""
        is_new = self._away_since_ms is None
        self._away_problem = printable(problem)[:PROBLEM_CHARACTERS_MAX]
        if not is_new:
            return ""
        self._away_since_ms = now_ms
        return f"{self._pipeline}  no broker answers: {self._away_problem}; tries again"

    def broker_seen(self, lags: Mapping[str, int], now_ms: int) -> str:
        """Record that a broker responds; return the line for a log after an outage."""
        self._lags = lags
        since_ms, self._away_since_ms = self._away_since_ms, None
        if since_ms is None:
            return ""
        away = duration_text(now_ms - since_ms)
        return f"{self._pipeline}  the broker answers again, after {away}; lag {_lags(lags)}"

    def fields(self, now_ms: int) -> tuple[Field, ...]:
        """Return the whole view."""
        last = self._last
        state = Field("state", self._state(now_ms))
        if last is None:
            return (state,)
        fresh = last.freshness_ms
        batch = f"{duration_text(last.duration_ms)} for the whole batch"
        return (
            state,
            Field("rate", f"{_rate(self.rate(now_ms))} in the last minute"),
            Field("lag", _lags(self._lags) if self._away_since_ms is None else "not known"),
            Field("freshness", "-" if fresh is None else duration_text(fresh)),
            Field("commit", f"{duration_text(last.commit_ms)}; {batch}"),
            Field("files", self._files()),
            Field("rejects", self._rejects()),
            Field("maintenance", self._maintenance_text(now_ms)),
            Field("total", self._total()),
        )

    def _state(self, now_ms: int) -> str:
        if self.is_stopping:
            return "stopping; the next run reads uncommitted records again"
        if self._restart:
            return self._restart
        if not self._mode and self._last is None:
            began = self._began_ms
            return "starts Spark" + (f", {duration_text(now_ms - began)}" if began else "")
        if self._away_since_ms is not None:
            away = duration_text(now_ms - self._away_since_ms)
            return f"no broker answers since {away} ({self._away_problem}); tries again"
        last = self._last
        if last is None:
            return "waits for its first batch"
        silent_ms = now_ms - last.committed_at_ms
        state = f"batch {last.batch_id}, committed {duration_text(silent_ms)} ago"
        if silent_ms > STALE_INTERVALS * self._interval_ms and any(last.lags.values()):
            state += "; nothing since, although there is more to read"
        return state

    def rate(self, now_ms: int) -> float:
        """Return the records per second in the last minute, or since a later first batch."""
        recent = [one for one in self._window if one.committed_at_ms > now_ms - WINDOW_MS]
        if not recent:
            return 0.0
        first = recent[0]
        began_ms = max(first.committed_at_ms - first.duration_ms, now_ms - WINDOW_MS)
        records = sum(one.records for one in recent if not one.was_skipped)
        return records * 1000 / max(1.0, now_ms - began_ms)

    def batch_line(self, event: BatchDone) -> str:
        """Return the line of one batch, for a log."""
        if event.was_skipped:
            return f"{self._pipeline}  batch {event.batch_id}  was in the table already"
        rate = event.records * 1000 / max(1.0, event.duration_ms)
        fresh = event.freshness_ms
        parts = [
            self._pipeline,
            f"batch {event.batch_id}",
            count_text(event.rows, self._row_word),
            count_text(event.rejects, "reject"),
            _rate(rate),
            f"lag {_lags(event.lags)}",
            f"freshness {'-' if fresh is None else duration_text(fresh)}",
            f"commit {duration_text(event.commit_ms)}",
            count_text(event.files, "file"),
        ]
        broken = {name: count for name, count in event.expectations.items() if count}
        if broken:
            parts.append(f"broken: {_counts(broken)}")
        return "  ".join(parts)

    def maintenance_line(self, event: MaintenanceDone) -> str:
        """Return the line of one maintenance, for a log; empty if there was nothing to do."""
        if event.is_idle:
            return ""
        table = printable(event.table or self._table)
        return f"{self._pipeline}  maintenance of {table}  {_summary(event)}"

    def end_line(self) -> str:
        """Return the totals, at the end."""
        done = self._totals
        batches = f"{done.batches:,} {'batch' if done.batches == 1 else 'batches'}"
        return (
            f"{self._pipeline}: {batches}, {count_text(done.records, 'record')}: "
            f"{count_text(done.rows, self._row_word)} in {self._table}, "
            f"{count_text(done.rejects, 'reject')}"
        )

    def _total(self) -> str:
        done = self._totals
        return f"{count_text(done.records, 'record')}, {count_text(done.rows, self._row_word)}"

    def _files(self) -> str:
        written = f"{self._totals.files:,} written"
        if self._maintenance is None:
            return written
        files, size = self._maintenance.live_files, size_text(self._maintenance.live_bytes)
        return f"{written}; at the last maintenance {files:,} in the table, {size}"

    def _rejects(self) -> str:
        done = self._totals
        share = done.rejects / done.records if done.records else 0.0
        text = f"{done.rejects:,} ({share:.2%})"
        broken = {name: count for name, count in self._broken.items() if count}
        return f"{text}; rules broken: {_counts(broken)}" if broken else text

    def _maintenance_text(self, now_ms: int) -> str:
        if self._maintenance is None:
            return "not yet"
        age = duration_text(now_ms - self._maintained_at_ms)
        return f"{_summary(self._maintenance)}, {age} ago"


def _summary(event: MaintenanceDone) -> str:
    if event.problem:
        return f"not done, and tried again: {printable(event.problem)}"
    parts = (
        (
            event.compacted_files,
            f"{count_text(event.compacted_files, 'file')} into {event.written_files:,}",
        ),
        (event.expired_snapshots, f"{count_text(event.expired_snapshots, 'snapshot')} expired"),
        (event.removed_orphans, f"{count_text(event.removed_orphans, 'orphan')} removed"),
    )
    return ", ".join(text for count, text in parts if count) or "nothing to do"


def _rate(records_per_second: float) -> str:
    digits = 1 if 0 < records_per_second < 10 else 0
    return f"{records_per_second:,.{digits}f} records/s"


def _lags(lags: Mapping[str, int]) -> str:
    return _counts(lags) if any(lags.values()) else "0"


def _counts(counts: Mapping[str, int]) -> str:
    words = (f"{printable(name)} {count:,}" for name, count in counts.items())
    text = ", ".join(islice(words, NAMES_SHOWN_MAX))
    more = len(counts) - NAMES_SHOWN_MAX
    return f"{text} and {more:,} more" if more > 0 else text
