"""Reads Avro values into Arrow columns, by the nodes of their writer's schema.

Guarantees: the row of an accepted value is that of the reference, `avro.values` with fastavro. Any
value that could be bad, or read in two ways, is a doubt: cut or longer than its schema says, a
number out of range, bytes that are no text, a time beyond the years 1 to 9999, a decimal with too
many digits, a key of a map that is there twice.

This is the hot loop of a Spark task, so the file is compiled: plain Python here, the C types in
`avro/kernel.pxd`. Every change must hold for 64-bit integers that wrap. It does not use Arrow or
schemas: `avro.program` fills its tables.
"""

from collections.abc import Sequence
from typing import Final

from penstock.spark.tables.values.columnar.columns import ArrowColumns
from penstock.spark.tables.values.columnar.row_kernel import RowKernel

NULL: Final = 0
BOOLEAN: Final = 1
INT: Final = 2
LONG: Final = 3
FLOAT: Final = 4
WIDE_FLOAT: Final = 5
"""A float in a column of doubles."""
DOUBLE: Final = 6
BYTES: Final = 7
TEXT: Final = 8
FIXED: Final = 9
ENUM: Final = 10
DECIMAL: Final = 11
FIXED_DECIMAL: Final = 12
DATE: Final = 13
MILLISECONDS: Final = 14
MICROSECONDS: Final = 15
RECORD: Final = 16
UNION: Final = 17
ARRAY: Final = 18
MAP: Final = 19

# The names for the C code are private: they are C integers, which Python cannot import.
_NULL: Final = 0
_BOOLEAN: Final = 1
_INT: Final = 2
_LONG: Final = 3
_FLOAT: Final = 4
_WIDE_FLOAT: Final = 5
_DOUBLE: Final = 6
_BYTES: Final = 7
_TEXT: Final = 8
_FIXED: Final = 9
_ENUM: Final = 10
_DECIMAL: Final = 11
_FIXED_DECIMAL: Final = 12
_DATE: Final = 13
_MILLISECONDS: Final = 14
_MICROSECONDS: Final = 15
_RECORD: Final = 16
_UNION: Final = 17
_ARRAY: Final = 18
_READ: Final = 0
_DOUBT: Final = 1
_GROW: Final = 3
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_INT_END: Final = 0x80000000
_FIRST_DAY: Final = -719_162
_LAST_DAY: Final = 2_932_896
_FIRST_MILLISECOND: Final = -62_135_596_800_000
_LAST_MILLISECOND: Final = 253_402_300_799_999
_DECIMAL_BYTES_MAX: Final = 16
_COUNT_MAX: Final = 0x7FFFFFFF
_KEYS_MAX: Final = 64
"""Each key of a map is compared with those before it; larger maps are for the reference."""


