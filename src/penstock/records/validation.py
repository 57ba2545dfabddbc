"""Validates a produced batch before it may be appended. Pure: the time is an argument.

`validate_produced` takes the records field of one partition of a Produce request and returns the
one batch in it, ready for the log but for its offset and leader epoch, or raises one error:

    CorruptBatchError            length or magic impossible, checksum wrong, invalid compression
    InvalidBatchError            no batch, two batches, magic 0 or 1, a wrong header or record,
                                 more records than a batch may have,
                                 a field only a broker may write, no key on a compacted topic
    BatchTooLargeError           above max.message.bytes, or too large when decompressed
    UnsupportedCompressionError  no such codec, or zstd in a request older than version 7
    InvalidTimestampError        a timestamp outside the topic's range, or type LogAppendTime

The order of the checks is Kafka's, so that a batch with two faults gets Kafka's answer. As in
Kafka, bytes after the batch that are not a whole batch are cut off, a wrong max timestamp is
corrected, and `compression.type` and LogAppendTime change the batch. Where this differs from Kafka,
it refuses batches that Kafka would store: see docs/formats/record-batch.md.

The client determines the cost of a check. With `on_loop` the work is bounded, and a batch that
needs more raises `HeavyBatchError` before the work is done: a worker thread then calls again
without it. An error does not refer to decompressed data, so it can be kept.

It does not check sequences against earlier batches: `storage` does, in the partition's order.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from typing_extensions import Buffer

from penstock.core.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    InvalidTimestampError,
    RecordsError,
    UnsupportedCompressionError,
)
from penstock.core.limits import (
    BLAMED_ON_LOOP_RECORDS_MAX,
    DECOMPRESSED_BATCH_BYTES_MAX,
    DECOMPRESSED_REQUEST_BYTES_MAX,
    RECOMPRESS_ON_LOOP_BYTES_MAX,
    RECORDS_PER_BATCH_MAX,
    SCAN_ON_LOOP_BYTES_MAX,
    SCAN_ON_LOOP_BYTES_MAX_UNCOMPILED,
    UNFOLD_ON_LOOP_BYTES_MAX,
)
from penstock.records import scan
from penstock.records.batch import (
    CODEC_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    patch_log_append_time,
    patch_max_timestamp,
    read_header,
    with_codec,
)
from penstock.records.builder import CREATE_TIME, LOG_APPEND_TIME, assemble
from penstock.records.compression import NONE, ZSTD, decompress
from penstock.records.crc32c import checksum
from penstock.records.record import NO_TIMESTAMP, decode_records

PRODUCE_VERSION_WITH_ZSTD: Final = 7

_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_RECORD_BYTES_MIN: Final = 14
"""The smallest message of any format; Kafka calls less corrupt before it checks the magic."""

_BLAMED_MAX: Final = 10_000
"""In a batch with more records only the first bad one is named, so that the answer stays small and
the loop free. Clients send fewer: this is librdkafka's own limit for a batch."""

_KEY_IS_OPTIONAL: Final = False

_SCAN_ON_LOOP: Final = (
    SCAN_ON_LOOP_BYTES_MAX if scan.COMPILED else SCAN_ON_LOOP_BYTES_MAX_UNCOMPILED
)

_STORED_RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, no key, no value, no headers: a byte each."""

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_AFTER_MAX_MS_DEFAULT: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class ProduceRules:
    """The rules of a topic's settings for a batch. Built once for a change of settings."""

    batch_bytes_max: int
    """max.message.bytes."""
    compacted: bool = False
    """Whether cleanup.policy includes compact: each record then needs a key."""
    timestamp_type: int = CREATE_TIME
    """message.timestamp.type: `CREATE_TIME` or `LOG_APPEND_TIME`."""
    before_max_ms: int = _INT64_MAX
    """message.timestamp.before.max.ms."""
    after_max_ms: int = _AFTER_MAX_MS_DEFAULT
    """message.timestamp.after.max.ms."""
    codec: int | None = None
    """compression.type; None is `producer`: keep the producer's codec."""
    decompressed_bytes_max: int = DECOMPRESSED_BATCH_BYTES_MAX
    """The largest decompressed size of one batch."""


class HeavyBatchError(Exception):
    """The batch needs more work than the event loop may do. It says nothing about the batch."""


