"""Reads Protobuf messages into Arrow columns, by the fields of their descriptor.

Guarantees: the row of an accepted value is that of the reference, `protobuf.values` with Google's
library. Any value that could be bad, or that is merged from parts, is a doubt: cut, a tag or size
of more than five bytes, a field of another wire type, a message or a member of a `oneof` that is
there twice, an enum's number without a name, bytes that are no text, a group, a time beyond the
years 1 to 9999, a key of a map that is there twice. Entries of a map have the order of the value.

This is the hot loop of a Spark task, so the file is compiled: plain Python here, the C types in
`protobuf/kernel.pxd`. Every change must hold for 64-bit integers that wrap. It does not use Arrow
or descriptors: `protobuf.program` fills its tables.
"""

from collections.abc import Sequence
from typing import Final

from penstock.spark.tables.values.columnar.columns import ArrowColumns
from penstock.spark.tables.values.columnar.row_kernel import RowKernel

BOOL: Final = 0
INT32: Final = 1
SINT32: Final = 2
UINT32: Final = 3
INT64: Final = 4
SINT64: Final = 5
UINT64: Final = 6
ENUM: Final = 7
SFIXED32: Final = 8
"""Float too: its bits."""
FIXED32: Final = 9
SFIXED64: Final = 10
"""Double too: its bits."""
FIXED64: Final = 11
STRING: Final = 12
BYTES: Final = 13
MESSAGE: Final = 14
TIMESTAMP: Final = 15

# The names for the C code are private: they are C integers, which Python cannot import.
_BOOL: Final = 0
_INT32: Final = 1
_SINT32: Final = 2
_UINT32: Final = 3
_SINT64: Final = 5
_UINT64: Final = 6
_ENUM: Final = 7
_SFIXED32: Final = 8
_FIXED32: Final = 9
_SFIXED64: Final = 10
_STRING: Final = 12
_MESSAGE: Final = 14
_TIMESTAMP: Final = 15
_READ: Final = 0
_DOUBT: Final = 1
_GROW: Final = 3
_VARINT_WIRE: Final = 0
_FIXED_64_WIRE: Final = 1
_LENGTH_WIRE: Final = 2
_FIXED_32_WIRE: Final = 5
_NOT_FOUND: Final = -1
_MASK_32: Final = 0xFFFFFFFF
_SIGN_32: Final = 0x80000000
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
_NANOSECONDS_MAX: Final = 999_999_999
_MICROSECONDS: Final = 1_000_000
_KEYS_MAX: Final = 64
"""Each key of a map is compared with those before it; larger maps are for the reference."""


