"""The parser of a definition: planned on the driver, created in a task from a plain value."""

import io
import json
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import parse_ddl, to_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import SchemaSource, ValueFormat, ValueSettings
from penstock.spark.tables.values.parser import ValueParser
from penstock.spark.tables.values.value_parsers import FILE_BYTES_MAX, new_parser, plan_parser
from tests.spark.tables.registry_stub import RegistryStub, registry_stub

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
JSON_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


def parser(value: ValueSettings, pinned: pa.Schema | None = None) -> ValueParser:
    plan = plan_parser(value, ("orders",), pinned)
    assert pickle.loads(pickle.dumps(plan)) == plan
    return new_parser(plan)


def framed(schema_id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + body


def test_schemas_in_the_definition_and_inferred_ones() -> None:
    assert parser(ValueSettings()).schema.names == ["value"]
    ddl = ValueSettings(ValueFormat.JSON, SchemaSource.DDL, "id bigint")
    assert to_ddl(parser(ddl).schema) == "id bigint"
    inferred = ValueSettings(ValueFormat.JSON, SchemaSource.INFERRED)
    assert to_ddl(parser(inferred, parse_ddl("a array<int>")).schema) == "a array<int>"


def test_schemas_of_files(tmp_path: Path) -> None:
    contents = {
        ValueFormat.JSON: ("order.json", json.dumps(JSON_SCHEMA), "id bigint"),
        ValueFormat.AVRO: ("order.avsc", json.dumps(AVRO), "id int NOT NULL"),
        ValueFormat.PROTOBUF: (
            "order.proto",
            'syntax = "proto3"; message Order { int64 id = 1; }',
            "id bigint",
        ),
    }
    for format_, (name, text, columns) in contents.items():
        path = tmp_path / name
        path.write_text(text)
        found = parser(ValueSettings(format_, SchemaSource.FILE, str(path)))
        assert to_ddl(found.schema) == columns


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), (b"\xff", "cannot be read"), (b" " * (FILE_BYTES_MAX + 1), "more")],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "order.avsc"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SchemaError, match=problem):
        parser(ValueSettings(ValueFormat.AVRO, SchemaSource.FILE, str(path)))


def test_a_registry_gives_the_columns_and_the_schemas(stub: RegistryStub) -> None:
    answer = {"id": 3, "schema": json.dumps(AVRO)}
    stub.answer("/subjects/orders-value/versions/latest", (200, answer))
    stub.answer("/schemas/ids/3", (200, answer))
    found = parser(ValueSettings(ValueFormat.AVRO, SchemaSource.REGISTRY, stub.address))
    assert to_ddl(found.schema) == "id int NOT NULL"
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), {"id": 5})
    parsed = found.parse(pa.array([framed(3, stream.getvalue())], pa.binary()))
    assert parsed.rows.to_pylist() == [{"id": 5}]


def test_framed_json(stub: RegistryStub) -> None:
    answer = {"id": 3, "schema": json.dumps(JSON_SCHEMA), "schemaType": "JSON"}
    stub.answer("/subjects/mine/versions/latest", (200, answer))
    stub.answer("/schemas/ids/3", (200, answer))
    found = parser(
        ValueSettings(ValueFormat.JSON, SchemaSource.REGISTRY, stub.address, subject="mine")
    )
    values = [framed(3, b'{"id":1}'), b'{"id":2}', framed(3, b'{"id":"x"}'), framed(3, b'{"id":4}')]
    parsed = found.parse(pa.array(values, pa.binary()))
    assert parsed.rows.to_pylist() == [{"id": 1}, {"id": 4}]
    assert [(one.row, one.schema_id) for one in parsed.rejects] == [(1, None), (2, 3)]


def test_a_subject_that_is_not_there_is_named(stub: RegistryStub) -> None:
    with pytest.raises(SchemaError, match="'orders-value'"):
        parser(ValueSettings(ValueFormat.AVRO, SchemaSource.REGISTRY, stub.address))
    without_topics = plan_parser(
        ValueSettings(ValueFormat.AVRO, SchemaSource.REGISTRY, stub.address), ()
    )
    assert without_topics.base is None