class UnfoldAllowance:
    """The decompressed size that the compressed batches of one request have left.

    A batch that cannot be decompressed uses up the rest: it may have cost all of it, and batches of
    honest clients can be decompressed.
    """

    __slots__ = ("left_bytes",)

    def __init__(self, left_bytes: int = DECOMPRESSED_REQUEST_BYTES_MAX) -> None:
        self.left_bytes = left_bytes


class ValidatedBatch:
    """One batch that may be appended.

    `header` is that of the buffer. `buffer` is exactly the batch, writable. `max_timestamp_ms` is
    the largest timestamp, and `offset_of_max_timestamp` the offset delta of the first record that
    has it; both are -1 when no record has one.
    """

    __slots__ = ("buffer", "header", "max_timestamp_ms", "offset_of_max_timestamp")

    def __init__(
        self,
        header: BatchHeader,
        buffer: memoryview,
        max_timestamp_ms: int,
        offset_of_max_timestamp: int,
    ) -> None:
        self.header = header
        self.buffer = buffer
        self.max_timestamp_ms = max_timestamp_ms
        self.offset_of_max_timestamp = offset_of_max_timestamp


def validate_produced(
    records: memoryview,
    *,
    topic_limits: ProduceRules,
    produce_version: int,
    now_ms: int,
    allowance: UnfoldAllowance | None = None,
    on_loop: bool = False,
) -> ValidatedBatch:
    """The one batch in `records`, checked, and changed where the topic's settings say so.

    Batches of one request share an `allowance`. With `on_loop` it may raise `HeavyBatchError`, and
    then nothing has changed.
    """
    try:
        return _validate(records, topic_limits, produce_version, now_ms, allowance, on_loop)
    except RecordsError as error:
        # Uncompiled, the traceback refers to the frames and they to decompressed data: 128 MiB for
        # as long as the error is kept, or until the garbage collector runs if it is in a cycle.
        error.__cause__ = error.__context__ = None
        raise error.with_traceback(None)  # noqa: B904 - the cause holds the same frames


def _validate(
    records: memoryview,
    rules: ProduceRules,
    produce_version: int,
    now_ms: int,
    allowance: UnfoldAllowance | None,
    on_loop: bool,  # noqa: FBT001 - private, and called in one place
) -> ValidatedBatch:
    header = _only_batch(records, produce_version)
    size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
    buffer = records if size_bytes == len(records) else records[:size_bytes]
    _check_header(buffer, header, rules)
    section: Buffer = buffer
    start = HEADER_BYTES
    codec = header.codec
    if codec != NONE:
        unfold = _unfold_on_loop if on_loop else _unfold
        section = unfold(buffer, header, rules, allowance)
        start = 0
    is_recompressed = rules.codec is not None and rules.codec != codec
    if on_loop:
        plain_bytes = memoryview(section).nbytes - start
        if plain_bytes > _SCAN_ON_LOOP:
            raise HeavyBatchError
        if is_recompressed and plain_bytes > RECOMPRESS_ON_LOOP_BYTES_MAX:
            raise HeavyBatchError
    max_timestamp_ms, delta = _check_records(section, start, header, rules, now_ms, on_loop)
    if is_recompressed:
        buffer = _recompress(header, memoryview(section)[start:], rules)
        header = read_header(buffer)
    if rules.timestamp_type == LOG_APPEND_TIME:
        patch_log_append_time(buffer, 0, header, now_ms)
        return ValidatedBatch(read_header(buffer), buffer, now_ms, 0)
    if max_timestamp_ms != header.max_timestamp_ms:
        patch_max_timestamp(buffer, 0, header, max_timestamp_ms)
        header = read_header(buffer)
    return ValidatedBatch(header, buffer, max_timestamp_ms, delta)


def _only_batch(records: memoryview, produce_version: int) -> BatchHeader:
    """The header of the first batch; there must be no second one."""
    if len(records) >= HEADER_BYTES:
        header = read_header(records)
        if header.magic == MAGIC and header.batch_length == len(records) - LOG_OVERHEAD_BYTES:
            # One batch that fills the field: the usual case, which needs no further check.
            _check_version(header, produce_version)
            return header
    size_bytes = _next_batch_bytes(records, 0)
    if size_bytes < 0:
        raise InvalidBatchError("there must be at least one record batch")
    magic = records[MAGIC_POSITION]
    if magic != MAGIC:
        raise InvalidBatchError(f"magic is {magic}, and only {MAGIC} may be produced")
    if size_bytes < HEADER_BYTES:
        raise CorruptBatchError(f"{size_bytes} bytes are no batch")
    header = read_header(records)
    _check_version(header, produce_version)
    if _next_batch_bytes(records, size_bytes) >= 0:
        raise InvalidBatchError("there must be exactly one record batch")
    return header


