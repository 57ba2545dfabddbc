"""`PipelineSource`: the stream of a pipeline, whose rows are the reports of its tasks.

It reads as `format("penstock")` does, with the same offsets in the checkpoint. What differs: where
a new query begins is told by the table (`BatchPlan.initial`), what the table holds is not read
again, and a task gives reports, a row for each range. Ranges that are small together are one task:
to start one costs more than to read them. A batch that is small as a whole is left to the driver
(`leave_batch`), which then need not run Spark's tasks at all.

Spark keeps the reader in a process of its own; plans reach it by a file (`plan_file`). What only
tasks need is imported by them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.core.types import TopicPartition
from penstock.spark.offsets import (
    PartitionPosition,
    StreamOffset,
    read_offset,
    write_offset,
)
from penstock.spark.options import Mode, read_source_options
from penstock.spark.stream_reader import PenstockStreamReader
from penstock.spark.tables.run.orders import (
    TaskOrder,
    carry_out,
    is_small,
    not_held,
    small_together,
)
from penstock.spark.tables.run.plan_file import leave_batch, read_plan
from penstock.spark.task_reader import TaskSettings

NAME: Final = "penstock_pipeline"
PLAN_OPTION: Final = "planFile"
COLUMN: Final = "report"


class PipelineSource(DataSource):
    """The reports of a pipeline's tasks."""

    @classmethod
    def name(cls) -> str:
        """What `format(...)` is given, by the runner alone."""
        return NAME

    def schema(self) -> StructType:
        """One report in a row."""
        return StructType([StructField(COLUMN, BinaryType())])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """The reader of the stream."""
        return PipelineReader(self.options)


def register(spark: SparkSession) -> str:
    """Let this session know the source; the name by which it does."""
    try:
        spark.dataSource.register(PipelineSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        # A session that was made from another one may not register the name again, nor use it.
        own_name = f"{NAME}_{uuid4().hex}"
        own = type(
            "OwnPipelineSource", (PipelineSource,), {"name": classmethod(lambda _: own_name)}
        )
        spark.dataSource.register(own)
        return own_name
    return NAME


class PipelineReader(PenstockStreamReader):
    """Plans a batch after the newest plan; its tasks write files."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark's options know no case.
        given = {name: text for name, text in options.items() if name.lower() != "planfile"}
        super().__init__(given)
        self._plan_path = options[PLAN_OPTION]

    def initialOffset(self) -> dict[str, Any]:
        """Where the table says that a new query begins."""
        return write_offset(read_plan(self._plan_path).initial)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch, from where the table is if the checkpoint is behind.

        What the table holds may be gone from the topic by then, and is missing to nobody.
        """
        held = read_plan(self._plan_path).held
        passed = passed_by(read_offset(start), held)
        if not passed:
            return super().latestOffset(start, limit)
        known = read_offset(start)
        ahead = replace(known, positions={**known.positions, **passed})
        end = read_offset(super().latestOffset(write_offset(ahead), limit))
        begins = {at: position.offset for at, position in passed.items()}
        return write_offset(replace(end, begins={**begins, **end.begins}))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, without what the table holds."""
        plan = read_plan(self._plan_path)
        cluster_id = read_offset(end).cluster_id
        tasks = not_held(self._open().plan(start, end), plan.held)
        orders = [TaskOrder(task, plan.task, cluster_id) for task in tasks]
        wanted = self._source_options().splitting
        if wanted.partitions_min is not None or wanted.records_max is not None:
            return [InputPartition((order,)) for order in orders]
        leave_batch(self._plan_path, orders if is_small(orders) else ())
        return [InputPartition(some) for some in small_together(orders)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The reports of one task."""
        from penstock.spark.tables.run.report import pack

        settings = TaskSettings.of(read_source_options(self._given, Mode.STREAM))
        for report in carry_out(partition.value, settings):
            yield pa.RecordBatch.from_pydict({COLUMN: pa.array([pack(report)], pa.binary())})


def passed_by(start: StreamOffset, held: StreamOffset) -> dict[TopicPartition, PartitionPosition]:
    """The positions of the table that are ahead of a checkpoint's, in the same topics."""
    return {
        at: position
        for at, position in held.positions.items()
        if at in start.positions
        and start.positions[at].offset < position.offset
        and held.topic_ids.get(at.topic) == start.topic_ids.get(at.topic)
    }
