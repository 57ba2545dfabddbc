"""What a running pipeline looks like: events in, lines out (pure: the time is an argument).

A terminal shows `fields`, rewritten in place; everything else gets `batch_line` and `care_line`,
one after the other. Both say the same: how fast, how far behind, how fresh, how many files, how
long a commit takes, what was rejected, and when the table was last cared for. Lines are bounded,
and have no control characters.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from penstock.core.quantities import count_text, duration_text, size_text
from penstock.spark.tables.run.events import BatchDone, CareDone

WINDOW_MS: Final = 60_000
"""The rate is that of the last minute."""
WINDOW_BATCHES_MAX: Final = 1_000
NAMES_SHOWN_MAX: Final = 5
"""Topics, and rules, that a line names."""
STALE_INTERVALS: Final = 3
"""A pipeline that has been silent for so many triggers says how long."""


class Field(NamedTuple):
    """One line of the view."""

    label: str
    text: str


@dataclass(slots=True)
class Totals:
    """Since the start."""

    batches: int = 0
    records: int = 0
    rows: int = 0
    rejects: int = 0
    files: int = 0


class RunView:
    """One pipeline, as far as it has told."""

    def __init__(self, pipeline: str, table: str, *, interval_ms: int) -> None:
        self._pipeline = _printable(pipeline)
        self._table = _printable(table)
        self._mode = ""
        self._interval_ms = interval_ms
        self._totals = Totals()
        self._broken: dict[str, int] = {}
        self._last: BatchDone | None = None
        self._care: CareDone | None = None
        self._cared_at_ms = 0
        self._window: deque[BatchDone] = deque(maxlen=WINDOW_BATCHES_MAX)

    @property
    def totals(self) -> Totals:
        """What was done since the start."""
        return self._totals

    @property
    def title(self) -> str:
        """Which pipeline."""
        mode = f" ({self._mode})" if self._mode else ""
        return f"{self._pipeline} → {self._table}{mode}"

    def started(self, mode: str, reasons: Sequence[str]) -> str:
        """The query runs, in this mode; gives the line for a log."""
        self._mode = _printable(mode)
        return f"{self._pipeline}  runs {self._mode}: {_printable('; '.join(reasons))}"

    def batch_done(self, event: BatchDone) -> None:
        """A batch is in the table."""
        self._last = event
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

    def care_done(self, event: CareDone, now_ms: int) -> None:
        """The table was cared for."""
        self._care, self._cared_at_ms = event, now_ms

    def fields(self, now_ms: int) -> tuple[Field, ...]:
        """The whole view."""
        last = self._last
        if last is None:
            return (Field("state", "waits for its first batch" if self._mode else "starts"),)
        silent_ms = now_ms - last.committed_at_ms
        state = f"batch {last.batch_id}, committed {duration_text(silent_ms)} ago"
        if silent_ms > STALE_INTERVALS * self._interval_ms and any(last.lags.values()):
            state += "; nothing since, although there is more to read"
        fresh = last.freshness_ms
        return (
            Field("state", state),
            Field("rate", f"{_rate(self.rate(now_ms))} in the last minute"),
            Field("lag", _lags(last.lags)),
            Field("freshness", "-" if fresh is None else duration_text(fresh)),
            Field(
                "commit", f"{duration_text(last.commit_ms)} of {duration_text(last.duration_ms)}"
            ),
            Field("files", self._files()),
            Field("rejects", self._rejects()),
            Field("care", self._care_text(now_ms)),
            Field("total", self._total()),
        )

    def rate(self, now_ms: int) -> float:
        """Records a second in the last minute, or since the first batch if that is later."""
        recent = [one for one in self._window if one.committed_at_ms > now_ms - WINDOW_MS]
        if not recent:
            return 0.0
        first = recent[0]
        began_ms = max(first.committed_at_ms - first.duration_ms, now_ms - WINDOW_MS)
        records = sum(one.records for one in recent if not one.was_skipped)
        return records * 1000 / max(1.0, now_ms - began_ms)

    def batch_line(self, event: BatchDone) -> str:
        """One batch, for a log."""
        if event.was_skipped:
            return f"{self._pipeline}  batch {event.batch_id}  was in the table already"
        rate = event.records * 1000 / max(1.0, event.duration_ms)
        fresh = event.freshness_ms
        parts = [
            self._pipeline,
            f"batch {event.batch_id}",
            count_text(event.rows, "row"),
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

    def care_line(self, event: CareDone) -> str:
        """One care of the table, for a log."""
        return f"{self._pipeline}  care  {_care(event)}"

    def end_line(self) -> str:
        """What was done, at the end."""
        done = self._totals
        batches = f"{done.batches:,} {'batch' if done.batches == 1 else 'batches'}"
        return (
            f"{self._pipeline}: {batches}, {count_text(done.records, 'record')}: "
            f"{count_text(done.rows, 'row')} in {self._table}, {count_text(done.rejects, 'reject')}"
        )

    def _total(self) -> str:
        done = self._totals
        return f"{count_text(done.records, 'record')}, {count_text(done.rows, 'row')}"

    def _files(self) -> str:
        written = f"{self._totals.files:,} written"
        if self._care is None:
            return written
        return (
            f"{written}; {self._care.live_files:,} in the table, {size_text(self._care.live_bytes)}"
        )

    def _rejects(self) -> str:
        done = self._totals
        share = done.rejects / done.records if done.records else 0.0
        text = f"{done.rejects:,} ({share:.2%})"
        broken = {name: count for name, count in self._broken.items() if count}
        return f"{text}; rules broken: {_counts(broken)}" if broken else text

    def _care_text(self, now_ms: int) -> str:
        if self._care is None:
            return "not yet"
        return f"{_care(self._care)}, {duration_text(now_ms - self._cared_at_ms)} ago"


def _care(event: CareDone) -> str:
    if event.problem:
        return f"not done, and tried again: {_printable(event.problem)}"
    return (
        f"{event.compacted_files:,} files into {event.written_files:,}, "
        f"{event.expired_snapshots:,} snapshots expired, {event.removed_orphans:,} orphans removed"
    )


def _rate(records_per_second: float) -> str:
    digits = 1 if 0 < records_per_second < 10 else 0
    return f"{records_per_second:,.{digits}f} records/s"


def _lags(lags: Mapping[str, int]) -> str:
    return _counts(lags) if any(lags.values()) else "0"


def _counts(counts: Mapping[str, int]) -> str:
    words = (f"{_printable(name)} {count:,}" for name, count in counts.items())
    text = ", ".join(islice(words, NAMES_SHOWN_MAX))
    more = len(counts) - NAMES_SHOWN_MAX
    return f"{text} and {more:,} more" if more > 0 else text


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() else " " for one in text)