def _check_version(header: BatchHeader, produce_version: int) -> None:
    if produce_version < PRODUCE_VERSION_WITH_ZSTD and header.codec == ZSTD:
        raise UnsupportedCompressionError(f"zstd in a Produce request of version {produce_version}")


def _next_batch_bytes(records: memoryview, position: int) -> int:
    """Size of the batch at `position`, of any format, or -1 if there is no whole one."""
    available = len(records) - position
    if available < LOG_OVERHEAD_BYTES:
        return -1
    (length,) = _LENGTH.unpack_from(records, position + _LENGTH_POSITION)
    if length < _RECORD_BYTES_MIN:
        raise CorruptBatchError(f"a batch length of {length} at byte {position}")
    if available <= MAGIC_POSITION:
        return -1
    magic = records[position + MAGIC_POSITION]
    if magic > MAGIC:
        raise CorruptBatchError(f"magic {magic} at byte {position}")
    size_bytes: int = length + LOG_OVERHEAD_BYTES
    return size_bytes if size_bytes <= available else -1


def _check_header(buffer: memoryview, header: BatchHeader, rules: ProduceRules) -> None:
    if header.base_offset != 0:
        raise InvalidBatchError(f"base offset {header.base_offset}, and a producer must say 0")
    if len(buffer) > rules.batch_bytes_max:
        raise BatchTooLargeError(
            f"{len(buffer)} bytes, and the topic takes at most {rules.batch_bytes_max}"
        )
    if checksum(buffer[CRC_START:]) != header.crc:
        raise CorruptBatchError("the checksum is wrong")
    if not NONE <= header.codec <= ZSTD:
        raise UnsupportedCompressionError(f"there is no compression codec {header.codec}")
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidBatchError(
            f"{count} records with a last offset delta of {header.last_offset_delta}"
        )
    if count > RECORDS_PER_BATCH_MAX:
        raise InvalidBatchError(
            f"{count} records in one batch, and at most {RECORDS_PER_BATCH_MAX} are allowed; "
            "send smaller batches"
        )
    if header.attributes & ~CODEC_MASK:
        _check_attributes(header)
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidBatchError(
            f"producer {header.producer_id} with epoch {header.producer_epoch} "
            f"and sequence {header.base_sequence}"
        )


def _check_attributes(header: BatchHeader) -> None:
    """The rare bits: bits that only a broker may set, and transactions, which need a producer."""
    if header.is_control:
        raise InvalidBatchError("only a broker may write control records")
    if header.has_delete_horizon:
        raise InvalidBatchError("only a broker may set a delete horizon")
    if header.is_log_append_time:
        raise InvalidTimestampError("only a broker may set the timestamp type LogAppendTime")
    if header.is_transactional and not header.has_producer:
        raise InvalidBatchError("a transaction without a producer id")


def _unfold(
    buffer: memoryview,
    header: BatchHeader,
    rules: ProduceRules,
    allowance: UnfoldAllowance | None,
) -> Buffer:
    """The records of a compressed batch, within the bounds of the batch and its request."""
    if allowance is None:
        allowance = UnfoldAllowance(rules.decompressed_bytes_max)
    bytes_left = allowance.left_bytes
    bytes_max = min(rules.decompressed_bytes_max, bytes_left)
    if header.record_count > bytes_max // _STORED_RECORD_BYTES_MIN:
        raise BatchTooLargeError("the batches of the request unfold to too much together")
    allowance.left_bytes = 0
    section = decompress(header.codec, buffer[HEADER_BYTES:], bytes_max)
    allowance.left_bytes = bytes_left - memoryview(section).nbytes
    return section


def _unfold_on_loop(
    buffer: memoryview,
    header: BatchHeader,
    rules: ProduceRules,
    allowance: UnfoldAllowance | None,
) -> Buffer:
    """As `_unfold`, but `HeavyBatchError` for a batch that is too much for the event loop."""
    bytes_left = rules.decompressed_bytes_max if allowance is None else allowance.left_bytes
    if min(rules.decompressed_bytes_max, bytes_left) <= UNFOLD_ON_LOOP_BYTES_MAX:
        return _unfold(buffer, header, rules, allowance)
    if (
        len(buffer) > UNFOLD_ON_LOOP_BYTES_MAX
        or header.record_count > UNFOLD_ON_LOOP_BYTES_MAX // _STORED_RECORD_BYTES_MIN
    ):
        raise HeavyBatchError
    try:
        section = decompress(header.codec, buffer[HEADER_BYTES:], UNFOLD_ON_LOOP_BYTES_MAX)
    except BatchTooLargeError:
        raise HeavyBatchError from None
    except RecordsError:
        if allowance is not None:
            allowance.left_bytes = 0
        raise
    if allowance is not None:
        allowance.left_bytes = bytes_left - memoryview(section).nbytes
    return section


