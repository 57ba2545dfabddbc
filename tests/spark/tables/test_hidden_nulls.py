"""Required fields below a null struct: tables of others have them, and Arrow's writer refuses them.

A struct column that a pipeline does not fill is null in all its rows, and an upsert or a compaction
writes rows of others again.
"""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from penstock.spark.tables.formats.opening import open_table
from penstock.spark.tables.values.nested_arrays import for_parquet
from tests.spark.tables.foreign_delta import append_entry, column, create_foreign, protocol_of
from tests.spark.tables.foreign_world import ForeignWorld

INNER = pa.struct(
    [
        pa.field("x", pa.int64(), nullable=False),
        pa.field("s", pa.string(), nullable=False),
        pa.field("b", pa.bool_(), nullable=False),
        pa.field("in", pa.struct([pa.field("y", pa.float64(), nullable=False)]), nullable=False),
        pa.field("o", pa.string()),
    ]
)
GOOD = {"x": 1, "s": "a", "b": True, "in": {"y": 0.5}, "o": None}
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "struct": (INNER, [None, GOOD, None, GOOD]),
    "list": (pa.list_(INNER), [None, [GOOD, None], [], [None]]),
    "map": (pa.map_(pa.string(), INNER), [None, [("a", GOOD), ("b", None)], []]),
    "outer": (pa.struct([pa.field("i", INNER)]), [None, {"i": None}, {"i": GOOD}]),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("start", [0, 1])
def test_a_file_of_them_is_read_back_as_it_was(tmp_path: Path, name: str, start: int) -> None:
    kind, values = KINDS[name]
    array = pa.array(values, kind).slice(start)
    schema = pa.schema([pa.field("v", kind)])
    place = tmp_path / "one.parquet"
    pq.write_table(pa.table([for_parquet(array, kind)], schema), place)
    back = pq.read_table(place)["v"].combine_chunks()
    assert back.to_pylist() == values[start:]
    again = pa.table([for_parquet(back, back.type)], pq.read_schema(place))
    pq.write_table(again, tmp_path / "two.parquet")
    assert pq.read_table(tmp_path / "two.parquet")["v"].to_pylist() == values[start:]


@pytest.mark.parametrize("name", KINDS)
def test_a_column_that_is_not_filled(tmp_path: Path, name: str) -> None:
    kind, _ = KINDS[name]
    place = tmp_path / "one.parquet"
    array = for_parquet(pa.nulls(2, kind), kind)
    pq.write_table(pa.table([array], pa.schema([pa.field("v", kind)])), place)
    assert pq.read_table(place)["v"].to_pylist() == [None, None]


def test_a_null_that_is_missing_is_still_refused(tmp_path: Path) -> None:
    """Below a struct that is there it breaks the promise of the column."""
    kind = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    array = pa.StructArray.from_arrays([pa.array([1, None])], fields=list(kind))
    schema = pa.schema([pa.field("v", kind)])
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(pa.table([for_parquet(array, kind)], schema), tmp_path / "one.parquet")


