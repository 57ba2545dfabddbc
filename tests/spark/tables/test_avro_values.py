"""Avro values: types, framing, schemas that grow, and bad records that cost only themselves."""

import datetime
import io
import json
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import to_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.avro.schema import avro_columns
from penstock.spark.tables.values.avro.values import avro_file_values, avro_registry_values
from penstock.spark.tables.values.parser import ErrorClass
from penstock.spark.tables.values.registry import RegisteredSchema, UnknownSchemaError


def record(*fields: tuple[str, object]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


def encoded(schema: dict[str, Any], value: object, schema_id: int | None = None) -> bytes:
    stream = io.BytesIO()
    if schema_id is not None:
        stream.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


class Shelf:
    """Schemas by id, without a network."""

    def __init__(self, *schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self.asked: list[int] = []

    def by_id(self, schema_id: int) -> RegisteredSchema:
        self.asked.append(schema_id)
        if not 0 < schema_id <= len(self._schemas):
            raise UnknownSchemaError(f"no schema of id {schema_id}.")
        text = json.dumps(self._schemas[schema_id - 1])
        return RegisteredSchema(schema_id, "AVRO", text)


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("boolean", "boolean NOT NULL"),
        ("int", "int NOT NULL"),
        ("long", "bigint NOT NULL"),
        ("float", "float NOT NULL"),
        ("double", "double NOT NULL"),
        ("bytes", "binary NOT NULL"),
        ("string", "string NOT NULL"),
        ({"type": "string"}, "string NOT NULL"),
        (["null", "string"], "string"),
        (["int", "null"], "int"),
        (["int", "long"], "bigint NOT NULL"),
        (["null", "double", "float"], "double"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string NOT NULL"),
        ({"type": "fixed", "name": "F", "size": 4}, "binary NOT NULL"),
        ({"type": "array", "items": "int"}, "array<int> NOT NULL"),
        ({"type": "array", "items": ["null", "int"]}, "array<int> NOT NULL"),
        ({"type": "map", "values": "int"}, "map<string, int> NOT NULL"),
        ({"type": "int", "logicalType": "date"}, "date NOT NULL"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp NOT NULL"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp NOT NULL"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp_ntz NOT NULL"),
        ({"type": "int", "logicalType": "time-millis"}, "int NOT NULL"),
        ({"type": "string", "logicalType": "uuid"}, "string NOT NULL"),
        ({"type": "long", "logicalType": "unheard-of"}, "bigint NOT NULL"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "decimal(9,2) NOT NULL",
        ),
        (
            {"type": "record", "name": "I", "fields": [{"name": "a", "type": ["null", "int"]}]},
            "struct<a: int> NOT NULL",
        ),
    ],
)
def test_types(kind: object, column: str) -> None:
    assert to_ddl(avro_columns(record(("x", kind)), "orders.avsc")) == f"x {column}"


def test_a_name_stands_for_its_type() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": "int"}]}
    columns = avro_columns(record(("x", inner), ("y", "Inner"), ("z", ["null", "shop.Inner"])), "w")
    assert to_ddl(columns).endswith("z struct<a: int NOT NULL>")


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("string", "a record"),
        (record(("x", ["int", "string"])), "union"),
        (record(("x", "Nowhere")), "no type"),
        (record(("x", "Order")), "contains itself"),
        (record(("x", 3)), "no type"),
        (record(("x", {"type": "array", "items": "null"})), "a list of nothing"),
        (record(("x", {"type": "fixed", "name": "F", "size": 0})), "a fixed type has 1 to"),
        (record(("x", "int"), ("X", "int")), "twice"),
        (record(), "without fields"),
        (record(*((f"c{n}", "int") for n in range(2001))), "more than"),
        (record(("x", {"type": "bytes", "logicalType": "decimal", "precision": 39})), "1 to 38"),
    ],
)
def test_what_no_table_can_hold(schema: object, problem: str) -> None:
    with pytest.raises(SchemaError, match=problem):
        avro_columns(schema, "orders.avsc")


