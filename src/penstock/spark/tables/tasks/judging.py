"""Judges every record of a batch: a row of the table, a reject with its reason, or dropped.

Guarantees: each record has exactly one of these results. Rows have the columns of the plan, in its
order. Columns of values beyond the plan are not dropped silently: they raise `GrowthNeededError`,
and the driver creates a new plan.

For an upsert a record without a value deletes the row of its key; it is detected before values are
parsed, and no rule applies to it. A row without a whole key is a reject. A row that readers of the
table would not read back unchanged is also a reject, see `values.limits`. No rule applies to a
reject. Values that are changes (`values.cdc`) say themselves whether they delete their row.

A judge belongs to one task, or to one batch in the driver. One thread uses it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.files.partition_limits import partition_rejects
from penstock.spark.tables.files.upsert import as_changes
from penstock.spark.tables.formats.rejects import reject_rows
from penstock.spark.tables.rules.sql import ExpectationEvaluator
from penstock.spark.tables.tasks.task_plan import TaskPlan
from penstock.spark.tables.values.cdc.database_changes import ChangeValues
from penstock.spark.tables.values.columns import fit, metadata_columns, with_metadata, with_record
from penstock.spark.tables.values.keys import KeyParser
from penstock.spark.tables.values.limits import shown_timestamps, with_shown_timestamps
from penstock.spark.tables.values.parser import ErrorClass, Parsed, Reject, of_record, rejecting
from penstock.spark.tables.values.registered_values import TableColumns
from penstock.spark.tables.values.schema_changes import Incompatible, change_of
from penstock.spark.tables.values.unknown_fields import RESCUED, UnknownFieldValues
from penstock.spark.tables.values.value_parsers import new_parser


class GrowthNeededError(Exception):
    """The values have columns that the plan lacks."""

    def __init__(self, value_schema: pa.Schema) -> None:
        super().__init__("the table has to grow first")
        self.value_schema = value_schema


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows and rejects of one batch of records."""

    rows: pa.RecordBatch
    deletions: pa.RecordBatch | None
    """For an upsert: the keys of deleted rows."""
    rejects: tuple[pa.RecordBatch, ...]
    """Rows of the table of bad records."""
    broken: Mapping[str, int]
    failed: tuple[str, ...] = ()


