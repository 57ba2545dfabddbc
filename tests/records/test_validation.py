"""Validation of a producer's batches: each bad input with its error, and changes of good ones.

The numbers are those of the list of bad inputs that the broker is held to: 19 framing, 20 counts
and records, 21 batches that only a broker may write, 22 compression, 23 sizes and timestamps.
"""

import struct
from dataclasses import replace

import cramjam
import pytest

from penstock.core.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    InvalidTimestampError,
    RecordsError,
    UnsupportedCompressionError,
)
from penstock.core.limits import RECORDS_PER_BATCH_MAX
from penstock.records import compression
from penstock.records.batch import HEADER_BYTES, checksum_matches, patch_max_timestamp, read_header
from penstock.records.builder import LOG_APPEND_TIME, build_batch, read_records
from penstock.records.control import Marker, build_marker
from penstock.records.record import Header, Record, append_varint
from penstock.records.validation import (
    ProduceRules,
    UnfoldAllowance,
    ValidatedBatch,
    validate_produced,
)

NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
INT64_MAX = 2**63 - 1
RULES = ProduceRules(batch_bytes_max=1_048_588)


def records(count: int = 3) -> list[Record]:
    return [Record(b"k", b"value %d" % i, (Header("h", b"x"),), NOW + i) for i in range(count)]


def batch(count: int = 3, **arguments: int) -> bytearray:
    return build_batch(records(count), **arguments)  # type: ignore[arg-type]


def seal(data: bytearray) -> bytearray:
    """Make length and checksum right again after a change."""
    struct.pack_into(">i", data, 8, len(data) - 12)
    patch_max_timestamp(data, 0, read_header(data), read_header(data).max_timestamp_ms)
    return data


def changed(layout: str, position: int, value: int, **arguments: int) -> bytearray:
    data = batch(**arguments)
    struct.pack_into(layout, data, position, value)
    return seal(data)


def unsealed(layout: str, position: int, value: int) -> bytearray:
    data = batch()
    struct.pack_into(layout, data, position, value)
    return data


def with_payload(codec: int, payload: bytes, count: int = 3) -> bytearray:
    return seal(batch(count, codec=codec)[:HEADER_BYTES] + payload)


def plain(count: int = 3) -> bytes:
    return bytes(batch(count)[HEADER_BYTES:])


def validate(
    data: bytes | bytearray, rules: ProduceRules = RULES, produce_version: int = 11
) -> ValidatedBatch:
    return validate_produced(
        memoryview(bytearray(data)), topic_limits=rules, produce_version=produce_version, now_ms=NOW
    )


def varint(value: int) -> bytes:
    output = bytearray()
    append_varint(output, value)
    return bytes(output)


Cases = dict[str, tuple[bytes | bytearray, type[RecordsError]]]

FRAMING: Cases = {
    "checksum": (unsealed(">B", 70, 0xAA), CorruptBatchError),
    "magic 0": (unsealed(">b", 16, 0), InvalidBatchError),
    "magic 1": (unsealed(">b", 16, 1), InvalidBatchError),
    "magic 3": (unsealed(">b", 16, 3), CorruptBatchError),
    "magic -1": (unsealed(">b", 16, -1), CorruptBatchError),
    "length 48": (unsealed(">i", 8, 48), CorruptBatchError),
    "length 13": (unsealed(">i", 8, 13), CorruptBatchError),
    "length 0": (unsealed(">i", 8, 0), CorruptBatchError),
    "length -1": (unsealed(">i", 8, -1), CorruptBatchError),
    "length past the end": (batch()[:-1], InvalidBatchError),
    "length 2^31-1": (unsealed(">i", 8, 2**31 - 1), InvalidBatchError),
    "nothing": (b"", InvalidBatchError),
    "eleven bytes": (batch()[:11], InvalidBatchError),
    "sixteen bytes": (batch()[:16], InvalidBatchError),
    "header alone": (batch()[:61], InvalidBatchError),
    "two batches": (batch() + batch(), InvalidBatchError),
    "a batch, then zeros": (batch() + bytes(12), CorruptBatchError),
    "a batch, then magic 3": (batch() + unsealed(">b", 16, 3), CorruptBatchError),
}

