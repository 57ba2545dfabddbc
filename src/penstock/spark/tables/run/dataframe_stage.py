"""Passes rows through Spark SQL: from staged files to files of the table.

The tasks of a batch have parsed its records and staged them as Parquet beside the table; bad
records are already in files of rejects. Here Spark reads the staged files, applies the user's
function and the rules, and writes the result into files of the table. The staged files are deleted.

So the function gets a batch as a DataFrame, as in `foreachBatch`: with the columns of the value and
`_kafka`, a struct with topic, partition, offset, timestamp, key and headers of the record, or its
flat columns; and `_value` with the bytes of the record. It may be evaluated more than once; the
result is the same each time if the function is deterministic. A record for which it returns no row
is not in the table.

Rows that a rule quarantines need their record. If a function drops the record's columns, such rules
are an error.
"""

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.spark.errors import SparkQueryError
from penstock.spark.planning import TASKS_MAX
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.locations import local_path
from penstock.spark.tables.definition.model import (
    Expectation,
    Metadata,
    PipelineDefinition,
    WriteMode,
)
from penstock.spark.tables.files.data_files import (
    FileLayout,
    FileReceipt,
    FilesWriter,
    open_directory,
    remove_files,
)
from penstock.spark.tables.files.partition_limits import (
    NO_LIMITS,
    PartitionLimits,
    partition_rejects,
)
from penstock.spark.tables.files.storages import reached
from penstock.spark.tables.files.upsert import as_changes
from penstock.spark.tables.formats.rejects import reject_rows
from penstock.spark.tables.rules.expectations import (
    Outcome,
    is_quarantining,
    outcome_of,
)
from penstock.spark.tables.run.plans import Plans
from penstock.spark.tables.run.spark_rules import (
    answer_name,
    asked,
    in_own_session,
    require_rules,
    settings,
)
from penstock.spark.tables.tasks.judging import plain_schema, with_required, with_whole_keys
from penstock.spark.tables.tasks.report import BatchReport
from penstock.spark.tables.values.columns import (
    VALUE,
    fit,
    metadata_columns,
    record_columns,
    records_of,
    require_free_names,
)
from penstock.spark.tables.values.limits import time_rejects
from penstock.spark.tables.values.parser import Parsed, Reject, of_record, rejecting

Transform = Callable[[DataFrame], DataFrame]
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""

_READ_ROWS: Final = 8_192
"""The number of staged rows that a task reads in one step."""
_ROWS_MAX: Final = 16_384
_BATCH_BYTES: Final = 64 * 2**20
"""The maximum size of rows passed to Python together: as a number of rows, from their mean size."""


class RowRefusedError(SparkQueryError):
    """A row does not fit into the table, and there is no record for a reject."""


@dataclass(frozen=True, slots=True)
class StageOrder:
    """The input of the tasks that write."""

    rows: FileLayout
    rejects: FileLayout
    expectations: tuple[Expectation, ...]
    pipeline: str
    key: tuple[str, ...]
    metadata: Metadata
    limits: PartitionLimits = NO_LIMITS
    """The columns that the table's partitions limit."""
    required: tuple[str, ...] = ()
    """Columns that are required in the table."""
    is_stateful: bool = False
    """Whether the rows are results of a stateful function: no row has a record of its own."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """The result of one of these tasks."""

    rows: int
    rejects: int
    broken: Mapping[str, int]
    failed: tuple[str, ...]
    files: tuple[FileReceipt, ...]
    reject_files: tuple[FileReceipt, ...]
    reject_classes: Mapping[str, int]
    refused: str | None = None
    """The reason why a row, and so the batch, cannot be written."""


class DataFrameStage:
    """Runs batches through Spark SQL."""

    def __init__(
        self,
        spark: SparkSession,
        plans: Plans,
        definition: PipelineDefinition,
        transform: Transform | None,
    ) -> None:
        self._spark = spark
        self._plans = plans
        self._definition = definition
        self._transform = transform
        self._rows_schema = plans.table_schema()
        self._rules = definition.expectations
        """Rules that Spark accepts, checked before: the definition's were checked at the start."""

    def write(self, staged: BatchReport) -> BatchReport:
        """Return the batch to commit."""
        plan = self._plans.task
        if not staged.files:
            return self._plans.for_commit(staged, self._rows_schema)
        frame = _staged_rows(self._spark, plan.rows, staged.files)
        result = transformed(frame, self._transform)
        rules = self._plans.rules
        columns = table_columns(result, self._definition, rules)
        schema = self._plans.as_in_table(arrow_schema(result.select(*columns)))
        order = StageOrder(
            self._plans.rows_layout(schema),
            plan.rejects,
            rules,
            plan.pipeline,
            plan.key,
            plan.metadata,
            plan.limits,
            plan.required,
        )
        held = self._plans.table_schema()
        if rules != self._rules:
            require_rules(result, rules, plan.pipeline, held)
            self._rules = rules
        reports = written_rows(result, columns, order, _row_bytes(staged), held)
        remove_files(plan.rows.directory, staged.files)
        self._rows_schema = schema
        return self._plans.for_commit(_together(staged, reports), schema)