class Judge:
    """Parses values and evaluates rules, by one plan."""

    def __init__(self, plan: TaskPlan, attempt: int = 1) -> None:
        self.plan = plan
        self._attempt = attempt
        columns = TableColumns(plan.value_schema, plan.may_widen, plan.derived)
        self._parser = new_parser(plan.parser, columns, plan.key)
        self._evaluator = ExpectationEvaluator(plan.expectations)
        self._has_constraints = any(one.is_constraint for one in plan.expectations)
        self._seen: pa.Schema | None = None
        self._schema = plain_schema(plan.rows.schema)
        self._has_metadata = metadata_columns(plan.metadata).names[0] in self._schema.names
        self._filled: set[str] | None = None
        """Columns of values with a value since the last call; None: there were no rows."""
        self._keys: KeyParser | None = None
        if plan.deletions is not None:
            schema = plan.deletions.schema
            self._keys = KeyParser(pa.schema([schema.field(name) for name in plan.key]))

    def judge(self, records: pa.RecordBatch) -> Judged:
        """Judge records of the source."""
        values = records.column("value")
        if isinstance(self._parser, ChangeValues):
            return self._judged_changes(self._parser, records)
        if self._keys is None or not values.null_count:
            return self._judged(records)
        is_deletion = values.is_null()
        judged = self._judged(records.filter(pc.invert(is_deletion)))
        deletions, rejects = self._deletions(records.filter(is_deletion))
        return replace(judged, deletions=deletions, rejects=judged.rejects + rejects)

    def _judged_changes(self, parser: ChangeValues, records: pa.RecordBatch) -> Judged:
        """Judge changes: their rows as all rows, and their deletions without rules."""
        assert self.plan.deletions is not None, "changes are for upserts"
        read = parser.read(records)
        judged = self._judged_rows(read.rows, records)
        gone = records.take(read.deletion_numbers)
        changes = as_changes(read.deletions, gone, deleted=True)
        return replace(judged, deletions=fit(changes, plain_schema(self.plan.deletions.schema)))

    def unknown_fields(self) -> tuple[Mapping[str, int], int]:
        """Return fields without a column, by their paths, and the number of checked values."""
        if not isinstance(self._parser, UnknownFieldValues):
            return {}, 0
        return dict(self._parser.counts), self._parser.looked_at

    def take_empty_columns(self) -> frozenset[str] | None:
        """Return value columns that all rows since the last call lack; None if unknown."""
        filled, self._filled = self._filled, None
        if filled is None or self.plan.parser.changes.is_partial:
            return None  # a column that no partial change carries is not empty
        return frozenset(self.plan.value_schema.names) - filled - {RESCUED}

    def needed_by(self, records: pa.RecordBatch) -> pa.Schema:
        """Return the columns of all values so far, including these, for a table that must grow."""
        self._parser.parse(records.column("value"))
        return self._parser.schema

    def _judged(self, records: pa.RecordBatch) -> Judged:
        return self._judged_rows(self._parser.parse(records.column("value")), records)

    def _judged_rows(self, parsed: Parsed, records: pa.RecordBatch) -> Judged:
        self._require_planned()
        self._look_for_values(parsed.rows)
        # Add the metadata before keys are read: a metadata column may be part of the key.
        rows = with_metadata(parsed.rows, _records_of(parsed, records), self.plan.metadata)
        parsed = replace(parsed, rows=rows)
        if not self.plan.is_staged:
            parsed = with_whole_keys(parsed, self.plan.key)
            parsed = rejecting(parsed, partition_rejects(parsed.rows, self.plan.limits))
        if self._has_metadata:
            parsed = with_shown_timestamps(parsed, records)
        if not self.plan.is_staged:
            parsed = with_required(parsed, self.plan.required)
        rows, kept = parsed.rows, _records_of(parsed, records)
        outcome = self._evaluator.evaluate(self._asked(rows))
        if self.plan.keeps_record:
            rows = with_record(rows, kept)
        elif self.plan.key and not self.plan.is_staged:
            rows = as_changes(rows, kept, deleted=False)
        if outcome.kept is not None:
            rows = rows.take(outcome.kept)
        rejects = [*parsed.rejects, *(of_record(one, parsed) for one in outcome.quarantined)]
        return Judged(
            fit(rows, self._schema),
            None,
            self._reject_rows(records, rejects),
            outcome.broken,
            outcome.failed,
        )

    def _look_for_values(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            columns = zip(rows.schema.names, rows.columns, strict=True)
            there = {name for name, one in columns if one.null_count < len(one)}
            self._filled = there if self._filled is None else self._filled | there

    def _asked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for the rules: constraints need them with the table's columns."""
        if not self._has_constraints:
            return rows
        planned = list(self.plan.value_schema)
        names = {one.name for one in planned}
        others = [one for one in rows.schema if one.name not in names]
        return fit(rows, plain_schema(pa.schema([*planned, *others])))

    def _deletions(
        self, records: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, tuple[pa.RecordBatch, ...]]:
        assert self._keys is not None
        assert self.plan.deletions is not None
        parsed = self._keys.parse(records.column("key"))
        changes = as_changes(parsed.rows, _records_of(parsed, records), deleted=True)
        rejects = self._reject_rows(records, list(parsed.rejects))
        return fit(changes, plain_schema(self.plan.deletions.schema)), rejects

    def _reject_rows(
        self, records: pa.RecordBatch, rejects: Sequence[Reject]
    ) -> tuple[pa.RecordBatch, ...]:
        if not rejects:
            return ()
        ordered = sorted(rejects, key=lambda one: one.row)
        pipeline = self.plan.pipeline
        return (reject_rows(records, ordered, pipeline=pipeline, attempt=self._attempt),)

    def _require_planned(self) -> None:
        """Raise if values of a registry's schemas have more columns than the plan."""
        found = self._parser.schema
        if found is self._seen:
            return
        change = change_of(self.plan.value_schema, found, may_widen=self.plan.may_widen)
        assert not isinstance(change, Incompatible), "the parser rejects these values"
        if change.steps:
            raise GrowthNeededError(change.schema)
        self._seen = found


def newest_timestamp_ms(records: pa.RecordBatch) -> int | None:
    """Return the newest plausible timestamp of the records; None without one."""
    timestamps, _ = shown_timestamps(records.column("timestamp"))
    newest = pc.max(timestamps.cast(pa.int64())).as_py()
    return None if newest is None else int(newest) // 1000


def with_whole_keys(parsed: Parsed, key: Sequence[str]) -> Parsed:
    """Return the result with rows that lack a part of their key moved to the rejects."""
    bad = [
        Reject(number, ErrorClass.MISSING_VALUE, f"column '{name}' of the key has no value")
        for name in key
        for number in _rows_without(parsed.rows, name)
    ]
    first = {one.row: one for one in reversed(bad)}
    return rejecting(parsed, list(first.values()))


def with_required(parsed: Parsed, names: Sequence[str]) -> Parsed:
    """Return the result with rows that lack a required value moved to the rejects."""
    bad = [
        Reject(number, ErrorClass.MISSING_VALUE, f"NOT NULL {name}: the column has no value")
        for name in names
        for number in _rows_without(parsed.rows, name)
    ]
    first = {one.row: one for one in reversed(bad)}
    return rejecting(parsed, list(first.values()))


def _rows_without(rows: pa.RecordBatch, name: str) -> list[int]:
    """Return the numbers of rows without a value here: all rows, if values lost the column."""
    index = rows.schema.get_field_index(name)
    if index < 0:
        return list(range(rows.num_rows))
    column = rows.column(index)
    return pc.indices_nonzero(column.is_null()).to_pylist() if column.null_count else []


def _records_of(parsed: Parsed, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the records of the rows, one for each row."""
    return records if parsed.row_numbers is None else records.take(parsed.row_numbers)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the same columns without the metadata of a format."""
    return pa.schema([one.remove_metadata() for one in schema])
