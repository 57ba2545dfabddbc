"""Writes the parts of a scanned JSON value into the buffers of Arrow columns.

Guarantees: a value in a column is the result of `json.rows` for that column; any other value is
rejected with a code, and its row does not count. A row counts when `rows` is raised, so an
abandoned row needs no cleaning. Nothing is written outside of the attached buffers.

It is a part of the JSON kernel, so the file is compiled: plain Python here, the C types in
`json/columns.pxd`. Every change must hold for 64-bit integers that wrap. It allocates nothing:
`json.buffers` sets the buffers and turns them into Arrow arrays.
"""

from typing import Final

from penstock.spark.tables.values.json.double import DoubleReader
from penstock.spark.tables.values.json.scan import JsonScanner
from penstock.spark.tables.values.json.time import TimeReader

STRUCT: Final = 0
BOOLEAN: Final = 1
INT8: Final = 2
INT16: Final = 3
INT32: Final = 4
INT64: Final = 5
FLOAT: Final = 6
DOUBLE: Final = 7
STRING: Final = 8
DATE: Final = 9
TIMESTAMP: Final = 10
TIMESTAMP_NTZ: Final = 11

# The names for the C code are private: they are C integers, which Python cannot import.
_READ: Final = 0
_DOUBT: Final = 1
_PROBLEM: Final = 2
_GROW: Final = 3
_STRUCT: Final = 0
_BOOLEAN: Final = 1
_INT8: Final = 2
_INT16: Final = 3
_INT32: Final = 4
_INT64: Final = 5
_FLOAT: Final = 6
_DOUBLE: Final = 7
_STRING: Final = 8
_DATE: Final = 9
_TIMESTAMP: Final = 10
_TIMESTAMP_NTZ: Final = 11
_LETTER_T: Final = 0x74
_FLOAT_END: Final = 3.4028235677973366e38
"""A number nearer to zero is a finite float after rounding."""
_SECONDS_MAX: Final = 9_223_372_036_854
"""The limit of 64 bits in microseconds."""
_MICROSECONDS: Final = 1_000_000


