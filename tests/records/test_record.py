"""Single records: varints at their edges, bytes that Kafka's documents give, and refusals."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import CorruptBatchError
from penstock.records.record import Header, Record, append_varint, decode_records, encode_record


def encode(record: Record, offset_delta: int = 0) -> bytes:
    output = bytearray()
    encode_record(output, record, timestamp_delta_ms=0, offset_delta=offset_delta)
    return bytes(output)


def decode(section: bytes, count: int = 1) -> list[Record]:
    return list(decode_records(section, count, base_offset=100, base_timestamp_ms=1000))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varint_bytes(value: int, encoded: str) -> None:
    output = bytearray()
    append_varint(output, value)
    assert output.hex() == encoded


def test_record_bytes() -> None:
    record = Record(b"k", b"val", (Header("h", None),))
    assert (
        encode(record).hex()
        == "1a" + "00" + "00" + "00" + "026b" + "0676616c" + "02" + "0268" + "01"
    )


def test_null_and_empty_are_different() -> None:
    for record in (Record(None, b""), Record(b"", None)):
        (found,) = decode(encode(record))
        assert (found.key, found.value) == (record.key, record.value)


def test_deltas_are_added_to_the_base() -> None:
    output = bytearray()
    encode_record(output, Record(), timestamp_delta_ms=-5, offset_delta=3)
    (found,) = decode(bytes(output))
    assert (found.timestamp_ms, found.offset) == (995, 103)


def test_header_key_that_is_not_utf8_is_shown_with_a_replacement() -> None:
    section = encode(Record(headers=(Header("h", b"x"),))).replace(b"\x02h", b"\x02\xff")
    assert decode(section)[0].headers == (Header("\ufffd", b"x"),)


headers = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)).map(
    lambda pair: Header(*pair)
)
records = st.builds(
    Record,
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(headers, max_size=3).map(tuple),
    st.just(-1),
    st.just(-1),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(records, max_size=4))
def test_what_is_written_is_read_back(written: list[Record]) -> None:
    section = b"".join(encode(record, index) for index, record in enumerate(written))
    found = decode(section, len(written))
    assert [r._replace(timestamp_ms=-1, offset=-1) for r in found] == written
    assert [r.offset for r in found] == [100 + i for i in range(len(written))]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("", "past its end"),
        ("01", "a record of -1 bytes"),
        ("7e00", "a record of 63 bytes"),
        ("00", "past its end"),
        ("0c000000010100ff", "after the last record"),
        ("0e00000001010000", "shorter than it declares"),
        ("0c0000000101" + "01", "-1 headers"),
        ("0c0000000101" + "7e", "63 headers"),
        ("100000000101020101", "without a key"),
        ("ffffffffff01", "too long"),
        ("ffffffff1f", "too large"),
    ],
)
def test_refuses_what_is_no_record(section: str, message: str) -> None:
    with pytest.raises(CorruptBatchError, match=message):
        decode(bytes.fromhex(section))


def test_refuses_a_timestamp_beyond_64_bits() -> None:
    output = bytearray()
    encode_record(output, Record(), timestamp_delta_ms=2**63 - 1, offset_delta=0)
    with pytest.raises(CorruptBatchError, match="timestamp"):
        decode(bytes(output))
