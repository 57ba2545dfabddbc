"""Finds the field of a key in a JSON object.

Guarantees: the key that is expected costs a comparison, any other one a look into a table. Nothing
outside of the scanner's bytes is read. A key with an escape is not looked up.

It is a part of the JSON kernel, so the file is compiled: plain Python here, the C types in
`json/field_names.pxd`. Every change must hold for 64-bit integers that wrap.
"""

from typing import Final

from penstock.spark.tables.values.json.scan import JsonScanner

UNKNOWN: Final = -1
"""No field has the key's name."""
UNREADABLE: Final = -2
"""The key has an escape, or is not JSON."""

# The names for the C code are private: they are C integers, which Python cannot import.
_UNKNOWN: Final = -1
_UNREADABLE: Final = -2
_QUOTE: Final = 0x22
_FACTOR: Final = 0x9E3779B97F4A7C15
"""2^64 by the golden ratio: its products spread names over the table."""
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_SLOT_BITS_MAX: Final = 16


class FieldNames:
    """The names of all fields, each within its parent."""

    def __init__(self, scanner: JsonScanner, fields: int) -> None:
        self.scanner = scanner
        self.fields = fields
        self.parents = _numbers(fields)
        self.name_starts = _numbers(fields)
        self.name_sizes = _numbers(fields)
        self.names = memoryview(b"")
        self.slots = _numbers(0)
        self.slot_shift = 0

    def set_names(self, names: bytes) -> None:
        """Set all names, after the other tables are filled; create the lookup table."""
        bits = 3
        while 1 << bits < 4 * self.fields and bits < _SLOT_BITS_MAX:
            bits += 1
        assert 1 << bits > self.fields, "the table of names has empty slots"
        self.names = memoryview(names)
        self.slots = _numbers(1 << bits)
        self.slot_shift = 64 - bits
        self.scanner.open(self.names, 0, len(names))
        for field in range(1, self.fields):
            slot = self.slot_of(
                self.parents[field], self.name_starts[field], self.name_sizes[field]
            )
            while self.slots[slot] != 0:
                slot = (slot + 1) & (len(self.slots) - 1)
            self.slots[slot] = field

    def field_of_key(self, parent: int, expected: int) -> int:
        """Scan a key; return its field, _UNKNOWN, or _UNREADABLE; `expected` is tried first."""
        start = self.scanner.position + 1
        if expected != 0:
            size = self.name_sizes[expected]
            if (
                start + size < self.scanner.end
                and self.scanner.data[start + size] == _QUOTE
                and self.is_name(expected, start)
            ):
                self.scanner.position = start + size + 1
                return expected
        if not self.scanner.text() or self.scanner.has_escape:
            return _UNREADABLE
        size = self.scanner.text_end - start
        slot = self.slot_of(parent, start, size)
        # The table has empty slots, so the loop ends.
        while self.slots[slot] != 0:
            field = self.slots[slot]
            if (
                self.parents[field] == parent
                and self.name_sizes[field] == size
                and self.is_name(field, start)
            ):
                return field
            slot = (slot + 1) & (len(self.slots) - 1)
        return _UNKNOWN

    def is_name(self, field: int, at: int) -> bool:
        """Return whether the bytes here are the name; the caller checks their number."""
        index = 0
        size = self.name_sizes[field]
        start = self.name_starts[field]
        while index < size:
            if self.scanner.data[at + index] != self.names[start + index]:
                return False
            index += 1
        return True

    def slot_of(self, parent: int, at: int, size: int) -> int:
        """Return the first slot for a name: by its struct, its size and three of its bytes."""
        value = (parent << 40) | (size << 24)
        if size > 0:
            first = self.scanner.data[at]
            middle = self.scanner.data[at + (size >> 1)]
            last = self.scanner.data[at + size - 1]
            value ^= first | (middle << 8) | (last << 16)
        return ((value * _FACTOR) & _MASK_64) >> self.slot_shift


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")