class ProtobufKernel(RowKernel):
    """Reads one column after another.

    A message has entries, one for each field, which follow each other in the order of the fields'
    numbers; message 0 is the row. Each path to a message has its own entries.
    """

    def __init__(self, columns: ArrowColumns, messages: int, entries: int, oneofs: int) -> None:
        super().__init__(columns)
        self.has_indexes = False
        # By message.
        self.first_entries = _numbers(messages)
        self.entry_counts = _numbers(messages)
        self.is_map_entry = _numbers(messages)
        # By entry: the level is that of a list's items, and 0 without a list. The first symbol is
        # that of an enum. Oneof 0 is none.
        self.numbers = _numbers(entries)
        self.operations = _numbers(entries)
        self.fields = _numbers(entries)
        self.levels = _numbers(entries)
        self.item_fields = _numbers(entries)
        self.messages = _numbers(entries)
        self.is_map = _numbers(entries)
        self.has_presence = _numbers(entries)
        self.oneofs = _numbers(entries)
        self.first_symbols = _numbers(entries)
        self.symbol_counts = _numbers(entries)
        # By symbol: its number in the enum, ascending within it, and its place.
        self.symbol_numbers = _numbers(0)
        self.symbol_starts = _numbers(0)
        self.symbol_sizes = _numbers(0)
        # The last message in which an entry was read, and which entry of a oneof was.
        self.stamp = 0
        self.filled = _numbers(entries)
        self.oneof_stamps = _numbers(oneofs)
        self.oneof_entries = _numbers(oneofs)

    def set_symbols(self, numbers: Sequence[int], symbols: Sequence[bytes]) -> None:
        """Set the names of all enums, in the order of their entries and numbers."""
        self.columns.symbols = memoryview(b"".join(symbols))
        self.symbol_numbers = _numbers(len(symbols))
        self.symbol_starts = _numbers(len(symbols))
        self.symbol_sizes = _numbers(len(symbols))
        start = 0
        for index, symbol in enumerate(symbols):
            self.symbol_numbers[index] = numbers[index]
            self.symbol_starts[index] = start
            self.symbol_sizes[index] = len(symbol)
            start += len(symbol)

    def read_row(self) -> int:
        """Read the message."""
        if self.has_indexes:
            # A registry's frame ends with the message of the file; a single zero is the first.
            if not self.reader.has(1) or self.reader.data[self.reader.position] != 0:
                return _DOUBT
            self.reader.position += 1
        return self.read_message(0)

    def read_message(self, message: int) -> int:
        """Read the fields of a message up to the reader's end; write the missing ones too."""
        self.stamp += 1
        stamp = self.stamp
        first = self.first_entries[message]
        end = first + self.entry_counts[message]
        expected = first
        while self.reader.position < self.reader.end:
            if not self.reader.varint32():
                return _DOUBT
            number = self.reader.number >> 3
            wire = self.reader.number & 7
            if number == 0:
                return _DOUBT
            entry = expected
            if entry >= end or self.numbers[entry] != number:
                entry = self.entry_of(first, end, number)
            if entry == _NOT_FOUND:
                # The reference leaves out a map's entry with an unknown field.
                if self.is_map_entry[message] or not self.skip_field(wire):
                    return _DOUBT
                continue
            code = self.read_entry(entry, wire, stamp)
            if code != _READ:
                return code
            # An item of a list is often followed by the next one.
            expected = entry if self.levels[entry] != 0 else entry + 1
        return self.finish(first, end, stamp)

    def entry_of(self, first: int, end: int, number: int) -> int:
        """Return the entry of a field's number."""
        while first < end:
            middle = (first + end) >> 1
            if self.numbers[middle] == number:
                return middle
            if self.numbers[middle] < number:
                first = middle + 1
            else:
                end = middle
        return _NOT_FOUND

    def skip_field(self, wire: int) -> bool:
        """Skip the value of an unknown field; return whether it is whole."""
        if wire == _VARINT_WIRE:
            return self.reader.varint()
        if wire == _FIXED_64_WIRE:
            return self.reader.fixed(8)
        if wire == _FIXED_32_WIRE:
            return self.reader.fixed(4)
        if wire != _LENGTH_WIRE:
            return False
        size = self.read_size()
        if size < 0:
            return False
        self.reader.position += size
        return True

    def read_size(self) -> int:
        """Read the number of bytes that follow; -1 if there are fewer."""
        if not self.reader.varint32():
            return -1
        return self.reader.number if self.reader.has(self.reader.number) else -1

    def read_entry(self, entry: int, wire: int, stamp: int) -> int:
        """Read a field that the message has."""
        operation = self.operations[entry]
        wanted = self.wire_of(operation)
        if self.levels[entry] != 0:
            self.filled[entry] = stamp
            if wire == wanted:
                return self.read_item(entry, operation)
            return self.read_packed(entry, operation) if wire == _LENGTH_WIRE else _DOUBT
        if wire != wanted:
            return _DOUBT
        if self.filled[entry] == stamp and operation >= _MESSAGE:
            return _DOUBT
        self.filled[entry] = stamp
        oneof = self.oneofs[entry]
        if oneof != 0:
            if self.oneof_stamps[oneof] == stamp and self.oneof_entries[oneof] != entry:
                return _DOUBT
            self.oneof_stamps[oneof] = stamp
            self.oneof_entries[oneof] = entry
        return self.read_value(entry, operation, self.fields[entry])

    def wire_of(self, operation: int) -> int:
        """Return the wire type of an operation."""
        if operation <= _ENUM:
            return _VARINT_WIRE
        if operation <= _FIXED32:
            return _FIXED_32_WIRE
        return _FIXED_64_WIRE if operation < _STRING else _LENGTH_WIRE

    def read_item(self, entry: int, operation: int) -> int:
        """Read an item of a list, or an entry of a map."""
        level = self.levels[entry]
        if not self.columns.has_room(level):
            return _GROW
        code = self.read_value(entry, operation, self.item_fields[entry])
        if code == _READ:
            if self.is_map[entry] and self.is_known_key(entry, level):
                return _DOUBT
            self.columns.add_entry(level)
        return code

    def read_packed(self, entry: int, operation: int) -> int:
        """Read the items of a list that are in one value."""
        size = self.read_size()
        if size < 0:
            return _DOUBT
        outer = self.reader.end
        self.reader.end = self.reader.position + size
        while self.reader.position < self.reader.end:
            code = self.read_item(entry, operation)
            if code != _READ:
                return code
        self.reader.end = outer
        return _READ

    def read_value(self, entry: int, operation: int, field: int) -> int:
        """Read one value into a field."""
        if operation <= _ENUM:
            if not self.reader.varint():
                return _DOUBT
            return self.put_varint(entry, operation, field)
        if operation < _STRING:
            if not self.reader.fixed(4 if operation <= _FIXED32 else 8):
                return _DOUBT
            if operation == _SFIXED32:
                self.columns.write_integer(field, self.signed_32())
            elif operation in (_FIXED32, _SFIXED64):
                self.columns.write_long(field, self.reader.with_sign())
            else:
                self.columns.write_decimal(field, 0, self.reader.number)
            return _READ
        size = self.read_size()
        if size < 0:
            return _DOUBT
        start = self.reader.position
        if operation >= _MESSAGE:
            return self.read_inner(entry, operation, field, start + size)
        self.reader.position += size
        if operation == _STRING and not self.reader.is_text(start, size):
            return _DOUBT
        return self.columns.write_text(field, start, size)

    def put_varint(self, entry: int, operation: int, field: int) -> int:
        """Write the number that was read last; numbers of 32 bits lose the others."""
        if operation == _BOOL:
            self.columns.write_boolean(field, self.reader.number != 0)
        elif operation == _INT32:
            self.columns.write_integer(field, self.signed_32())
        elif operation == _SINT32:
            self.reader.number &= _MASK_32
            self.columns.write_integer(field, self.reader.zigzag())
        elif operation == _UINT32:
            self.columns.write_long(field, self.reader.number & _MASK_32)
        elif operation == _SINT64:
            self.columns.write_long(field, self.reader.zigzag())
        elif operation == _UINT64:
            self.columns.write_decimal(field, 0, self.reader.number)
        elif operation == _ENUM:
            return self.put_symbol(entry, field, self.signed_32())
        else:
            self.columns.write_long(field, self.reader.with_sign())
        return _READ

    def signed_32(self) -> int:
        """Return the lowest 32 bits of the number that was read last, with their sign."""
        number = self.reader.number & _MASK_32
        return number if number < _SIGN_32 else number - 2 * _SIGN_32

    def put_symbol(self, entry: int, field: int, number: int) -> int:
        """Write the name of an enum's number."""
        first = self.first_symbols[entry]
        end = first + self.symbol_counts[entry]
        while first < end:
            middle = (first + end) >> 1
            if self.symbol_numbers[middle] == number:
                return self.columns.write_symbol(
                    field, self.symbol_starts[middle], self.symbol_sizes[middle]
                )
            if self.symbol_numbers[middle] < number:
                first = middle + 1
            else:
                end = middle
        return _DOUBT

    def read_inner(self, entry: int, operation: int, field: int, end: int) -> int:
        """Read a message or a time that ends here."""
        outer = self.reader.end
        self.reader.end = end
        if operation == _TIMESTAMP:
            code = self.read_timestamp(field)
        else:
            code = self.read_message(self.messages[entry])
        self.reader.end = outer
        return code

    def read_timestamp(self, field: int) -> int:
        """Read seconds and nanoseconds up to the reader's end."""
        seconds = 0
        nanoseconds = 0
        while self.reader.position < self.reader.end:
            if not self.reader.varint32():
                return _DOUBT
            tag = self.reader.number
            # Fields 1 and 2 as numbers; nothing else is usual.
            if (tag != 8 and tag != 16) or not self.reader.varint():
                return _DOUBT
            if tag == 8:
                seconds = self.reader.with_sign()
            else:
                nanoseconds = self.reader.with_sign()
        if seconds < _FIRST_SECOND or seconds > _LAST_SECOND:
            return _DOUBT
        if nanoseconds < 0 or nanoseconds > _NANOSECONDS_MAX:
            return _DOUBT
        self.columns.write_long(field, seconds * _MICROSECONDS + nanoseconds // 1_000)
        return _READ

    def finish(self, entry: int, end: int, stamp: int) -> int:
        """Write the ends of lists, and nulls or zeros for fields that the message does not have."""
        while entry < end:
            code = _READ
            if self.levels[entry] != 0:
                self.columns.end_list(self.fields[entry], self.levels[entry])
            elif self.filled[entry] != stamp:
                code = self.write_missing(entry)
            if code != _READ:
                return code
            entry += 1
        return _READ

    def write_missing(self, entry: int) -> int:
        """Write the value of a field that is not set."""
        field = self.fields[entry]
        operation = self.operations[entry]
        if self.has_presence[entry]:
            self.columns.write_null(field)
        elif operation == _ENUM:
            return self.put_symbol(entry, field, 0)
        elif operation == _MESSAGE:
            # The item of a map's entry: a message with nothing in it.
            return self.read_inner(entry, operation, field, self.reader.position)
        else:
            self.columns.write_zero(field)
        return _READ

    def is_known_key(self, entry: int, level: int) -> bool:
        """Return whether the key of this entry is there before; also if there are too many."""
        field = self.fields[entry]
        key = self.fields[self.first_entries[self.messages[entry]]]
        last = self.columns.lengths[level]
        index = self.columns.list_start(field)
        if last - index >= _KEYS_MAX:
            return True
        while index < last:
            if self.columns.is_same(key, index, last):
                return True
            index += 1
        return False


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")