class AvroKernel(RowKernel):
    """Reads one column after another.

    Nodes are numbered so that the children of one follow each other; node 0 is the record.
    """

    def __init__(self, columns: ArrowColumns, nodes: int) -> None:
        super().__init__(columns)
        self.nodes = nodes
        self.operations = _numbers(nodes)
        self.fields = _numbers(nodes)
        self.first_children = _numbers(nodes)
        self.child_counts = _numbers(nodes)
        # By node: the bytes of a fixed value, the level of the items of an array or map.
        self.sizes = _numbers(nodes)
        self.levels = _numbers(nodes)
        # By node of a decimal: ten to the power of its digits, in two halves.
        self.limits_high = _numbers(nodes).cast("B").cast("Q")
        self.limits_low = _numbers(nodes).cast("B").cast("Q")
        # By the number of a symbol: its place in the symbols of the columns. A node of an enum has
        # the number of its first one as the first child.
        self.symbol_starts = _numbers(0)
        self.symbol_sizes = _numbers(0)
        self.as_bits = memoryview(bytearray(4)).cast("I")
        self.as_float = memoryview(self.as_bits).cast("B").cast("f")

    def set_symbols(self, symbols: Sequence[bytes]) -> None:
        """Set the names of all enums, in the order of their numbers."""
        self.columns.symbols = memoryview(b"".join(symbols))
        self.symbol_starts = _numbers(len(symbols))
        self.symbol_sizes = _numbers(len(symbols))
        start = 0
        for number, symbol in enumerate(symbols):
            self.symbol_starts[number] = start
            self.symbol_sizes[number] = len(symbol)
            start += len(symbol)

    def read_row(self) -> int:
        """Read the record."""
        code = self.read(0)
        if code == _READ and self.reader.position != self.reader.end:
            return _DOUBT
        return code

    def read(self, node: int) -> int:
        """Read the value of a node."""
        operation = self.operations[node]
        if operation >= _RECORD:
            return self.read_nested(node, operation)
        if operation >= _BYTES:
            return self.read_special(node, operation)
        field = self.fields[node]
        if operation in (_INT, _LONG):
            if not self.reader.varint():
                return _DOUBT
            value = self.reader.zigzag()
            if operation == _LONG:
                self.columns.write_long(field, value)
                return _READ
            if value < -_INT_END or value >= _INT_END:
                return _DOUBT
            self.columns.write_integer(field, value)
            return _READ
        if operation == _NULL:
            self.columns.write_null(field)
            return _READ
        if operation == _BOOLEAN:
            return self.read_boolean(field)
        return self.read_fraction(field, operation)

    def read_boolean(self, field: int) -> int:
        """Read true or false."""
        if not self.reader.has(1):
            return _DOUBT
        byte = self.reader.data[self.reader.position]
        if byte > 1:
            return _DOUBT
        self.reader.position += 1
        self.columns.write_boolean(field, byte == 1)
        return _READ

    def read_fraction(self, field: int, operation: int) -> int:
        """Read a float or double."""
        if not self.reader.fixed(8 if operation == _DOUBLE else 4):
            return _DOUBT
        if operation == _DOUBLE:
            self.columns.write_long(field, self.reader.with_sign())
        elif operation == _FLOAT:
            self.columns.write_integer(field, self.signed_32())
        else:
            self.as_bits[0] = self.reader.number
            self.columns.write_double(field, self.as_float[0])
        return _READ

    def signed_32(self) -> int:
        """Return the four bytes that were read last as a number with a sign."""
        number = self.reader.number
        return number if number < _INT_END else number - 2 * _INT_END

    def read_special(self, node: int, operation: int) -> int:
        """Read bytes, a text, or a number with a meaning."""
        field = self.fields[node]
        if operation in (_DATE, _MILLISECONDS, _MICROSECONDS):
            if not self.reader.varint():
                return _DOUBT
            return self.put_time(field, operation, self.reader.zigzag())
        if operation == _ENUM:
            return self.read_symbol(node, field)
        size = self.sizes[node]
        if operation != _FIXED and operation != _FIXED_DECIMAL:
            if not self.reader.varint():
                return _DOUBT
            size = self.reader.zigzag()
        if not self.reader.has(size):
            return _DOUBT
        start = self.reader.position
        self.reader.position += size
        if operation in (_DECIMAL, _FIXED_DECIMAL):
            return self.put_decimal(node, start, size)
        if operation == _TEXT and not self.reader.is_text(start, size):
            return _DOUBT
        return self.columns.write_text(field, start, size)

    def put_time(self, field: int, operation: int, value: int) -> int:
        """Write a date or a time, in microseconds."""
        if operation == _DATE:
            if value < _FIRST_DAY or value > _LAST_DAY:
                return _DOUBT
            self.columns.write_integer(field, value)
            return _READ
        if operation == _MILLISECONDS:
            if value < _FIRST_MILLISECOND or value > _LAST_MILLISECOND:
                return _DOUBT
            value *= 1_000
        elif value < _FIRST_MILLISECOND * 1_000 or value >= (_LAST_MILLISECOND + 1) * 1_000:
            return _DOUBT
        self.columns.write_long(field, value)
        return _READ

    def read_symbol(self, node: int, field: int) -> int:
        """Read the number of a symbol, and write its name."""
        if not self.reader.varint():
            return _DOUBT
        number = self.reader.zigzag()
        if number < 0 or number >= self.child_counts[node]:
            return _DOUBT
        symbol = self.first_children[node] + number
        return self.columns.write_symbol(
            field, self.symbol_starts[symbol], self.symbol_sizes[symbol]
        )

    def put_decimal(self, node: int, start: int, size: int) -> int:
        """Write a number in two's complement, the highest byte first."""
        if size > _DECIMAL_BYTES_MAX:
            return _DOUBT
        high = low = 0
        is_negative = size > 0 and self.reader.data[start] >= 0x80
        if is_negative:
            high = low = _MASK_64
        index = start
        while index < start + size:
            high = ((high << 8) | (low >> 56)) & _MASK_64
            low = ((low << 8) | self.reader.data[index]) & _MASK_64
            index += 1
        size_high = high
        size_low = low
        if is_negative:
            size_low = (_MASK_64 - low + 1) & _MASK_64
            size_high = (_MASK_64 - high + (1 if size_low == 0 else 0)) & _MASK_64
        limit = self.limits_high[node]
        if size_high > limit or (size_high == limit and size_low >= self.limits_low[node]):
            return _DOUBT
        self.columns.write_decimal(self.fields[node], high, low)
        return _READ

    def read_nested(self, node: int, operation: int) -> int:
        """Read a record, a union, an array or a map."""
        first = self.first_children[node]
        if operation == _RECORD:
            end = first + self.child_counts[node]
            while first < end:
                code = self.read(first)
                if code != _READ:
                    return code
                first += 1
            return _READ
        if operation == _UNION:
            if not self.reader.varint():
                return _DOUBT
            branch = self.reader.zigzag()
            if branch < 0 or branch >= self.child_counts[node]:
                return _DOUBT
            return self.read(first + branch)
        return self.read_blocks(node, operation)

    def read_blocks(self, node: int, operation: int) -> int:
        """Read the items of an array or map, which come in blocks."""
        level = self.levels[node]
        first = self.columns.lengths[level]
        while True:
            if not self.reader.varint():
                return _DOUBT
            count = self.reader.zigzag()
            if count == 0:
                break
            if count < 0:
                # The number of bytes is for readers that skip the block.
                if count < -_COUNT_MAX or not self.reader.varint():
                    return _DOUBT
                count = -count
            while count > 0:
                code = self.read_item(node, operation, level, first)
                if code != _READ:
                    return code
                count -= 1
        self.columns.end_list(self.fields[node], level)
        return _READ

    def read_item(self, node: int, operation: int, level: int, first: int) -> int:
        """Read an item of an array, or a key and its item."""
        if self.reader.position >= self.reader.end:
            # Each item has a byte, so that a large count costs nothing.
            return _DOUBT
        if not self.columns.has_room(level):
            return _GROW
        child = self.first_children[node]
        code = self.read(child)
        if code == _READ and operation != _ARRAY:
            if self.is_known_key(self.fields[child], first, self.columns.lengths[level]):
                return _DOUBT
            code = self.read(child + 1)
        if code == _READ:
            self.columns.add_entry(level)
        return code

    def is_known_key(self, field: int, first: int, last: int) -> bool:
        """Return whether a key is there before; also if there are too many to look."""
        if last - first >= _KEYS_MAX:
            return True
        index = first
        while index < last:
            if self.columns.is_same_text(field, index, last):
                return True
            index += 1
        return False


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")
