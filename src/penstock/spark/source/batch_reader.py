"""`PenstockBatchReader`: Spark's reader of a batch query.

Thin: `batch_plan` decides the ranges, `task_reader` reads them. Spark creates this object in a
separate process on the driver, calls `partitions` once, and sends the object to every task.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.client.opening import open_cluster
from penstock.spark.loss.losses import LOGGER, LossCounter
from penstock.spark.source.batch_plan import plan_batch
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import Mode, read_source_options
from penstock.spark.source.task_reader import TaskSettings, read_task


class PenstockBatchReader(DataSourceReader):
    """Reads topics between two positions."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = dict(options)
        self._settings = TaskSettings.of(read_source_options(self._given, Mode.BATCH))

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks; Spark calls this once, on the driver."""
        options = read_source_options(self._given, Mode.BATCH)
        for warning in options.warnings:
            LOGGER.warning("%s", warning)
        losses = LossCounter(fail_on_data_loss=options.fail_on_data_loss)
        with open_cluster(options.client) as cluster:
            tasks = plan_batch(Lookups(cluster, options), options, losses)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task; without input, Spark creates one task without a value."""
        if partition.value is None:
            return iter(())
        return read_task(partition.value, self._settings)
