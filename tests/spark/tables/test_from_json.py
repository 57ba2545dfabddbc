"""Our rules for JSON beside Spark's `from_json` in PERMISSIVE mode: the same, but for a list.

A record for which Spark fills the column of corrupt records is a reject of ours. Differences are in
`DIFFERENT` with the reason; a case that no longer differs fails here too.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.json.values import JsonValues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORRUPT = "_corrupt"
SAME: list[tuple[str, str]] = [
    *(("x boolean", f'{{"x":{value}}}') for value in ("true", "false", "null", "1", '"true"')),
    *(
        (f"x {kind}", f'{{"x":{value}}}')
        for kind in ("tinyint", "smallint", "int", "bigint")
        for value in (
            *("0", "-1", "127", "32768", "2147483648", "9223372036854775807"),
            *("9223372036854775808", "1.0", "1.5", "1e2", '"1"', "true", "null", "[]", "{}"),
        )
    ),
    *(
        (f"x {kind}", f'{{"x":{value}}}')
        for kind in ("float", "double")
        for value in (
            "1",
            "0.5",
            "-1e10",
            '"NaN"',
            '"INF"',
            '"+INF"',
            '"-Infinity"',
            '"1.5"',
            "true",
            '""',
            "-0",
            "-0.0",
            "3.4028235e38",
        )
    ),
    *(
        ("x string", f'{{"x":{value}}}')
        for value in ('"a"', '""', "12", "1.50", "true", "null", "[1,2]", '{"a":1}', '"\\u00e4\\n"')
    ),
    *(("x string", f'{{"x":{value}}}') for value in ("-0", "[1.50,-0,1e3]", '{"a":1,"a":2}')),
    *(
        ("x decimal(20,4)", f'{{"x":{value}}}')
        for value in ("1234567890123456.7891", "0.00004999999999999999999", "-0", "1e400", '"1_0"')
    ),
    ("x array<decimal(20,4)>", '{"x":[1234567890123456.7891]}'),
    ("x array<struct<a:int>>", '{"x":[{"a":2147483648}]}'),
    *(
        ("x decimal(9,2)", f'{{"x":{value}}}')
        for value in ("1", "1.5", "1.005", "-1.005", '"2.5"', "12345678", '"x"', "true", "1e3")
    ),
    *(
        ("x date", f'{{"x":{value}}}')
        for value in ('"2026-01-31"', '"2026-02-30"', '"x"', "null", "true")
    ),
    *(
        ("x timestamp", f'{{"x":{value}}}')
        for value in (
            *('"2026-01-31T12:00:00Z"', '"2026-01-31T12:00:00.123+02:00"', "1769860800", '"x"'),
            *('"2026-01-31 12:00:00"', '"2026-01-31T12:00:00.123456Z"', "true", "1.5", "null"),
            *('"2026-01-31"', '"2026-01-31T12:00"', '"2026-01-31T12:00:00.123456789Z"'),
        )
    ),
    *(
        ("x timestamp_ntz", f'{{"x":{value}}}')
        for value in ('"2026-01-31T12:00:00"', '"2026-01-31T12:00:00.5"', '"x"', "1")
    ),
    *(
        ("x binary", f'{{"x":{value}}}')
        for value in (f'"{base64.b64encode(b"abc").decode()}"', '""', "1")
    ),
    *(
        ("x array<int>", f'{{"x":{value}}}')
        for value in ("[1,2]", "[]", "[null]", "[1.5]", '["1"]', "1", "{}", "null")
    ),
    *(
        ("x map<string,int>", f'{{"x":{value}}}')
        for value in ('{"a":1}', "{}", '{"a":null}', '{"a":"b"}', "[]", "1")
    ),
    *(
        ("x struct<a:int,b:string>", f'{{"x":{value}}}')
        for value in ('{"a":1,"b":"c"}', "{}", '{"a":"x"}', '{"c":1}', "[]", "1", "null")
    ),
    *(
        ("x array<struct<a:int>>", f'{{"x":{value}}}')
        for value in ('[{"a":1},{}]', "[null]", "[1]", '[{"a":"x"}]')
    ),
    ("x int, y int", "{}"),
    ("x int, y int", '{"y":1,"z":2}'),
    ("x int, y int", '{"x":"bad","y":1}'),
    ("x int", '{"X":1}'),
    ("x int", "{"),
    ("x int", '{"x":1'),
    ("x int", "nonsense"),
    ("x int", "1"),
    ("x int", '"text"'),
    ("x int", "true"),
    ("x int", ' {"x" : 1 } '),
]
DIFFERENT: dict[tuple[str, str], str] = {
    ("x int", ""): "an empty value is a reject, and null in Spark",
    ("x int", '{"x":1} rest'): "text after the value is a reject; Spark does not look at it",
    ("x int", "{'x':1}"): "single quotes are a reject; Spark takes them",
    ("x int", '{"x":1,"x":2}'): "the first of a key that is there twice counts; in Spark the last",
    ("x int NOT NULL", "{}"): "a required column is required; Spark makes it nullable",
    (
        "x string",
        '{"x":1e16}',
    ): "a large number as a text is 1e+16; Spark writes it as Java does, 1.0E16",
    ("x tinyint", '{"x":128}'): "a number out of range is a reject; Spark makes -128 of it",
    ("x double", '{"x":1e400}'): "a number out of range is a reject, and infinity in Spark",
    ("x float", '{"x":1e300}'): "a number out of range is a reject, and infinity in Spark",
    ("x timestamp", '{"x":"2026-1-1"}'): "days and months have two digits; Spark takes one",
    ("x int", '{"x":1,}'): "a comma before a closing bracket is let pass; Spark refuses it",
}

Result = tuple[object, bool]


def ours(ddl: str, values: list[str]) -> list[Result]:
    parsed = JsonValues(parse_ddl(ddl)).parse(
        pa.array([value.encode() for value in values], pa.binary())
    )
    rows = iter(parsed.rows.to_pylist())
    bad = {one.row for one in parsed.rejects}
    return [(None, True) if n in bad else (plain(next(rows)), False) for n in range(len(values))]


def sparks(spark: SparkSession, ddl: str, values: list[str]) -> list[Result]:
    frame = spark.createDataFrame([(value,) for value in values], "value string")
    schema = f"{ddl}, {CORRUPT} string"
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{CORRUPT}')"
    rows = frame.selectExpr(f"from_json(value, '{schema}', {options}) AS parsed").collect()
    found: list[Result] = []
    for (row,) in rows:
        fields = row.asDict(recursive=True) if row is not None else None
        if fields is not None and fields.pop(CORRUPT) is not None:
            found.append((None, True))
        else:
            found.append((plain(fields), False))
    return found


def plain(value: object) -> object:
    """Values that compare: NaN is NaN, a map is a dictionary, times are text."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return {name: plain(inner) for name, inner in value}
    if isinstance(value, list):
        return [plain(inner) for inner in value] or {}
    if isinstance(value, bytearray | bytes):
        return bytes(value)
    if hasattr(value, "isoformat"):
        return str(value).removesuffix("+00:00")
    return "NaN" if value != value else value


def by_schema(cases: list[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for ddl, value in cases:
        found.setdefault(ddl, []).append(value)
    return found


@pytest.mark.spark
@pytest.mark.parametrize("ddl", by_schema(SAME))
def test_the_same_as_from_json(spark: SparkSession, ddl: str) -> None:
    values = by_schema(SAME)[ddl]
    found = list(zip(values, sparks(spark, ddl, values), ours(ddl, values), strict=True))
    assert not [one for one in found if one[1] != one[2]]


@pytest.mark.spark
def test_what_differs_from_from_json(spark: SparkSession) -> None:
    for ddl, value in DIFFERENT:
        assert sparks(spark, ddl, [value]) != ours(ddl, [value]), (ddl, value)
