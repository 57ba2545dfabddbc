"""Fields of JSON values that no column has: counted, rescued or rejected."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.ddl import parse_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.definition.model import UnknownFields, ValueFormat
from penstock.spark.tables.values.parser import ErrorClass
from penstock.spark.tables.values.unknown_fields import (
    LOOKED_AT_MAX,
    NAMES_MAX,
    OTHERS,
    UnknownFieldValues,
)
from penstock.spark.tables.values.value_parsers import ParserPlan, new_parser
from tests.spark.tables.value_world import ValueWorld

DDL = "id bigint, at struct<x: int>"


def parser_of(mode: UnknownFields, ddl: str = DDL) -> UnknownFieldValues:
    made = new_parser(ParserPlan(ValueFormat.JSON, ddl=ddl, unknown_fields=mode))
    assert isinstance(made, UnknownFieldValues)
    return made


def values(*found: object) -> pa.Array:
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in found]
    return pa.array([None if one == b"null" else one for one in texts], pa.binary())


def test_fields_without_a_column_are_counted_by_their_paths() -> None:
    """They vanished without a count, and a renamed field emptied its column silently."""
    parser = parser_of(UnknownFields.COUNT)
    parsed = parser.parse(
        values({"id": 1}, {"ID": 2}, {"id": 3, "at": {"x": 1, "y": 2}}, {"ID": 4, "z": 1}, b"bad")
    )
    assert (parsed.rows.num_rows, len(parsed.rejects)) == (4, 1)
    assert parser.counts == {"ID": 2, "at.y": 1, "z": 1}
    assert parser.looked_at == 4, "a reject has its whole value beside it"


def test_a_bounded_number_of_values_and_names_is_counted() -> None:
    parser = parser_of(UnknownFields.COUNT)
    parser.parse(values(*({"id": 1, f"key{n}": 1} for n in range(LOOKED_AT_MAX + 10))))
    assert parser.looked_at == LOOKED_AT_MAX
    assert len(parser.counts) == NAMES_MAX + 1
    assert parser.counts[OTHERS] == LOOKED_AT_MAX - NAMES_MAX


def test_they_are_kept_in_a_column() -> None:
    parser = parser_of(UnknownFields.RESCUE)
    assert parser.schema == parse_ddl(f"{DDL}, _rescued_data string")
    rows = parser.parse(
        values(
            {"id": 1},
            b'{"id": 2, "n": 1.5, "t": ["a", null], "at": {"y": {"z": 1}}}',
            b"null",
        )
    ).rows
    assert rows.schema == parser.schema
    assert rows["_rescued_data"].to_pylist() == [
        None,
        '{"n":1.5,"t":["a",null],"at.y":{"z":1}}',
        None,
    ]


def test_a_record_with_one_is_a_reject_in_strict_mode() -> None:
    parser = parser_of(UnknownFields.REJECT)
    parsed = parser.parse(values({"id": 1}, b"bad", {"id": 2, "at": {"y": 1}}, {"id": 3}))
    assert parsed.rows["id"].to_pylist() == [1, 3]
    assert [one.row for one in parsed.rejects] == [1, 2]
    assert parsed.rejects[1].error is ErrorClass.INCOMPATIBLE_SCHEMA
    assert "'at.y'" in parsed.rejects[1].message


def test_a_column_cannot_have_the_name_of_the_rescued_ones() -> None:
    with pytest.raises(SchemaError, match="_rescued_data"):
        parser_of(UnknownFields.RESCUE, "_rescued_data string")
    assert parser_of(UnknownFields.COUNT, "_rescued_data string").schema.names == ["_rescued_data"]


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_the_note_of_a_commit_counts_them(tmp_path: Path, format_: str) -> None:
    world = ValueWorld(tmp_path, format_, "id bigint", value={"unknown_fields": "rescue"})
    world.commit([{"id": 1, "new": "a"}, {"id": 2, "new": "b"}, {"id": 3}])
    assert world.held("id", "_rescued_data") == [(1, '{"new":"a"}'), (2, '{"new":"b"}'), (3, None)]
    counts = world.rows.open().load().notes["orders"].counts
    assert (counts.unknown_fields, counts.looked_at) == ({"new": 2}, 3)
    world.commit([{"id": 4}])
    counts = world.rows.open().load().notes["orders"].counts
    assert (counts.unknown_fields, counts.looked_at) == ({}, 0)
