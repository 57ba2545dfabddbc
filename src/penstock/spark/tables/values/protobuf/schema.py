"""Converts a Protobuf message to the columns of a table, and its fields to values (pure).

Guarantees: the types are those of Spark's `from_protobuf`, except for the differences below; a
message that no table can hold is a `SchemaError` that names the field.

| Protobuf | column |
| --- | --- |
| bool, float, double, string, bytes | boolean, float, double, string, binary |
| int32, sint32, sfixed32 | int |
| int64, sint64, sfixed64 | bigint |
| uint32, fixed32 | bigint |
| uint64, fixed64 | decimal(20, 0) |
| enum | string: the name, or the number if it has none |
| message | struct |
| google.protobuf.Timestamp | timestamp |
| repeated | array |
| map | map |

A field with presence (a message, `optional`, a part of a `oneof`) is null when it is not set. Any
other field has its zero, as in Protobuf.

Differences from Spark: unsigned numbers keep their value, and zeros are zeros and not nulls. A
message that contains itself is rejected, as in Spark.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.spark.tables.definition.ddl import COLUMNS_MAX, NESTING_MAX
from penstock.spark.tables.definition.errors import SchemaError

Getter = Callable[[Any], object]

TIMESTAMP_NAME: Final = "google.protobuf.Timestamp"
_PLAIN: Final[Mapping[int, pa.DataType]] = {
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_UINT32: pa.int64(),
    FieldDescriptor.TYPE_FIXED32: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.TYPE_FIXED64: pa.decimal128(20, 0),
}
_WHOLE: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    }
)
_MICROSECONDS_MAX: Final = 2**63


class MessageColumns:
    """The columns of one message, and the conversion of its rows."""

    def __init__(self, descriptor: Descriptor, what: str) -> None:
        self._what = what
        self._columns = 0
        self._enums: dict[str, Mapping[int, str]] = {}
        """The names of each enum by their numbers, by its full name."""
        fields, self._row = self._message(descriptor, "", 0)
        self.schema = pa.schema(fields)

    def row(self, message: Message) -> object:
        """Return the message as a row for Arrow."""
        return self._row(message)

    def _message(
        self, descriptor: Descriptor, path: str, depth: int
    ) -> tuple[list[pa.Field], Getter]:
        if depth > NESTING_MAX:
            self._fail(path, f"it is nested deeper than {NESTING_MAX}, or contains itself.")
        self._columns += len(descriptor.fields)
        if self._columns > COLUMNS_MAX:
            self._fail(path, f"there are more than {COLUMNS_MAX} columns.")
        if not descriptor.fields:
            self._fail(path, "a message without fields has no column.")
        names = [field.name.lower() for field in descriptor.fields]
        if len(set(names)) < len(names):
            self._fail(path, "two fields differ only in their case, and to Spark they are one.")
        fields: list[pa.Field] = []
        getters: list[tuple[str, Getter]] = []
        for field in descriptor.fields:
            inner = f"{path}.{field.name}" if path else field.name
            kind, getter = self._field(field, inner, depth)
            fields.append(pa.field(field.name, kind))
            getters.append((field.name, getter))
        return fields, lambda message: {name: getter(message) for name, getter in getters}

    def _field(self, field: FieldDescriptor, path: str, depth: int) -> tuple[pa.DataType, Getter]:
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return self._map(field, path, depth)
        kind, convert = self._single(field, path, depth)
        if field.is_repeated:
            return pa.list_(pa.field("element", kind)), lambda message: [
                convert(one) for one in getattr(message, name)
            ]
        if field.has_presence:
            return (
                kind,
                lambda message: convert(getattr(message, name)) if message.HasField(name) else None,
            )
        return kind, lambda message: convert(getattr(message, name))

    def _single(self, field: FieldDescriptor, path: str, depth: int) -> tuple[pa.DataType, Getter]:
        """Return one value of the field, whether it is repeated or not."""
        message = field.message_type
        if message is not None and message.full_name == TIMESTAMP_NAME:
            if not _has_time(message):
                self._fail(path, f"a {TIMESTAMP_NAME} without seconds and nanos as numbers.")
            return pa.timestamp("us", tz="UTC"), _microseconds
        if message is not None:
            fields, row = self._message(message, path, depth + 1)
            return pa.struct(fields), row
        if field.enum_type is not None:
            names = self._names(field.enum_type)
            return pa.string(), lambda number: names.get(number, str(number))
        found = _PLAIN.get(field.type)
        if found is None:
            self._fail(path, "a group has no column.")
        return found, _same

    def _map(self, field: FieldDescriptor, path: str, depth: int) -> tuple[pa.DataType, Getter]:
        entry, name = field.message_type.fields_by_name, field.name
        key, convert_key = self._single(entry["key"], path, depth)
        value, convert = self._single(entry["value"], path, depth)
        return pa.map_(key, value), lambda message: [
            (convert_key(one), convert(other)) for one, other in getattr(message, name).items()
        ]

    def _names(self, enum: EnumDescriptor) -> Mapping[int, str]:
        found = self._enums.get(enum.full_name)
        if found is None:
            found = {number: one.name for number, one in enum.values_by_number.items()}
            self._enums[enum.full_name] = found
        return found

    def _fail(self, path: str, problem: str) -> NoReturn:
        place = f"field '{path}': " if path else ""
        raise SchemaError(self._what, f"{place}{problem}", "Change it, or read the values as raw.")


def _has_time(message: Descriptor) -> bool:
    """Return whether the message has both parts of a time; a schema may define its own message."""
    parts = [message.fields_by_name.get(name) for name in ("seconds", "nanos")]
    return all(one is not None and one.cpp_type in _WHOLE and not one.is_repeated for one in parts)


def _same(value: object) -> object:
    return value


def _microseconds(value: Timestamp) -> int:
    found = int(value.seconds * 1_000_000 + value.nanos // 1_000)
    if not -_MICROSECONDS_MAX <= found < _MICROSECONDS_MAX:
        raise ValueError(f"the time {value.seconds} s is out of range")
    return found
