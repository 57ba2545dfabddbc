"""Writes the parts of a scanned JSON value into Arrow columns.

Guarantees: a value in a column is the result of `json.rows` for that column; any other value is
answered with a code, and its column is not written.

It is a part of the JSON kernel, so the file is compiled: plain Python here, the C types in
`json/columns.pxd`. Every change must hold for 64-bit integers that wrap. The places of values are
those of `columnar.columns`.
"""

from typing import Final

from penstock.spark.tables.values.columnar.columns import ArrowColumns
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
DECIMAL: Final = 12
LIST: Final = 13
MAP: Final = 14

# The names for the C code are private: they are C integers, which Python cannot import.
_READ: Final = 0
_DOUBT: Final = 1
_PROBLEM: Final = 2
_GROW: Final = 3
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
_DECIMAL: Final = 12
_MINUS: Final = 0x2D
_ZERO: Final = 0x30
_NINE: Final = 0x39
_LETTER_T: Final = 0x74
_FLOAT_END: Final = 3.4028235677973366e38
"""A number nearer to zero is a finite float after rounding."""
_SECONDS_MAX: Final = 9_223_372_036_854
"""The limit of 64 bits in microseconds."""
_MICROSECONDS: Final = 1_000_000
_MASK_32: Final = 0xFFFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_SHIFT_MAX: Final = 19
"""A number of 19 digits times ten to this power has 38 digits, which fit in 128 bits."""


class JsonColumns:
    """The columns of one schema, as JSON is read into them."""

    def __init__(self, scanner: JsonScanner, columns: ArrowColumns) -> None:
        self.scanner = scanner
        self.columns = columns
        self.doubles = DoubleReader()
        self.times = TimeReader()
        self.kinds = _numbers(columns.fields)
        # By field of a decimal: its scale, and ten to the power of its digits, in two halves.
        self.scales = _numbers(columns.fields)
        self.limits_high = _numbers(columns.fields).cast("B").cast("Q")
        self.limits_low = _numbers(columns.fields).cast("B").cast("Q")
        # By field: the last object that filled it.
        self.filled = _numbers(columns.fields)
        self.stamp = 0

    def fill(self, field: int) -> int:
        """Mark the field as filled in this object."""
        self.filled[field] = self.stamp
        return _READ

    def put_text(self, field: int) -> int:
        """Write the text that was scanned last."""
        kind = self.kinds[field]
        if kind == _STRING:
            return self.put_bytes(field, self.scanner.text_start, self.scanner.text_end)
        if kind < _DATE or kind > _DECIMAL or self.scanner.has_escape:
            return _PROBLEM
        if kind == _DECIMAL:
            return self.put_number_in_text(field)
        return self.put_time(field, kind)

    def put_bytes(self, field: int, start: int, end: int) -> int:
        """Write these bytes of the value as a text; escapes are those of the last text."""
        size = end - start
        if not self.scanner.has_escape:
            if self.columns.write_text(field, start, size) != _READ:
                return _GROW
            return self.fill(field)
        target = self.columns.text_room(field, size)
        if target < 0:
            return _GROW
        self.columns.end_text(field, self.scanner.unescaped(self.columns.texts, target))
        return self.fill(field)

    def put_time(self, field: int, kind: int) -> int:
        """Write the text that was scanned last as a date or a time."""
        start = self.scanner.text_start
        end = self.scanner.text_end
        if kind == _DATE:
            if not self.times.date(self.scanner.data, start, end):
                return _PROBLEM
            self.columns.write_integer(field, self.times.days)
            return self.fill(field)
        if not self.times.time(self.scanner.data, start, end):
            return _PROBLEM
        if kind == _TIMESTAMP_NTZ and self.times.has_zone:
            return _PROBLEM
        self.columns.write_long(field, self.times.microseconds)
        return self.fill(field)

    def put_literal(self, field: int, letter: int, start: int) -> int:
        """Write true or false, which was scanned last and began at `start`."""
        kind = self.kinds[field]
        if kind == _BOOLEAN:
            self.columns.write_boolean(field, letter == _LETTER_T)
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
        if kind == _DECIMAL:
            return self.put_decimal(field)
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
            value = (-seconds if self.scanner.is_negative else seconds) * _MICROSECONDS
            self.columns.write_long(field, value)
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
        value = self.doubles.as_double[0]
        if kind == _DOUBLE:
            self.columns.write_double(field, value)
            return self.fill(field)
        if value >= _FLOAT_END or value <= -_FLOAT_END:
            return _PROBLEM
        self.columns.write_float(field, value)
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
        if kind == _INT64:
            self.columns.write_long(field, value)
        elif kind == _INT32:
            self.columns.write_integer(field, value)
        elif kind == _INT16:
            self.columns.write_short(field, value)
        else:
            self.columns.write_byte(field, value & 0xFF)
        return self.fill(field)

    def put_number_in_text(self, field: int) -> int:
        """Write a decimal from the text that was scanned last."""
        position = self.scanner.position
        end = self.scanner.end
        self.scanner.position = self.scanner.text_start
        self.scanner.end = self.scanner.text_end
        code = _DOUBT
        if self.scanner.position < self.scanner.end:
            byte = self.scanner.data[self.scanner.position]
            is_number = byte == _MINUS or _ZERO <= byte <= _NINE
            if is_number and self.scanner.number() and self.scanner.position == self.scanner.end:
                code = self.put_decimal(field)
        self.scanner.position = position
        self.scanner.end = end
        self.scanner.is_cut = False
        return code

    def put_decimal(self, field: int) -> int:
        """Write the number that was scanned last as a decimal, rounded half up."""
        low = self.scanner.mantissa
        high = 0
        shift = self.scanner.exponent + self.scales[field]
        if low == 0:
            shift = 0
        elif shift > _SHIFT_MAX:
            return _DOUBT
        if shift < 0:
            low = self.rounded(low, -shift)
            shift = 0
        while shift > 0:
            # Ten times both halves; the upper part of the lower half carries.
            carry = (low >> 32) * 10 + (((low & _MASK_32) * 10) >> 32)
            low = (low * 10) & _MASK_64
            high = high * 10 + (carry >> 32)
            shift -= 1
        limit = self.limits_high[field]
        if high > limit or (high == limit and low >= self.limits_low[field]):
            return _PROBLEM
        if self.scanner.is_negative:
            low = (_MASK_64 - low + 1) & _MASK_64
            high = (_MASK_64 - high + (1 if low == 0 else 0)) & _MASK_64
        self.columns.write_decimal(field, high, low)
        return self.fill(field)

    def rounded(self, number: int, digits: int) -> int:
        """Return a number without its last digits, rounded half up."""
        if digits > _SHIFT_MAX:
            return 0
        divisor = 1
        while digits > 0:
            divisor *= 10
            digits -= 1
        whole = number // divisor
        rest = number - whole * divisor
        return whole + 1 if rest >= divisor - rest else whole


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")
