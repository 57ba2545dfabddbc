"""JSON Schema to columns: schemas that a table can hold, and others, rejected with the place."""

import json

import pytest

from penstock.spark.tables.definition.ddl import to_ddl
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.json.schema import parse_json_schema


def columns(**properties: object) -> str:
    return to_ddl(parse_json_schema(json.dumps({"properties": properties}), "orders.json"))


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["string", "integer"]}, "string"),
        ({"type": "null"}, "string"),
        ({}, "string"),
        (True, "string"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string, bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"enum": [1, 2]}, "bigint"),
        ({"const": True}, "boolean"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "string"),
        ({"properties": {"a": {"type": "integer"}}}, "struct<a: bigint>"),
        (
            {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}]},
            "struct<a: bigint NOT NULL>",
        ),
    ],
)
def test_types(schema: object, kind: str) -> None:
    assert columns(c=schema) == f"c {kind}"


def test_what_is_required_and_not_null_is_required() -> None:
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": ["integer", "null"]},
            "c": {"type": "integer"},
        },
    }
    parsed = parse_json_schema(json.dumps(schema), "orders.json")
    assert to_ddl(parsed) == "a bigint NOT NULL, b bigint, c bigint"


def test_what_is_no_name_is_not_required() -> None:
    schema = {"properties": {"a": {"type": "integer"}}, "required": [{}, [], 1, "a"]}
    assert to_ddl(parse_json_schema(json.dumps(schema), "orders.json")) == "a bigint NOT NULL"


def test_references_inside_the_document_are_followed() -> None:
    schema = {
        "$ref": "#/$defs/order",
        "$defs": {
            "order": {"properties": {"at": {"$ref": "#/$defs/a~1b"}}},
            "a/b": {"type": "string", "format": "date"},
        },
    }
    assert to_ddl(parse_json_schema(json.dumps(schema), "orders.json")) == "at date"


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ("{", "not JSON"),
        ('{"type": "array"}', "an object"),
        ('{"type": "strnig"}', "no type"),
        ("3", "no schema"),
        ('{"$ref": "other.json"}', "another document"),
        ('{"$ref": "#/no"}', "not there"),
        ('{"$ref": "#"}', "nowhere"),
        ('{"properties": {"a": {"$ref": "#"}}}', "refers to itself"),
        ('{"properties": {"a": {}, "A": {}}}', "twice"),
        ('{"properties": {"": {}}}', "without a name"),
        (json.dumps({"properties": {f"c{n}": {} for n in range(2001)}}), "more than"),
        ('{"properties": {"a": {"type": 5}}}', "no type '5'"),
        ('{"properties": {"a": {"type": {}}}}', "no type"),
        ("[" * 100_000, "not JSON"),
        (" " * 4_194_305, "characters"),
    ],
)
def test_what_is_wrong_is_shown(schema: str, problem: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_json_schema(schema, "orders.json")
    assert problem in caught.value.problem
    assert caught.value.what == "orders.json"
