"""`PipelineSource`: the stream of a pipeline, whose rows are the reports of its tasks.

It reads like `format("penstock")`, with the same offsets in the checkpoint. The differences: the
table decides the start of a query (`table_offsets`), committed offsets are not read again, and a
task returns reports, a row for each range. Small ranges share one task: the start of a task costs
more than reading them. The driver itself writes a batch that is small as a whole (`leave_batch`),
and then need not run Spark's tasks at all.

Spark keeps the reader in a separate process, which receives plans through a file (`plan_file`).
Tasks import the modules that only they need.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.spark.offsets import StreamOffset, read_offset, write_offset
from penstock.spark.source.options import Mode, SourceOptions
from penstock.spark.source.stream_reader import PenstockStreamReader
from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.definition.source_reading import read_resolved_options
from penstock.spark.tables.run.plan_file import leave_batch, read_plan
from penstock.spark.tables.run.table_offsets import (
    beginning,
    behind,
    corrected,
    met,
    require_no_second_log,
    second_log_refused,
    subscribed,
    unknown,
    with_begins,
)
from penstock.spark.tables.tasks.orders import (
    TaskOrder,
    carry_out,
    is_small,
    small_together,
)

NAME: Final = "penstock_pipeline"
PLAN_OPTION: Final = "planFile"
COLUMN: Final = "report"


class PipelineSource(DataSource):
    """The reports of a pipeline's tasks."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`, which only the runner uses."""
        return NAME

    def schema(self) -> StructType:
        """Return the schema: one report in a row."""
        return StructType([StructField(COLUMN, BinaryType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader of the stream."""
        return PipelineReader(self.options)


def register(spark: SparkSession, kind: type[DataSource] = PipelineSource) -> str:
    """Register a source in this session; return its name there."""
    try:
        spark.dataSource.register(kind)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # A session derived from another one cannot register the name again, and cannot use it
        # either.
        own_name = f"{kind.name()}_{uuid4().hex}"
        own = type(f"Own{kind.__name__}", (kind,), {"name": classmethod(lambda _: own_name)})
        spark.dataSource.register(own)
        return own_name
    return kind.name()


class PipelineReader(PenstockStreamReader):
    """Plans a batch with the newest plan; its tasks write files."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark's options are case-insensitive.
        given = {name: text for name, text in options.items() if name.lower() != "planfile"}
        super().__init__(given)
        self._plan_path = options[PLAN_OPTION]

    def initialOffset(self) -> dict[str, Any]:
        """Return the table's position, the start of a new query."""
        return write_offset(read_plan(self._plan_path).initial)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, from the table's position, not the checkpoint's.

        Committed records may be deleted from the topic by then, and are not a loss.
        """
        known = read_offset(start)
        held = read_plan(self._plan_path).held
        subscription = self._source_options().subscription
        planned = subscribed(known, subscription)
        there = self._open().earliest(unknown(planned, held, subscription))
        right = self._by_table(met(planned, held, there), held)
        document = start if right is known else write_offset(right)
        with second_log_refused():
            found = super().latestOffset(document, limit)
        end = read_offset(found)
        if found != document:
            # Otherwise there is no batch, and its `begins` belong to the last one.
            require_no_second_log(right, end)
        if right is planned:
            return found
        offset = write_offset(with_begins(end, planned, right))
        if offset == start:
            # The last batch was the same, and Spark would run none: set its position back first.
            offset = write_offset(with_begins(right, planned, right))
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch, without committed offsets, and with missing ones.

        A batch that is planned again may be days old.
        """
        plan = read_plan(self._plan_path)
        if start != end:
            last = subscribed(read_offset(end), self._source_options().subscription)
            planned = beginning(read_offset(start), last)
            end = write_offset(with_begins(last, planned, self._by_table(planned, plan.held)))
        tasks = self._open().plan(start, end)
        cluster_id = read_offset(end).cluster_id
        orders = [TaskOrder(task, plan.task, cluster_id) for task in tasks]
        wanted = self._source_options().splitting
        if wanted.partitions_min is not None or wanted.records_max is not None:
            return [InputPartition((order,)) for order in orders]
        leave_batch(self._plan_path, orders if is_small(orders) else ())
        return [InputPartition(some) for some in small_together(orders)]

    def _read_options(self) -> SourceOptions:
        return read_resolved_options(self._given, Mode.STREAM)

    def _by_table(self, planned: StreamOffset, held: StreamOffset) -> StreamOffset:
        return corrected(planned, held, self._open().earliest(behind(planned, held)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the reports of one task."""
        from penstock.spark.tables.tasks.report import pack

        settings = TaskSettings.of(self._read_options())
        for report in carry_out(partition.value, settings):
            yield pa.RecordBatch.from_pydict({COLUMN: pa.array([pack(report)], pa.binary())})
