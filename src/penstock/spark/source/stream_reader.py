"""`PenstockStreamReader`: Spark's reader of a stream.

Thin: `micro_batches` decides, `task_reader` reads. Spark keeps one reader in a process on the
driver for the whole run of a query, and sends another one to the tasks. Options are read at the
first call and not earlier: Spark would hide an error of the constructor behind a second error of
its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.spark.loss.channel import LossChannel, open_loss_channel
from penstock.spark.loss.losses import LOGGER
from penstock.spark.planning import ReadLimits
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.micro_batches import MicroBatches
from penstock.spark.source.options import Mode, SourceOptions, read_source_options
from penstock.spark.source.task_reader import TaskSettings, read_task


class PenstockStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics micro-batch by micro-batch."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = dict(options)
        self._options: SourceOptions | None = None
        self._cluster: Cluster | None = None
        self._channel: LossChannel | None = None
        self._batches: MicroBatches | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new query."""
        return self._open().initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the options; Spark passes it back to `latestOffset`.

        Spark's read limit holds one number. If the options have several limits, this is the first,
        and `latestOffset` adds the others.
        """
        limits = self._source_options().limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        return self._open().latest_offset(start, self._limits(limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the partitions, for the query's progress."""
        return self._open().report()

    def prepareForTriggerAvailableNow(self) -> None:
        """Set the end of the query to the current end of the topics."""
        self._open().prepare_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch."""
        return [InputPartition(task) for task in self._open().plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one task."""
        return read_task(partition.value, TaskSettings.of(self._source_options()))

    def stop(self) -> None:
        """Close the reader at the end of the query."""
        if self._batches is not None:
            self._batches.stop()
        if self._channel is not None:
            self._channel.close()
        if self._cluster is not None:
            self._cluster.close()

    def _source_options(self) -> SourceOptions:
        if self._options is None:
            self._options = self._read_options()
        return self._options

    def _read_options(self) -> SourceOptions:
        """Return the options as they are now; a pipeline's have references to secrets."""
        return read_source_options(self._given, Mode.STREAM)

    def _open(self) -> MicroBatches:
        if self._batches is None:
            options = self._source_options()
            for warning in options.warnings:
                LOGGER.warning("%s", warning)
            self._cluster = open_cluster(options.client)
            if not options.fail_on_data_loss:
                self._channel = open_loss_channel(options.client.bootstrap)
            self._batches = MicroBatches(
                Lookups(self._cluster, options), options, channel=self._channel
            )
        return self._batches

    def _limits(self, limit: ReadLimit) -> ReadLimits:
        limits = self._source_options().limits
        match limit:
            case ReadMaxRows():
                return replace(limits, offsets_max=limit.max_rows)
            case ReadMinRows():
                return replace(limits, offsets_min=limit.min_rows)
            case ReadMaxBytes():
                return replace(limits, bytes_max=limit.max_bytes)
            case _:
                # The trigger requires all available records, whatever the options are.
                return ReadLimits()
