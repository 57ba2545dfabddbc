"""JSON values framed with an id of a registry: the JSON Schema of each id parses its values."""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.framing import HEADER_BYTES
from penstock.spark.tables.values.json.schema import parse_json_schema
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.registered_values import (
    CompiledSchema,
    Group,
    Numbered,
    RegisteredValues,
    Schemas,
    TableColumns,
)
from penstock.spark.tables.values.registry import RegisteredSchema

KIND: Final = "JSON"


def json_registry_values(
    schemas: Schemas, base: RegisteredSchema | None = None, table: TableColumns | None = None
) -> RegisteredValues:
    """Return a parser of framed JSON values."""
    return RegisteredValues(schemas, compile_json, base, table)


def compile_json(schema: RegisteredSchema) -> CompiledSchema:
    """Return a schema of the registry, ready to parse framed values."""
    what = f"schema {schema.schema_id}"
    if schema.kind != KIND:
        raise SchemaError(what, f"it is of kind {schema.kind}.", "Set value.format to that kind.")
    columns = parse_json_schema(schema.text, what)
    parser = JsonValues(columns)

    def read(values: Sequence[Numbered]) -> Group:
        numbers = [number for number, _ in values]
        bodies = [value[HEADER_BYTES:] for _, value in values]
        parsed = parser.parse(pa.array(bodies, pa.binary()))
        if parsed.row_numbers is None:
            return parsed.rows, numbers, []
        return (
            parsed.rows,
            [numbers[place] for place in parsed.row_numbers.to_pylist()],
            [
                one._replace(row=numbers[one.row], schema_id=schema.schema_id)
                for one in parsed.rejects
            ],
        )

    return CompiledSchema(columns, read)
