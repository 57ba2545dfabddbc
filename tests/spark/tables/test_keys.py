"""Keys of deletions: bytes to columns, and the messages for other bytes."""

import datetime
import decimal
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.keys import KeyParser
from penstock.spark.tables.values.limits import time_rejects
from penstock.spark.tables.values.parser import ErrorClass, Parsed, rejecting
from tests.spark.tables.json_ways import LEAVES, leaf_value, text_of_time
from tests.spark.tables.value_world import ValueWorld


def parsed(schema: dict[str, pa.DataType], *keys: bytes | None) -> Parsed:
    return KeyParser(pa.schema(schema)).parse(pa.array(keys, pa.binary()))


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (pa.int64(), b"42", 42),
        (pa.int64(), b" -7 ", -7),
        (pa.int64(), b'{"id": 42, "more": [1]}', 42),
        (pa.string(), b"a", "a"),
        (pa.string(), b'"a"', "a"),
        (pa.string(), b'"a\\u00e9"', "a\u00e9"),
        (pa.string(), b'{"id": "a"}', "a"),
        (pa.string(), b"42", "42"),
        (pa.string(), b"4.20", "4.20"),
        (pa.string(), b"007", "007"),
        (pa.string(), b"true", "true"),
        (pa.string(), b"null", "null"),
        (pa.string(), b"[1, 2]", "[1, 2]"),
        (pa.string(), b'"a', '"a'),
        (pa.string(), b"{a", "{a"),
        (pa.string(), b"", ""),
        (pa.string(), b" a ", " a "),
        (pa.string(), "Z\u00fcrich".encode(), "Z\u00fcrich"),
        (pa.binary(), b'\x00\xff"a"', b'\x00\xff"a"'),
        (pa.date32(), b"2026-01-31", datetime.date(2026, 1, 31)),
        (pa.date32(), b'"2026-01-31"', datetime.date(2026, 1, 31)),
        (pa.bool_(), b"true", True),
        (pa.decimal128(6, 2), b"1.5", decimal.Decimal("1.50")),
        (pa.decimal128(6, 2), b'"1.5"', decimal.Decimal("1.50")),
        (pa.int64(), b'{"id": 42,}', 42),
        (pa.string(), b'{"id": "a",}', "a"),
        (pa.string(), b"NaN", "NaN"),
        (pa.string(), b"-0", "-0"),
        (pa.decimal128(20, 4), b"1234567890123456.7891", decimal.Decimal("1234567890123456.7891")),
        (
            pa.timestamp("us", "UTC"),
            b"2026-01-31T01:02:03Z",
            datetime.datetime(2026, 1, 31, 1, 2, 3, tzinfo=datetime.UTC),
        ),
    ],
)
def test_a_key_of_one_column(kind: pa.DataType, key: bytes, value: object) -> None:
    found = parsed({"id": kind}, key)
    assert found.rejects == ()
    assert found.rows.column("id").to_pylist() == [value]
    assert found.rows.schema.field("id").type == kind


def test_a_key_of_several_columns() -> None:
    schema = {"id": pa.int64(), "city": pa.string()}
    found = parsed(schema, b'{"city": "Bern", "id": 1, "x": null}', b"1", b'{"id": 2}', None)
    assert found.rows.to_pylist() == [{"id": 1, "city": "Bern"}]
    assert found.row_numbers is not None
    assert found.row_numbers.to_pylist() == [0]
    assert [(one.row, one.error) for one in found.rejects] == [
        (1, ErrorClass.MALFORMED),
        (2, ErrorClass.MISSING_VALUE),
        (3, ErrorClass.MISSING_VALUE),
    ]
    assert "id, city" in found.rejects[0].message
    assert "'city'" in found.rejects[1].message