COUNTS: Cases = {
    "count 0": (changed(">i", 57, 0), InvalidBatchError),
    "count -1": (changed(">i", 57, -1), InvalidBatchError),
    "count one less": (changed(">i", 57, 2), InvalidBatchError),
    "count 2^31-1": (changed(">i", 57, 2**31 - 1), InvalidBatchError),
    "last offset delta one more": (changed(">i", 23, 3), InvalidBatchError),
    "last offset delta -1": (changed(">i", 23, -1), InvalidBatchError),
    "both one less": (
        seal(
            bytearray(changed(">i", 57, 2)[:23] + struct.pack(">i", 1) + changed(">i", 57, 2)[27:])
        ),
        InvalidBatchError,
    ),
    "record length lies": (
        seal(batch(1)[:HEADER_BYTES] + b"\x7e" + plain(1)[1:]),
        InvalidBatchError,
    ),
    "offset deltas": (seal(batch(2)[:HEADER_BYTES] + plain(1) + plain(1)), InvalidBatchError),
    "header count": (
        seal(batch(1)[:HEADER_BYTES] + plain(1)[:-5] + b"\x7e" + plain(1)[-4:]),
        InvalidBatchError,
    ),
    "no records at all": (batch(1)[:HEADER_BYTES], InvalidBatchError),
    "bytes after the records": (seal(batch() + b"\x00"), InvalidBatchError),
}

BROKERS_ONLY: Cases = {
    "control": (
        build_marker(Marker(True, 0), producer_id=1, producer_epoch=0, timestamp_ms=NOW),
        InvalidBatchError,
    ),
    "delete horizon": (changed(">h", 21, 0x40), InvalidBatchError),
    "log append time": (changed(">h", 21, 0x08), InvalidTimestampError),
    "base offset 1": (changed(">q", 0, 1), InvalidBatchError),
    "base offset -1": (changed(">q", 0, -1), InvalidBatchError),
    "producer without sequence": (batch(producer_id=1, producer_epoch=0), InvalidBatchError),
    "producer without epoch": (batch(producer_id=1, base_sequence=0), InvalidBatchError),
    "transaction without producer": (batch(transactional=True), InvalidBatchError),
}

BOMB_RULES = replace(RULES, decompressed_bytes_max=65_536)
XERIAL = compression.compress(compression.SNAPPY, b"")

COMPRESSION: Cases = {
    **{
        f"codec {codec}": (changed(">h", 21, codec), UnsupportedCompressionError)
        for codec in (5, 6, 7)
    },
    **{
        f"{name} bomb": (
            build_batch([Record(value=bytes(200_000), timestamp_ms=NOW)], codec=codec),
            BatchTooLargeError,
        )
        for codec, name in enumerate(compression.CODEC_NAMES)
        if codec
    },
    **{
        f"{name} cut": (
            with_payload(codec, compression.compress(codec, plain())[:-1]),
            CorruptBatchError,
        )
        for codec, name in enumerate(compression.CODEC_NAMES)
        if codec
    },
    **{
        f"{name} of too few records": (
            with_payload(codec, compression.compress(codec, plain(2))),
            InvalidBatchError,
        )
        for codec, name in enumerate(compression.CODEC_NAMES)
        if codec
    },
    **{
        f"{name} empty": (with_payload(codec, b""), CorruptBatchError)
        for codec, name in enumerate(compression.CODEC_NAMES)
        if codec
    },
    "xerial block of 2^31-1": (
        with_payload(compression.SNAPPY, XERIAL + b"\x7f\xff\xff\xff\x00"),
        CorruptBatchError,
    ),
    "snappy declares 2^31-1": (
        with_payload(compression.SNAPPY, b"\xff\xff\xff\xff\x07\x00"),
        BatchTooLargeError,
    ),
    "two lz4 frames": (
        with_payload(
            compression.LZ4,
            compression.compress(compression.LZ4, plain(1))
            + compression.compress(compression.LZ4, plain()[len(plain(1)) :]),
        ),
        CorruptBatchError,
    ),
    "linked lz4 blocks": (
        with_payload(compression.LZ4, bytes(cramjam.lz4.compress(plain()))),
        CorruptBatchError,
    ),
}


@pytest.mark.parametrize("name", [*FRAMING, *COUNTS, *BROKERS_ONLY, *COMPRESSION])
def test_bad_input(name: str) -> None:
    data, expected = {**FRAMING, **COUNTS, **BROKERS_ONLY, **COMPRESSION}[name]
    with pytest.raises(RecordsError) as caught:
        validate(data, BOMB_RULES)
    assert type(caught.value) is expected


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_is_accepted_and_left_alone(codec: int) -> None:
    data = batch(codec=codec)
    found = validate(data)
    assert found.buffer == data
    assert found.header == read_header(data)
    assert (found.max_timestamp_ms, found.offset_of_max_timestamp) == (NOW + 2, 2)


