"""JSON values framed with an id of a registry: the JSON Schema of each id parses its values."""

from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.framing import HEADER_BYTES
from penstock.spark.tables.values.json.schema import parse_json_schema
from penstock.spark.tables.values.json.values import JsonValues
from penstock.spark.tables.values.parser import Parsed
from penstock.spark.tables.values.registered_values import (
    CompiledSchema,
    RegisteredValues,
    Schemas,
    TableColumns,
)
from penstock.spark.tables.values.registry import RegisteredSchema

KIND: Final = "JSON"
_END: Final = 2**31
"""Beyond every value. Without an end, Arrow 26 fails at an even number of values: it multiplies
that number by its own end, and the product overflows."""


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

    def read(values: pa.Array) -> Parsed:
        parsed = parser.parse(pc.binary_slice(values, HEADER_BYTES, _END))
        rejects = tuple(one._replace(schema_id=schema.schema_id) for one in parsed.rejects)
        return replace(parsed, rejects=rejects)

    return CompiledSchema(columns, read)
