"""Turns the descriptor of a Protobuf message into the entries that a kernel follows.

Guarantees: a program reads what the descriptor says into columns of the types in
`protobuf.schema`. A message with anything else has no program, and its values are read by the
reference: required fields, extensions, fields in groups, a `google.protobuf.Timestamp` with other
fields than usual. A program has no more entries than three for each column of the schema, which has
at most `COLUMNS_MAX`: `MessageColumns` counts each path to a message.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from penstock.spark.tables.values.columnar.column_tree import ColumnNode, ColumnTree, can_hold
from penstock.spark.tables.values.columnar.memory import ColumnMemory
from penstock.spark.tables.values.protobuf import kernel as operations
from penstock.spark.tables.values.protobuf.kernel import ProtobufKernel
from penstock.spark.tables.values.protobuf.schema import TIMESTAMP_NAME

SYMBOL_BYTES_MAX: Final = 256
"""One byte of a value may become as many bytes of a column."""
SYMBOLS_MAX: Final = 65_536
"""Of all enums."""
_TIMESTAMP: Final = (
    ("seconds", 1, FieldDescriptor.TYPE_INT64),
    ("nanos", 2, FieldDescriptor.TYPE_INT32),
)
_PLAIN: Final[Mapping[int, int]] = {
    FieldDescriptor.TYPE_BOOL: operations.BOOL,
    FieldDescriptor.TYPE_INT32: operations.INT32,
    FieldDescriptor.TYPE_SINT32: operations.SINT32,
    FieldDescriptor.TYPE_UINT32: operations.UINT32,
    FieldDescriptor.TYPE_INT64: operations.INT64,
    FieldDescriptor.TYPE_SINT64: operations.SINT64,
    FieldDescriptor.TYPE_UINT64: operations.UINT64,
    FieldDescriptor.TYPE_ENUM: operations.ENUM,
    FieldDescriptor.TYPE_FLOAT: operations.SFIXED32,
    FieldDescriptor.TYPE_SFIXED32: operations.SFIXED32,
    FieldDescriptor.TYPE_FIXED32: operations.FIXED32,
    FieldDescriptor.TYPE_DOUBLE: operations.SFIXED64,
    FieldDescriptor.TYPE_SFIXED64: operations.SFIXED64,
    FieldDescriptor.TYPE_FIXED64: operations.FIXED64,
    FieldDescriptor.TYPE_STRING: operations.STRING,
    FieldDescriptor.TYPE_BYTES: operations.BYTES,
}


class _NoProgramError(Exception):
    """The message has something that the kernel does not read."""


@dataclass(slots=True)
class _Entry:
    number: int = 0
    operation: int = 0
    field: int = 0
    level: int = 0
    item_field: int = 0
    message: int = 0
    is_map: bool = False
    has_presence: bool = False
    oneof: int = 0
    first_symbol: int = 0
    symbol_count: int = 0


@dataclass(slots=True)
class _Program:
    """The entries so far."""

    entries: list[_Entry] = field(default_factory=list)
    messages: list[tuple[int, int, bool]] = field(default_factory=list)
    """The first entry of each message, the number of its entries, whether it is one of a map."""
    symbols: list[tuple[int, bytes]] = field(default_factory=list)
    enums: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The first symbol of each enum and the number of its symbols, by its full name: all uses of an
    enum share them."""
    oneofs: int = 1

    def message(self, descriptor: Descriptor, columns: list[ColumnNode]) -> int:
        """Add a message whose fields go into these columns; return its number."""
        if descriptor.is_extendable:
            raise _NoProgramError
        number, first = len(self.messages), len(self.entries)
        is_entry = descriptor.GetOptions().map_entry
        self.messages.append((first, len(descriptor.fields), is_entry))
        self.entries += [_Entry() for _ in descriptor.fields]
        oneofs: dict[str, int] = {}
        by_number = sorted(
            zip(descriptor.fields, columns, strict=True), key=lambda pair: pair[0].number
        )
        own = self.entries[first:]
        for entry, (one, column) in zip(own, by_number, strict=True):
            entry.number, entry.field = one.number, column.number
            # A map's entry always has a key and an item.
            entry.has_presence = one.has_presence and not is_entry
            if one.containing_oneof is not None:
                name = one.containing_oneof.name
                entry.oneof = oneofs.setdefault(name, self.oneofs + len(oneofs))
        self.oneofs += len(oneofs)
        for entry, (one, column) in zip(own, by_number, strict=True):
            self._fill(entry, one, column)
        return number

    def _fill(self, entry: _Entry, one: FieldDescriptor, column: ColumnNode) -> None:
        message = one.message_type
        if one.is_required:
            raise _NoProgramError
        if message is not None and message.GetOptions().map_entry:
            entry.operation, entry.is_map, entry.level = (
                operations.MESSAGE,
                True,
                column.inner_level,
            )
            entry.message = self.message(message, column.children)
            return
        if one.is_repeated:
            entry.level = column.inner_level
            (column,) = column.children
            entry.item_field = column.number
        if one.type == FieldDescriptor.TYPE_GROUP:
            raise _NoProgramError
        if message is None:
            entry.operation = _PLAIN[one.type]
        elif message.full_name == TIMESTAMP_NAME:
            if not _is_usual_timestamp(message):
                raise _NoProgramError
            entry.operation = operations.TIMESTAMP
        else:
            entry.operation = operations.MESSAGE
            entry.message = self.message(message, column.children)
        if one.enum_type is not None:
            entry.first_symbol, entry.symbol_count = self._symbols(one.enum_type)

    def _symbols(self, enum: EnumDescriptor) -> tuple[int, int]:
        """Return the first symbol of an enum, and the number of its symbols."""
        found = self.enums.get(enum.full_name)
        if found is not None:
            return found
        names = [(key, one.name.encode()) for key, one in sorted(enum.values_by_number.items())]
        is_long = max(len(name) for _, name in names) > SYMBOL_BYTES_MAX
        if is_long or len(self.symbols) + len(names) > SYMBOLS_MAX:
            raise _NoProgramError
        found = self.enums[enum.full_name] = len(self.symbols), len(names)
        self.symbols += names
        return found


