"""Spark's DDL: read without a JVM to the types that Spark itself gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import (
    CHARACTERS_MAX,
    COLUMNS_MAX,
    NESTING_MAX,
    parse_ddl,
    to_ddl,
)
from penstock.spark.tables.definition.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "INTEGER": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(10, 0),
    "decimal(5)": pa.decimal128(5, 0),
    "dec(5,2)": pa.decimal128(5, 2),
    "numeric(38, 38)": pa.decimal128(38, 38),
    "string": pa.string(),
    "varchar(10)": pa.string(),
    "char(3)": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "array<string>": pa.list_(pa.string()),
    "map<string, int>": pa.map_(pa.string(), pa.int32()),
    "struct<a: int, b string>": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "array<struct<a:array<map<string,decimal(4,1)>>>>": pa.list_(
        pa.struct([("a", pa.list_(pa.map_(pa.string(), pa.decimal128(4, 1))))])
    ),
}


@pytest.mark.parametrize("text", TYPES)
def test_types(text: str) -> None:
    schema = parse_ddl(f"a {text}")
    assert schema == pa.schema([("a", TYPES[text])])
    assert parse_ddl(to_ddl(schema)) == schema


def test_names_comments_and_what_is_required() -> None:
    schema = parse_ddl(
        "`a b` bigint NOT NULL COMMENT 'it''s', `x``y`: string comment \"two\", `3d` double,"
        " _s struct<`in ner`: int not null>"
    )
    assert schema.names == ["a b", "x`y", "3d", "_s"]
    assert [field.nullable for field in schema] == [False, True, True, True]
    assert not schema.field("_s").type.field(0).nullable
    assert parse_ddl(to_ddl(schema)) == schema


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the end is at character 1"),
        ("id", "where a type is expected"),
        ("id bigint,", "where a column is expected"),
        ("id bigint amount double", "where a comma is expected"),
        ("id bigit", "'bigit' is at character 4"),
        ("id interval", "'interval'"),
        ("id decimal(39)", "there is no decimal(39,0), at character 4"),
        ("id decimal(3,4)", "there is no decimal(3,4)"),
        ("id varchar", "'(' is expected"),
        ("id varchar(0)", "there is no varchar(0)"),
        ("id array<int", "where '>' is expected"),
        ("id array", "where '<' is expected"),
        ("id map<string>", "where ',' is expected"),
        ("id struct<>", "empty struct"),
        ("id struct<a int b int>", "end of the list"),
        ("id int not nul", "where NULL is expected"),
        ("id int comment x", "in quotes"),
        ("id int, ID string", "twice"),
        ("s struct<a int, A int>", "twice"),
        ("id = int", "cannot be read"),
        ("3d int", "the name of a column"),
        ("id int;", "cannot be read"),
        ("id `int`", "where a type"),
        (">", "the name of a column"),
        ("a " + "array<" * (NESTING_MAX + 1), "nested deeper"),
        (",".join(f"c{n} int" for n in range(COLUMNS_MAX + 1)), "more than"),
        ("a" * (CHARACTERS_MAX + 1), "characters"),
    ],
)
def test_what_is_wrong_is_shown(text: str, problem: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_ddl(text)
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_a_type_that_no_table_has_is_named() -> None:
    with pytest.raises(SchemaError, match="time32"):
        to_ddl(pa.schema([("a", pa.time32("s"))]))


@pytest.mark.spark
def test_spark_reads_the_same(spark: SparkSession) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    def theirs(text: str) -> str:
        found = cast("StructType", StructType.fromDDL(text))
        arrow = to_arrow_schema(
            found, timezone="UTC", error_on_duplicated_field_names_in_struct=True
        )
        return to_ddl(pa.schema(list(arrow)))

    # Spark reads lengths of texts too, but has no way to Arrow for them.
    assert len(cast("StructType", StructType.fromDDL("a varchar(10), b char(3)"))) == 2
    kinds = [text for text in TYPES if not text.startswith(("varchar", "char"))]
    columns = ", ".join(f"c{number} {text}" for number, text in enumerate(kinds))
    text = f"{columns}, `a b` bigint NOT NULL COMMENT 'it''s', `3d` double"
    ours = parse_ddl(text)
    assert theirs(text) == theirs(to_ddl(ours)) == to_ddl(ours)
