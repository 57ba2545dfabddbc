"""Writes the result of a stateful function for one batch into files of the table.

Guarantees: the batch is evaluated once, because each evaluation computes the state. Rules are
evaluated as for every DataFrame (`run.dataframe_stage`), and a row that does not fit into the table
stops the pipeline, because it has no record that could be rejected. The reports of the ranges
arrive with the evaluation, and a range without a report is an error: its records would be nowhere.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.note import CommitCounts, PartitionRange
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.formats.port import TableRefusedError
from penstock.spark.tables.rules.expectations import Outcome
from penstock.spark.tables.run.dataframe_stage import (
    StageOrder,
    StageReport,
    arrow_schema,
    table_columns,
    written_rows,
)
from penstock.spark.tables.run.plans import Plans
from penstock.spark.tables.run.stateful.records import REPORT, RangeReport, unpack_report
from penstock.spark.tables.tasks.orders import TaskOrder
from penstock.spark.tables.tasks.report import BatchReport, together
from penstock.spark.tables.tasks.task import planned_report, range_of

ROW_BYTES: Final = 8_192
"""The assumed size of a result, for the number of rows that are passed to Python together."""


class UnreadRangeError(SparkQueryError):
    """The function did not read a part of the batch."""


class _Lists(AccumulatorParam[list[bytes]]):
    def zero(self, value: list[bytes]) -> list[bytes]:
        """Return the start: no reports."""
        return value[:0]

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:  # noqa: N802 - Spark's
        """Return both lists together."""
        value1.extend(value2)
        return value1


class Reports:
    """The reports of the tasks, which arrive beside the rows."""

    def __init__(self, spark: SparkSession) -> None:
        self._found: Accumulator[list[bytes]] = spark.sparkContext.accumulator([], _Lists())

    def clear(self) -> None:
        """Forget the reports of earlier batches."""
        self._found.value = []

    def take_out(self, rows: DataFrame, columns: pa.Schema) -> DataFrame:
        """Return the rows without their reports, which are collected when Spark evaluates them."""
        return rows.mapInArrow(partial(_without_reports, self._found), from_arrow_schema(columns))

    def of(self, orders: Sequence[TaskOrder]) -> list[RangeReport]:
        """Return one report for each order, whatever the number of evaluations of its task."""
        found: dict[PartitionRange, RangeReport] = {}
        for data in self._found.value:
            report = unpack_report(data)
            found.setdefault(report.task.range, report)
        missing = [order for order in orders if range_of(order.task) not in found]
        if missing:
            raise UnreadRangeError(
                f"the function did not read {range_of(missing[0].task)}: Spark found that its "
                "records cannot change the result. Correct the function: a condition such as "
                "`false` removes every row."
            )
        return [found[range_of(order.task)] for order in orders]


def _without_reports(
    found: Accumulator[list[bytes]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return the rows without reports, in a task."""
    for batch in batches:
        reports = batch.column(REPORT)
        if reports.null_count < len(reports):
            found.add(reports.drop_null().to_pylist())
            batch = batch.filter(pc.is_null(reports))  # noqa: PLW2901 - the same rows
        yield batch.drop_columns([REPORT])


@dataclass(frozen=True, slots=True)
class Written:
    """The files of a batch."""

    report: BatchReport
    late_count: int
    newest_event_ms: int | None
    """The newest event time of the batch; None: it has no record in time."""


class ResultWriter:
    """Writes the results of batches."""

    def __init__(self, plans: Plans, definition: PipelineDefinition, reports: Reports) -> None:
        self._plans = plans
        self._definition = definition
        self._reports = reports

    def write(self, result: DataFrame, orders: Sequence[TaskOrder]) -> Written:
        """Evaluate the batch, and write its files; `orders` are the ranges of the batch."""
        plans, plan = self._plans, self._plans.task
        rules = plans.rules
        refused = next((one for one in rules if one.is_constraint), None)
        if refused is not None:
            raise TableRefusedError(
                f"the table has the constraint '{refused.name}', and a result that breaks it has "
                "no record that could be rejected. Remove the constraint, or name another table."
            )
        columns = table_columns(result, self._definition, rules)
        schema = plans.as_in_table(arrow_schema(result.select(*columns)))
        order = StageOrder(
            plans.rows_layout(schema),
            plan.rejects,
            rules,
            plan.pipeline,
            (),
            plan.metadata,
            plan.limits,
            plan.required,
            is_stateful=True,
        )
        self._reports.clear()
        stages = written_rows(result, columns, order, ROW_BYTES, plans.table_schema())
        ranges = self._reports.of(orders)
        report = _together(ranges, stages)
        Outcome(report.counts.expectations, None, (), report.failed).require(rules)
        times = [one.newest_event_ms for one in ranges if one.newest_event_ms is not None]
        return Written(
            plans.for_commit(report, schema),
            sum(one.late_count for one in ranges),
            max(times, default=None),
        )


def _together(ranges: Sequence[RangeReport], stages: Sequence[StageReport]) -> BatchReport:
    """Return the report of the batch: records and rejects of its ranges, rows of its results."""
    assert not any(one.rejects or one.reject_files for one in stages), "results have no rejects"
    read = together([one.task for one in ranges])
    broken: Counter[str] = Counter()
    files: list[FileReceipt] = []
    for stage in stages:
        broken.update(stage.broken)
        files.extend(stage.files)
    counts = CommitCounts(
        sum(one.rows for one in stages),
        read.counts.rejects,
        dict(broken),
        read.counts.newest_ms,
        read.counts.unknown_fields,
        read.counts.looked_at,
    )
    failed = tuple(sorted({name for one in stages for name in one.failed}))
    return replace(read, counts=counts, failed=failed, files=tuple(files))


def planned_ranges(orders: Sequence[TaskOrder]) -> int:
    """Return the number of offsets of these orders."""
    reports = [planned_report(one.task, one.cluster_id) for one in orders]
    return sum(one.range.end_offset - one.range.start_offset for one in reports)
