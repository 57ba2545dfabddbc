"""The plan of a pipeline's tasks, as its table grows.

Guarantees: a plan's columns are those that the table has, or will have with the commit of the files
that are written after it. It decides by `schema_changes` what a table becomes; what it cannot
become is told before the first batch.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.spark.tables.change_files import changes_layout
from penstock.spark.tables.columns import METADATA, RECORD, table_schema
from penstock.spark.tables.data_files import STAGING_FOLDER, FileLayout
from penstock.spark.tables.definition import PipelineDefinition, WriteMode
from penstock.spark.tables.definition_errors import SchemaError
from penstock.spark.tables.expectations import is_quarantining
from penstock.spark.tables.port import Table
from penstock.spark.tables.rejects import REJECTS
from penstock.spark.tables.run.report import BatchReport
from penstock.spark.tables.run.task_plan import TaskPlan
from penstock.spark.tables.schema_changes import (
    Added,
    Change,
    Incompatible,
    Relaxed,
    Widened,
    change_of,
)
from penstock.spark.tables.upsert import CHANGE_COLUMNS, Changes, require_key
from penstock.spark.tables.value_parsers import ParserPlan


class Plans:
    """The newest plan, and what the table's schema becomes with it."""

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
        """`is_staged`: rows pass through Spark before they are the table's."""
        self._definition = definition
        self._rows = rows
        self._rejects = rejects
        self._is_staged = is_staged
        # Bytes that nobody looks at would be most of what is staged.
        self._keeps_record = is_staged and (
            has_transform
            or bool(self.key)
            or bool(self.filled)
            or is_quarantining(definition.expectations)
        )
        self.task = self._planned(0, parser, value_schema)

    @property
    def may_widen(self) -> bool:
        """Whether the format can make a column wider."""
        return self._rows.may_widen

    def table_schema(self) -> pa.Schema:
        """The columns of the table as it is."""
        return self._rows.schema()

    def change_for(self, rows: pa.Schema) -> pa.Schema | None:
        """What the table has to become for these rows; None when it is that already."""
        change = require_change(self._rows.schema(), rows, may_widen=self.may_widen)
        return change.schema if change.steps else None

    def grow(self, needs: Sequence[pa.Schema]) -> None:
        """Plan for values with these columns too."""
        schema = self.task.value_schema
        for one in needs:
            schema = require_change(schema, one, may_widen=self.may_widen).schema
        self.renew(schema)

    def renew(self, value_schema: pa.Schema | None = None) -> None:
        """A new plan, from what the table is now."""
        task = self.task
        if value_schema is None:
            value_schema = task.value_schema
        self.task = self._planned(task.number + 1, task.parser, value_schema)

    def rows_layout(self, rows: pa.Schema) -> FileLayout:
        """How files of rows are written, that the table takes when it has grown."""
        grown = require_change(self._rows.schema(), rows, may_widen=self.may_widen).schema
        return self._changes_layout(grown) if self.key else self._rows.layout(grown)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the key of an upsert; none: rows are appended."""
        settings = self._definition.table
        return settings.key if settings.mode is WriteMode.UPSERT else ()

    @property
    def filled(self) -> tuple[str, ...]:
        """Columns in which the table cannot hold an empty text: only its partitions have them."""
        return tuple(sorted(self._rows.layout(self._rows.schema()).left_out))

    def as_brought(self, report: BatchReport, rows: pa.Schema) -> BatchReport:
        """The report of files with these columns, as its commit needs it."""
        rows = pa.schema([one for one in rows if one.name not in CHANGE_COLUMNS.names])
        report = replace(report, schema=self.change_for(rows))
        if not self.key:
            return report
        layout = self.rows_layout(rows)
        files = (*report.files, *report.deletion_files)
        return replace(report, changes=Changes(layout.directory, files, self.key), files=())

    def _changes_layout(self, rows: pa.Schema) -> FileLayout:
        require_key(self.key, rows)
        return changes_layout(self._rows, rows)

    def as_in_table(self, rows: pa.Schema) -> pa.Schema:
        """The same columns, required where the table's are: Spark does not tell.

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
        rules = self._definition.expectations
        whole = table_schema(value_schema, has_metadata=settings.has_metadata_columns)
        layout = self._staging(value_schema) if self._is_staged else self.rows_layout(whole)
        return TaskPlan(
            number=number,
            pipeline=self._definition.pipeline.name,
            parser=parser,
            value_schema=value_schema,
            may_widen=self.may_widen,
            expectations=() if self._is_staged else rules,
            rows=layout,
            rejects=self._rejects.layout(REJECTS),
            key=self.key,
            deletions=self._deletions(layout) if self.key else None,
            filled=self.filled,
            is_staged=self._is_staged,
            keeps_record=self._keeps_record,
        )

    def _deletions(self, rows: FileLayout) -> FileLayout:
        """With the columns of the other changes, if those are known: one upsert has both."""
        return self._changes_layout(self._rows.schema()) if self._is_staged else rows

    def _staging(self, value_schema: pa.Schema) -> FileLayout:
        directory = self._rows.layout(self._rows.schema()).directory
        record = RECORD if self._keeps_record else ()
        schema = pa.schema([*value_schema, *METADATA, *record])
        # It is read once, from the same machine as a rule: what counts is the processor's time.
        return FileLayout(f"{directory}/{STAGING_FOLDER}", schema, compression="lz4")


def require_change(table: pa.Schema, rows: pa.Schema, *, may_widen: bool) -> Change:
    """What the table has to become; `SchemaError` when it cannot."""
    change = change_of(table, rows)
    reasons: tuple[str, ...] = ()
    if isinstance(change, Incompatible):
        reasons = change.reasons
    elif not may_widen:
        reasons = tuple(_refused(step) for step in change.steps if not isinstance(step, Added))
    if reasons or isinstance(change, Incompatible):
        raise SchemaError(
            "the table",
            " ".join(reasons)[:1_000],
            "Correct value.schema, or name another table.",
        )
    return change


def _refused(step: Widened | Relaxed) -> str:
    column = f"column '{'.'.join(step.path)}'"
    if isinstance(step, Relaxed):
        return (
            f"{column} is required in the table and not in the rows, and a required column of a "
            "Delta table stays required."
        )
    return (
        f"{column} is {step.before} in the table and {step.after} in the rows, and columns of a "
        "Delta table are not widened."
    )