def _staged_rows(
    spark: SparkSession, layout: FileLayout, files: Sequence[FileReceipt]
) -> DataFrame:
    """Return the rows of staged files.

    Spark reads local files itself. A remote store is read with the pipeline's own credentials:
    Spark would need jars for it, and credentials of its own.
    """
    schema = from_arrow_schema(layout.schema)
    if local_path(layout.directory) is not None:
        paths = [f"{layout.directory}/{one.path}" for one in files]
        return spark.read.schema(schema).parquet(*paths)
    names = [(one.path,) for one in files]
    spread = spark.sparkContext.parallelize(names, min(len(names), TASKS_MAX))
    read = partial(_read_staged, layout)
    return spark.createDataFrame(spread, "path string").mapInArrow(read, schema)


def _read_staged(layout: FileLayout, names: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the rows of these files, in a task."""
    for batch in names:
        for name in batch.column("path").to_pylist():
            with reached(layout.directory):
                filesystem, root = open_directory(layout.directory)
                with pq.ParquetFile(f"{root}/{name}", filesystem=filesystem) as file:
                    for rows in file.iter_batches(_READ_ROWS):
                        yield fit(rows, layout.schema)


def transformed(frame: DataFrame, transform: Transform | None) -> DataFrame:
    """Return the result of the user's function for a batch."""
    if transform is None:
        return frame
    result: object = transform(frame)
    name = getattr(transform, "__name__", "the function")
    if isinstance(result, DataFrame):
        require_free_names(result.columns, f"{name}()")
        return result
    given = "None" if result is None else f"a {type(result).__name__}"
    raise SparkQueryError(f"{name}() returned {given}, not a DataFrame. Return the rows.")


def table_columns(
    result: DataFrame, definition: PipelineDefinition, rules: Sequence[Expectation]
) -> list[str]:
    """Return the result's columns that are the table's; `rules` include those of the table."""
    form = definition.table.metadata
    has_quarantine = is_quarantining(rules)
    names = record_columns(form).names
    missing = [name for name in names if name not in result.columns]
    if missing and (has_quarantine or definition.table.mode is WriteMode.UPSERT):
        raise DefinitionError(
            f"pipeline {definition.pipeline.name}",
            "expectations" if has_quarantine else "table.mode",
            f"its rows need the records that they came from, and the function drops {missing[0]}.",
            f"Keep the columns {', '.join(names)}, or "
            "choose drop instead of quarantine and append instead of upsert.",
        )
    out = {VALUE.name}
    if form is Metadata.NONE:
        out |= set(metadata_columns(form).names)
    return [name for name in result.columns if name not in out]


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the columns of a DataFrame as Arrow's."""
    return to_arrow_schema(frame.schema, timezone="UTC")


def _row_bytes(staged: BatchReport) -> float:
    """Return the approximate size of a staged row in memory."""
    found = [one.metadata() for one in staged.files]
    groups = [one.row_group(number) for one in found for number in range(one.num_row_groups)]
    total_bytes = sum(int(one.total_byte_size) for one in groups)
    return total_bytes / max(1, sum(int(one.num_rows) for one in groups))


def written_rows(
    result: DataFrame,
    columns: Sequence[str],
    order: StageOrder,
    row_bytes: float,
    held: pa.Schema | None = None,
) -> list[StageReport]:
    """Evaluate these rows once, and write their files; return a report for each task."""
    kept = [*columns]
    names = record_columns(order.metadata).names
    # Without all of them there is no reject.
    if not order.is_stateful and set(names) <= set(result.columns):
        kept += [name for name in names if name not in columns]
    chosen = [col(f"`{name}`") for name in kept]
    answered = asked(in_own_session(result), chosen, order.expectations, held)
    with settings(answered.sparkSession, _handing_over(row_bytes)):
        rows = answered.mapInArrow(partial(_write_rows, order), "report binary").collect()
    reports = [pickle.loads(row["report"]) for row in rows]  # noqa: S301 - from our own tasks
    assert all(isinstance(one, StageReport) for one in reports)
    refused = next((one.refused for one in reports if one.refused is not None), None)
    if refused is not None:
        raise RowRefusedError(refused)
    return reports


def _handing_over(row_bytes: float) -> dict[str, str]:
    """Return the settings for passing rows to Python.

    With a limit of bytes Spark measures a batch after each of its rows, which needs most of the
    time if rows have lists. With this value Spark does not measure.
    """
    rows_max = max(1, min(_ROWS_MAX, int(_BATCH_BYTES / max(row_bytes, 1.0))))
    return {
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows_max),
    }


