"""The plan of a pipeline's tasks, as its table grows.

Guarantees: a plan's columns are those of the table, now or after the commit of the plan's files. It
decides the table's changes by `schema_changes`; an impossible change is raised before the first
batch.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import (
    Expectation,
    Metadata,
    PipelineDefinition,
    WriteMode,
)
from penstock.spark.tables.definition.partial_updates import require_whole_in_task
from penstock.spark.tables.files import file_partitions
from penstock.spark.tables.files.data_files import STAGING_FOLDER, FileLayout
from penstock.spark.tables.files.partition_limits import PartitionLimits, limits_of
from penstock.spark.tables.files.storages import below
from penstock.spark.tables.files.upsert import CHANGE_COLUMNS, Changes, require_key
from penstock.spark.tables.formats.change_files import changes_layout
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.rules.expectations import is_quarantining
from penstock.spark.tables.rules.sql import is_in_task
from penstock.spark.tables.tasks.report import BatchReport
from penstock.spark.tables.tasks.task_plan import TaskPlan
from penstock.spark.tables.values.cdc.carried_columns import CARRIED
from penstock.spark.tables.values.cdc.row_versions import require_history
from penstock.spark.tables.values.cdc.sequence import SEQUENCE
from penstock.spark.tables.values.columns import (
    VALUE,
    metadata_columns,
    table_schema,
    with_metadata_columns,
)
from penstock.spark.tables.values.registered_values import MisfitError, TableColumns
from penstock.spark.tables.values.schema_changes import Change, Incompatible, change_of
from penstock.spark.tables.values.value_parsers import ParserPlan


class Plans:
    """The newest plan, and the table's schema for it."""

    def __init__(
        self,
        definition: PipelineDefinition,
        parser: ParserPlan,
        value_schema: pa.Schema,
        rows: Table,
        rejects: Table,
        *,
        is_staged: bool,
        has_transform: bool = False,
    ) -> None:
        """Create the plans; `is_staged`: rows pass through Spark before the table."""
        self._definition = definition
        self._rows = rows
        self._rejects = rejects
        self._is_staged = is_staged
        self._has_transform = has_transform
        # With a function the table's columns are those of its rows, not of values.
        self._derived = frozenset() if has_transform else derived_names(rows)
        self._in_task: tuple[Expectation, ...] = ()
        """Constraints that a task can evaluate, checked before."""
        self.task = self._planned(0, parser, value_schema)

    @property
    def may_widen(self) -> bool:
        """Whether the format can widen a column."""
        return self._rows.may_widen

    def table_schema(self) -> pa.Schema:
        """Return the current columns of the table."""
        return self._rows.schema()

    def change_for(self, rows: pa.Schema) -> pa.Schema | None:
        """Return the table's schema for these rows; None if it needs no change."""
        change = require_change(self._rows.schema(), rows, may_widen=self.may_widen)
        return change.schema if change.steps else None

    def grow(self, needs: Sequence[pa.Schema]) -> bool:
        """Plan for values with these columns too; return whether the plan has grown.

        For conflicting needs the first one counts: the next tasks reject the others' values.
        """
        known = self._known()
        schema = known
        for one in needs:
            with suppress(MisfitError):
                schema = TableColumns(schema, self.may_widen, self._derived).with_columns(one)
        self._plan(schema)
        return not schema.equals(known)

    def renew(self) -> None:
        """Create a new plan, from the current table."""
        self._plan(self._known())

    def _known(self) -> pa.Schema:
        """Return the columns of values so far.

        Another writer may have added the same column to the table with another type. Then the
        table's columns count, and the next tasks report further needs.
        """
        schema = self.task.value_schema
        if self.task.parser.registry is None or self._has_transform:
            return schema
        held = value_columns(self._definition, self._rows.schema())
        change = change_of(held, schema, may_widen=self.may_widen)
        return change.schema if isinstance(change, Change) else held

    def _plan(self, value_schema: pa.Schema) -> None:
        self.task = self._planned(self.task.number + 1, self.task.parser, value_schema)

    def rows_layout(self, rows: pa.Schema) -> FileLayout:
        """Return the layout of files of rows, for the table with its new columns."""
        grown = require_change(self._rows.schema(), rows, may_widen=self.may_widen).schema
        return self._changes_layout(grown) if self.key else self._rows.layout(grown)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key of an upsert; none: rows are appended."""
        settings = self._definition.table
        return settings.key if settings.mode is WriteMode.UPSERT else ()

    @property
    def limits(self) -> PartitionLimits:
        """The columns that the table's partitions limit."""
        return limits_of(self._rows.layout(self._rows.schema()))

    @property
    def rules(self) -> tuple[Expectation, ...]:
        """The rules for rows: first the current constraints of the table."""
        return (*self._rows.constraints(), *self._definition.expectations)

    @property
    def required(self) -> tuple[str, ...]:
        """Columns that are required in the table and stay required."""
        return tuple(one.name for one in self._rows.schema() if not one.nullable)

    @property
    def _keeps_record(self) -> bool:
        """Whether staged rows keep the record, most of their bytes: if one may be quarantined."""
        may_be_reject = self._has_transform or self.key or self.limits or self.required
        return self._is_staged and (bool(may_be_reject) or is_quarantining(self.rules))

    def _require_in_task(self, rules: Sequence[Expectation], columns: pa.Schema) -> None:
        """Raise if a task cannot evaluate a rule that the table got after the mode was chosen."""
        constraints = tuple(one for one in rules if one.is_constraint)
        if self._is_staged or constraints == self._in_task:
            return
        asked = with_metadata_columns(columns, self._definition.table.metadata)
        for rule in constraints:
            if not is_in_task(rule.sql, asked):
                raise SchemaError(
                    f"the table has the constraint '{rule.name}'",
                    f"only Spark can evaluate {rule.sql!r}.",
                    "Start the pipeline again: it chooses its mode by the constraints.",
                )
        self._in_task = constraints

    def for_commit(self, report: BatchReport, rows: pa.Schema) -> BatchReport:
        """Return the report of files with these columns, for its commit."""
        extra = {*CHANGE_COLUMNS.names, CARRIED}
        rows = pa.schema([one for one in rows if one.name not in extra])
        report = _with_new_columns(
            replace(report, schema=self.change_for(rows)), self._rows.schema()
        )
        if not self.key:
            return report
        layout = self.rows_layout(rows)
        files = (*report.files, *report.deletion_files)
        settings = self._definition.table
        changes = Changes(
            layout.directory,
            files,
            self.key,
            self._is_sequenced,
            has_history=settings.history,
            always_set=self._always_set if settings.partial_updates else None,
        )
        return replace(report, changes=changes, files=())

    @property
    def _always_set(self) -> tuple[str, ...]:
        """The columns that each partial change sets."""
        form = self._definition.table.metadata
        order = (SEQUENCE,) if self._is_sequenced else ()
        metadata = () if form is Metadata.NONE else metadata_columns(form).names
        return (*self.key, *order, *metadata)

    @property
    def _is_sequenced(self) -> bool:
        return bool(self._definition.value.changes.sequence_by)

    def _changes_layout(self, rows: pa.Schema) -> FileLayout:
        require_key(self.key, rows)
        if self._is_sequenced and SEQUENCE not in rows.names:
            raise SchemaError(
                "the rows of the function",
                f"they lack the column {SEQUENCE}, the order of changes by value.sequence_by.",
                "Let the function keep it.",
            )
        if self._definition.table.history:
            require_history(self.key, rows)
        if not self._definition.table.partial_updates:
            return changes_layout(self._rows, rows)
        require_whole_in_task(
            self._definition, has_transform=False, constraints=self._rows.constraints()
        )
        given = {*self._always_set}
        return changes_layout(self._rows, rows, [one for one in rows.names if one not in given])

    def as_in_table(self, rows: pa.Schema) -> pa.Schema:
        """Return the columns, required as in the table: Spark does not report this.

        A null in such a column is an error when it is written.
        """
        held = {one.name: one for one in self._rows.schema()}
        return pa.schema(
            [
                held[one.name] if one.name in held and held[one.name].type == one.type else one
                for one in rows
            ]
        )

    def _planned(self, number: int, parser: ParserPlan, value_schema: pa.Schema) -> TaskPlan:
        settings = self._definition.table
        rules = self.rules
        self._require_in_task(rules, value_schema)
        whole = table_schema(value_schema, settings.metadata)
        layout = self._staging(value_schema) if self._is_staged else self.rows_layout(whole)
        return TaskPlan(
            number=number,
            pipeline=self._definition.pipeline.name,
            parser=parser,
            value_schema=value_schema,
            may_widen=self.may_widen,
            derived=self._derived,
            expectations=() if self._is_staged else rules,
            rows=layout,
            rejects=self._rejects.layout(REJECTS),
            metadata=settings.metadata,
            key=self.key,
            deletions=self._deletions(layout, whole) if self.key else None,
            required=self.required,
            limits=self.limits,
            is_staged=self._is_staged,
            keeps_record=self._keeps_record,
        )

    def _deletions(self, rows: FileLayout, whole: pa.Schema) -> FileLayout:
        """Return the layout of deletions with the other changes' columns: one upsert has both.

        It includes columns that this batch adds: a key that it widens may be deleted.
        """
        if not self._is_staged:
            return rows
        if self._has_transform:
            return self._changes_layout(self._rows.schema())
        return self.rows_layout(whole)

    def _staging(self, value_schema: pa.Schema) -> FileLayout:
        directory = self._rows.layout(self._rows.schema()).directory
        record = (VALUE,) if self._keeps_record else ()
        rows = with_metadata_columns(value_schema, self._definition.table.metadata)
        schema = pa.schema([*rows, *record])
        # The file is read once, usually on the same machine: only CPU time matters.
        return FileLayout(below(directory, STAGING_FOLDER), schema, compression="lz4")