def _check_records(
    section: Buffer,
    start: int,
    header: BatchHeader,
    rules: ProduceRules,
    now_ms: int,
    on_loop: bool,  # noqa: FBT001 - private, and called in one place
) -> tuple[int, int]:
    """Walk the records: the largest timestamp and the offset delta of the first that has it."""
    earliest_ms, latest_ms = _INT64_MIN, _INT64_MAX
    if rules.timestamp_type == CREATE_TIME:
        # Both settings are at least 0, so each side can leave the range at one end only.
        if now_ms - rules.before_max_ms > _INT64_MIN:
            earliest_ms = now_ms - rules.before_max_ms
        if now_ms + rules.after_max_ms < _INT64_MAX:
            latest_ms = now_ms + rules.after_max_ms
    view = section if isinstance(section, memoryview) else memoryview(section)
    reason, index, max_timestamp_ms, delta = scan.scan_records(
        view,
        start,
        len(view),
        header.record_count,
        header.base_timestamp_ms,
        earliest_ms,
        latest_ms,
        rules.compacted,
    )
    if reason != scan.VALID:
        faults = [(index, reason)]
        if reason in (scan.NULL_KEY, scan.BAD_TIMESTAMP) and header.record_count <= _BLAMED_MAX:
            if on_loop and header.record_count > BLAMED_ON_LOOP_RECORDS_MAX:
                raise HeavyBatchError
            faults = _all_faults(view, start, header, rules.compacted, earliest_ms, latest_ms)
        raise _records_error(faults)
    return max_timestamp_ms, delta


def _all_faults(
    view: memoryview,
    start: int,
    header: BatchHeader,
    is_compacted: bool,  # noqa: FBT001 - private, and called in one place
    earliest_ms: int,
    latest_ms: int,
) -> list[tuple[int, int]]:
    """Every record that the topic refuses, with the reason; if one is damaged, only that one."""
    count, base_ms = header.record_count, header.base_timestamp_ms
    reason, index, _, _ = scan.scan_records(
        view, start, len(view), count, base_ms, _INT64_MIN, _INT64_MAX, _KEY_IS_OPTIONAL
    )
    if reason != scan.VALID:
        return [(index, reason)]
    faults = []
    decoded = decode_records(view[start:], count, base_offset=0, base_timestamp_ms=base_ms)
    for index, record in enumerate(decoded):
        if is_compacted and record.key is None:
            faults.append((index, scan.NULL_KEY))
        elif record.timestamp_ms != NO_TIMESTAMP and not (
            earliest_ms <= record.timestamp_ms <= latest_ms
        ):
            faults.append((index, scan.BAD_TIMESTAMP))
    return faults


def _records_error(faults: list[tuple[int, int]]) -> RecordsError:
    """With one wrong timestamp it is a timestamp error, as in Kafka."""
    index, reason = faults[0]
    text = f"record {index}: {scan.REASONS[reason]}"
    if len(faults) > 1:
        text += f"; {len(faults)} records are refused"
    is_time = any(found in (scan.BAD_TIMESTAMP, scan.TIMESTAMP_OVERFLOW) for _, found in faults)
    error: RecordsError = InvalidTimestampError(text) if is_time else InvalidBatchError(text)
    error.blamed = tuple((index, scan.REASONS[reason]) for index, reason in faults)
    return error


def _recompress(header: BatchHeader, section: memoryview, rules: ProduceRules) -> memoryview:
    """The batch in the topic's codec, if it then fits; stops early if it does not."""
    codec = NONE if rules.codec is None else rules.codec
    try:
        output = assemble(with_codec(header, codec), section, rules.batch_bytes_max)
    except BatchTooLargeError:
        raise BatchTooLargeError(
            f"more than {rules.batch_bytes_max} bytes after recompression for the topic's "
            f"compression.type, and max.message.bytes is {rules.batch_bytes_max}"
        ) from None
    return memoryview(output)
