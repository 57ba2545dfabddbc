"""JSON values: the fast way has the result of the reference, bad rows are found exactly."""

import base64
import functools
import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.json.rows import JsonRows
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.parser import ErrorClass, Parsed, RowError
from penstock.spark.tables.values.raw import RawValues

EVERYTHING = (
    "b boolean, y tinyint, h smallint, i int, l bigint, f float, d double, p decimal(9,2),"
    " t string, n binary, a date, m timestamp, z timestamp_ntz, s struct<i: int, t: string>,"
    " r array<bigint>, c array<struct<i: int, d: date>>, k map<string, double>"
)


@functools.cache
def new_parser(ddl: str) -> JsonValues:
    """One for each schema: making it takes longer than reading a few values."""
    return JsonValues(parse_ddl(ddl))


def parse(ddl: str, *values: bytes | str | None) -> Parsed:
    given_values = [value.encode() if isinstance(value, str) else value for value in values]
    column = pa.array(given_values, pa.binary())
    parsed = new_parser(ddl).parse(column)
    assert parsed.rows.schema == parse_ddl(ddl)
    parsed.rows.validate(full=True)
    numbers = list(range(len(column)))
    if parsed.row_numbers is not None:
        numbers = parsed.row_numbers.to_pylist()
    assert len(numbers) == parsed.rows.num_rows
    assert sorted([*numbers, *(one.row for one in parsed.rejects)]) == list(range(len(column)))
    return parsed


def only(ddl: str, value: str) -> object:
    """The one column of the one value."""
    rows = parse(f"x {ddl}", f'{{"x":{value}}}').rows.to_pylist()
    assert len(rows) == 1, f"{value} is a reject"
    return rows[0]["x"]


def reason(ddl: str, value: str | bytes) -> tuple[ErrorClass, str]:
    parsed = parse(ddl, '{"good":1}', value, '{"good":2}')
    assert len(parsed.rejects) == 1, parsed
    assert parsed.rejects[0].row == 1
    return parsed.rejects[0].error, parsed.rejects[0].message


