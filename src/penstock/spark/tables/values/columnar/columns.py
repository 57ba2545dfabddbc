"""Writes values of rows into the buffers of Arrow columns, also inside of lists and maps.

Guarantees: a row counts when `commit_row` is called; after `abandon_row` nothing is left of the row
that was begun. Nothing is written outside of the attached buffers: a caller asks for room before an
item of a list, and a text that does not fit is not written.

A field has a level. The rows are level 0, and each list or map has the level of its items; a struct
is in the level of its fields. A level has a length, so the place of a value in its column is that
of its level. Field 0 is the row itself.

It is a part of each kernel, so the file is compiled: plain Python here, the C types in
`columns.pxd`. Every change must hold for 64-bit integers that wrap. It allocates nothing:
`columnar.memory` sets the buffers and turns them into Arrow arrays.
"""

from typing import Final

STRUCT: Final = 0
BOOLEAN: Final = 1
INT8: Final = 2
INT16: Final = 3
INT32: Final = 4
INT64: Final = 5
FLOAT: Final = 6
DOUBLE: Final = 7
DECIMAL: Final = 8
BINARY: Final = 9
"""Texts too."""
LIST: Final = 10
"""Maps too: lists with a key and an item."""

# The names for the C code are private: they are C integers, which Python cannot import.
_READ: Final = 0
_GROW: Final = 3
_STRUCT: Final = 0
_BOOLEAN: Final = 1
_INT8: Final = 2
_INT16: Final = 3
_INT32: Final = 4
_INT64: Final = 5
_FLOAT: Final = 6
_DECIMAL: Final = 8
_BINARY: Final = 9


