"""The writers for Spark: `df.write` and `df.writeStream` with `format("penstock")`.

Thin: `task_writing` writes rows, `sink.transactions` commits them. Spark creates a writer on the
driver for each micro-batch, sends it to the tasks, and creates another one, in another process, for
each commit.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from penstock.spark.errors import OptionError, SparkQueryError
from penstock.spark.sink.options import (
    Guarantee,
    SinkColumns,
    SinkOptions,
    find_columns,
    read_sink_options,
)
from penstock.spark.sink.process import check_once, driver_of
from penstock.spark.sink.task_writing import TaskIdentity, write_at_least_once, write_exactly_once
from penstock.spark.sink.transactions import RunIdentity, TaskResult
from penstock.spark.worker_process import settle

LOGGER: Final = logging.getLogger("penstock.spark")

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""Properties that Spark sets for the tasks of a stream; the last one is the id of the run."""


@dataclass(frozen=True)
class CommitMessage(WriterCommitMessage):
    """A task's message to the driver; with exactly-once, it has the task's open transaction."""

    row_count: int
    result: TaskResult | None = None


def make_batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> DataSourceArrowWriter:
    """Return the writer of `df.write`."""
    if overwrite:
        raise OptionError("mode", "a topic cannot be overwritten.", "Use df.write.mode('append').")
    return PenstockBatchWriter(*_read(options, schema, is_stream=False))


def make_stream_writer(
    options: Mapping[str, str],
    schema: StructType,
    *,
    overwrite: bool,  # noqa: ARG001 - output mode complete: Spark's Kafka sink appends too
) -> DataSourceStreamArrowWriter:
    """Return the writer of `df.writeStream`; the first one in a process runs the checks."""
    read, columns = _read(options, schema, is_stream=True)
    if read.guarantee is Guarantee.EXACTLY_ONCE:
        check_once(read)
    return PenstockStreamWriter(read, columns)


class PenstockBatchWriter(DataSourceArrowWriter):
    """Writes a batch, each row at least once."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        settle()
        return _write_at_least_once(self._options, self._columns, iterator)


class PenstockStreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream, each row exactly once unless the options say at least once."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        settle()
        if self._options.guarantee is Guarantee.AT_LEAST_ONCE:
            return _write_at_least_once(self._options, self._columns, iterator)
        result = write_exactly_once(self._options, self._columns, iterator, _task_identity())
        return CommitMessage(result.row_count, result)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Make the micro-batch visible; Spark calls this on the driver after all tasks."""
        results = _results(messages)
        if results:
            driver_of(self._options, results[0].identity).commit(results, batch_id)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch_id: int,  # noqa: ARG002 - the messages and the log name the transactions
    ) -> None:
        """Abort the micro-batch; Spark calls this on the driver after a failed task or commit."""
        results = _results(messages)
        if results:
            driver_of(self._options, results[0].identity).abort(results)


def _read(
    options: Mapping[str, str], schema: StructType, *, is_stream: bool
) -> tuple[SinkOptions, SinkColumns]:
    read = read_sink_options(options, is_stream=is_stream)
    for warning in read.warnings:
        LOGGER.warning("%s", warning)
    columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return read, find_columns(columns, read.topic)


def _write_at_least_once(
    options: SinkOptions, columns: SinkColumns, batches: Iterator[pa.RecordBatch]
) -> CommitMessage:
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    return CommitMessage(write_at_least_once(options, columns, batches, partition=partition))


def _task_identity() -> TaskIdentity:
    context = TaskContext.get()
    names = (QUERY_ID, RUN_ID, BATCH_ID)
    query, run, batch_id = (context.getLocalProperty(n) if context else None for n in names)
    if context is None or not query or not run or not batch_id:
        raise SparkQueryError(
            f"this task does not belong to a streaming query: Spark did not set {', '.join(names)},"
            " so its rows cannot be written exactly once. Set deliveryGuarantee to at-least-once."
        )
    return TaskIdentity(
        RunIdentity(query, run),
        int(batch_id),
        context.partitionId(),
        context.attemptNumber(),
        context.taskAttemptId(),
    )


def _results(messages: Sequence[WriterCommitMessage | None]) -> list[TaskResult]:
    """Return the tasks' results; failed tasks have none, and at-least-once tasks need none."""
    reported = [one.result for one in messages if isinstance(one, CommitMessage)]
    results = [one for one in reported if one is not None]
    assert len({one.identity for one in results}) <= 1, "tasks of two runs in one batch"
    return results
