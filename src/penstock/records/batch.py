"""`RecordBatch` v2 as a view over bytes: header fields and checksum, no object for each record.

The header has 61 bytes, big-endian:

    offset  field                   bytes
    0       base offset             8     outside the checksum: the broker writes it
    8       length of what follows  4     outside the checksum
    12      partition leader epoch  4     outside the checksum: the broker writes it
    16      magic                   1     outside the checksum; always 2
    17      CRC-32C of 21..end      4
    21      attributes              2     codec 0-2, timestamp type 3, transactional 4, control 5,
                                          delete horizon 6
    23      last offset delta       4
    27      base timestamp          8
    35      max timestamp           8
    43      producer id             8
    51      producer epoch          2
    53      base sequence           4
    57      record count            4

Because base offset, length, epoch and magic are outside the checksum, a reader of the log must also
check that offsets follow each other. This module decides nothing: `records.validation` checks
produced batches, `storage.log.recovery` the batches of a log.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from typing_extensions import Buffer

from penstock.core.errors import CorruptBatchError
from penstock.records.crc32c import checksum

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and length, which `length` does not count."""
CRC_START: Final = 21
MAGIC_POSITION: Final = 16
MAGIC: Final = 2

_CRC_POSITION: Final = 17
_MAX_TIMESTAMP_POSITION: Final = 35

CODEC_MASK: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

_OFFSET_LENGTH: Final = Struct(">qi")
_LEADER_EPOCH: Final = Struct(">i")
_BASE_OFFSET: Final = Struct(">q")
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")

assert HEADER_BYTES == 61


class BatchHeader:
    """The fixed fields of one batch, as stored. Never changed: a plain class is read faster."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "batch_length",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp_ms: int,
        max_timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = max_timestamp_ms
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    def values(self) -> tuple[int, ...]:
        """The fields in the order of the bytes."""
        return (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchHeader) and self.values() == other.values()

    def __hash__(self) -> int:
        return hash(self.values())

    def __repr__(self) -> str:
        return f"BatchHeader{self.values()}"

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        """Offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Lowest possible base offset of the next batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Compression codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker, not the producer, set the timestamp."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of data."""
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is a delete horizon (written by compaction only)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def has_producer(self) -> bool:
        """Whether an idempotent producer wrote the batch."""
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; sequences wrap from 2^31-1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the caller has checked that 61 bytes are there."""
    (
        base_offset,
        batch_length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) = HEADER.unpack_from(buffer, position)
    return BatchHeader(
        base_offset,
        batch_length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )


def attributes(*, codec: int, log_append_time: bool, transactional: bool, control: bool) -> int:
    """The attributes field of a batch."""
    assert 0 <= codec <= CODEC_MASK
    return (
        codec
        | (_LOG_APPEND_TIME if log_append_time else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
    )


def with_codec(header: BatchHeader, codec: int) -> BatchHeader:
    """The header with another codec; the caller must update length and checksum."""
    changed = BatchHeader(*header.values())
    changed.attributes = (header.attributes & ~CODEC_MASK) | codec
    return changed


def checksum_matches(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the stored CRC-32C is that of the bytes of the batch at `position`."""
    view = memoryview(buffer)
    return checksum(view[position + CRC_START : position + header.size_bytes]) == header.crc


def patch_for_append(
    buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int
) -> None:
    """Write the offset and the epoch of the broker. Both fields are outside the checksum."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LOG_OVERHEAD_BYTES, leader_epoch)


def patch_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Set the broker's time in the batch, for message.timestamp.type=LogAppendTime."""
    _ATTRIBUTES.pack_into(buffer, position + CRC_START, header.attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _renew_checksum(buffer, position, header)


def patch_max_timestamp(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, timestamp_ms: int
) -> None:
    """Correct the max timestamp of a batch whose producer computed it wrongly."""
    _MAX_TIMESTAMP.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, timestamp_ms)
    _renew_checksum(buffer, position, header)


def patch_checksum(buffer: bytearray | memoryview, position: int, crc: int) -> None:
    """Write the checksum of the batch at `position`."""
    _CRC.pack_into(buffer, position + _CRC_POSITION, crc)


def _renew_checksum(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    view = memoryview(buffer)[position + CRC_START : position + header.size_bytes]
    patch_checksum(buffer, position, checksum(view))


def iterate_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; a partial one at the end is left out.

    Raises `CorruptBatchError` when a length is impossible or the magic is not 2, because the
    batches after such a header cannot be found.
    """
    view = memoryview(buffer)
    position = 0
    end = len(view)
    while end - position >= HEADER_BYTES:
        header = read_header(view, position)
        if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES or header.magic != MAGIC:
            raise CorruptBatchError(
                f"batch at byte {position}: length {header.batch_length}, magic {header.magic}"
            )
        if position + header.size_bytes > end:
            return
        yield position, header
        position += header.size_bytes