def test_a_file_that_is_no_schema() -> None:
    no_symbols = {"type": "enum", "name": "E"}
    for text in ("{", "3", json.dumps(record(("a", no_symbols)))):
        with pytest.raises(SchemaError, match=r"orders\.avsc"):
            avro_file_values(text, "orders.avsc")


def test_bare_values_of_a_file() -> None:
    time = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    schema = record(
        ("id", "long"),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("day", ["null", {"type": "int", "logicalType": "date"}]),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("tags", {"type": "map", "values": {"type": "array", "items": "string"}}),
        ("key", {"type": "string", "logicalType": "uuid"}),
        ("clock", {"type": "int", "logicalType": "time-millis"}),
    )
    plain = json.loads(json.dumps(schema).replace('"logicalType": "uuid"', '"doc": ""'))
    plain = json.loads(json.dumps(plain).replace('"logicalType": "time-millis"', '"doc": ""'))
    row = {
        "id": 1,
        "at": time,
        "day": None,
        "price": Decimal("1.50"),
        "tags": {"a": ["x"]},
        "key": "no uuid",
        "clock": 5,
    }
    parser = avro_file_values(json.dumps(schema), "orders.avsc")
    good = encoded(plain, row)
    parsed = parser.parse(pa.array([good, good[:-3], good + b"x", b"", None, good], pa.binary()))
    assert parsed.rows.to_pylist() == [{**row, "tags": [("a", ["x"])]}] * 2
    assert parsed.rows.schema == parser.schema
    assert parsed.row_numbers is not None
    assert parsed.row_numbers.to_pylist() == [0, 5]
    assert [(one.row, one.error) for one in parsed.rejects] == [
        (1, ErrorClass.MALFORMED),
        (2, ErrorClass.MALFORMED),
        (3, ErrorClass.MALFORMED),
        (4, ErrorClass.MISSING_VALUE),
    ]
    assert "1 bytes follow" in parsed.rejects[1].message


def test_a_value_that_its_column_cannot_hold_costs_only_itself() -> None:
    schema = record(
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    )
    wide = json.loads(json.dumps(schema).replace('"precision": 4', '"precision": 30'))
    values = [encoded(wide, {"price": Decimal(text)}) for text in ("1.00", "12345678.00", "2.00")]
    parsed = avro_file_values(json.dumps(schema), "w").parse(pa.array(values, pa.binary()))
    assert [str(one["price"]) for one in parsed.rows.to_pylist()] == ["1.00", "2.00"]
    assert [(one.row, one.error) for one in parsed.rejects] == [(1, ErrorClass.TYPE_MISMATCH)]


def test_schemas_grow_within_one_batch() -> None:
    first = record(("id", "int"))
    second = record(("id", "long"), ("name", ["null", "string"]))
    shelf = Shelf(first, second)
    parser = avro_registry_values(shelf)
    values = [
        encoded(first, {"id": 1}, 1),
        encoded(second, {"id": 2**40, "name": "x"}, 2),
        encoded(first, {"id": 3}, 1),
    ]
    parsed = parser.parse(pa.array(values, pa.binary()))
    assert to_ddl(parsed.rows.schema) == "id bigint NOT NULL, name string"
    assert parsed.rows.to_pylist() == [
        {"id": 1, "name": None},
        {"id": 2**40, "name": "x"},
        {"id": 3, "name": None},
    ]
    assert parsed.row_numbers is None
    parser.parse(pa.array(values, pa.binary()))
    assert shelf.asked == [1, 2]


