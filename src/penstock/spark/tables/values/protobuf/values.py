"""Protobuf values: with the schema of a .proto file, or framed with an id of a registry.

Guarantees: those of the port. Unknown fields are ignored, as in Protobuf. So a value of an
unrelated message may be accepted, with wrong content. Google's library is the reference;
`protobuf.kernel` gives the same rows faster, and leaves every uncertain value to it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.values.columnar import row_kernel
from penstock.spark.tables.values.columnar.reading import KernelReading
from penstock.spark.tables.values.framing import HEADER_BYTES, message_indexes
from penstock.spark.tables.values.parser import ErrorClass, RowError
from penstock.spark.tables.values.protobuf.compiler import compile_proto
from penstock.spark.tables.values.protobuf.program import protobuf_kernel
from penstock.spark.tables.values.protobuf.schema import MessageColumns
from penstock.spark.tables.values.registered_values import (
    CompiledSchema,
    OneSchemaValues,
    Reading,
    RegisteredValues,
    Schemas,
    TableColumns,
    one_by_one,
)
from penstock.spark.tables.values.registry import RegisteredSchema

KIND: Final = "PROTOBUF"
_MAIN: Final = "value.proto"


def protobuf_file_values(
    texts: Mapping[str, str], main: str, message: str | None, what: str
) -> OneSchemaValues:
    """Return a parser of bare values; without a name the file `main` must have one message."""
    compiled = compile_proto(texts, main, what)
    file = _file(compiled, main)
    names = _names(file, "", list(file.message_type))
    wanted = message or (names[0] if len(file.message_type) == 1 else None)
    if wanted is None or wanted not in names:
        problem = f"{shown(wanted)} is not in it." if wanted else "it has several messages."
        raise SchemaError(what, problem, f"Set value.message to one of {', '.join(names[:20])}.")
    descriptor = _descriptor(compiled, wanted)
    columns, read = _reader(descriptor, what)
    reference = one_by_one(read, columns.schema, None)
    return OneSchemaValues(_compiled(descriptor, columns.schema, reference, skip=0))


def protobuf_registry_values(
    schemas: Schemas, base: RegisteredSchema | None = None, table: TableColumns | None = None
) -> RegisteredValues:
    """Return a parser of framed values."""
    return RegisteredValues(schemas, compile_protobuf, base, table)


def compile_protobuf(schema: RegisteredSchema) -> CompiledSchema:
    """Return a schema of the registry, ready to parse framed values of its first message."""
    what = f"schema {schema.schema_id}"
    if schema.kind != KIND:
        raise SchemaError(what, f"it is of kind {schema.kind}.", "Set value.format to that kind.")
    compiled = compile_proto({**dict(schema.references), _MAIN: schema.text}, _MAIN, what)
    file = _file(compiled, _MAIN)
    if not file.message_type:
        raise SchemaError(what, "it has no message.", "Register the file with the message.")
    descriptor = _descriptor(compiled, _names(file, "", [file.message_type[0]])[0])
    columns, read = _reader(descriptor, what)

    def read_framed(value: bytes) -> object:
        indexes, start = message_indexes(value)
        if indexes != (0,):
            # One subject, one table: another message of the file would have other columns.
            raise RowError(
                ErrorClass.INCOMPATIBLE_SCHEMA,
                f"the value is message {list(indexes)} of {what}, and the table holds the first.",
            )
        return read(value[start:])

    reference = one_by_one(read_framed, columns.schema, schema.schema_id)
    return _compiled(descriptor, columns.schema, reference, skip=HEADER_BYTES)


def _compiled(
    descriptor: Descriptor, columns: pa.Schema, reference: Reading, *, skip: int
) -> CompiledSchema:
    found = protobuf_kernel(descriptor, columns) if row_kernel.COMPILED else None
    if found is None:
        return CompiledSchema(columns, reference)
    kernel, memory = found
    kernel.has_indexes = skip > 0
    return CompiledSchema(columns, KernelReading(kernel, memory, skip, reference))


def _reader(descriptor: Descriptor, what: str) -> tuple[MessageColumns, Callable[[bytes], object]]:
    columns = MessageColumns(descriptor, what)
    kind: Any = GetMessageClass(descriptor)

    def read(value: bytes) -> object:
        try:
            return columns.row(kind.FromString(value))
        except (DecodeError, ValueError) as error:
            raise RowError(
                ErrorClass.MALFORMED, f"the value is not {descriptor.full_name} of {what}: {error}"
            ) from None

    return columns, read


def _descriptor(compiled: FileDescriptorSet, name: str) -> Descriptor:
    # Use a separate pool: two versions of one file have the same names.
    pool = DescriptorPool()
    for file in compiled.file:
        pool.Add(file)
    return pool.FindMessageTypeByName(name)


def _file(compiled: FileDescriptorSet, name: str) -> FileDescriptorProto:
    return next(file for file in compiled.file if file.name == name)


def _names(file: FileDescriptorProto, outer: str, messages: list[Any]) -> list[str]:
    """Return the full names of messages, each followed by those inside it."""
    found = []
    for message in messages:
        prefix = outer or file.package
        name = f"{prefix}.{message.name}" if prefix else message.name
        found += [name, *_names(file, name, list(message.nested_type))]
    return found
