"""`BatchEncoder`: rows of Arrow columns as finished record batches of one topic.

Guarantees: every row is in exactly one batch, in its order within a partition. A batch is final: it
has its checksum, its producer and its sequence number, counted for each partition from 0 and
wrapping as Kafka's do; it may be sent unchanged; batches must be sent in the order in which they
are returned. Without compression, `records.builder` writes the same bytes for the same records.

A batch is returned when it is full, when all open ones together reach `buffered_bytes_max`, and at
the end. There is no timer. `batch_sender` sends the batches.

`digest` identifies rows: the same rows have the same number in any order. The sum of several
encoders' numbers does not depend on the division of the rows. Of a large value it covers sixteen
bytes and the length.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

import pyarrow as pa

from penstock.core.types import TopicPartition
from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.builder import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    assemble,
)
from penstock.records.crc32c import checksum
from penstock.spark.encode import kernel
from penstock.spark.encode.arrow_rows import rows_of

BATCH_BYTES_DEFAULT: Final = 524_288
"""Half of a broker's default limit, header included and before compression."""
BUFFERED_BYTES_DEFAULT: Final = 33_554_432
"""Kafka's buffer.memory: the bytes that all open batches of a topic may hold."""
_SEQUENCE_MASK: Final = 0x7FFFFFFF
_TIMESTAMP_MS_MAX: Final = 9_223_372_036_854_775
"""The largest value that fits 64 bits in microseconds, so that Spark can read it back."""

logger = logging.getLogger(__name__)


class EncodedBatch(NamedTuple):
    """A batch that is ready to be sent."""

    at: TopicPartition
    data: bytearray
    record_count: int


class BatchEncoder:
    """Collects the rows of one topic; `add` and `finish` return the finished batches."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        *,
        codec: int = 0,
        batch_bytes_max: int = BATCH_BYTES_DEFAULT,
        buffered_bytes_max: int = BUFFERED_BYTES_DEFAULT,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        transactional: bool = False,
        first_partition: int = 0,
    ) -> None:
        """Create the encoder; rows without a key start at `first_partition`, modulo the count.

        Tasks with different first partitions spread their rows over the partitions.
        """
        _warn_if_slow()
        self._topic = topic
        self._codec = codec
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._attributes = layout.attributes(
            codec=codec, log_append_time=False, transactional=transactional, control=False
        )
        self._sequences = [0] * partition_count
        self._kernel = kernel.Kernel(
            partition_count,
            batch_bytes_max,
            buffered_bytes_max,
            first_partition % partition_count,
        )

    @property
    def buffered_bytes(self) -> int:
        """The bytes of the open batches."""
        return self._kernel.buffered_bytes

    @property
    def digest(self) -> int:
        """The sum over the rows so far, each by its key and part of its value, modulo 2^64."""
        digest: int = self._kernel.digest
        return digest

    def add(
        self,
        *,
        value: pa.Array,
        key: pa.Array | None = None,
        headers: pa.Array | None = None,
        partition: pa.Array | None = None,
        timestamp_ms: int,
    ) -> Iterator[EncodedBatch]:
        """Add rows; return the full batches. Iterate to the end before the next call.

        Keys and values are binary or strings; headers are lists of structs of key and value.
        """
        assert -1 <= timestamp_ms <= _TIMESTAMP_MS_MAX
        self._kernel.begin(
            rows_of(
                key=key,
                value=value,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )
        while (code := self._kernel.run()) != kernel.ENDED:
            if code == kernel.FULL:
                full = self._kernel.full_partition
                if full == self._kernel.sticky_partition:
                    self._kernel.pass_turn()
                yield self._finished(full)
            else:
                yield from self.finish()

    def finish(self) -> Iterator[EncodedBatch]:
        """Return every open batch, in the order of partitions."""
        if self._kernel.batches[self._kernel.sticky_partition].records:
            self._kernel.pass_turn()
        for partition, batch in enumerate(self._kernel.batches):
            if batch.records:
                yield self._finished(partition)

    def _finished(self, partition: int) -> EncodedBatch:
        """Return the open batch of a partition with its header, compressed if configured."""
        batch = self._kernel.batches[partition]
        header = BatchHeader(
            base_offset=0,
            batch_length=batch.position - layout.LOG_OVERHEAD_BYTES,
            leader_epoch=NO_LEADER_EPOCH,
            magic=layout.MAGIC,
            crc=0,
            attributes=self._attributes,
            last_offset_delta=batch.records - 1,
            base_timestamp_ms=batch.base_timestamp_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._next_sequence(partition, batch.records),
            record_count=batch.records,
        )
        data = self._kernel.taken(partition)
        if self._codec:
            data = assemble(header, memoryview(data)[layout.HEADER_BYTES :])
        else:
            # In place, without a copy of the bytes.
            layout.HEADER.pack_into(data, 0, *header.values())
            crc = checksum(memoryview(data)[layout.CRC_START :])
            layout.patch_checksum(data, 0, crc)
        return EncodedBatch(TopicPartition(self._topic, partition), data, header.record_count)

    def _next_sequence(self, partition: int, count: int) -> int:
        if self._producer_id == NO_PRODUCER_ID:
            return NO_SEQUENCE
        sequence = self._sequences[partition]
        self._sequences[partition] = (sequence + count) & _SEQUENCE_MASK
        return sequence


def digest_of_columns(*, value: pa.Array, key: pa.Array | None = None) -> int:
    """Return an encoder's digest after these rows; nothing is encoded."""
    rows = rows_of(key=key, value=value, headers=None, partition=None, timestamp_ms=0)
    digest: int = kernel.digest_of_rows(rows)
    return digest


_has_warned = False


def _warn_if_slow() -> None:
    """Log once in a process if the kernel is not compiled."""
    global _has_warned
    if not kernel.COMPILED and not _has_warned:
        _has_warned = True
        logger.warning(
            "penstock writes records without its compiled kernel, many times slower. Install a C "
            "compiler and reinstall penstock, or set PENSTOCK_COMPILE=1 if it was switched off."
        )