@pytest.mark.parametrize(
    ("ddl", "value", "expected"),
    [
        ("boolean", "true", True),
        ("tinyint", "-128", -128),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("double", "1", 1.0),
        ("double", "1.5e3", 1500.0),
        ("double", '"-Infinity"', -math.inf),
        ("double", '"+INF"', math.inf),
        ("float", "0.5", 0.5),
        ("string", '"text"', "text"),
        ("string", '"\\u00e4\\n\\ud83d\\ude00"', "ä\n😀"),
        ("string", "12", "12"),
        ("string", "true", "true"),
        ("string", "[1, 2]", "[1,2]"),
        ("string", '{"a" : 1}', '{"a":1}'),
        ("string", "null", None),
        ("array<bigint>", "[1, null, 3]", [1, None, 3]),
        ("array<string>", '["a", null, 1]', ["a", None, "1"]),
        ("array<array<int>>", "[[1], [], null]", [[1], [], None]),
        ("map<string, int>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("map<string, array<int>>", '{"a": [1]}', [("a", [1])]),
        ("struct<a: int>", '{"a": 1, "b": 2}', {"a": 1}),
        ("struct<a: int>", "{}", {"a": None}),
        ("array<struct<a: int>>", '[{"a": 1}, {}]', [{"a": 1}, {"a": None}]),
    ],
)
def test_what_types_take(ddl: str, value: str, expected: object) -> None:
    assert only(ddl, value) == expected


@pytest.mark.parametrize(
    ("ddl", "value", "expected"),
    [
        ("decimal(9,2)", "1.5", "1.50"),
        ("decimal(9,2)", '"12345.678"', "12345.68"),
        ("decimal(9,2)", "-1.005", "-1.01"),
        ("decimal(9,2)", "1e3", "1000.00"),
        (
            "decimal(38,0)",
            '"12345678901234567890123456789012345678"',
            "1" + "2345678901" * 3 + "2345678",
        ),
        ("date", '"2026-01-31"', "2026-01-31"),
        ("date", '"0999-01-31"', "0999-01-31"),
        ("timestamp", '"2026-01-31T12:00:00Z"', "2026-01-31 12:00:00+00:00"),
        ("timestamp", '"2026-01-31T12:00:00.123+02:00"', "2026-01-31 10:00:00.123000+00:00"),
        ("timestamp", '"2026-01-31 12:00:00.123456"', "2026-01-31 12:00:00.123456+00:00"),
        ("timestamp", '"2026-01-31T12:00:00.123456789-0230"', "2026-01-31 14:30:00.123456+00:00"),
        ("timestamp", '"2026-01-31"', "2026-01-31 00:00:00+00:00"),
        ("timestamp", "1769860800", "2026-01-31 12:00:00+00:00"),
        ("timestamp_ntz", '"2026-01-31T12:00:00.5"', "2026-01-31 12:00:00.500000"),
        ("array<date>", '["2026-01-31"]', "[datetime.date(2026, 1, 31)]"),
    ],
)
def test_what_texts_become(ddl: str, value: str, expected: str) -> None:
    assert str(only(ddl, value)) == expected


def test_binary_is_base64() -> None:
    assert only("binary", json.dumps(base64.b64encode(b"\x00\xff!").decode())) == b"\x00\xff!"
    assert only("binary", '""') == b""
    assert str(only("double", '"NaN"')) == "nan"


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("boolean", "1"),
        ("boolean", '"true"'),
        ("int", "1.5"),
        ("int", "1.0"),
        ("int", "1e2"),
        ("int", '"1"'),
        ("int", "true"),
        ("int", "2147483648"),
        ("tinyint", "128"),
        ("bigint", "9223372036854775808"),
        ("bigint", "123456789012345678901234567890"),
        ("double", '"1.5"'),
        ("double", '"INF"'),
        ("double", "true"),
        ("double", "1e400"),
        ("float", "1e300"),
        ("decimal(4,2)", "100"),
        ("decimal(4,2)", "99.995"),
        ("decimal(4,2)", '"x"'),
        ("decimal(4,2)", '"NaN"'),
        ("decimal(4,2)", "true"),
        ("date", '"2026-13-01"'),
        ("date", '"2026-02-30"'),
        ("date", '"2026-1-1"'),
        ("date", "20"),
        ("timestamp", '"yesterday"'),
        ("timestamp", '"infinity"'),
        ("timestamp", '"2026-01-31T25:00:00Z"'),
        ("timestamp", "1.5"),
        ("timestamp_ntz", '"2026-01-31T12:00:00Z"'),
        ("binary", '"***"'),
        ("binary", '"YQ"'),
        ("binary", "1"),
        ("struct<a: int>", "1"),
        ("struct<a: int>", "[]"),
        ("struct<a: int>", '{"a": "x"}'),
        ("array<int>", "1"),
        ("array<int>", "[1.5]"),
        ("array<int>", '["1"]'),
        ("array<int>", "[2147483648]"),
        ("array<struct<a: int>>", '[{"a": "x"}]'),
        ("array<struct<a: int>>", "[1]"),
        ("map<string, int>", "[]"),
        ("map<string, int>", '{"a": 1.5}'),
    ],
)
def test_what_types_refuse(ddl: str, value: str) -> None:
    error, message = reason(f"x {ddl}", f'{{"x":{value}}}')
    assert error is ErrorClass.TYPE_MISMATCH
    assert "column 'x" in message
    assert "takes" in message


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "not JSON"),
        (b'{"a":1} x', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b"\x00\x01", "not JSON"),
        (b'{"a":"\xff"}', "not JSON"),
        (b'{"a":"\\ud800"}', "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_json(value: bytes, part: str) -> None:
    error, message = reason("x bigint", value)
    assert error is ErrorClass.MALFORMED
    assert part in message


@pytest.mark.parametrize("value", ["1", "null", "[]", '[{"x":1}]', '"text"', "true"])
def test_a_value_that_is_no_object(value: str) -> None:
    error, message = reason("x bigint", value)
    assert error is ErrorClass.TYPE_MISMATCH
    assert message.startswith("the value takes an object")


def test_a_null_value_is_a_row_of_nulls_unless_a_column_is_required() -> None:
    assert parse("x bigint", None, '{"x":1}').rows.to_pylist() == [{"x": None}, {"x": 1}]
    parsed = parse("x bigint NOT NULL", '{"x":1}', None, '{"x":2}')
    assert [one["x"] for one in parsed.rows.to_pylist()] == [1, 2]
    assert parsed.rejects[0].error is ErrorClass.MISSING_VALUE


@pytest.mark.parametrize(
    ("ddl", "value", "path"),
    [
        ("x bigint NOT NULL", "{}", "'x'"),
        ("x bigint NOT NULL", '{"x":null}', "'x'"),
        ("x struct<a: int NOT NULL>", '{"x":{}}', "'x.a'"),
        ("x array<struct<a: int NOT NULL>>", '{"x":[{"a":1},{}]}', "'x[1].a'"),
    ],
)
def test_a_required_column_without_a_value_is_a_reject(ddl: str, value: str, path: str) -> None:
    parsed = parse(ddl, value)
    assert parsed.rejects[0].error is ErrorClass.MISSING_VALUE
    assert path in parsed.rejects[0].message
    assert parse("x struct<a: int NOT NULL>", '{"x":null}').rejects == ()


def test_rows_keep_their_order_around_bad_and_slow_ones() -> None:
    values = ['{"x":1}', "{", '{"x":"2026-01-01"}', None, '{"x":"1"}', '{"x":6}']
    parsed = parse("x bigint", *values)
    assert parsed.row_numbers is not None
    assert parsed.row_numbers.to_pylist() == [0, 3, 5]
    assert [one.row for one in parsed.rejects] == [1, 2, 4]
    slow = parse("x timestamp", '{"x":"2026-01-01T00:00:00Z"}', '{"x":0}', '{"x":"2026-01-01"}')
    assert slow.row_numbers is None
    assert [str(one["x"])[:4] for one in slow.rows.to_pylist()] == ["2026", "1970", "2026"]


def test_nothing_is_nothing() -> None:
    assert parse("x bigint, y array<date>").rows.num_rows == 0


def test_odd_names_are_names() -> None:
    ddl = "`a b` bigint, `c.d` bigint, `e\"f` bigint, `g/h~i` struct<`j'k`: int>, ` ` array<int>"
    value = {"a b": 1, "c.d": 2, 'e"f': 3, "g/h~i": {"j'k": 4}, " ": [5]}
    parsed = parse(ddl, json.dumps(value))
    assert parsed.rows.to_pylist() == [value]
    assert parse(ddl, '{"g/h~i":{"j\'k":"x"}}').rejects
    assert parse(ddl, '{" ":["x"]}').rejects


def test_names_are_the_same_only_in_the_same_case() -> None:
    assert parse("x bigint", '{"X":1}').rows.to_pylist() == [{"x": None}]


def test_the_first_of_a_key_that_is_there_twice_counts() -> None:
    assert only("bigint", '1,"x":2') == 1
    assert parse("x bigint, y timestamp", '{"x":1,"y":0,"x":2}').rows.to_pylist()[0]["x"] == 1


def test_a_schema_that_json_cannot_fill_is_refused() -> None:
    with pytest.raises(SchemaError, match="key of JSON"):
        JsonValues(parse_ddl("x map<int, int>"))


def test_raw_values_are_what_they_were() -> None:
    column = pa.array([b"\xff", None, b""], pa.binary())
    parsed = RawValues().parse(column)
    assert parsed.rows.column(0).to_pylist() == [b"\xff", None, b""]
    assert parsed.rejects == ()


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 300),
    st.integers(-(2**70), 2**70),
    st.sampled_from([2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 0.1, 1e300, 1e22]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from(
        [
            "1",
            "-1.5",
            "NaN",
            "inf",
            "YWI=",
            "2026-01-31",
            "2026-01-31T01:02:03Z",
            "1e5",
            "+1",
            "2026-02-31",
            " 1",
            "true",
            "2026-01-31 01:02:03.1234567+01:00",
            "2026-01-31T01:02:03-01:30",
            "12345.675",
            "",
        ]
    ),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("idtx"), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("byhilfdptnamzsrckx"), ANYTHING), max_size=8))
@example([{"t": ["\x1f", "\\u001f"]}])
def test_the_fast_way_gives_what_the_reference_gives(values: list[dict[str, Any]]) -> None:
    schema = parse_ddl(EVERYTHING)
    texts = [json.dumps(value) for value in values]
    parsed = parse(EVERYTHING, *texts)
    reference, rows, rejects = JsonRows(schema), [], {}
    for number, text in enumerate(texts):
        try:
            rows.append(reference.read(text))
        except RowError as error:
            rejects[number] = error.error
    assert {one.row: one.error for one in parsed.rejects} == rejects
    expected = pa.array(rows, pa.struct(list(schema)))
    assert parsed.rows.to_struct_array().to_pylist() == expected.to_pylist()