def _write_rows(order: StageOrder, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write rows to files in a task, and return one report.

    It also has the refusal of a row: an error of a task has no class, and is tried again.
    """
    try:
        report = _written(order, batches)
    except RowRefusedError as error:
        for _ in batches:  # Spark expects that a task reads all its rows
            pass
        report = StageReport(0, 0, {}, (), (), (), {}, str(error))
    yield pa.RecordBatch.from_pydict({"report": pa.array([pickle.dumps(report)], pa.binary())})


def _written(order: StageOrder, batches: Iterator[pa.RecordBatch]) -> StageReport:
    label = f"rows-{uuid4().hex[:8]}"
    count = 0
    classes: Counter[str] = Counter()
    broken: Counter[str] = Counter()
    failed: set[str] = set()
    rejected: set[Place] = set()
    with FilesWriter(order.rows, label) as rows, FilesWriter(order.rejects, label) as rejects:
        for batch in batches:
            kept, bad, outcome = (judged_results if order.is_stateful else judged)(batch, order)
            broken.update(outcome.broken)
            failed.update(outcome.failed)
            if bad:
                records = records_of(batch, order.metadata)
                first = first_of_each(records, bad, rejected)
                rejects.write(reject_rows(records, first, pipeline=order.pipeline))
                classes.update(one.error.value for one in first)
            if kept.num_rows:
                rows.write(kept)
                count += kept.num_rows
        return StageReport(
            count,
            classes.total(),
            dict(broken),
            tuple(sorted(failed)),
            tuple(rows.finish()),
            tuple(rejects.finish()),
            dict(classes),
        )


def judged_results(
    batch: pa.RecordBatch, order: StageOrder
) -> tuple[pa.RecordBatch, list[Reject], Outcome]:
    """Return the rows to write and the result of the rules, for results of a stateful function.

    Rules come first, so that an expectation can drop a row that does not fit. There are no rejects:
    any other such row is refused.
    """
    outcome = _outcome(batch, order)
    whole = _fitting(batch if outcome.kept is None else batch.take(outcome.kept), order)
    if whole.rejects:
        raise RowRefusedError(
            f"a result of the function cannot be written: {_sentence(whole.rejects[0])} It was "
            "computed from several records, so that there is no record to reject, and nothing of "
            "the batch was committed. Correct the function, or drop such results by an expectation "
            'with the action "drop".'
        )
    return fit(whole.rows, plain_schema(order.rows.schema)), [], outcome


def _sentence(reject: Reject) -> str:
    return f"{reject.message.rstrip('.')}."


def _fitting(batch: pa.RecordBatch, order: StageOrder) -> Parsed:
    """Return the rows that the table can have, and rejects of the others."""
    whole = with_whole_keys(Parsed(batch, None), order.key)
    columns = [name for name in order.rows.schema.names if name in batch.schema.names]
    for find in (time_rejects, partial(partition_rejects, limits=order.limits)):
        whole = rejecting(whole, find(whole.rows.select(columns)))
    return with_required(whole, order.required)


def _outcome(rows: pa.RecordBatch, order: StageOrder) -> Outcome:
    """Return the result of the rules, which Spark has evaluated."""
    answers = [rows.column(answer_name(number)) for number in range(len(order.expectations))]
    return outcome_of(order.expectations, answers)


def judged(
    batch: pa.RecordBatch, order: StageOrder
) -> tuple[pa.RecordBatch, list[Reject], Outcome]:
    """Return the rows to write, the rejects by row numbers, and the result of the rules.

    As in a task without Spark SQL: a record that cannot be a row is a reject, and no rule applies
    to it.
    """
    whole = _fitting(batch, order)
    names = record_columns(order.metadata).names
    if whole.rejects and not set(names) <= set(batch.schema.names):
        raise RowRefusedError(
            f"a row cannot be written: {_sentence(whole.rejects[0])} Its record is not known here, "
            "so that it cannot be a reject. Correct the function: let it keep the columns "
            f"{', '.join(names)}, or leave such rows out."
        )
    outcome = _outcome(whole.rows, order)
    kept = whole.rows if outcome.kept is None else whole.rows.take(outcome.kept)
    quarantined = [of_record(one, whole) for one in outcome.quarantined]
    bad = sorted([*whole.rejects, *quarantined], key=lambda one: one.row)
    if order.key:
        kept = as_changes(kept, records_of(kept, order.metadata), deleted=False)
    # Convert before partitions are computed: Spark's times are in the zone of its session, and the
    # day of a partition is UTC's.
    return fit(kept, plain_schema(order.rows.schema)), bad, outcome


def first_of_each(
    records: pa.RecordBatch, bad: Sequence[Reject], rejected: set[Place]
) -> list[Reject]:
    """Return one reject for a record; a function may have returned several rows for it.

    `rejected`: the records that have one; the new ones are added to it.
    """
    numbers = pa.array([one.row for one in bad], pa.int64())
    columns = [records.column(name).take(numbers) for name in ("topic", "partition", "offset")]
    found = []
    for one, place in zip(bad, zip(*(c.to_pylist() for c in columns), strict=True), strict=True):
        if place not in rejected:
            rejected.add(place)
            found.append(one)
    return found


def _together(staged: BatchReport, reports: Sequence[StageReport]) -> BatchReport:
    broken: Counter[str] = Counter()
    classes = Counter(staged.reject_classes)
    for one in reports:
        broken.update(one.broken)
        classes.update(one.reject_classes)
    return replace(
        staged,
        counts=CommitCounts(
            staged.counts.rows
            - sum(one.row_count for one in staged.files)
            + sum(one.rows for one in reports),
            staged.counts.rejects + sum(one.rejects for one in reports),
            dict(broken),
            staged.counts.newest_ms,
            staged.counts.unknown_fields,
            staged.counts.looked_at,
            staged.counts.empty_columns,
        ),
        failed=tuple(sorted({name for one in reports for name in one.failed})),
        files=tuple(file for one in reports for file in one.files),
        reject_files=(
            *staged.reject_files,
            *(file for one in reports for file in one.reject_files),
        ),
        reject_classes=dict(classes),
    )