def test_raw_snappy_is_accepted() -> None:
    raw = bytes(cramjam.snappy.compress_raw(plain()))
    assert validate(with_payload(compression.SNAPPY, raw)).header.record_count == 3


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.ZSTD])
def test_frames_after_each_other_are_accepted(codec: int) -> None:
    frames = compression.compress(codec, plain()[:30]) + compression.compress(codec, plain()[30:])
    assert validate(with_payload(codec, frames)).header.record_count == 3


def test_zstd_needs_version_seven() -> None:
    data = batch(codec=compression.ZSTD)
    with pytest.raises(UnsupportedCompressionError):
        validate(data, produce_version=6)
    assert validate(data, produce_version=7).header.codec == compression.ZSTD


@pytest.mark.parametrize("rest", [b"x", bytes(11), batch()[:-1], b"\x7f" * 13])
def test_what_is_no_whole_batch_behind_the_batch_is_cut_off(rest: bytes) -> None:
    data = batch()
    assert validate(data + rest).buffer == data


def test_producer_and_transaction_are_accepted() -> None:
    data = batch(producer_id=4, producer_epoch=0, base_sequence=0, transactional=True)
    assert validate(data).header.is_transactional


def test_size_is_judged_before_the_checksum() -> None:
    data = unsealed(">B", 70, 0xAA)
    with pytest.raises(BatchTooLargeError):
        validate(data, ProduceRules(batch_bytes_max=len(data) - 1))
    with pytest.raises(CorruptBatchError):
        validate(data, ProduceRules(batch_bytes_max=len(data)))


@pytest.mark.parametrize("codec", [0, compression.ZSTD])
def test_null_key_on_a_compacted_topic(codec: int) -> None:
    data = build_batch([*records(1), Record(None, b"v", (), NOW)], codec=codec)
    assert validate(data).header.record_count == 2
    with pytest.raises(InvalidBatchError) as caught:
        validate(data, replace(RULES, compacted=True))
    assert [index for index, _ in caught.value.blamed] == [1]


@pytest.mark.parametrize("codec", [0, compression.ZSTD])
def test_every_record_that_a_topic_refuses_is_blamed(codec: int) -> None:
    good, keyless = records(1)[0], Record(None, b"v", (), NOW)
    data = build_batch([keyless, good, keyless, good, keyless], codec=codec)
    with pytest.raises(InvalidBatchError) as caught:
        validate(data, replace(RULES, compacted=True))
    assert [index for index, _ in caught.value.blamed] == [0, 2, 4]


def test_one_wrong_time_among_other_faults_makes_it_an_error_of_time() -> None:
    late = Record(b"k", b"v", (), NOW + 2 * HOUR_MS)
    data = build_batch([Record(None, b"v", (), NOW), late, Record(b"k", b"v", (), -1)])
    with pytest.raises(InvalidTimestampError) as caught:
        validate(data, replace(RULES, compacted=True))
    assert [index for index, _ in caught.value.blamed] == [0, 1]
    assert len({fault for _, fault in caught.value.blamed}) == 2


def test_a_damaged_record_after_a_refused_one_is_the_one_to_blame() -> None:
    data = bytearray(build_batch([Record(None, b"v", (), NOW), Record(b"k", b"v", (), NOW)]))
    data[-1] ^= 0x7F
    with pytest.raises(InvalidBatchError) as caught:
        validate(seal(data), replace(RULES, compacted=True))
    assert [index for index, _ in caught.value.blamed] == [1]


def test_in_a_batch_of_very_many_records_only_the_first_is_blamed() -> None:
    data = build_batch([Record(None, b"", (), NOW)] * 10_001)
    with pytest.raises(InvalidBatchError) as caught:
        validate(data, replace(RULES, compacted=True))
    assert [index for index, _ in caught.value.blamed] == [0]


@pytest.mark.parametrize(
    ("timestamp_ms", "accepted"),
    [
        (NOW + HOUR_MS, True),
        (NOW + HOUR_MS + 1, False),
        (INT64_MAX, False),
        (0, True),
        (-1, True),
        (-5, True),
        (-(2**63), False),
    ],
)
def test_timestamps_by_default(timestamp_ms: int, accepted: bool) -> None:
    data = build_batch([Record(value=b"v", timestamp_ms=timestamp_ms)])
    if accepted:
        assert validate(data).header.record_count == 1
    else:
        with pytest.raises(InvalidTimestampError) as caught:
            validate(data)
        assert [index for index, _ in caught.value.blamed] == [0]


def test_timestamps_before() -> None:
    rules = replace(RULES, before_max_ms=1000)
    validate(build_batch([Record(timestamp_ms=NOW - 1000)]), rules)
    with pytest.raises(InvalidTimestampError):
        validate(build_batch([Record(timestamp_ms=NOW - 1001)]), rules)