def _is_usual_timestamp(message: Descriptor) -> bool:
    """Return whether the message has the fields of the library's; a schema may define its own."""
    found = tuple((one.name, one.number, one.type) for one in message.fields)
    is_plain = not message.is_extendable and not any(
        one.is_repeated or one.is_required or one.default_value for one in message.fields
    )
    return found == _TIMESTAMP and is_plain and not message.oneofs


def protobuf_kernel(
    descriptor: Descriptor, columns: pa.Schema
) -> tuple[ProtobufKernel, ColumnMemory] | None:
    """Return the kernel of a message; None if the kernel does not read it."""
    if not all(can_hold(one.type) for one in columns):
        return None
    tree = ColumnTree(columns)
    program = _Program()
    try:
        program.message(descriptor, tree.row.children)
    except _NoProgramError:
        return None
    memory = ColumnMemory(tree)
    kernel = ProtobufKernel(
        memory.columns, len(program.messages), len(program.entries), program.oneofs
    )
    for number, (first, count, is_entry) in enumerate(program.messages):
        kernel.is_map_entry[number] = is_entry
        kernel.first_entries[number] = first
        kernel.entry_counts[number] = count
    for number, entry in enumerate(program.entries):
        kernel.numbers[number] = entry.number
        kernel.operations[number] = entry.operation
        kernel.fields[number] = entry.field
        kernel.levels[number] = entry.level
        kernel.item_fields[number] = entry.item_field
        kernel.messages[number] = entry.message
        kernel.is_map[number] = entry.is_map
        kernel.has_presence[number] = entry.has_presence
        kernel.oneofs[number] = entry.oneof
        kernel.first_symbols[number] = entry.first_symbol
        kernel.symbol_counts[number] = entry.symbol_count
    kernel.set_symbols([key for key, _ in program.symbols], [name for _, name in program.symbols])
    return kernel, memory
