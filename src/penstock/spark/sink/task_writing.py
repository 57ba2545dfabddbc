"""Writes the rows of a task of the sink.

At least once: it writes the rows and waits until they are stored. Exactly once: it writes them
inside a transaction of its own, waits until they are stored, and leaves the transaction open. The
driver ends the transaction (`sink.decisions`). A failed task aborts its transaction if it can; the
driver finds the remaining ones. A task without rows has no transaction.

The writer is a plain function of an iterator of Arrow batches: the identity of Spark's task is an
argument.
"""

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.core.errors import PenstockError
from penstock.spark.sink.decisions import is_committed
from penstock.spark.sink.errors import TransactionsLeftOpenError
from penstock.spark.sink.options import SinkColumns, SinkOptions
from penstock.spark.sink.process import cluster_of, ledger_of, transactions_of
from penstock.spark.sink.row_writer import RowWriter, digest_of
from penstock.spark.sink.steps import added_digests
from penstock.spark.sink.transactions import RunIdentity, TaskResult, task_ids


class TaskIdentity(NamedTuple):
    """The identity of one attempt of a task."""

    run: RunIdentity
    batch_id: int
    partition: int
    attempt_number: int
    """The number of earlier tries of the task in this attempt of its stage."""
    attempt_id: int
    """The id of the attempt, unique among all task attempts of the application."""


def write_at_least_once(
    options: SinkOptions,
    columns: SinkColumns,
    batches: Iterator[pa.RecordBatch],
    *,
    partition: int,
) -> int:
    """Write the rows; return their number."""
    writer: RowWriter | None = None
    try:
        for rows in batches:
            if rows.num_rows and writer is None:
                writer = RowWriter(
                    cluster_of(options.client), options, columns, first_partition=partition
                )
            if writer is not None:
                writer.write(rows)
        if writer is None:
            return 0
        writer.finish()
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    return writer.row_count


def write_exactly_once(
    options: SinkOptions,
    columns: SinkColumns,
    batches: Iterator[pa.RecordBatch],
    task: TaskIdentity,
) -> TaskResult:
    """Write the rows inside a transaction, and leave it open."""
    # One task of a run is enough to complete an earlier run's decision.
    ledger = ledger_of(options, task.run, finishes=task.partition == 0)
    is_repeated = task.attempt_number > 0
    if is_committed(ledger, task.batch_id):
        # Read every row anyway: operators before the sink update their state this way.
        count, digest = _counted(columns, batches)
        return TaskResult(task.run, count, digest, None, is_skipped=True, is_repeated=is_repeated)
    writing = _Writing(options, columns, task)
    try:
        for rows in batches:
            if rows.num_rows:
                writing.write(rows)
        writing.finish()
    except BaseException:
        writing.abort()
        raise
    return TaskResult(
        task.run,
        writing.row_count,
        writing.digest,
        writing.transaction,
        is_repeated=is_repeated,
    )


def _counted(columns: SinkColumns, batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Return the number of rows, and their digest."""
    count, digest = 0, 0
    for rows in batches:
        count += rows.num_rows
        digest = added_digests((digest, digest_of(rows, columns)))
    return count, digest


class _Writing:
    """A transaction that begins with the first row."""

    def __init__(self, options: SinkOptions, columns: SinkColumns, task: TaskIdentity) -> None:
        self._options = options
        self._columns = columns
        self._task = task
        self._cluster = cluster_of(options.client)
        self._transactions = transactions_of(options, task.run)
        self._writer: RowWriter | None = None
        self.transaction: OpenTransaction | None = None

    @property
    def row_count(self) -> int:
        """The number of rows so far."""
        return 0 if self._writer is None else self._writer.row_count

    @property
    def digest(self) -> int:
        """The digest of the rows so far."""
        return 0 if self._writer is None else self._writer.digest

    def write(self, rows: pa.RecordBatch) -> None:
        """Write these rows."""
        if self._writer is None:
            self.transaction = self._begin()
            self._writer = RowWriter(
                self._cluster,
                self._options,
                self._columns,
                first_partition=self._task.partition,
                transaction=self.transaction,
                transactions=self._transactions,
            )
        self._writer.write(rows)

    def _begin(self) -> OpenTransaction:
        task = self._task
        names = task_ids(self._options, task.run, task.attempt_id)
        timeout_ms = self._options.transaction_timeout_ms
        begun = self._transactions.begin_unused(names, timeout_ms)
        if begun is None:
            raise TransactionsLeftOpenError(names, timeout_ms)
        return begun

    def finish(self) -> None:
        """Wait until every row is stored."""
        if self._writer is not None:
            self._writer.finish()

    def abort(self) -> None:
        """Abort the transaction; if this fails too, the driver or the cluster aborts it."""
        if self._writer is not None:
            self._writer.abandon()
        if self.transaction is not None:
            with contextlib.suppress(PenstockError):
                self._transactions.abort_all([self.transaction])
