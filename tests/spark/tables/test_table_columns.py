"""The columns of a table: metadata beside the value's, and rows fitted to a wider schema."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.decode.columns import spark_schema
from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import METADATA_FIELDS, Metadata
from penstock.spark.tables.values.columns import (
    ICEBERG_NAMES,
    fit,
    records_of,
    require_free_names,
    table_schema,
    with_metadata,
    with_record,
)

VALUE = parse_ddl("id bigint, amount double")
TIME = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def records(count: int) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [
        {
            "key": b"k",
            "value": b"v",
            "topic": "orders",
            "partition": 3,
            "offset": number,
            "timestamp": TIME,
            "timestampType": 0,
        }
        for number in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=spark_schema(include_headers=False))


def test_metadata_comes_last_and_can_be_turned_off() -> None:
    assert table_schema(VALUE, Metadata.STRUCT).names == ["id", "amount", "_kafka"]
    flat = [f"_kafka_{name}" for name in METADATA_FIELDS]
    assert table_schema(VALUE, Metadata.FLAT).names == ["id", "amount", *flat]
    assert table_schema(VALUE, Metadata.NONE) == VALUE


@pytest.mark.parametrize("form", Metadata)
def test_no_metadata_column_has_a_name_of_icebergs(form: Metadata) -> None:
    """`SELECT *` in Spark failed on every Iceberg table, by the column `_partition`."""
    assert not ICEBERG_NAMES & set(table_schema(VALUE, form).names)
    with pytest.raises(SchemaError, match="_partition"):
        table_schema(parse_ddl("_partition int"), form)


def test_a_value_cannot_have_the_name_of_metadata() -> None:
    for name in ("_Kafka", "_kafka_Offset"):
        for form in Metadata:  # rows have these columns on their way in any case
            with pytest.raises(SchemaError, match=name):
                table_schema(parse_ddl(f"{name} bigint"), form)


@pytest.mark.parametrize("name", ["_change_type", "_commit_version", "_Commit_Timestamp"])
def test_a_value_cannot_have_the_name_of_a_column_of_a_change_feed(name: str) -> None:
    """Such a column was added to the table of another owner, whose feed could not be read then."""
    with pytest.raises(SchemaError, match=name):
        table_schema(parse_ddl(f"id bigint, {name} bigint"), Metadata.STRUCT)


@pytest.mark.parametrize(
    "name", ["_Change_Type", "_commit_version", "_commit_timestamp", "_change_offset", "_Pos"]
)
def test_a_function_cannot_return_a_column_that_a_format_needs(name: str) -> None:
    """A column `_change_offset` of a function was left out of the table that was there already."""
    with pytest.raises(SchemaError, match=rf"enlarge\(\) returns.*{name}.*Rename it"):
        require_free_names(["id", "_kafka", name], "enlarge()")
    require_free_names(["id", "_kafka", "_kafka_offset", "_value", "_changes"], "enlarge()")


def test_rows_get_the_metadata_of_their_records() -> None:
    values = pa.RecordBatch.from_pydict({"id": [1, 2], "amount": [0.5, None]}, schema=VALUE)
    told = {
        "topic": "orders",
        "partition": 3,
        "offset": 1,
        "timestamp": TIME,
        "key": b"k",
        "headers": None,
    }
    flat = {f"_kafka_{name}": value for name, value in told.items()}
    for form, expected in ((Metadata.STRUCT, {"_kafka": told}), (Metadata.FLAT, flat)):
        rows = with_metadata(values, records(2), form)
        assert rows.schema == table_schema(VALUE, form)
        assert rows.to_pylist()[1] == {"id": 2, "amount": None, **expected}
        whole = records_of(with_record(rows, records(2)), form)
        assert whole.to_pylist()[1] == {**told, "value": b"v"}


def test_rows_are_fitted_to_a_wider_schema() -> None:
    narrow = parse_ddl(
        "i int, f float, d decimal(4,2), s struct<a:int>, l array<int>, m map<string,int>"
    )
    wide = parse_ddl(
        "i bigint, n string, f double, d decimal(9,2), s struct<a:bigint, b:string>,"
        " l array<bigint>, m map<string,bigint>"
    )
    rows: list[dict[str, Any]] = [
        {"i": 1, "f": 0.5, "d": None, "s": {"a": 1}, "l": [1, None], "m": [("x", 1)]},
        {"i": None, "f": None, "d": None, "s": None, "l": None, "m": None},
        {"i": 3, "f": 1.5, "d": None, "s": {"a": None}, "l": [], "m": []},
        {"i": 4, "f": 1.5, "d": None, "s": {"a": 5}, "l": [7], "m": [("y", None), ("z", 2)]},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=narrow)
    for start in range(4):
        fitted = fit(batch.slice(start), wide)
        fitted.validate(full=True)
        assert fitted.schema == wide
        assert fitted.to_pylist() == [
            {
                **row,
                "n": None,
                "s": None if row["s"] is None else {**row["s"], "b": None},
            }
            for row in rows[start:]
        ]
