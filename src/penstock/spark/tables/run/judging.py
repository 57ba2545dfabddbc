"""Every record of a batch: a row of the table, a reject with its reason, or dropped by a rule.

Guarantees: none is lost and none is two of these. Rows have the columns of the plan, in its order.
What the values have more than the plan is not left out silently: it is `GrowthNeededError`, and the
driver plans anew.

It belongs to one task and is used from one thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.columns import fit, with_metadata, with_record
from penstock.spark.tables.expectation_sql import ExpectationEvaluator
from penstock.spark.tables.rejects import reject_rows
from penstock.spark.tables.run.task_plan import TaskPlan
from penstock.spark.tables.schema_changes import Incompatible, change_of
from penstock.spark.tables.value_parsers import new_parser
from penstock.spark.tables.values.parser import Parsed, Reject
from penstock.spark.tables.values.registered_values import TableColumns


class GrowthNeededError(Exception):
    """The values have columns that the plan has not."""

    def __init__(self, value_schema: pa.Schema) -> None:
        super().__init__("the table has to grow first")
        self.value_schema = value_schema


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one batch of records."""

    rows: pa.RecordBatch
    rejects: pa.RecordBatch | None
    """Rows of the table of bad records."""
    broken: Mapping[str, int]
    failed: tuple[str, ...] = ()


class Judge:
    """Reads values and asks rules, after one plan."""

    def __init__(self, plan: TaskPlan, attempt: int = 1) -> None:
        self._plan = plan
        self._attempt = attempt
        self._parser = new_parser(plan.parser, TableColumns(plan.value_schema, plan.may_widen))
        self._evaluator = ExpectationEvaluator(plan.expectations)
        self._grown_from: pa.Schema | None = None
        columns = [one.remove_metadata() for one in plan.rows.schema]
        self._schema = pa.schema(columns)

    def judge(self, records: pa.RecordBatch) -> Judged:
        """Judge records as the source gives them."""
        parsed = self._parser.parse(records.column("value"))
        self._require_planned()
        kept = records if parsed.row_numbers is None else records.take(parsed.row_numbers)
        rows = with_metadata(parsed.rows, kept)
        outcome = self._evaluator.evaluate(rows)
        if self._plan.keeps_record:
            rows = with_record(rows, kept)
        if outcome.kept is not None:
            rows = rows.take(outcome.kept)
        rejects = [*parsed.rejects, *(_of_record(one, parsed) for one in outcome.quarantined)]
        return Judged(
            fit(rows, self._schema),
            self._reject_rows(records, rejects),
            outcome.broken,
            outcome.failed,
        )

    def _reject_rows(self, records: pa.RecordBatch, rejects: list[Reject]) -> pa.RecordBatch | None:
        if not rejects:
            return None
        rejects.sort(key=lambda one: one.row)
        return reject_rows(records, rejects, pipeline=self._plan.pipeline, attempt=self._attempt)

    def _require_planned(self) -> None:
        """Values of a registry's schemas may have grown since the plan was made."""
        found = self._parser.schema
        if found is self._grown_from:
            return
        change = change_of(self._plan.value_schema, found)
        assert not isinstance(change, Incompatible), "the parser has made rejects of these"
        if change.steps:
            raise GrowthNeededError(change.schema)
        self._grown_from = found


def newest_timestamp_ms(records: pa.RecordBatch) -> int | None:
    """Of the newest record; None of none."""
    newest = pc.max(records.column("timestamp").cast(pa.int64())).as_py()
    return None if newest is None else int(newest) // 1000


def _of_record(reject: Reject, parsed: Parsed) -> Reject:
    """A reject by the number of its row, with the number of its record instead."""
    if parsed.row_numbers is None:
        return reject
    return replace(reject, row=parsed.row_numbers[reject.row].as_py())
