"""Expectations: actions for rows that break a rule, and their counts (pure).

Guarantees: every rule is evaluated for every row and counted separately. A rule whose result is
NULL passes, like a CHECK in SQL, but a constraint of the table passes only if it is true. A row
that breaks several rules gets the strictest action: fail, then quarantine, then drop, then warn.
Rows keep their order.

`rules.sql` evaluates rules by DuckDB inside a task, and `run.spark_rules` by Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.definition.model import Action, Expectation
from penstock.spark.tables.values.parser import ErrorClass, Reject


class ExpectationFailedError(SparkQueryError):
    """A row breaks a rule whose action is `fail`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the rules for one batch of rows."""

    broken: Mapping[str, int]
    """The number of rows that break each rule, by its name, including 0."""
    kept: pa.Array | None
    """The numbers of the rows to write; None if all are kept."""
    quarantined: tuple[Reject, ...] = ()
    """The rejects for the table of bad records, by the numbers of the rows."""
    failed: tuple[str, ...] = ()
    """The rules whose failure forbids the commit of the batch."""

    def require(self, expectations: Sequence[Expectation]) -> None:
        """Raise if the batch must not be committed."""
        if not self.failed:
            return
        rule = next(one for one in expectations if one.name == self.failed[0])
        raise ExpectationFailedError(
            f"expectation '{rule.name}': {self.broken[rule.name]} rows break {rule.sql!r}, and its "
            "action is fail, so nothing of this batch is in the table. Correct the records or the "
            "rule, or choose quarantine to go on without these rows."
        )


def outcome_of(expectations: Sequence[Expectation], answers: Sequence[pa.Array]) -> Outcome:
    """Return the outcome from a boolean per rule and row; see `Expectation` about null."""
    assert len(expectations) == len(answers), "an answer for each rule"
    broken_rows = {
        rule.name: pc.invert(pc.fill_null(answer, fill_value=not rule.is_constraint))
        for rule, answer in zip(expectations, answers, strict=True)
    }
    broken = {name: int(pc.sum(rows, min_count=0).as_py()) for name, rows in broken_rows.items()}
    leaving = [
        broken_rows[rule.name]
        for rule in expectations
        if rule.action in {Action.DROP, Action.QUARANTINE} and broken[rule.name]
    ]
    return Outcome(
        broken=broken,
        kept=_rows_outside(leaving),
        quarantined=_quarantined(expectations, broken_rows, broken),
        failed=tuple(
            rule.name for rule in expectations if rule.action is Action.FAIL and broken[rule.name]
        ),
    )


def is_quarantining(expectations: Sequence[Expectation]) -> bool:
    """Return whether rows may go to the table of bad records, which needs their records."""
    return any(rule.action is Action.QUARANTINE for rule in expectations)


def _rows_outside(leaving: list[pa.Array]) -> pa.Array | None:
    if not leaving:
        return None
    out = leaving[0]
    for rows in leaving[1:]:
        out = pc.or_(out, rows)
    return pc.indices_nonzero(pc.invert(out))


def _quarantined(
    expectations: Sequence[Expectation],
    broken_rows: Mapping[str, pa.Array],
    broken: Mapping[str, int],
) -> tuple[Reject, ...]:
    reasons: dict[int, list[Expectation]] = {}
    for rule in expectations:
        if rule.action is Action.QUARANTINE and broken[rule.name]:
            for row in pc.indices_nonzero(broken_rows[rule.name]).to_pylist():
                reasons.setdefault(row, []).append(rule)
    return tuple(_reject(row, reasons[row]) for row in sorted(reasons))


def _reject(row: int, rules: Sequence[Expectation]) -> Reject:
    is_constraint = any(rule.is_constraint for rule in rules)
    error = ErrorClass.CONSTRAINT if is_constraint else ErrorClass.EXPECTATION
    return Reject(row, error, "; ".join(f"{rule.name}: {rule.sql}" for rule in rules))
