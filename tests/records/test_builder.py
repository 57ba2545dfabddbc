"""Building a batch and reading it back, for each codec; batches that Apache Kafka wrote."""

import pytest

from penstock.core.errors import CorruptBatchError, RecordsError
from penstock.records.batch import checksum_matches, read_header
from penstock.records.builder import (
    LOG_APPEND_TIME,
    BatchBuilder,
    build_batch,
    iterate_records,
    read_records,
)
from penstock.records.record import Header, Record

RECORDS = [
    Record(b"key", b"value", (Header("a", b"1"), Header("b", None)), 1_700_000_000_500),
    Record(None, b"x" * 300, (), 1_700_000_000_000),
    Record(b"", None, (), 1_700_000_000_700),
]

KAFKA_BATCHES = (
    bytes.fromhex(
        "0000000000000028000000590000000c02daa9d6870010000000020000018bcfe568000000018bcfe568"
        "05000000000000004d000300000009000000031c000000046b3104763102026802781e000a0201047632"
        "020a74726163650110000604046b330100"
    ),
    bytes.fromhex(
        "00000000000000280000006d0000000c02f62869c70011000000020000018bcfe568000000018bcfe568"
        "05000000000000004d000300000009000000031f8b08000000000000ff9361606060c9366429336462ca"
        "60aa9063e0626264293362e22a294a4c4e651460606361c93666640000415e225028000000"
    ),
    bytes.fromhex(
        "00000000000000280000006f0000000c021e77003a0012000000020000018bcfe568000000018bcfe568"
        "05000000000000004d0003000000090000000382534e415050590000000001000000010000002a289c1c"
        "000000046b3104763102026802781e000a0201047632020a74726163650110000604046b330100"
    ),
    bytes.fromhex(
        "0000000000000028000000680000000c02d5426d150013000000020000018bcfe568000000018bcfe568"
        "05000000000000004d0003000000090000000304224d18604082280000801c000000046b310476310202"
        "6802781e000a0201047632020a74726163650110000604046b33010000000000"
    ),
    bytes.fromhex(
        "0000000000000028000000650000000c02713a67da0014000000020000018bcfe568000000018bcfe568"
        "05000000000000004d0003000000090000000328b52ffd00584001001c000000046b3104763102026802"
        "781e000a0201047632020a74726163650110000604046b330100010000"
    ),
)
"""What Apache Kafka 4.3.1 writes for `KAFKA_RECORDS`, by codec."""

KAFKA_RECORDS = [
    Record(b"k1", b"v1", (Header("h", b"x"),), 1_700_000_000_000, 40),
    Record(None, b"v2", (Header("trace", None),), 1_700_000_000_005, 41),
    Record(b"k3", None, (), 1_700_000_000_003, 42),
]


@pytest.mark.parametrize("codec", range(5))
def test_reads_what_kafka_writes(codec: int) -> None:
    data = KAFKA_BATCHES[codec]
    assert read_records(data) == KAFKA_RECORDS
    assert read_header(data).codec == codec


def test_writes_the_bytes_that_kafka_writes() -> None:
    data = build_batch(
        KAFKA_RECORDS,
        base_offset=40,
        producer_id=77,
        producer_epoch=3,
        base_sequence=9,
        leader_epoch=12,
        transactional=True,
    )
    assert data.hex() == KAFKA_BATCHES[0].hex()


@pytest.mark.parametrize("codec", range(5))
def test_records_come_back_with_offsets(codec: int) -> None:
    data = build_batch(RECORDS, base_offset=40, codec=codec)
    expected = [record._replace(offset=40 + i) for i, record in enumerate(RECORDS)]
    assert read_records(data) == expected
    header = read_header(data)
    assert header.codec == codec
    assert header.size_bytes == len(data)
    assert checksum_matches(data, 0, header)


def test_base_timestamp_is_the_first_and_max_the_largest() -> None:
    header = read_header(build_batch(RECORDS))
    assert header.base_timestamp_ms == 1_700_000_000_500
    assert header.max_timestamp_ms == 1_700_000_000_700


def test_log_append_time_gives_all_records_the_max_timestamp() -> None:
    data = build_batch(RECORDS, timestamp_type=LOG_APPEND_TIME)
    assert {record.timestamp_ms for record in read_records(data)} == {1_700_000_000_700}


def test_builder_counts_bytes_before_compression() -> None:
    builder = BatchBuilder()
    for record in RECORDS:
        builder.append(record)
    assert builder.record_count == 3
    assert builder.size_bytes == len(builder.build())


def test_reads_at_a_position() -> None:
    data = bytes(5) + build_batch(RECORDS[:1]) + bytes(9)
    assert read_records(data, 5)[0].value == b"value"


def test_empty_batch_is_our_mistake() -> None:
    with pytest.raises(AssertionError):
        build_batch([])


def test_every_cut_is_refused() -> None:
    data = build_batch(RECORDS)
    for length in range(len(data)):
        with pytest.raises(CorruptBatchError):
            read_records(data[:length])


def test_every_flipped_byte_behind_the_magic_is_refused() -> None:
    data = build_batch(RECORDS[:1])
    for position in range(16, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(RecordsError):
            list(iterate_records(damaged))