def _with_new_columns(report: BatchReport, held: pa.Schema) -> BatchReport:
    """Return the report, with empty columns marked as new if its commit adds them."""
    empty = report.counts.empty_columns
    if report.schema is None or not empty:
        return report
    added = set(report.schema.names) - set(held.names)
    counts = replace(report.counts, empty_columns={name: name in added for name in empty})
    return replace(report, counts=counts)


def derived_names(table: Table) -> frozenset[str]:
    """Return the names of partitions without a column: in Delta they are separate columns."""
    return frozenset(file_partitions.derived_names(table.layout(table.schema()).partitions))


def value_columns(definition: PipelineDefinition, held: pa.Schema) -> pa.Schema:
    """Return the columns of a table that belong to the value."""
    form = definition.table.metadata
    out = () if form is Metadata.NONE else metadata_columns(form).names
    return pa.schema([one for one in held if one.name not in out])


def require_change(table: pa.Schema, rows: pa.Schema, *, may_widen: bool) -> Change:
    """Return the change that the table needs; raise `SchemaError` if it is impossible."""
    change = change_of(table, rows, may_widen=may_widen)
    if isinstance(change, Incompatible):
        raise SchemaError(
            "the table",
            " ".join(change.reasons)[:1_000],
            "Correct value.schema, or name another table.",
        )
    return change
