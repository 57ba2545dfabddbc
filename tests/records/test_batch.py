"""The batch header: layout, derived fields, patches, and iteration over a buffer."""

import struct

import pytest

from penstock.core.errors import CorruptBatchError
from penstock.records.batch import (
    HEADER_BYTES,
    attributes,
    checksum_matches,
    iterate_headers,
    patch_for_append,
    patch_log_append_time,
    patch_max_timestamp,
    read_header,
    with_codec,
)
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Record


def batch(count: int = 2, **arguments: int) -> bytearray:
    records = [Record(value=b"v%d" % i, timestamp_ms=1000 + i) for i in range(count)]
    return build_batch(records, **arguments)  # type: ignore[arg-type]


def test_fields_are_where_kafka_has_them() -> None:
    data = batch(3, base_offset=7, producer_id=11, producer_epoch=2, base_sequence=5)
    header = read_header(data)
    assert struct.unpack_from(">q", data, 0) == (7,)
    assert struct.unpack_from(">i", data, 8) == (len(data) - 12,)
    assert data[16] == 2
    assert struct.unpack_from(">i", data, 23) == (2,)
    assert struct.unpack_from(">qq", data, 27) == (1000, 1002)
    assert struct.unpack_from(">qhi", data, 43) == (11, 2, 5)
    assert struct.unpack_from(">i", data, 57) == (3,)
    assert header.size_bytes == len(data)
    assert (header.last_offset, header.next_offset, header.last_sequence) == (9, 10, 7)


def test_sequence_wraps_after_the_largest() -> None:
    header = read_header(batch(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_no_sequence_has_no_last_sequence() -> None:
    assert read_header(batch()).last_sequence == -1


@pytest.mark.parametrize("name", ["log_append_time", "transactional", "control"])
def test_each_attribute_has_its_own_bit(name: str) -> None:
    flags = {"log_append_time": False, "transactional": False, "control": False}
    bits = attributes(codec=3, **{**flags, name: True})
    header = read_header(batch())
    header.attributes = bits
    found = {
        "log_append_time": header.is_log_append_time,
        "transactional": header.is_transactional,
        "control": header.is_control,
    }
    assert found == {**flags, name: True}
    assert header.codec == 3
    assert not header.has_delete_horizon


def test_with_codec_keeps_the_other_bits() -> None:
    header = read_header(batch())
    header.attributes = 0x18 | 1
    assert with_codec(header, 4).attributes == 0x18 | 4


def test_patch_for_append_leaves_the_checksum_right() -> None:
    data = batch()
    patch_for_append(data, 0, base_offset=2**40, leader_epoch=9)
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    assert checksum_matches(data, 0, header)


def test_log_append_time_is_the_time_of_each_record() -> None:
    data = batch()
    patch_log_append_time(data, 0, read_header(data), 5555)
    assert read_header(data).is_log_append_time
    assert [record.timestamp_ms for record in read_records(data)] == [5555, 5555]


def test_patch_max_timestamp_renews_the_checksum() -> None:
    data = batch()
    patch_max_timestamp(data, 0, read_header(data), 77)
    assert read_header(data).max_timestamp_ms == 77
    assert checksum_matches(data, 0, read_header(data))


def test_checksum_notices_each_flipped_byte_behind_it() -> None:
    data = batch()
    for position in range(21, len(data)):
        data[position] ^= 0x10
        assert not checksum_matches(data, 0, read_header(data)), position
        data[position] ^= 0x10


def test_iteration_leaves_out_a_partial_batch() -> None:
    first, second = batch(1), batch(2, base_offset=1)
    found = [(at, h.base_offset) for at, h in iterate_headers(first + second + first[:-1])]
    assert found == [(0, 0), (len(first), 1)]


@pytest.mark.parametrize(("position", "value"), [(11, 48), (16, 1), (8, 0x80)])
def test_iteration_stops_at_an_impossible_header(position: int, value: int) -> None:
    data = batch()
    data[8:12] = struct.pack(">i", HEADER_BYTES - 12)
    data[position] = value
    with pytest.raises(CorruptBatchError):
        list(iterate_headers(data))
