"""Inference: the schema of a sample takes every value of the sample."""

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.tables.definition.ddl import parse_ddl, to_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.json.inference import infer_schema
from penstock.spark.tables.values.json.rows import JsonRows
from penstock.spark.tables.values.json.values import JsonValues


def inferred(*values: object) -> str:
    return to_ddl(infer_schema([json.dumps(value).encode() for value in values], "topic orders"))


def test_types() -> None:
    assert inferred({"a": 1, "b": 1.5, "c": True, "d": "x", "e": None, "f": 2**70}) == (
        "a bigint, b double, c boolean, d string, e string, f double"
    )
    assert inferred({"a": [1, None]}, {"a": [1.5]}) == "a array<double>"
    assert inferred({"a": {"b": 1}}, {"a": {"c": "x"}}) == "a struct<b: bigint, c: string>"
    assert inferred({"a": 1}, {"b": 2}, {"a": "x"}) == "a string, b bigint"
    assert inferred({"a": {}}, {"b": []}) == "a string, b array<string>"
    assert inferred({"a": {"b": 1}}, {"a": [1]}) == "a string"
    assert inferred({"a": 1, "A": "x"}) == "a bigint"


@pytest.mark.parametrize(
    ("value", "ddl"),
    [
        (b'{"a":1e400,"b":1}', "a string, b bigint"),
        (b'{"a":' + b"9" * 5_000 + b"}", "a string"),
        (
            b'{"a":-9223372036854775808,"b":-9223372036854775809,"c":-0}',
            "a bigint, b double, c bigint",
        ),
        (b'{"a":"x","a":1}', "a string"),
        (b'{"a":NaN,"b":Infinity}', "a double, b string"),
        (b'{"":1,"a":{"":2}}', "a string"),
        (b'{"a":1,}', "a bigint"),
    ],
)
def test_odd_values_are_taken_by_their_schema(value: bytes, ddl: str) -> None:
    schema = infer_schema([value], "topic orders")
    assert to_ddl(schema) == ddl
    assert parse_ddl(ddl) == schema
    assert not JsonValues(schema).parse(pa.array([value], pa.binary())).rejects


def test_a_field_without_a_name_alone_is_no_column() -> None:
    with pytest.raises(SchemaError, match="topic orders"):
        infer_schema([b'{"":1}'], "topic orders")


def test_what_is_no_object_is_passed_over() -> None:
    schema = infer_schema([None, b"", b"{", b"[1]", b"3", b'{"a":1}', b"{}"], "topic orders")
    assert to_ddl(schema) == "a bigint"
    with pytest.raises(SchemaError, match="topic orders"):
        infer_schema([b"[]", b"{}"], "topic orders")


def test_bounds() -> None:
    with pytest.raises(SchemaError, match="more than"):
        inferred({f"c{number}": 1 for number in range(2001)})
    deep: Any = 1
    for _ in range(40):
        deep = {"a": deep}
    assert inferred(deep).count("struct") == 14


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(-1e9, 1e9), st.text()
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES, min_size=1), min_size=1, max_size=5)
)
def test_the_schema_takes_its_sample(values: list[dict[str, Any]]) -> None:
    texts = [json.dumps(value) for value in values]
    schema = infer_schema([text.encode() for text in texts], "topic")
    rows = JsonRows(schema)
    pa.array([rows.read(text) for text in texts], pa.struct(list(schema)))