def test_schemas_that_do_not_fit_are_rejects() -> None:
    shelf = Shelf(record(("id", "int")), record(("id", "string")), record(("x", ["int", "string"])))
    parser = avro_registry_values(shelf, shelf.by_id(1))
    assert to_ddl(parser.schema) == "id int NOT NULL"
    values = [
        encoded(record(("id", "string")), {"id": "x"}, 2),
        encoded(record(("id", "int")), {"id": 5}, 1),
        b"\x00\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x00\x09abc",
        b"{}",
        b"",
        encoded(record(("id", "int")), {"id": 6}, 1)[:-1],
    ]
    parsed = parser.parse(pa.array(values, pa.binary()))
    assert parsed.rows.to_pylist() == [{"id": 5}]
    assert [(one.row, one.error, one.schema_id) for one in parsed.rejects] == [
        (0, ErrorClass.INCOMPATIBLE_SCHEMA, 2),
        (2, ErrorClass.INCOMPATIBLE_SCHEMA, 3),
        (3, ErrorClass.UNKNOWN_SCHEMA, 9),
        (4, ErrorClass.MALFORMED, None),
        (5, ErrorClass.MALFORMED, None),
        (6, ErrorClass.MALFORMED, 1),
    ]
    assert "neither holds the other" in parsed.rejects[0].message


def test_types_of_other_schemas_are_found() -> None:
    inner = {"type": "record", "name": "shop.Inner", "fields": [{"name": "a", "type": "int"}]}
    outer = record(("x", "shop.Inner"))

    class References:
        def by_id(self, schema_id: int) -> RegisteredSchema:
            return RegisteredSchema(
                schema_id, "AVRO", json.dumps(outer), (("shop.Inner", json.dumps(inner)),)
            )

    whole = record(("x", inner))
    parsed = avro_registry_values(References()).parse(
        pa.array([encoded(whole, {"x": {"a": 1}}, 4)], pa.binary())
    )
    assert parsed.rows.to_pylist() == [{"x": {"a": 1}}]


def test_a_schema_of_another_kind_is_told() -> None:
    class Other:
        def by_id(self, schema_id: int) -> RegisteredSchema:
            return RegisteredSchema(schema_id, "PROTOBUF", "")

    parsed = avro_registry_values(Other()).parse(pa.array([b"\x00\x00\x00\x00\x01x"], pa.binary()))
    assert "PROTOBUF" in parsed.rejects[0].message
    assert parsed.rows.num_rows == 0


@pytest.mark.parametrize("size", [0, -3, True, "4", 2.0, None, 2**31, 2**70])
def test_a_fixed_type_has_a_size(size: object) -> None:
    decimal = {"logicalType": "decimal", "precision": 1, "scale": 0}
    for more in ({}, decimal):
        kind = {"type": "array", "items": {"type": "fixed", "name": "F", "size": size, **more}}
        with pytest.raises(SchemaError, match=r"field 'x\[\]': a fixed type has 1 to"):
            avro_file_values(json.dumps(record(("x", kind))), "s")


@pytest.mark.parametrize(
    "kind",
    [
        {"type": {"type": "long"}},
        {"type": {"type": {"type": "long"}}},
        {"type": ["null", "long"]},
        {"type": 5},
        {"items": "int"},
    ],
)
def test_a_type_around_a_type_is_a_schema_error(kind: object) -> None:
    """The library rejects it too, with a TypeError."""
    with pytest.raises(SchemaError, match="field 'x': its type is not a name"):
        avro_file_values(json.dumps(record(("x", kind))), "s")


def test_a_field_that_is_not_an_object_is_a_schema_error() -> None:
    with pytest.raises(SchemaError, match="one of its fields is not an object"):
        avro_file_values('{"type": "record", "name": "R", "fields": ["x"]}', "s")


def test_a_type_called_null_has_no_column() -> None:
    inner = {"type": "record", "name": "null", "fields": [{"name": "z", "type": "long"}]}
    schema = {**record(("x", inner), ("y", "null")), "namespace": ""}
    with pytest.raises(SchemaError, match="field 'y': it is null"):
        avro_file_values(json.dumps(schema), "s")
