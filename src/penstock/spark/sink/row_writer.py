"""`RowWriter`: encodes and sends the rows of one task.

Guarantees: when `finish` returns, every row is stored in its partition, in the order of the rows
for each partition. Memory is bounded by `BUFFERED_BYTES_MAX` for all topics together, plus the
batches that a `BatchSender` has in flight. A row without a topic is an error that stops the task.

It does not use Spark, and does not commit: the caller begins and ends a transaction, if there is
one.
"""

from collections.abc import Collection, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.calls import ProducerIdentity
from penstock.client.cluster import Cluster
from penstock.client.records.batch_sender import BatchRefusedError, BatchSender
from penstock.client.transactions.producer_transactions import VERSION_0, ProducerTransactions
from penstock.client.transactions.transaction_outcomes import OpenTransaction
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.spark.encode.encoder import BatchEncoder, digest_of_columns
from penstock.spark.errors import OptionError
from penstock.spark.sink.options import ColumnError, SinkColumns, SinkOptions
from penstock.spark.sink.steps import added_digests

BUFFERED_BYTES_MAX: Final = 33_554_432
"""Kafka's buffer.memory: the bytes in the open batches of all topics."""
TOPICS_PER_TASK_MAX: Final = 10_000
"""More topic names than this usually mean that the column `topic` is the wrong column."""

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


class RowWriter:
    """Writes Arrow batches to topics, for one task."""

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        columns: SinkColumns,
        *,
        first_partition: int,
        transaction: OpenTransaction | None = None,
        transactions: ProducerTransactions | None = None,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._columns = columns
        self._first_partition = first_partition
        self._identity = _identity(cluster, options, transaction)
        self._is_transactional = transaction is not None
        self._encoders: dict[str, BatchEncoder] = {}
        self._sender = BatchSender(
            cluster,
            acks=options.acks,
            transactional_id=transaction.transactional_id if transaction else None,
            join=_Joining(transactions, transaction).join
            if transaction and transactions and transaction.version == VERSION_0
            else None,
        )
        self.row_count = 0

    @property
    def digest(self) -> int:
        """The sum over the rows so far, in any order; see `encode.encoder`."""
        return added_digests(encoder.digest for encoder in self._encoders.values())

    def write(self, rows: pa.RecordBatch) -> None:
        """Encode and send these rows."""
        now_ms = self._cluster.clock.now_ms()
        for topic, part in self._by_topic(rows):
            encoder = self._encoder(topic)
            for batch in encoder.add(
                value=part.column(self._columns.value),
                key=_column(part, self._columns.key),
                headers=_column(part, self._columns.headers),
                partition=_column(part, self._columns.partition),
                timestamp_ms=now_ms,
            ):
                self._send(batch.at, batch.data)
        self.row_count += rows.num_rows
        if len(self._encoders) > 1:
            self._bound_buffers()

    def finish(self) -> None:
        """Send the remaining rows, and wait until all rows are stored."""
        self._send_open_batches()
        try:
            self._sender.flush()
        except BatchRefusedError as error:
            raise _explained(error, self._options) from error

    def abandon(self) -> None:
        """Stop without waiting for batches in flight, because the task failed."""
        self._sender.abandon()

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, rows
            return
        assert self._columns.topic is not None
        column = rows.column(self._columns.topic)
        if column.null_count:
            raise ColumnError(
                "a row has no topic: the column `topic` is null. Filter such rows out, give them a "
                "topic with coalesce, or set the option topic for all rows."
            )
        topics = pc.unique(column)
        for topic in topics:
            part = rows if len(topics) == 1 else rows.filter(pc.equal(column, topic))
            yield topic.as_py(), part

    def _encoder(self, topic: str) -> BatchEncoder:
        encoder = self._encoders.get(topic)
        if encoder is not None:
            return encoder
        if len(self._encoders) >= TOPICS_PER_TASK_MAX:
            raise ColumnError(
                f"one task writes to more than {TOPICS_PER_TASK_MAX} topics. If that is meant, "
                "repartition the DataFrame by the column `topic`."
            )
        # As in Kafka's own producer: a broker with automatic topic creation creates the topic.
        try:
            partitions = self._cluster.topic(topic, auto_create=True).partitions
        except UnknownTopicOrPartitionError as error:
            raise UnknownTopicOrPartitionError(
                f"there is no topic {topic}, and the brokers do not create it by themselves. "
                f"Create it: penstock topic create {topic}"
            ) from error
        encoder = self._encoders[topic] = BatchEncoder(
            topic,
            len(partitions),
            codec=self._options.codec,
            batch_bytes_max=self._options.batch_bytes_max,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            transactional=self._is_transactional,
            first_partition=self._first_partition,
        )
        return encoder

    def _bound_buffers(self) -> None:
        buffered = sum(encoder.buffered_bytes for encoder in self._encoders.values())
        if buffered > BUFFERED_BYTES_MAX:
            self._send_open_batches()

    def _send_open_batches(self) -> None:
        for encoder in self._encoders.values():
            for batch in encoder.finish():
                self._send(batch.at, batch.data)

    def _send(self, at: TopicPartition, data: bytearray) -> None:
        try:
            self._sender.send(at, data)
        except BatchRefusedError as error:
            raise _explained(error, self._options) from error


class _Joining:
    """Adds partitions to a transaction of version 0 before they are written."""

    def __init__(self, transactions: ProducerTransactions, transaction: OpenTransaction) -> None:
        self._transactions = transactions
        self._transaction = transaction

    def join(self, partitions: Collection[TopicPartition]) -> None:
        """Register the partitions with the coordinator."""
        self._transactions.add_partitions(self._transaction, partitions)


def digest_of(rows: pa.RecordBatch, columns: SinkColumns) -> int:
    """Return the digest of rows without writing them."""
    return digest_of_columns(value=rows.column(columns.value), key=_column(rows, columns.key))


def _identity(
    cluster: Cluster, options: SinkOptions, transaction: OpenTransaction | None
) -> ProducerIdentity:
    if transaction is not None:
        return ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    if options.is_idempotent:
        return cluster.start_producer()
    return ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _column(rows: pa.RecordBatch, place: int | None) -> pa.Array | None:
    return None if place is None else rows.column(place)


def _explained(error: BatchRefusedError, options: SinkOptions) -> Exception:
    """Return the error, with a remedy where one is known."""
    if ErrorCode(error.code) not in _TOO_LARGE:
        return error
    return OptionError(
        "kafka.batch.size",
        f"{error.at.topic} takes no batch of {error.batch_bytes} bytes (up to "
        f"{options.batch_bytes_max} are collected): {error}.",
        "Set it below the topic's max.message.bytes; a single row that is larger needs a larger "
        "max.message.bytes.",
    )
