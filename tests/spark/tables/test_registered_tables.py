"""Schemas of a registry against tables, batch by batch: no schema stops the pipeline.

A value that the table cannot hold is a reject whose message names the column, and a restart
continues too.
"""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values import registered_values
from tests.spark.tables.registry_world import PARTITIONS, RegistryWorld, Shelf, on_shelf

pytestmark = pytest.mark.slow

NUMBER = {"type": "integer"}
TEXT = {"type": "string"}
TIME = {"type": "string", "format": "date-time"}
FORMATS = pytest.mark.parametrize("format_", ["delta", "iceberg"])


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    shelf = Shelf("JSON")
    with on_shelf(shelf):
        yield shelf


def struct(**columns: object) -> dict[str, object]:
    return {"type": "object", "properties": columns}


def map_of(kind: object) -> dict[str, object]:
    return {"type": "object", "additionalProperties": kind}


def send(world: RegistryWorld, partition: int, schema_id: int, **value: object) -> None:
    world.send(partition, schema_id, json.dumps(value).encode())


def rows(world: RegistryWorld) -> list[dict[str, Any]]:
    found = world.world.rows().to_pylist()
    plain = [{name: one[name] for name in one if not name.startswith("_")} for one in found]
    return sorted(plain, key=lambda one: int(one["id"]))


def reasons(world: RegistryWorld) -> dict[tuple[int, int], str]:
    found = world.world.rejects().to_pylist()
    assert {one["error_class"] for one in found} <= {"incompatible_schema"}
    return {(one["partition"], one["offset"]): one["message"] for one in found}


@FORMATS
def test_of_clashing_new_columns_those_of_the_first_partition_count(
    tmp_path: Path, shelf: Shelf, format_: str
) -> None:
    base = shelf.register(struct(id=NUMBER))
    world = RegistryWorld(tmp_path, format_, shelf)
    number = shelf.register(struct(id=NUMBER, x=NUMBER))
    text = shelf.register(struct(id=NUMBER, x=TEXT, y=TEXT))
    upper = shelf.register(struct(id=NUMBER, X=NUMBER))
    send(world, 2, upper, id=3, X=1)
    send(world, 1, text, id=2, x="a", y="b")
    send(world, 0, base, id=0)
    send(world, 0, number, id=1, x=1)
    world.batch()
    world.start()
    send(world, 1, number, id=4, x=4)
    world.batch()
    assert rows(world) == [{"id": 0, "x": None}, {"id": 1, "x": 1}, {"id": 4, "x": 4}]
    told = reasons(world)
    assert set(told) == {(1, 0), (2, 0)}
    assert "column 'x' is bigint in the table and string in the rows" in told[1, 0]
    assert "column 'X' differs from column 'x' only in its case" in told[2, 0]


@FORMATS
def test_numbers_of_two_widths_are_new_at_once(tmp_path: Path, format_: str) -> None:
    shelf = Shelf()
    schemas = [
        {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}, *more]}
        for more in ([], [{"name": "x", "type": "int"}], [{"name": "x", "type": "long"}])
    ]
    with on_shelf(shelf):
        shelf.register(schemas[0])
        world = RegistryWorld(tmp_path, format_, shelf)
        for partition, schema in enumerate(schemas[1:]):
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, schema, {"id": partition, "x": 5})
            world.send(partition, shelf.register(schema), stream.getvalue())
        world.batch()
        if format_ == "delta":
            assert [one["x"] for one in rows(world)] == [5]
            assert "columns of a Delta table are not widened" in reasons(world)[1, 0]
        else:
            assert [one["x"] for one in rows(world)] == [5, 5]
            assert not reasons(world)


@FORMATS
@pytest.mark.parametrize("mode", [{}, {"mode": "upsert", "key": ["id"]}])
def test_fields_are_added_inside_of_columns(
    tmp_path: Path, shelf: Shelf, format_: str, mode: dict[str, Any]
) -> None:
    def schema(inner: dict[str, object]) -> dict[str, object]:
        return struct(
            id=NUMBER, s=struct(t=inner), lists={"type": "array", "items": inner}, m=map_of(NUMBER)
        )

    first, second = struct(a=NUMBER), struct(a=NUMBER, b=TEXT)
    old = shelf.register(schema(first))
    world = RegistryWorld(tmp_path, format_, shelf, mode)
    for number in (1, 2):
        send(world, 0, old, id=number, s={"t": {"a": 1}}, lists=[{"a": 2}], m={"k": 1})
    world.batch()
    value: dict[str, Any] = {"s": {"t": {"a": 3, "b": "x"}}, "lists": [{"a": 4, "b": "y"}]}
    new = shelf.register(schema(second))
    send(world, 0, new, id=2 if mode else 3, **value)
    world.batch()
    world.rows.compact(target_bytes=10**9, partitions=[()])
    found = {one["id"]: one for one in rows(world)}
    assert sorted(found) == ([1, 2] if mode else [1, 2, 3])
    assert found[1]["s"] == {"t": {"a": 1, "b": None}}
    assert found[1]["lists"] == [{"a": 2, "b": None}]
    last = found[max(found)]
    assert {name: last[name] for name in value} == value
    assert not reasons(world)


