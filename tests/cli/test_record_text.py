"""Lines to records and back, and bytes that are not text."""

import pytest

from penstock.cli.text.record_text import (
    LineFormat,
    document_of,
    line_of,
    parse_headers,
    parse_parts,
    timestamp_text,
)
from penstock.client.records.topic_reader import ReadRecord
from penstock.core.errors import InvalidRequestError
from penstock.records.record import Header

RECORD = ReadRecord(
    topic="orders",
    partition=2,
    offset=41,
    timestamp_ms=1_714_564_800_250,
    key=b"k",
    value=b"v",
    headers=(Header("a", b"1"), Header("b", None)),
)


@pytest.mark.parametrize(
    ("line_format", "line", "key", "value"),
    [
        (LineFormat(), b"a:b", None, b"a:b"),
        (LineFormat(), b"", None, b""),
        (LineFormat(b":"), b"a:b:c", b"a", b"b:c"),
        (LineFormat(b"::"), b"a::", b"a", b""),
        (LineFormat(b":", b"NULL"), b"a:NULL", b"a", None),
        (LineFormat(b":", b"NULL"), b"NULL:b", None, b"b"),
        (LineFormat(None, b""), b"", None, None),
    ],
)
def test_a_line_is_read(
    line_format: LineFormat, line: bytes, key: bytes | None, value: bytes | None
) -> None:
    assert line_format.parse(line, 1) == (key, value)


def test_a_line_without_its_separator_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="line 7: missing key separator ':'"):
        LineFormat(b":").parse(b"abc", 7)


def test_all_parts_of_a_line() -> None:
    parts = parse_parts("partition, offset,timestamp,key,headers,value")
    assert line_of(RECORD, parts) == b"2\t41\t2024-05-01T12:00:00.250Z\tk\ta=1,b=\tv\n"


def test_null_is_shown() -> None:
    record = RECORD._replace(key=None, value=None)
    assert line_of(record, ("key", "value")) == b"null\tnull\n"


def test_bytes_pass_as_they_are() -> None:
    assert line_of(RECORD._replace(value=b"\xff\x00"), ("value",)) == b"\xff\x00\n"


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(InvalidRequestError, match="'size' is no part of a record"):
        parse_parts("key,size")


def test_headers_are_read() -> None:
    assert parse_headers(["a=1", "b=x=y", "c="]) == (("a", b"1"), ("b", b"x=y"), ("c", b""))
    for wrong in ("a", "=1"):
        with pytest.raises(InvalidRequestError, match="name=value"):
            parse_headers([wrong])


@pytest.mark.parametrize(
    ("timestamp_ms", "text"), [(-1, "-1"), (0, "1970-01-01T00:00:00.000Z"), (2**62, str(2**62))]
)
def test_times_that_no_calendar_has(timestamp_ms: int, text: str) -> None:
    assert timestamp_text(timestamp_ms) == text


def test_json_has_every_field() -> None:
    assert document_of(RECORD) == {
        "topic": "orders",
        "partition": 2,
        "offset": 41,
        "timestamp_ms": 1_714_564_800_250,
        "key": "k",
        "value": "v",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


def test_json_tells_null_from_bytes() -> None:
    binary = document_of(RECORD._replace(key=None, value=b"\xff"))
    assert binary["key"] is None
    assert "key_base64" not in binary
    assert binary["value"] is None
    assert binary["value_base64"] == "/w=="
