"""The circuit breaker: stop when too many of the last records are bad (pure).

Guarantees: it opens exactly when there are at least `window_records` last records and more than
`share_max` of them are bad. The last records are those of the newest batches that together reach
this number; older batches are dropped. With fewer records it stays closed: one bad record among
three proves nothing. It counts the records of one run.

It keeps at most `BATCHES_MAX` counts. It does not identify the bad records: they are in the table
of bad records anyway.

**A run that ends** is judged at its end, from `END_RECORDS_MIN` records on: with a limit of a half,
and five of a hundred records bad, six of ten are bad once in 370,000 runs, but two of three once in
140. Fewer records open it only if all of them were bad: then the run wrote nothing, and runs of a
few records each would otherwise never fail. A run whose batches cannot be corrected after their
commit is judged by its records so far before each commit (`is_open_early`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.spark.errors import SparkQueryError

BATCHES_MAX: Final = 1_000
"""Beyond it, small batches are added up in pairs; the window is then a little longer."""


END_RECORDS_MIN: Final = 10
"""From this number of records on, a run that ends is judged by the share of bad ones."""


class CircuitOpenError(SparkQueryError):
    """Too many of the last records were bad."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The counts of one batch."""

    records: int
    rejects: int

    def __post_init__(self) -> None:
        assert 0 <= self.rejects <= self.records, "a reject is a record"


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """The counts of the last batches, oldest first, and the limit."""

    share_max: float
    window_records: int
    batches: tuple[Batch, ...] = ()

    def after(self, records: int, rejects: int) -> "CircuitBreaker":
        """Return the breaker after one more batch.

        A function may return several rows for a record, and send them to several tasks, each of
        which counts the record as a reject.
        """
        newest = Batch(records, min(rejects, records))
        batches = [one for one in (*self.batches, newest) if one.records]
        total = sum(one.records for one in batches)
        while batches and total - batches[0].records >= self.window_records:
            total -= batches.pop(0).records
        if len(batches) > BATCHES_MAX:
            batches = _in_pairs(batches)
        return replace(self, batches=tuple(batches))

    @property
    def records(self) -> int:
        """The number of records in the window."""
        return sum(one.records for one in self.batches)

    @property
    def share(self) -> float:
        """The share of bad records, from 0 to 1."""
        records = self.records
        return sum(one.rejects for one in self.batches) / records if records else 0.0

    @property
    def is_open(self) -> bool:
        """Whether the pipeline has to stop."""
        return self.records >= self.window_records and self.share > self.share_max

    @property
    def is_open_at_end(self) -> bool:
        """Whether a run has failed at its end, judged by its last records."""
        return self.is_open_early or (self.share == 1 and self.share > self.share_max)

    @property
    def is_open_early(self) -> bool:
        """Whether a run that ends has to stop before its end: it had enough records."""
        return self.records >= END_RECORDS_MIN and self.share > self.share_max

    def reason(self, table: str) -> str:
        """Return the message of an open breaker."""
        return self._reason(
            f"They are in {table} with their reasons. Correct the schema or the producer, or raise "
            "the limit, then start again."
        )

    def reason_at_end(self, table: str) -> str:
        """Return the message of a run that has failed at its end."""
        return self._reason(
            f"They are in {table} with their reasons (`penstock table dlq list FILE`), all other "
            "records are in the table, and the next run continues after them. Correct the schema "
            "or the producer, or raise the limit, before the next run."
        )

    def reason_before_commit(self, classes: Mapping[str, int]) -> str:
        """Return the message of a breaker that opens before the last batch is committed.

        `classes`: the number of bad records of the last batch, by the class of their reason.
        """
        counts = sorted(classes.items(), key=lambda one: (-one[1], one[0]))
        named = ", ".join(f"{name} {count}" for name, count in counts)
        return self._reason(
            f"Nothing of the last batch was committed; its bad records: {named}. The next run "
            "repeats the batch. Correct the schema before it, or raise the limit to accept them as "
            "bad records."
        )

    def _reason(self, rest: str) -> str:
        return (
            f"{self.share:.1%} of the last {self.records} records could not be written, and "
            f"value.reject_share_max allows {self.share_max:.1%}. {rest}"
        )


def _in_pairs(batches: list[Batch]) -> list[Batch]:
    pairs = [
        Batch(one.records + other.records, one.rejects + other.rejects)
        for one, other in zip(batches[::2], batches[1::2], strict=False)
    ]
    return pairs + (batches[-1:] if len(batches) % 2 else [])