@FORMATS
def test_fields_inside_of_a_map_are_added_where_they_can_be_read(
    tmp_path: Path, shelf: Shelf, format_: str
) -> None:
    old = shelf.register(struct(id=NUMBER, m=map_of(struct(a=NUMBER))))
    world = RegistryWorld(tmp_path, format_, shelf)
    new = shelf.register(struct(id=NUMBER, m=map_of(struct(a=NUMBER, b=TEXT))))
    send(world, 0, old, id=1, m={"k": {"a": 1}})
    world.batch()
    send(world, 0, new, id=2, m={"k": {"a": 1, "b": "x"}})
    world.batch()
    world.rows.compact(target_bytes=10**9, partitions=[()])
    if format_ == "delta":
        assert [one["id"] for one in rows(world)] == [1]
        assert "column 'm.value.b' is not in the table" in reasons(world)[0, 1]
    else:
        assert rows(world)[1]["m"] == [("k", {"a": 1, "b": "x"})]


@FORMATS
@pytest.mark.parametrize("is_new", [True, False])
def test_local_times_in_a_map(tmp_path: Path, format_: str, *, is_new: bool) -> None:
    """`deltalake` alone makes of this a table that nobody can open."""
    base: dict[str, Any] = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "int"}],
    }
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    more = {"name": "m", "type": {"type": "map", "values": local}}
    schema = {**base, "fields": [*base["fields"], more]}
    stream = io.BytesIO()
    moment = fastavro.schemaless_reader(io.BytesIO(b"\x0e"), local, None)  # 7 microseconds
    fastavro.schemaless_writer(stream, schema, {"id": 1, "m": {"k": moment}})
    shelf = Shelf()
    with on_shelf(shelf):
        shelf.register(schema if is_new else base)
        world = RegistryWorld(tmp_path, format_, shelf)
        world.send(0, shelf.register(schema), stream.getvalue())
        world.batch()
        world.start()
        assert rows(world) == [{"id": 1, "m": [("k", moment)]}]


@FORMATS
@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("_kafka", {}),
        ("_KAFKA_key", {"metadata": "none"}),
        ("_partition", {}),
        ("_value", {}),
        ("_change_offset", {}),
        ("_change_offset", {"mode": "upsert", "key": ["id"]}),
        ("_Change_Deleted", {"mode": "upsert", "key": ["id"]}),
        ("ts_month", {"partition_by": ["month(ts)"]}),
        ("TS_DAY", {"partition_by": ["day(ts)"]}),
        ("ts_hour", {"partition_by": ["hour(ts)"], "mode": "upsert", "key": ["id"]}),
    ],
)
def test_names_that_rows_need_themselves(
    tmp_path: Path, shelf: Shelf, format_: str, name: str, table: dict[str, Any]
) -> None:
    base = shelf.register(struct(id=NUMBER, ts=TIME))
    world = RegistryWorld(tmp_path, format_, shelf, table)
    moment = "2026-01-01T00:00:00Z"
    new = shelf.register(struct(id=NUMBER, ts=TIME, **{name: TEXT}))
    for schema_id in (base, new):
        send(world, 0, schema_id, **{"id": 1, "ts": moment, name: "mine"})
    world.batch()
    world.start()
    send(world, 0, base, id=2, ts=moment)
    world.batch()
    assert [one["id"] for one in rows(world)] == [1, 2]
    assert reasons(world) == {
        (0, 1): f"schema {new}: column '{name}' has the name of a column that rows get themselves."
    }


