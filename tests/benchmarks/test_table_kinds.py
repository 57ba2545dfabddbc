"""The values of the benchmark by format: each decoder reads the same fields from each of them."""

import io
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from benchmarks.table_events import event
from benchmarks.table_kinds import (
    AVRO_SCHEMA,
    FRAME_BYTES,
    KINDS,
    PROTOBUF_FILE,
    PROTOBUF_MESSAGE,
    value_section,
)
from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.protobuf.values import protobuf_file_values

COUNT = 50
EXPECTED = [json.loads(event(number)) for number in range(COUNT)]


@pytest.mark.parametrize("name", ["json", "json-lz4", "nested"])
def test_json_values_have_the_columns_of_their_schema(name: str) -> None:
    kind = KINDS[name]
    values = kind.values(COUNT)
    parsed = JsonValues(parse_ddl(kind.schema)).parse(pa.array(values, pa.binary()))
    assert parsed.rows.to_pylist() == [json.loads(value) for value in values]


def test_avro_values_have_a_frame_and_the_fields_of_the_events() -> None:
    schema = fastavro.parse_schema(json.loads(AVRO_SCHEMA))
    found = [
        fastavro.schemaless_reader(io.BytesIO(value[FRAME_BYTES:]), schema, None)
        for value in KINDS["avro"].values(COUNT)
    ]
    assert found == EXPECTED


def test_protobuf_values_have_the_fields_of_the_events() -> None:
    values = pa.array(KINDS["protobuf"].values(COUNT), pa.binary())
    parser = protobuf_file_values(
        {"event.proto": PROTOBUF_FILE}, "event.proto", PROTOBUF_MESSAGE, "event.proto"
    )
    assert parser.parse(values).rows.to_pylist() == EXPECTED


def test_a_definition_names_the_schema_of_its_format(tmp_path: Path) -> None:
    assert 'schema = "http://here"' in value_section("avro", tmp_path, "http://here")
    assert PROTOBUF_MESSAGE in value_section("protobuf", tmp_path, "")
    assert (tmp_path / "event.proto").read_text() == PROTOBUF_FILE
    assert KINDS["nested"].schema in value_section("nested", tmp_path, "")
