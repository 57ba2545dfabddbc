"""The batches of a site as a producer of the parent sends them. Pure.

A batch goes up as it is stored, except for the fields that belong to its producer: producer id and
epoch, sequence, the transactional bit, and the checksum over them. Base offset and leader epoch are
the parent's.

Batches are encoded anew only if they cannot go up as they are:

- Small plain batches become one: a Produce request has one batch for each partition, and a site
  that writes single records would need a round trip for each.
- A batch with holes (compaction), with a delete horizon, with the broker's time, or with records
  below the position: brokers reject the first three from producers.

Guarantees: records, keys, headers and timestamps stay, in their order. Control batches and batches
of aborted transactions are left out. It does not decide what is sent: `edge.pipes.up_runner` does.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.up_pipe import SentMark
from penstock.records.batch import (
    CRC_START,
    HEADER,
    TRANSACTIONAL,
    BatchHeader,
    iterate_headers,
    patch_checksum,
)
from penstock.records.builder import BatchBuilder, iterate_records
from penstock.records.crc32c import checksum

SMALL_BATCH_BYTES_MAX: Final = 4_096
"""Plain batches up to this size are joined."""
JOINED_BATCH_BYTES_MAX: Final = 262_144
"""Well below the default of max.message.bytes."""
JOINED_RECORDS_MAX: Final = 5_000
"""Bounds the time of one step: about 50 ms on a thread."""
SEQUENCES: Final = 2**31
"""Sequences wrap to 0."""


class Aborted(Protocol):
    """An aborted transaction of this broker; `storage` has them."""

    @property
    def producer_id(self) -> int:
        """Its producer."""
        ...

    @property
    def first_offset(self) -> int:
        """Its first record."""
        ...

    @property
    def last_offset(self) -> int:
        """Its marker."""
        ...


class SiteRead(NamedTuple):
    """Stored batches of a partition, below its last stable offset."""

    records: memoryview
    aborted: Sequence[Aborted]


class Outgoing(NamedTuple):
    """Batches of one partition for one transaction, and the position after them."""

    batches: tuple[bytearray, ...]
    """Without a producer yet; `stamp` adds it."""
    record_count: int
    next_offset: int
    mark: SentMark | None
    newest_timestamp_ms: int = -1

    @property
    def size_bytes(self) -> int:
        """The bytes to send."""
        return sum(map(len, self.batches))


def outgoing(
    read: SiteRead, offset: int, topic_id: UUID, *, is_joining: bool = True
) -> Outgoing | None:
    """Return the batches to send from an offset; None if nothing was read."""
    run = _Run(offset, SMALL_BATCH_BYTES_MAX if is_joining else 0)
    last: BatchHeader | None = None
    for position, header in iterate_headers(read.records):
        if header.last_offset < offset:
            continue
        last = header
        if not (header.is_control or _is_aborted(header, read.aborted)):
            run.add(read.records[position : position + header.size_bytes], header)
    if last is None:
        return None
    run.close()
    mark = BatchMark(last.base_offset, last.last_offset, last.leader_epoch, last.crc)
    return Outgoing(
        tuple(run.batches),
        run.record_count,
        last.next_offset,
        SentMark(topic_id, mark),
        run.newest_timestamp_ms,
    )


def _is_aborted(header: BatchHeader, aborted: Iterable[Aborted]) -> bool:
    return header.is_transactional and any(
        one.producer_id == header.producer_id
        and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted
    )


class _Run:
    """Collects batches; joins small ones."""

    def __init__(self, offset: int, small_bytes_max: int) -> None:
        self._offset = offset
        self._small_bytes_max = small_bytes_max
        self._builder: BatchBuilder | None = None
        self._single: tuple[memoryview, BatchHeader] | None = None
        """A small batch that has no neighbour yet: alone it stays as it is."""
        self.batches: list[bytearray] = []
        self.record_count = 0
        self.newest_timestamp_ms = -1

    def add(self, batch: memoryview, header: BatchHeader) -> None:
        """Add a batch behind the others."""
        if header.record_count <= 0:
            return  # compaction has emptied it
        self.newest_timestamp_ms = max(self.newest_timestamp_ms, header.max_timestamp_ms)
        if header.codec == 0 and header.size_bytes <= self._small_bytes_max:
            self._join(batch, header)
            return
        self.close()
        if self._is_sendable(header):
            self.record_count += header.record_count
            self.batches.append(bytearray(batch))
        else:
            builder = BatchBuilder()
            self._copy(batch, builder)
            self._build(builder, header.codec)

    def _join(self, batch: memoryview, header: BatchHeader) -> None:
        if self._builder is None and self._single is None and self._is_sendable(header):
            self._single = batch, header
            return
        if self._builder is None:
            self._builder = BatchBuilder()
            if self._single is not None:
                self._copy(self._single[0], self._builder)
                self._single = None
        self._copy(batch, self._builder)
        builder = self._builder
        is_full = builder.size_bytes >= JOINED_BATCH_BYTES_MAX
        if is_full or builder.record_count >= JOINED_RECORDS_MAX:
            self.close()

    def _copy(self, batch: memoryview, builder: BatchBuilder) -> None:
        for record in iterate_records(batch):
            if record.offset >= self._offset:
                builder.append(record)

    def _build(self, builder: BatchBuilder, codec: int) -> None:
        if builder.record_count:
            self.record_count += builder.record_count
            self.batches.append(builder.build(codec=codec))

    def close(self) -> None:
        """Finish the batch under way."""
        if self._single is not None:
            batch, header = self._single
            self.record_count += header.record_count
            self.batches.append(bytearray(batch))
        elif self._builder is not None:
            self._build(self._builder, 0)
        self._single = self._builder = None

    def _is_sendable(self, header: BatchHeader) -> bool:
        """Whether a broker accepts the batch as it is."""
        return (
            header.base_offset >= self._offset
            and header.record_count == header.last_offset_delta + 1
            and not header.has_delete_horizon
            and not header.is_log_append_time
        )


def stamp(batch: bytearray, producer_id: int, producer_epoch: int, sequence: int) -> int:
    """Make a batch the producer's next one in a transaction; return the sequence after it."""
    (
        _base_offset,
        length,
        _leader_epoch,
        magic,
        _crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        *_producer,
        record_count,
    ) = HEADER.unpack_from(batch)
    HEADER.pack_into(
        batch,
        0,
        0,
        length,
        -1,
        magic,
        0,
        attributes | TRANSACTIONAL,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        sequence,
        record_count,
    )
    patch_checksum(batch, 0, checksum(memoryview(batch)[CRC_START:]))
    following: int = (sequence + record_count) % SEQUENCES
    return following