@FORMATS
@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"id": NUMBER, "a\x00b": TEXT}, "has a zero in its name"),
        ({"id": NUMBER, "s": struct(**{"a\x00b": TEXT})}, "has a zero in its name"),
        ({"id": NUMBER, "\ud800": TEXT}, "it cannot be understood: UnicodeEncodeError"),
        ({"id": NUMBER, "s.a": TEXT}, "two columns have the path 's.a'"),
        ({"id": NUMBER, "m.value": TEXT}, "two columns have the path 'm.value'"),
        ({"id": {"type": 5}}, "there is no type '5'"),
    ],
    ids=["zero", "zero inside", "surrogate", "path", "path in a map", "nonsense"],
)
def test_schemas_that_no_table_can_have(
    tmp_path: Path, shelf: Shelf, format_: str, columns: dict[str, object], reason: str
) -> None:
    base = shelf.register(struct(id=NUMBER, s=struct(a=NUMBER), m=map_of(NUMBER)))
    world = RegistryWorld(tmp_path, format_, shelf)
    new = shelf.register(struct(**columns))
    send(world, 0, base, id=1)
    send(world, 0, new, id=2, **{"s.a": "x"})
    world.batch()
    world.start()
    if format_ == "delta" and "path" in reason:
        assert [one["id"] for one in rows(world)] == [1, 2], "to Delta these are two"
    else:
        assert [one["id"] for one in rows(world)] == [1]
        assert reason in reasons(world)[0, 1]


@FORMATS
def test_many_schemas_of_one_batch_are_one_growth(
    tmp_path: Path, shelf: Shelf, format_: str
) -> None:
    base = shelf.register(struct(id=NUMBER))
    world = RegistryWorld(tmp_path, format_, shelf)
    for number in range(60):
        schema_id = shelf.register(struct(id=NUMBER, **{f"c{number}": NUMBER}))
        send(world, number % PARTITIONS, schema_id, **{"id": number, f"c{number}": number})
        send(world, number % PARTITIONS, base, id=100 + number)
    world.batch()
    found = rows(world)
    assert len(found) == 120
    assert all(one[f"c{number}"] == number for number, one in enumerate(found[:60]))
    assert world.reads == 2 * PARTITIONS, "what all need is planned for at once"


def test_columns_without_end_are_rejects(
    tmp_path: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered_values, "COLUMNS_MAX", 20)
    shelf.register(struct(id=NUMBER))
    world = RegistryWorld(tmp_path, "delta", shelf)
    for number in range(2):
        many = {f"c{number}_{place}": NUMBER for place in range(15)}
        send(world, number, shelf.register(struct(id=NUMBER, **many)), id=number)
    world.batch()
    assert len(rows(world)) == 1
    assert "more than 20." in reasons(world)[1, 0]


@FORMATS
@pytest.mark.parametrize(
    "newest",
    [struct(id=TEXT), struct(ID=NUMBER), struct(id=NUMBER, _kafka_key=TEXT), {"type": "string"}],
    ids=["type", "case", "reserved", "no object"],
)
def test_a_newest_schema_that_does_not_fit_stops_no_start(
    tmp_path: Path, shelf: Shelf, format_: str, newest: object
) -> None:
    base = shelf.register(struct(id=NUMBER))
    world = RegistryWorld(tmp_path, format_, shelf)
    send(world, 0, base, id=1)
    world.batch()
    new = shelf.register(newest)
    world.start()
    send(world, 0, base, id=2)
    send(world, 0, new, id=3)
    world.batch()
    assert [one["id"] for one in rows(world)] == [1, 2]
    assert set(reasons(world)) == {(0, 2)}


@FORMATS
def test_a_newest_schema_that_no_table_can_have_is_told_at_the_first_start(
    tmp_path: Path, shelf: Shelf, format_: str
) -> None:
    shelf.register(struct(id=NUMBER, _change_x=TEXT))
    with pytest.raises(SchemaError, match="_change_x"):
        RegistryWorld(tmp_path, format_, shelf)


@FORMATS
def test_a_column_that_somebody_else_adds_meanwhile(
    tmp_path: Path, shelf: Shelf, format_: str
) -> None:
    base = shelf.register(struct(id=NUMBER))
    world = RegistryWorld(tmp_path, format_, shelf)
    add_text_column(world, "x")
    send(world, 0, base, id=1)
    world.batch()
    send(world, 0, shelf.register(struct(id=NUMBER, x=NUMBER)), id=2, x=1)
    send(world, 0, base, id=3)
    world.batch()
    assert rows(world) == [{"id": 1, "x": None}, {"id": 3, "x": None}]
    assert "column 'x' is string in the table" in reasons(world)[0, 1]


def add_text_column(world: RegistryWorld, name: str) -> None:
    if world.format == "delta":
        from deltalake import DeltaTable, Field
        from deltalake.schema import PrimitiveType

        table = DeltaTable(f"{world.folder}/warehouse/shop/orders")
        table.alter.add_columns(Field(name, PrimitiveType("string")))
        return
    from pyiceberg.catalog import load_catalog
    from pyiceberg.types import StringType

    with (
        load_catalog("default", **world.world.catalog) as catalog,
        catalog.load_table("shop.orders").update_schema() as update,
    ):
        update.add_column(name, StringType())