@pytest.mark.parametrize(
    ("kind", "key", "error", "words"),
    [
        (pa.int64(), None, ErrorClass.MISSING_VALUE, "neither a key nor a value"),
        (pa.int64(), b"", ErrorClass.TYPE_MISMATCH, "'id' takes a whole number"),
        (pa.int64(), b"null", ErrorClass.MISSING_VALUE, "'id' is required"),
        (pa.int64(), b"{}", ErrorClass.MISSING_VALUE, "'id' is required"),
        (pa.string(), b'{"key": "a"}', ErrorClass.MISSING_VALUE, "'id' is required"),
        (pa.int64(), b'"42"', ErrorClass.TYPE_MISMATCH, "whole number"),
        (pa.int64(), b"007", ErrorClass.TYPE_MISMATCH, "whole number"),
        (pa.int64(), b"4.2", ErrorClass.TYPE_MISMATCH, "whole number"),
        (pa.int32(), b"3000000000", ErrorClass.TYPE_MISMATCH, "type int"),
        (pa.int64(), b"9" * 5_000, ErrorClass.TYPE_MISMATCH, "whole number"),
        (pa.decimal128(6, 2), b"1_000", ErrorClass.TYPE_MISMATCH, "decimal(6,2)"),
        (pa.int64(), b'1, "id": 2', ErrorClass.TYPE_MISMATCH, "whole number"),
        (pa.string(), b"\xff\xfe", ErrorClass.MALFORMED, "not text in UTF-8"),
        (pa.string(), b"\x00\x00\x00\x00\x07\x02a", ErrorClass.MALFORMED, "registry"),
        (pa.string(), b'"\\ud800"', ErrorClass.TYPE_MISMATCH, "does not fit"),
        (pa.int64(), b"[" * 100_000, ErrorClass.MALFORMED, "nested"),
    ],
)
def test_what_is_no_key_is_told(
    kind: pa.DataType, key: bytes | None, error: ErrorClass, words: str
) -> None:
    found = parsed({"id": kind}, key)
    assert found.rows.num_rows == 0
    assert [one.error for one in found.rejects] == [error]
    assert words in found.rejects[0].message


@given(st.lists(st.none() | st.binary(max_size=12)), st.sampled_from([pa.int64(), pa.string()]))
def test_every_key_is_a_row_or_a_reject(keys: list[bytes | None], kind: pa.DataType) -> None:
    found = parsed({"id": kind}, *keys)
    assert found.rows.num_rows + len(found.rejects) == len(keys)
    assert found.rows.column("id").null_count == 0


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_numbers_come_back(number: int) -> None:
    assert parsed({"id": pa.int64()}, str(number).encode()).rows.to_pylist() == [{"id": number}]


KEY_TYPES = [leaf for leaf in LEAVES if leaf not in ("float", "double")]


def by_number(found: Parsed) -> dict[int, object]:
    """The keys that are there, by the number of their record."""
    numbers = range(found.rows.num_rows)
    if found.row_numbers is not None:
        numbers = found.row_numbers.to_pylist()
    keys = found.rows.column("id").to_pylist()
    return {number: key for number, key in zip(numbers, keys, strict=True) if key is not None}


def keys_of_values(ddl: str, texts: list[str]) -> dict[int, object]:
    """What values with these texts in the column `id` have there."""
    values = pa.array([f'{{"x":[],"id":{text}}}'.encode() for text in texts], pa.binary())
    found = JsonValues(parse_ddl(ddl)).parse(values)
    return by_number(rejecting(found, time_rejects(found.rows)))


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_a_deletion_has_the_key_of_the_value(kind: str) -> None:
    chance = random.Random(kind)
    texts = [leaf_value(chance, kind).encode("utf-8", "replace").decode() for _ in range(400)]
    # Bytes that are not JSON are a text in a key of texts, and a reject in a value.
    texts = [text for text in texts if is_json(text)]
    schema = parse_ddl(f"id {kind}")
    wanted = keys_of_values(f"id {kind}", texts)
    assert len(wanted) > 10
    assert keys_of_values(f"id {kind}, x array<int>", texts) == wanted
    objects = [f'{{"id": {text}}}'.encode() for text in texts]
    if kind != "binary":
        assert by_number(KeyParser(schema).parse(pa.array(objects, pa.binary()))) == wanted
    if kind not in ("string", "binary"):
        alone = [text.encode() for text in texts]
        assert by_number(KeyParser(schema).parse(pa.array(alone, pa.binary()))) == wanted


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_times_are_the_same_keys_without_quotes(kind: str) -> None:
    chance = random.Random(kind)
    texts = [text_of_time(chance) for _ in range(400)]
    wanted = keys_of_values(f"id {kind}", [json.dumps(text) for text in texts])
    assert len(wanted) > 50
    alone = pa.array([text.encode() for text in texts], pa.binary())
    assert by_number(KeyParser(parse_ddl(f"id {kind}")).parse(alone)) == wanted


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_long_decimals_are_different_keys(tmp_path: Path, table_format: str) -> None:
    """As doubles all of them are 1234567890123456.8."""
    texts = [f"1234567890123456.78{number}" for number in (90, 91, 92)]
    keys = [text.encode() for text in texts]
    upsert = {"mode": "upsert", "key": ["id"]}
    world = ValueWorld(tmp_path, table_format, "id decimal(20,4), n int", table=upsert)
    values = [f'{{"id":{text},"n":1}}'.encode() for text in texts]
    later = [None, f'{{"id":{texts[2]},"n":2}}'.encode()]
    world.commit([*values, *later], keys=[*keys, *keys[1:]])
    assert world.reasons() == {}
    assert world.held("id", "n") == [
        (decimal.Decimal(texts[0]), 1),
        (decimal.Decimal(texts[2]), 2),
    ]
