"""`BatchDecoder`: the stored batches of one partition as Arrow record batches for Spark.

Guarantees: rows are in the order of their offsets, each once, from the first offset to before the
last of the range; a batch has at most `rows_max` rows and, unless one row alone is larger, at most
`bytes_max` bytes of keys, values and headers. The schema is exactly that of Spark's own Kafka
source. Unreadable records raise an error of `core.errors` that names topic, partition and offset.

A timestamp is that of the record, or the broker's time for a topic with LogAppendTime, in
microseconds. A record without a timestamp (-1) gets one millisecond before 1970, as in Spark's own
connector.

It fetches nothing: the caller supplies the bytes (`client.records.range_reader`).
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import pyarrow as pa
from typing_extensions import Buffer

from penstock.core.errors import RecordsError
from penstock.core.limits import DECOMPRESSED_BATCH_BYTES_MAX
from penstock.spark.decode import kernel
from penstock.spark.decode.buffers import HEADERS, ColumnBuffers
from penstock.spark.decode.column_writer import FULL, ColumnWriter

ROWS_MAX_DEFAULT: Final = 32_768
"""Spark reads batches of 16,000 to 64,000 rows fastest; see benchmarks/spark_decode.py."""
BYTES_MAX_DEFAULT: Final = 16_777_216
_CONSTANT_ROWS_MIN: Final = 1_024

logger = logging.getLogger(__name__)


class AbortedRange(Protocol):
    """An aborted transaction in a partition, as a broker reports it."""

    @property
    def producer_id(self) -> int:
        """The producer of the transaction."""

    @property
    def first_offset(self) -> int:
        """The first offset; the range ends with the abort marker of the producer."""


def spark_schema(*, include_headers: bool) -> pa.Schema:
    """Return the schema of the rows: that of Spark's own Kafka source, in Arrow's types."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if include_headers:
        fields.append(pa.field("headers", HEADERS))
    return pa.schema(fields)


class BatchDecoder:
    """Turns fetched bytes, in order, into Arrow batches."""

    def __init__(
        self,
        topic: str,
        partition: int,
        from_offset: int,
        until_offset: int,
        *,
        include_headers: bool,
        is_read_committed: bool,
        rows_max: int = ROWS_MAX_DEFAULT,
        bytes_max: int = BYTES_MAX_DEFAULT,
        decompressed_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX,
    ) -> None:
        _warn_if_slow()
        self._topic = topic
        self._partition = partition
        self._schema = spark_schema(include_headers=include_headers)
        self._columns = ColumnWriter(rows_max, bytes_max, include_headers)
        self._buffers = ColumnBuffers(self._columns)
        self._kernel = kernel.Kernel(
            self._columns, from_offset, until_offset, is_read_committed, decompressed_bytes_max
        )
        self._topics = pa.array([], pa.string())
        self._partitions = pa.array([], pa.int32())

    @property
    def next_offset(self) -> int:
        """The end of the read offsets, with or without rows; finally the end of the range."""
        return self._kernel.next_offset

    @property
    def control_records_skipped(self) -> int:
        """The number of skipped transaction markers."""
        return self._kernel.control_records

    @property
    def aborted_records_skipped(self) -> int:
        """The number of skipped records of aborted transactions, counted by whole batches."""
        return self._kernel.aborted_records

    def feed(self, data: Buffer, aborted: Iterable[AbortedRange] = ()) -> Iterator[pa.RecordBatch]:
        """Return the batches that these bytes fill; iterate to the end before the next call.

        `data` is whole stored batches as a fetch returns them. An incomplete last batch is ignored,
        because the reader fetches it again. `aborted` is from the same fetch response.
        """
        fetched = memoryview(data).cast("B")
        in_order = sorted((one.first_offset, one.producer_id) for one in aborted)
        self._kernel.begin(fetched, in_order)
        while (code := self._run(len(fetched))) != kernel.ENDED:
            if code == FULL:
                yield self._taken()
            else:
                self._buffers.grow(self._kernel.record)
        self._kernel.forget()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Return the remaining rows, if there are any."""
        if self._columns.rows:
            yield self._taken()

    def _run(self, fetched_bytes: int) -> int:
        self._buffers.attach(fetched_bytes)
        try:
            return self._kernel.run()
        except RecordsError as error:
            raise type(error)(
                f"{self._topic}-{self._partition}, batch at offset {self._kernel.batch_offset}: "
                f"{error}. Every record before offset {self._kernel.next_offset} was read."
            ) from error

    def _taken(self) -> pa.RecordBatch:
        key, value, offset, timestamp, timestamp_type, *headers = self._buffers.take()
        rows = len(offset)
        if len(self._topics) < rows:
            # Allocated once for the largest batch so far; smaller ones use a part of it.
            count = max(_CONSTANT_ROWS_MIN, 1 << (rows - 1).bit_length())
            self._topics = pa.repeat(pa.scalar(self._topic, pa.string()), count)
            self._partitions = pa.repeat(pa.scalar(self._partition, pa.int32()), count)
        return pa.RecordBatch.from_arrays(
            [
                key,
                value,
                self._topics.slice(0, rows),
                self._partitions.slice(0, rows),
                offset,
                timestamp,
                timestamp_type,
                *headers,
            ],
            schema=self._schema,
        )


_has_warned = False


def _warn_if_slow() -> None:
    """Log once in a process if the kernel is not compiled."""
    global _has_warned
    if not kernel.COMPILED and not _has_warned:
        _has_warned = True
        logger.warning(
            "penstock reads records without its compiled kernel, many times slower. Install a C "
            "compiler and reinstall penstock, or set PENSTOCK_COMPILE=1 if it was switched off."
        )