class JsonColumns:
    """The columns of the rows that are not taken out yet."""

    def __init__(self, scanner: JsonScanner, fields: int) -> None:
        self.scanner = scanner
        self.fields = fields
        self.doubles = DoubleReader()
        self.times = TimeReader()
        self.kinds = _numbers(fields)
        # The start of a column: in units of its width, in bytes, and in bytes of the texts.
        self.bases = _numbers(fields)
        self.validity_bases = _numbers(fields)
        self.text_bases = _numbers(fields)
        self.text_ends = _numbers(fields)
        self.nulls = _numbers(fields)
        # By field: the last attempt (to read a row) that filled it.
        self.filled = _numbers(fields)
        self.filled_count = 0
        self.attempt = 0
        self.rows = 0
        self.full_field = 0
        self.forget()

    def forget(self) -> None:
        """Release all buffers."""
        nothing = memoryview(bytearray())
        self.set_buffer(nothing)
        self.texts = nothing

    def set_buffer(self, buffer: memoryview) -> None:
        """Set the memory of all columns, viewed in each width; its size is a multiple of eight."""
        self.bytes = buffer
        self.shorts = buffer.cast("h")
        self.integers = buffer.cast("i")
        self.longs = buffer.cast("q")
        self.unsigned_longs = buffer.cast("Q")
        self.floats = buffer.cast("f")

    def begin(self) -> None:
        """Restart at row 0."""
        self.rows = 0
        field = 0
        while field < self.fields:
            self.nulls[field] = 0
            if self.kinds[field] == _STRING:
                self.integers[self.bases[field]] = 0
            field += 1

    def text_size(self, field: int) -> int:
        """Return the number of bytes in the texts of a column."""
        return self.integers[self.bases[field] + self.rows]

    def begin_row(self) -> None:
        """Begin a row, or begin it again."""
        self.attempt += 1
        self.filled_count = 0

    def finish_row(self) -> None:
        """Set unfilled fields to null, and count the row."""
        if self.filled_count < self.fields - 1:
            field = 1
            while field < self.fields:
                if self.filled[field] != self.attempt:
                    self.write_null(field)
                field += 1
        self.rows += 1

    def write_null(self, field: int) -> None:
        """Set a column to null in this row."""
        kind = self.kinds[field]
        at = self.bases[field] + self.rows
        self.nulls[field] += 1
        self.write_bit(self.validity_bases[field], False)  # noqa: FBT003
        if kind == _STRING:
            self.integers[at + 1] = self.integers[at]
        elif kind == _BOOLEAN:
            self.write_bit(self.bases[field], False)  # noqa: FBT003
        elif kind == _INT8:
            self.bytes[at] = 0
        elif kind == _INT16:
            self.shorts[at] = 0
        elif kind in (_INT32, _FLOAT, _DATE):
            self.integers[at] = 0
        elif kind != _STRUCT:
            self.longs[at] = 0

    def write_bit(self, base: int, is_set: bool) -> None:  # noqa: FBT001
        """Write the bit of this row in the bitmap that begins at this byte."""
        at = base + (self.rows >> 3)
        bit = 1 << (self.rows & 7)
        self.bytes[at] = self.bytes[at] | bit if is_set else self.bytes[at] & (0xFF ^ bit)

    def fill(self, field: int) -> int:
        """Mark the field as filled."""
        self.filled[field] = self.attempt
        self.filled_count += 1
        return _READ

    def put_text(self, field: int) -> int:
        """Write the text that was scanned last."""
        kind = self.kinds[field]
        if kind == _STRING:
            return self.put_bytes(field, self.scanner.text_start, self.scanner.text_end)
        if kind < _DATE or self.scanner.has_escape:
            return _PROBLEM
        return self.put_time(field, kind)

    def put_bytes(self, field: int, start: int, end: int) -> int:
        """Write these bytes of the value as a text; escapes are those of the last text."""
        at = self.bases[field] + self.rows
        offset = self.integers[at]
        target = self.text_bases[field] + offset
        size = end - start
        if target + size > self.text_ends[field]:
            self.full_field = field
            return _GROW
        if self.scanner.has_escape:
            size = self.scanner.unescaped(self.texts, target)
        else:
            self.copy(target, start, size)
        self.integers[at + 1] = offset + size
        return self.fill(field)

    def copy(self, at: int, start: int, count: int) -> None:
        """Copy `count` bytes of the value to the texts; the caller has checked that they fit."""
        index = 0
        # A C compiler turns this loop into wide moves, without a call; see below for Python.
        while index < count:
            self.texts[at + index] = self.scanner.data[start + index]
            index += 1

    def put_time(self, field: int, kind: int) -> int:
        """Write the text that was scanned last as a date or a time."""
        at = self.bases[field] + self.rows
        start = self.scanner.text_start
        end = self.scanner.text_end
        if kind == _DATE:
            if not self.times.date(self.scanner.data, start, end):
                return _PROBLEM
            self.integers[at] = self.times.days
            return self.fill(field)
        if not self.times.time(self.scanner.data, start, end):
            return _PROBLEM
        if kind == _TIMESTAMP_NTZ and self.times.has_zone:
            return _PROBLEM
        self.longs[at] = self.times.microseconds
        return self.fill(field)

    def put_literal(self, field: int, letter: int, start: int) -> int:
        """Write true or false, which was scanned last and began at `start`."""
        kind = self.kinds[field]
        if kind == _BOOLEAN:
            self.write_bit(self.bases[field], letter == _LETTER_T)
            return self.fill(field)
        if kind == _STRING:
            self.scanner.has_escape = False
            return self.put_bytes(field, start, self.scanner.position)
        return _PROBLEM

    def put_number(self, field: int, start: int) -> int:
        """Write the number that was scanned last and began at `start`."""
        kind = self.kinds[field]
        if kind in (_DOUBLE, _FLOAT):
            return self.put_fraction(field, kind)
        if kind == _STRING:
            if not self.scanner.is_whole:
                return _DOUBT
            self.scanner.has_escape = False
            return self.put_bytes(field, start, self.scanner.position)
        if not self.scanner.is_whole:
            return _PROBLEM
        if kind == _TIMESTAMP:
            if self.scanner.mantissa > _SECONDS_MAX:
                return _PROBLEM
            seconds = self.scanner.mantissa
            at = self.bases[field] + self.rows
            self.longs[at] = (-seconds if self.scanner.is_negative else seconds) * _MICROSECONDS
            return self.fill(field)
        if kind < _INT8 or kind > _INT64:
            return _PROBLEM
        return self.put_integer(field, kind)

    def put_fraction(self, field: int, kind: int) -> int:
        """Write a number as float or double."""
        if not self.doubles.read(
            self.scanner.mantissa, self.scanner.exponent, self.scanner.is_negative
        ):
            return _DOUBT
        at = self.bases[field] + self.rows
        if kind == _DOUBLE:
            self.unsigned_longs[at] = self.doubles.as_bits[0]
            return self.fill(field)
        value = self.doubles.as_double[0]
        if value >= _FLOAT_END or value <= -_FLOAT_END:
            return _PROBLEM
        self.floats[at] = value
        return self.fill(field)

    def put_integer(self, field: int, kind: int) -> int:
        """Write a whole number of 8 to 64 bits."""
        size = self.scanner.mantissa
        if self.scanner.is_negative:
            # The scanner rejects minus zero.
            size -= 1
        if size >> ((8 << (kind - _INT8)) - 1) != 0:
            return _PROBLEM
        value = size
        if self.scanner.is_negative:
            value = -value - 1
        at = self.bases[field] + self.rows
        if kind == _INT64:
            self.longs[at] = value
        elif kind == _INT32:
            self.integers[at] = value
        elif kind == _INT16:
            self.shorts[at] = value
        else:
            self.bytes[at] = value & 0xFF
        return self.fill(field)


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")


def _copy_slice(self: JsonColumns, at: int, start: int, count: int) -> None:
    self.texts[at : at + count] = self.scanner.data[start : start + count]


if __file__.endswith(".py"):
    # Uncompiled, a slice moves all bytes at once.
    JsonColumns.copy = _copy_slice  # type: ignore[method-assign]
