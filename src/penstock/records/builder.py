"""Builds batches from records, and reads the records of a batch.

Guarantees: `build_batch` returns a batch that `records.validation` accepts (unless its arguments
are not allowed to producers), and `read_records` returns the records with absolute offsets and
timestamps, for each codec, within `DECOMPRESSED_BATCH_BYTES_MAX`.

The base timestamp is the first record's, as Kafka's clients write it; the max timestamp is the
largest. A batch with LogAppendTime has one timestamp for all its records: the max timestamp.

It is for tools, coordinators and tests. It is not the produce path, which creates no record
objects.
"""

from collections.abc import Generator, Iterable, Iterator
from typing import Final

from typing_extensions import Buffer

from penstock.core.errors import CorruptBatchError
from penstock.core.limits import DECOMPRESSED_BATCH_BYTES_MAX, STORED_BATCH_BYTES_MAX
from penstock.records import batch as layout
from penstock.records.batch import BatchHeader
from penstock.records.compression import compress, compress_pieces, decompress
from penstock.records.crc32c import checksum
from penstock.records.record import NO_TIMESTAMP, Record, decode_records, encode_record

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
"""Values of `timestamp_type`, as in the attributes and in message.timestamp.type."""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1


class BatchBuilder:
    """Collects records one by one, so that a caller can stop at a size; `build` may be called once.

    `size_bytes` counts the batch before compression.
    """

    __slots__ = ("_base_timestamp_ms", "_max_timestamp_ms", "_section", "record_count")

    def __init__(self) -> None:
        self.record_count = 0
        self._base_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP
        self._section = bytearray()

    @property
    def size_bytes(self) -> int:
        """Bytes of the batch so far, header included."""
        return layout.HEADER_BYTES + len(self._section)

    def append(self, record: Record) -> None:
        """Add a record behind the others."""
        if self.record_count == 0:
            self._base_timestamp_ms = record.timestamp_ms
        self._max_timestamp_ms = max(self._max_timestamp_ms, record.timestamp_ms)
        encode_record(
            self._section,
            record,
            timestamp_delta_ms=record.timestamp_ms - self._base_timestamp_ms,
            offset_delta=self.record_count,
        )
        self.record_count += 1

    def build(
        self,
        *,
        base_offset: int = 0,
        codec: int = 0,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        timestamp_type: int = CREATE_TIME,
        leader_epoch: int = NO_LEADER_EPOCH,
    ) -> bytearray:
        """The batch as bytes."""
        assert self.record_count > 0, "a batch has at least one record"
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            leader_epoch=leader_epoch,
            magic=layout.MAGIC,
            crc=0,
            attributes=layout.attributes(
                codec=codec,
                log_append_time=timestamp_type == LOG_APPEND_TIME,
                transactional=transactional,
                control=control,
            ),
            last_offset_delta=self.record_count - 1,
            base_timestamp_ms=self._base_timestamp_ms,
            max_timestamp_ms=self._max_timestamp_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )
        return assemble(header, self._section)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    timestamp_type: int = CREATE_TIME,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """One batch of all `records`, numbered from `base_offset`."""
    builder = BatchBuilder()
    for record in records:
        builder.append(record)
    return builder.build(
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        timestamp_type=timestamp_type,
        leader_epoch=leader_epoch,
    )


def assemble(
    header: BatchHeader, section: Buffer, batch_bytes_max: int = STORED_BATCH_BYTES_MAX
) -> bytearray:
    """A batch of the header and a section of plain records, in the codec that the attributes name.

    Length and checksum are computed here; those in `header` are ignored. Raises
    `BatchTooLargeError` as soon as it is clear that the batch is above the bound.
    """
    payload = section
    if header.codec != 0 or memoryview(section).nbytes + layout.HEADER_BYTES > batch_bytes_max:
        payload = compress(header.codec, section, batch_bytes_max - layout.HEADER_BYTES)
    return _assembled(header, payload)


def assemble_pieces(header: BatchHeader, section: Buffer) -> Generator[None, None, bytearray]:
    """As `assemble`, but in steps: the caller may rest or stop in between."""
    payload = section
    if header.codec:
        payload = yield from compress_pieces(header.codec, section)
    return _assembled(header, payload)


def _assembled(header: BatchHeader, payload: Buffer) -> bytearray:
    output = bytearray(layout.HEADER_BYTES)
    output += payload
    length = len(output) - layout.LOG_OVERHEAD_BYTES
    base_offset, _, *others = header.values()
    layout.HEADER.pack_into(output, 0, base_offset, length, *others)
    layout.patch_checksum(output, 0, checksum(memoryview(output)[layout.CRC_START :]))
    return output


def records_section(
    batch: Buffer,
    header: BatchHeader,
    *,
    position: int = 0,
    output_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX,
) -> Buffer:
    """The plain records of the batch at `position`; the batch must be complete."""
    view = memoryview(batch)[position + layout.HEADER_BYTES : position + header.size_bytes]
    return decompress(header.codec, view, output_bytes_max) if header.codec else view


def iterate_records(batch: Buffer, position: int = 0) -> Iterator[Record]:
    """The records of the batch at `position`, one by one.

    Raises `CorruptBatchError` when the bytes are not one whole batch with a correct checksum, and
    the errors of `records.compression.decompress`. Records of a control batch are returned
    unparsed.
    """
    available = len(memoryview(batch)) - position
    if available < layout.HEADER_BYTES:
        raise CorruptBatchError(f"{available} bytes are no batch")
    header = layout.read_header(batch, position)
    if header.magic != layout.MAGIC or not layout.HEADER_BYTES <= header.size_bytes <= available:
        raise CorruptBatchError(f"length {header.batch_length}, magic {header.magic}")
    if not layout.checksum_matches(batch, position, header):
        raise CorruptBatchError("the checksum is wrong")
    if header.record_count < 0:
        raise CorruptBatchError(f"record count {header.record_count}")
    section = records_section(batch, header, position=position)
    for record in decode_records(
        section,
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp_ms=header.base_timestamp_ms,
    ):
        if header.is_log_append_time:
            yield record._replace(timestamp_ms=header.max_timestamp_ms)
        else:
            yield record


def read_records(batch: Buffer, position: int = 0) -> list[Record]:
    """All records of the batch at `position`; see `iterate_records`."""
    return list(iterate_records(batch, position))
