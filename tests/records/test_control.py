"""Transaction markers: Kafka's bytes, and rejection of other bytes."""

import pytest

from penstock.core.errors import CorruptBatchError
from penstock.records.batch import read_header
from penstock.records.builder import BatchBuilder
from penstock.records.control import Marker, build_marker, read_marker
from penstock.records.record import Record


def control_batch(*records: Record) -> bytearray:
    builder = BatchBuilder()
    for record in records:
        builder.append(record)
    return builder.build(control=True, transactional=True, producer_id=1, producer_epoch=0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_comes_back(is_commit: bool) -> None:
    marker = Marker(is_commit, coordinator_epoch=17)
    data = build_marker(
        marker, producer_id=9, producer_epoch=3, timestamp_ms=5, base_offset=44, leader_epoch=2
    )
    assert read_marker(data) == marker
    header = read_header(data)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, -1)
    assert (header.base_offset, header.leader_epoch, header.record_count) == (44, 2, 1)


def test_marker_bytes_are_kafkas() -> None:
    written_by_kafka = (
        "000000000000002c000000420000000202fdcb0f60003000000000000000000000000500000000000000"
        "0500000000000000090003ffffffff000000012000000008000000010c00000000001100"
    )
    data = build_marker(
        Marker(True, 17),
        producer_id=9,
        producer_epoch=3,
        timestamp_ms=5,
        base_offset=44,
        leader_epoch=2,
    )
    assert data.hex() == written_by_kafka


def test_later_versions_may_add_fields() -> None:
    key, value = bytes.fromhex("0001 0000 ff"), bytes.fromhex("0001 00000002 ff")
    assert read_marker(control_batch(Record(key, value))) == Marker(False, 2)


def test_other_kinds_of_control_are_none() -> None:
    assert read_marker(control_batch(Record(bytes.fromhex("0000 0002"), b""))) is None


@pytest.mark.parametrize(
    "records",
    [
        [Record(None, b"")],
        [Record(b"\x00\x00\x00", b"")],
        [Record(bytes.fromhex("ffff0001"), bytes.fromhex("000000000001"))],
        [Record(bytes.fromhex("00000001"), None)],
        [Record(bytes.fromhex("00000001"), b"\x00")],
        [Record(bytes.fromhex("00000001"), bytes.fromhex("ffff00000001"))],
        [Record(bytes.fromhex("00000001"), bytes.fromhex("000000000001"))] * 2,
    ],
)
def test_refuses_what_is_no_marker(records: list[Record]) -> None:
    with pytest.raises(CorruptBatchError):
        read_marker(control_batch(*records))
