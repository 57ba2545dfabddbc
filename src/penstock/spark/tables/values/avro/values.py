"""Avro values: with the schema of a file, or framed with an id of a registry.

Guarantees: those of the port. A value is read with the schema of its writer. Trailing bytes are a
reject: they show that the writer used another schema. fastavro is the reference; `avro.kernel`
gives the same rows faster, and leaves every uncertain value to it.
"""

import io
import struct
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.avro.program import avro_kernel
from penstock.spark.tables.values.avro.schema import Schema, avro_columns, load_avro
from penstock.spark.tables.values.columnar import row_kernel
from penstock.spark.tables.values.columnar.reading import KernelReading
from penstock.spark.tables.values.framing import HEADER_BYTES
from penstock.spark.tables.values.limits import OUTSIDE
from penstock.spark.tables.values.parser import ErrorClass, RowError
from penstock.spark.tables.values.registered_values import (
    CompiledSchema,
    OneSchemaValues,
    RegisteredValues,
    Schemas,
    TableColumns,
    one_by_one,
)
from penstock.spark.tables.values.registry import RegisteredSchema

KIND: Final = "AVRO"
_PLAIN_LOGICAL: Final = frozenset({"uuid", "time-millis", "time-micros", "duration"})
"""Logical types that are read as their stored type: no column type fits them."""
_UNREADABLE: Final = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
    struct.error,
)


def avro_file_values(text: str, what: str) -> OneSchemaValues:
    """Return a parser of bare Avro values; `text` is the JSON schema, `what` names it in errors."""
    return OneSchemaValues(_compiled(text, what, (), skip=0, schema_id=None))


def avro_registry_values(
    schemas: Schemas, base: RegisteredSchema | None = None, table: TableColumns | None = None
) -> RegisteredValues:
    """Return a parser of framed Avro values."""
    return RegisteredValues(schemas, compile_avro, base, table)


def compile_avro(schema: RegisteredSchema) -> CompiledSchema:
    """Return a schema of the registry, ready to parse framed values."""
    what = f"schema {schema.schema_id}"
    if schema.kind != KIND:
        raise SchemaError(what, f"it is of kind {schema.kind}.", "Set value.format to that kind.")
    return _compiled(
        schema.text, what, schema.references, skip=HEADER_BYTES, schema_id=schema.schema_id
    )


def _compiled(
    text: str,
    what: str,
    references: tuple[tuple[str, str], ...],
    *,
    skip: int,
    schema_id: int | None,
) -> CompiledSchema:
    document = load_avro(text, what)
    named = {name: load_avro(inner, f"{what}, {name}") for name, inner in references}
    columns = avro_columns(document, what, named)
    types: dict[str, Any] = {}
    try:
        for inner in named.values():
            fastavro.parse_schema(_without_logical(inner), named_schemas=types)
        parsed = fastavro.parse_schema(_without_logical(document), named_schemas=types)
    except (SchemaParseException, RecursionError, *_UNREADABLE) as error:
        raise SchemaError(what, f"it is no Avro schema: {error}.", "Correct it.") from None

    def read(value: bytes) -> object:
        stream = io.BytesIO(value)
        stream.seek(skip)
        try:
            row = fastavro.schemaless_reader(stream, parsed, None)
        except _UNREADABLE as error:
            if _is_of_time(error):
                raise RowError(
                    ErrorClass.TYPE_MISMATCH, f"the value holds a time or a date {OUTSIDE}: {error}"
                ) from None
            # fastavro names its stream, at another address each time.
            is_cut = isinstance(error, EOFError)
            reason = "it ends too early." if is_cut else f"{type(error).__name__} {error}"
            raise RowError(
                ErrorClass.MALFORMED, f"the value is not Avro of {what}: {reason}"
            ) from None
        if stream.tell() != len(value):
            raise RowError(
                ErrorClass.MALFORMED,
                f"{len(value) - stream.tell()} bytes follow the value, so that it was not written "
                f"with {what}.",
            )
        return row

    reference = one_by_one(read, columns, schema_id)
    kernel = avro_kernel(parsed, types, columns) if row_kernel.COMPILED else None
    if kernel is None:
        return CompiledSchema(columns, reference)
    return CompiledSchema(columns, KernelReading(*kernel, skip, reference))


def _is_of_time(error: BaseException) -> bool:
    """Return whether the error is about a time outside the range of Python's dates."""
    return isinstance(error, OverflowError) or str(error).startswith(("ordinal must be", "year "))


def _without_logical(node: Schema) -> Schema:
    """Return the schema without the logical types that are read as their stored type."""
    if isinstance(node, list):
        return [_without_logical(one) for one in node]
    if not isinstance(node, dict):
        return node
    is_plain = node.get("logicalType") in _PLAIN_LOGICAL
    return {
        name: one if name == "default" else _without_logical(one)
        for name, one in node.items()
        if not (is_plain and name == "logicalType")
    }