class ArrowColumns:
    """The columns of the rows that are not taken out yet."""

    def __init__(self, fields: int, levels: int) -> None:
        self.fields = fields
        self.levels = levels
        self.kinds = _numbers(fields)
        self.field_levels = _numbers(fields)
        # The fields of a struct, the items of a list, the keys and items of a map.
        self.first_children = _numbers(fields)
        self.child_counts = _numbers(fields)
        # The start of a column: in units of its width, in bytes, and in bytes of the texts.
        self.bases = _numbers(fields)
        self.validity_bases = _numbers(fields)
        self.text_bases = _numbers(fields)
        self.text_ends = _numbers(fields)
        self.has_nulls = _numbers(fields)
        # By level: the entries, those of counted rows, and the room for them.
        self.lengths = _numbers(levels)
        self.counted = _numbers(levels)
        self.capacities = _numbers(levels)
        # The bytes of the values, and those of names that stand for numbers in values.
        self.data = memoryview(b"")
        self.symbols = memoryview(b"")
        # The field or the level without room.
        self.full_field = 0
        self.full_level = 0
        self.forget()

    def forget(self) -> None:
        """Release all buffers."""
        nothing = memoryview(bytearray())
        self.set_buffer(nothing)
        self.texts = nothing
        self.data = memoryview(b"")

    def set_buffer(self, buffer: memoryview) -> None:
        """Set the memory of all columns, viewed in each width; its size is a multiple of eight."""
        self.bytes = buffer
        self.shorts = buffer.cast("h")
        self.integers = buffer.cast("i")
        self.longs = buffer.cast("q")
        self.unsigned_longs = buffer.cast("Q")
        self.floats = buffer.cast("f")
        self.doubles = buffer.cast("d")

    def begin(self) -> None:
        """Restart at row 0."""
        level = 0
        while level < self.levels:
            self.lengths[level] = 0
            self.counted[level] = 0
            level += 1
        field = 1
        while field < self.fields:
            self.has_nulls[field] = 0
            if self.kinds[field] >= _BINARY:
                self.integers[self.bases[field]] = 0
            field += 1
        self.full_field = 0
        self.full_level = 0

    def text_size(self, field: int) -> int:
        """Return the number of bytes in the texts of a column."""
        return self.integers[self.bases[field] + self.counted[self.field_levels[field]]]

    def commit_row(self) -> None:
        """Count the row."""
        self.lengths[0] += 1
        level = 0
        while level < self.levels:
            self.counted[level] = self.lengths[level]
            level += 1

    def abandon_row(self) -> None:
        """Forget the row that was begun: its nulls too."""
        field = 1
        while field < self.fields:
            level = self.field_levels[field]
            at = self.counted[level]
            # The entry that was not finished as well, if there was room for one.
            while at <= self.lengths[level] and at < self.capacities[level]:
                self.write_bit(self.validity_bases[field], at, True)  # noqa: FBT003
                at += 1
            field += 1
        level = 0
        while level < self.levels:
            self.lengths[level] = self.counted[level]
            level += 1

    def has_room(self, level: int) -> bool:
        """Return whether a level has room for one more entry; otherwise it is noted as full."""
        if self.lengths[level] < self.capacities[level]:
            return True
        self.full_level = level
        return False

    def add_entry(self, level: int) -> None:
        """Count the entry of a level that was written."""
        self.lengths[level] += 1

    def place(self, field: int) -> int:
        """Return the place of a field's next value, in units of its width."""
        return self.bases[field] + self.lengths[self.field_levels[field]]

    def write_null(self, field: int) -> None:
        """Write null, for the fields of a struct too."""
        self.has_nulls[field] = 1
        at = self.lengths[self.field_levels[field]]
        self.write_bit(self.validity_bases[field], at, False)  # noqa: FBT003
        if self.kinds[field] != _STRUCT:
            self.write_zero(field)
            return
        child = self.first_children[field]
        end = child + self.child_counts[field]
        while child < end:
            self.write_null(child)
            child += 1

    def write_zero(self, field: int) -> None:
        """Write zero, false, an empty text or an empty list; the field is no struct."""
        kind = self.kinds[field]
        at = self.place(field)
        if kind >= _BINARY:
            self.integers[at + 1] = self.integers[at]
        elif kind == _BOOLEAN:
            self.write_boolean(field, False)  # noqa: FBT003
        elif kind == _INT8:
            self.bytes[at] = 0
        elif kind == _INT16:
            self.shorts[at] = 0
        elif kind in (_INT32, _FLOAT):
            self.integers[at] = 0
        elif kind == _DECIMAL:
            self.longs[2 * at] = 0
            self.longs[2 * at + 1] = 0
        else:
            self.longs[at] = 0

    def write_bit(self, base: int, index: int, is_set: bool) -> None:  # noqa: FBT001
        """Write a bit of the bitmap that begins at this byte."""
        at = base + (index >> 3)
        bit = 1 << (index & 7)
        self.bytes[at] = self.bytes[at] | bit if is_set else self.bytes[at] & (0xFF ^ bit)

    def write_boolean(self, field: int, is_set: bool) -> None:  # noqa: FBT001
        """Write true or false."""
        self.write_bit(self.bases[field], self.lengths[self.field_levels[field]], is_set)

    def write_integer(self, field: int, value: int) -> None:
        """Write a number of 32 bits."""
        self.integers[self.place(field)] = value

    def write_short(self, field: int, value: int) -> None:
        """Write a number of 16 bits."""
        self.shorts[self.place(field)] = value

    def write_byte(self, field: int, value: int) -> None:
        """Write a number of 8 bits, without a sign."""
        self.bytes[self.place(field)] = value

    def write_float(self, field: int, value: float) -> None:
        """Write a fraction of 32 bits."""
        self.floats[self.place(field)] = value

    def write_long(self, field: int, value: int) -> None:
        """Write a number of 64 bits."""
        self.longs[self.place(field)] = value

    def write_decimal(self, field: int, high: int, low: int) -> None:
        """Write a number of 128 bits, in two halves without a sign."""
        at = 2 * self.place(field)
        self.unsigned_longs[at] = low
        self.unsigned_longs[at + 1] = high

    def write_double(self, field: int, value: float) -> None:
        """Write a fraction of 64 bits."""
        self.doubles[self.place(field)] = value

    def write_text(self, field: int, start: int, size: int) -> int:
        """Write these bytes of the values as a text; return GROW if there is no room for them."""
        target = self.text_room(field, size)
        if target < 0:
            return _GROW
        index = 0
        # A C compiler turns this loop into wide moves, without a call; see below for Python.
        while index < size:
            self.texts[target + index] = self.data[start + index]
            index += 1
        self.end_text(field, size)
        return _READ

    def write_symbol(self, field: int, start: int, size: int) -> int:
        """Write these bytes of the symbols as a text; return GROW if there is no room for them."""
        target = self.text_room(field, size)
        if target < 0:
            return _GROW
        index = 0
        while index < size:
            self.texts[target + index] = self.symbols[start + index]
            index += 1
        self.end_text(field, size)
        return _READ

    def text_room(self, field: int, size: int) -> int:
        """Return the place of a text in the texts; -1 if there is no room for this size."""
        target = self.text_bases[field] + self.integers[self.place(field)]
        if target + size > self.text_ends[field]:
            self.full_field = field
            return -1
        return target

    def end_text(self, field: int, size: int) -> None:
        """Write the end of a text of this size, which is in its place."""
        at = self.place(field)
        self.integers[at + 1] = self.integers[at] + size

    def end_list(self, field: int, level: int) -> None:
        """Write the end of a list or map whose items are in this level."""
        self.integers[self.place(field) + 1] = self.lengths[level]

    def list_start(self, field: int) -> int:
        """Return the number of the first item of the list that is written now."""
        return self.integers[self.place(field)]

    def is_same(self, field: int, one: int, other: int) -> bool:
        """Return whether two entries of a column are equal, by their numbers in its level."""
        kind = self.kinds[field]
        base = self.bases[field]
        if kind == _BINARY:
            return self.is_same_text(field, one, other)
        if kind == _BOOLEAN:
            return self.bit(base, one) == self.bit(base, other)
        if kind == _INT32:
            return self.integers[base + one] == self.integers[base + other]
        if kind != _DECIMAL:
            return self.longs[base + one] == self.longs[base + other]
        left = 2 * (base + one)
        right = 2 * (base + other)
        is_low = self.longs[left] == self.longs[right]
        return is_low and self.longs[left + 1] == self.longs[right + 1]

    def bit(self, base: int, index: int) -> int:
        """Return a bit of the bitmap that begins at this byte."""
        return (self.bytes[base + (index >> 3)] >> (index & 7)) & 1

    def is_same_text(self, field: int, one: int, other: int) -> bool:
        """Return whether two entries of a text column are equal, by their numbers in its level."""
        base = self.bases[field]
        start = self.integers[base + one]
        size = self.integers[base + one + 1] - start
        begin = self.integers[base + other]
        if self.integers[base + other + 1] - begin != size:
            return False
        index = 0
        while index < size:
            left = self.texts[self.text_bases[field] + start + index]
            if left != self.texts[self.text_bases[field] + begin + index]:
                return False
            index += 1
        return True


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")


def _copy_text(self: ArrowColumns, field: int, start: int, size: int) -> int:
    target = self.text_room(field, size)
    if target < 0:
        return _GROW
    self.texts[target : target + size] = self.data[start : start + size]
    self.end_text(field, size)
    return _READ


if __file__.endswith(".py"):
    # Uncompiled, a slice moves all bytes at once.
    ArrowColumns.write_text = _copy_text  # type: ignore[method-assign]