def test_timestamp_beyond_64_bits() -> None:
    section = b"\x1e\x00" + varint(INT64_MAX) + b"\x00\x01\x01\x00"
    with pytest.raises(InvalidTimestampError):
        validate(seal(batch(1)[:HEADER_BYTES] + section))


def test_no_timestamp_is_never_out_of_range() -> None:
    rules = replace(RULES, before_max_ms=0, after_max_ms=0)
    found = validate(build_batch([Record(value=b"v")]), rules)
    assert (found.max_timestamp_ms, found.offset_of_max_timestamp) == (-1, -1)


def test_wrong_max_timestamp_is_corrected() -> None:
    found = validate(changed(">q", 35, 5))
    assert found.header.max_timestamp_ms == found.max_timestamp_ms == NOW + 2
    assert checksum_matches(found.buffer, 0, found.header)


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_stamped(codec: int) -> None:
    data = build_batch([Record(b"k", b"v", (), 5)] * 2, codec=codec)
    found = validate(data, replace(RULES, timestamp_type=LOG_APPEND_TIME, before_max_ms=0))
    assert [record.timestamp_ms for record in read_records(found.buffer)] == [NOW, NOW]
    assert (found.max_timestamp_ms, found.offset_of_max_timestamp) == (NOW, 0)
    assert found.header == read_header(found.buffer)


@pytest.mark.parametrize("target", range(5))
@pytest.mark.parametrize("source", range(5))
def test_topic_codec_is_applied(source: int, target: int) -> None:
    data = batch(
        9, codec=source, producer_id=4, producer_epoch=1, base_sequence=7, transactional=True
    )
    found = validate(data, replace(RULES, codec=target))
    assert found.header.codec == target
    assert read_records(found.buffer) == read_records(data)
    before, after = read_header(data), found.header
    assert after.attributes & ~0x07 == before.attributes & ~0x07
    for header in (before, after):
        header.crc = header.batch_length = header.attributes = 0
    assert before == after
    assert not found.buffer.readonly


def test_recompressed_batch_is_measured_again() -> None:
    data = build_batch([Record(value=bytes(9000), timestamp_ms=NOW)], codec=compression.ZSTD)
    with pytest.raises(BatchTooLargeError):
        validate(data, ProduceRules(batch_bytes_max=500, codec=compression.NONE))


def test_log_append_time_and_topic_codec_together() -> None:
    rules = replace(RULES, codec=compression.GZIP, timestamp_type=LOG_APPEND_TIME)
    found = validate(batch(), rules)
    assert {record.timestamp_ms for record in read_records(found.buffer)} == {NOW}
    assert found.header.codec == compression.GZIP


def test_refused_batch_is_left_as_it_was() -> None:
    for data, _ in (*FRAMING.values(), *COUNTS.values(), *BROKERS_ONLY.values()):
        sent = bytearray(data)
        with pytest.raises(RecordsError):
            validate_produced(memoryview(sent), topic_limits=RULES, produce_version=11, now_ms=NOW)
        assert sent == data


# --- The unfolded size of a request ---


def unfold(data: bytearray, allowance: UnfoldAllowance) -> None:
    validate_produced(
        memoryview(bytearray(data)),
        topic_limits=RULES,
        produce_version=11,
        now_ms=NOW,
        allowance=allowance,
    )


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_share_an_allowance(codec: int) -> None:
    size = len(plain())
    allowance = UnfoldAllowance(2 * size + 1)
    unfold(batch(codec=codec), allowance)
    unfold(batch(codec=codec), allowance)
    assert allowance.left_bytes == 1
    with pytest.raises(BatchTooLargeError):
        unfold(batch(codec=codec), allowance)
    unfold(batch(), allowance)


@pytest.mark.parametrize("payload", [b"no frame", cramjam.zstd.compress(bytes(10_000))])
def test_what_does_not_unfold_takes_the_whole_allowance(payload: bytes) -> None:
    allowance = UnfoldAllowance(5_000)
    with pytest.raises((BatchTooLargeError, CorruptBatchError)):
        unfold(with_payload(4, bytes(payload)), allowance)
    with pytest.raises(BatchTooLargeError):
        unfold(batch(codec=4), allowance)


def test_more_records_than_allowed_are_refused_before_anything_is_unfolded() -> None:
    data = batch(codec=4)
    count = RECORDS_PER_BATCH_MAX + 1
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    allowance = UnfoldAllowance()
    before = allowance.left_bytes
    with pytest.raises(
        InvalidBatchError, match=r"1000001 records.*at most 1000000.*smaller batches"
    ):
        unfold(seal(data), allowance)
    assert allowance.left_bytes == before