PLAIN_TYPES = (
    BooleanType(),
    LongType(),
    DoubleType(),
    DecimalType(20, 3),
    DateType(),
    TimeType(),
    TimestampType(),
    TimestamptzType(),
    StringType(),
    BinaryType(),
    FixedType(5),
    UUIDType(),
)
PLAIN_VALUES = (
    True,
    7,
    0.5,
    Decimal("12.345"),
    date(2026, 1, 1),
    time(10, 20, 30),
    datetime(2026, 1, 1, 1),  # noqa: DTZ001 - a column without a zone
    datetime(2026, 1, 1, 1, tzinfo=UTC),
    "text",
    b"bytes",
    b"fixed",
    UUID(int=7).bytes,
)
STRUCT = StructType(
    # Arrow cannot build a UUID within a struct from Python.
    *(NestedField(20 + n, f"f{n}", one, required=True) for n, one in enumerate(PLAIN_TYPES[:-1]))
)
WIDE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "amount", DoubleType(), required=False),
    NestedField(3, "s", STRUCT, required=False),
    NestedField(4, "l", ListType(5, STRUCT, element_required=False), required=False),
    NestedField(6, "m", MapType(7, StringType(), 8, STRUCT, value_required=False), required=False),
    *(NestedField(100 + n, f"t{n}", one, required=False) for n, one in enumerate(PLAIN_TYPES)),
)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_an_iceberg_table_with_such_columns(tmp_path: Path, mode: str) -> None:
    """Every plain type, in columns that a pipeline does not fill, of rows that it writes again."""
    world = ForeignWorld(tmp_path, mode=mode, format="iceberg")
    with load_catalog("default", **dict(world.definition.table.catalog)) as catalog:
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.orders", WIDE)
        schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        plain = {f"f{n}": one for n, one in enumerate(PLAIN_VALUES[:-1])}
        flat = {f"t{n}": one for n, one in enumerate(PLAIN_VALUES)}
        nested = {"s": plain, "l": [plain], "m": [("k", plain)]}
        for n in (1, 2):
            row = {"id": n, "amount": 1.0, **nested, **flat}
            table.append(pa.Table.from_pylist([row], schema=schema))
        before = table.scan("id == 1").to_arrow().to_pylist()
    pipeline = world.start()
    pipeline.commit({"id": 2, "amount": 20.0}, {"id": 3, "amount": 3.0})
    settings = world.definition.table
    opened = open_table(settings, settings.name)
    opened.compact(opened.load(), target_bytes=2**20)
    pipeline.commit({"id": 1, "amount": 10.0} if mode == "append" else {"id": 4})
    opened.load()
    assert len(opened.live_files()) <= 3
    with load_catalog("default", **dict(settings.catalog)) as catalog:
        found = catalog.load_table("shop.orders").scan("id == 1").to_arrow().to_pylist()
    kept = [{name: one[name] for name in before[0]} for one in found if one["t0"] is not None]
    assert kept == before


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_delta_table_with_such_columns(tmp_path: Path, mode: str) -> None:
    world = ForeignWorld(tmp_path, mode=mode)
    inner = {"type": "struct", "fields": [column("x", nullable=False), column("o", "string")]}
    fields = [column("id"), column("amount", "double"), column("s") | {"type": inner}]
    create_foreign(world.table, protocol_of("invariants"), fields=fields)
    kind = pa.struct([pa.field("x", pa.int64(), nullable=False), pa.field("o", pa.string())])
    rows = pa.table(
        {"id": [1, 2], "amount": [1.0, 2.0], "s": pa.array([{"x": 7, "o": None}, None], kind)}
    )
    nullable = pa.struct([pa.field("x", pa.int64()), pa.field("o", pa.string())])
    pq.write_table(rows.set_column(2, "s", rows["s"].cast(nullable)), world.table / "one.parquet")
    size = (world.table / "one.parquet").stat().st_size
    add = {"path": "one.parquet", "partitionValues": {}, "size": size, "modificationTime": 1}
    append_entry(world.table, 1, {"add": {**add, "dataChange": True}})
    pipeline = world.start()
    pipeline.commit({"id": 2, "amount": 20.0}, {"id": 3, "amount": 3.0})
    settings = world.definition.table
    opened = open_table(settings, settings.name)
    opened.compact(opened.load(), target_bytes=2**20)
    pipeline.commit({"id": 4, "amount": 4.0})
    found = world.rows("id", "s")
    expected = [(1, {"x": 7, "o": None}), (2, None), (3, None), (4, None)]
    assert found == sorted([*expected, *([(2, None)] if mode == "append" else [])], key=repr)
    files = DeltaTable(world.table).file_uris()
    relation = duckdb.read_parquet(files, union_by_name=True)
    assert sorted(relation.select("id, s").fetchall(), key=repr) == found
