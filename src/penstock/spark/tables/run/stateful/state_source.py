"""`StateSource`: the stream of a stateful pipeline, whose rows are parsed records and reports.

It reads like `format("penstock")`. The offset document of a batch also has the watermark of the
batch and the moment of its planning, so a repeated batch has the same late and future records as
before (`batch_times`). Unlike the source of other pipelines it follows the checkpoint and not the
table: state and offsets are of the same batches, and `commit.stateful_rules` requires it of the
table too.

The plan file has the plan of the tasks and the watermark of the next batch; the source leaves the
orders of a batch there, so that the driver knows its offsets. It leaves none for a batch without
records, which Spark runs when only the watermark has moved.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from penstock.core.clock import Clock, SystemClock
from penstock.spark.offsets import read_offset, write_offset
from penstock.spark.source.options import Mode, SourceOptions
from penstock.spark.source.stream_reader import PenstockStreamReader
from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.definition.source_reading import read_resolved_options
from penstock.spark.tables.run.plan_file import leave_batch, read_plan
from penstock.spark.tables.run.source import PLAN_OPTION
from penstock.spark.tables.run.stateful.batch_times import (
    BatchTimes,
    plain,
    times_of,
    with_times,
)
from penstock.spark.tables.run.stateful.lost_records import with_stateful_remedy
from penstock.spark.tables.tasks.orders import TaskOrder, small_together

NAME: Final = "penstock_state"


class StateSource(DataSource):
    """The rows and reports of a stateful pipeline's tasks."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`, which only the runner uses."""
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002
        """Return the reader of the stream; the runner sets the schema."""
        return StateReader(self.options)


class StateReader(PenstockStreamReader):
    """Plans a batch with its times; its tasks return rows."""

    def __init__(self, options: Mapping[str, str], clock: Clock | None = None) -> None:
        # Spark's options are case-insensitive.
        given = {name: text for name, text in options.items() if name.lower() != "planfile"}
        super().__init__(given)
        self._plan_path = options[PLAN_OPTION]
        self._clock: Clock = clock or SystemClock()

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query, from the note of the table."""
        return write_offset(read_plan(self._plan_path).initial)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, and its times."""
        known = plain(start)
        with with_stateful_remedy():
            found = super().latestOffset(known, limit)
        if found == known:
            return start
        watermark_ms = read_plan(self._plan_path).watermark_ms
        return with_times(found, BatchTimes(watermark_ms, self._clock.now_ms()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch, and leave their orders to the driver."""
        plan = read_plan(self._plan_path)
        cluster_id = read_offset(plain(end)).cluster_id
        with with_stateful_remedy():
            tasks = self._open().plan(plain(start), plain(end))
        orders = [TaskOrder(task, plan.task, cluster_id) for task in tasks]
        leave_batch(self._plan_path, [one._replace(plan=None) for one in orders])
        return [InputPartition((some, times_of(end))) for some in small_together(orders)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        from penstock.spark.tables.run.stateful.records import read_rows

        orders, times = partition.value
        settings = TaskSettings.of(self._read_options())
        return read_rows(orders, times, settings)

    def _read_options(self) -> SourceOptions:
        return read_resolved_options(self._given, Mode.STREAM)
