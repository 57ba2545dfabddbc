"""Reads the numbers and texts of binary formats from bytes, without objects.

Guarantees: nothing outside of `position` to `end` is read. A number of variable length has at most
ten bytes and 64 bits, as in Avro and Protobuf, or five bytes and 32 bits, as the tags and sizes of
Protobuf; a longer one is not accepted. `is_text` is true for valid UTF-8 without halves of
surrogate pairs, as Python and Arrow decide.

It is a part of each kernel, so the file is compiled: plain Python here, the C types in
`byte_reader.pxd`. Every change must hold for 64-bit integers that wrap.
"""

from typing import Final

# The names for the C code are private: they are C integers, which Python cannot import.
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_HIGH_BITS: Final = 0x8080808080808080
_SIGN_64: Final = 0x8000000000000000
_LAST_SHIFT: Final = 63
"""The tenth byte of a number has its highest bit only."""
_LAST_SHIFT_32: Final = 28
_LAST_BYTE_MAX_32: Final = 15
"""The fifth byte of a number of 32 bits has its highest four bits only."""


class ByteReader:
    """A position in the bytes of one value, and the number that was read last."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Release the bytes."""
        self.data = memoryview(b"")
        self.position = 0
        self.end = 0
        self.number = 0

    def open(self, data: memoryview) -> None:
        """Use these bytes; the caller sets `position` and `end` within them."""
        self.data = data
        self.position = 0
        self.end = 0

    def varint(self) -> bool:
        """Read a number of at most ten bytes, without a sign; return whether it is there."""
        return self.number_up_to(_LAST_SHIFT, 1)

    def varint32(self) -> bool:
        """Read a number of at most five bytes and 32 bits; return whether it is there."""
        return self.number_up_to(_LAST_SHIFT_32, _LAST_BYTE_MAX_32)

    def number_up_to(self, last_shift: int, last_byte_max: int) -> bool:
        """Read a number whose last possible byte has this shift and this greatest value."""
        number = 0
        shift = 0
        while self.position < self.end:
            byte = self.data[self.position]
            self.position += 1
            if shift == last_shift and byte > last_byte_max:
                return False
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.number = number
                return True
            shift += 7
        return False

    def zigzag(self) -> int:
        """Return the number that was read last, with the sign in its lowest bit."""
        half = self.number >> 1
        return -half - 1 if self.number & 1 else half

    def with_sign(self) -> int:
        """Return the number that was read last as one with a sign in its highest bit."""
        if self.number & _SIGN_64 == 0:
            return self.number
        rest = _MASK_64 - self.number
        return -rest - 1

    def fixed(self, size: int) -> bool:
        """Read a number of four or eight bytes, the lowest first; return whether it is there."""
        if self.end - self.position < size:
            return False
        self.number = self.half_word(self.position)
        if size > 4:
            self.number |= self.half_word(self.position + 4) << 32
        self.position += size
        return True

    def has(self, size: int) -> bool:
        """Return whether as many bytes are left."""
        return 0 <= size <= self.end - self.position

    def is_text(self, start: int, size: int) -> bool:
        """Return whether these bytes are UTF-8; they are within the data."""
        position = start
        end = start + size
        while position < end:
            if position + 8 <= end and self.is_plain(position):
                position += 8
            elif self.data[position] < 0x80:
                position += 1
            else:
                length = self.sequence_size(position, end)
                if length == 0:
                    return False
                position += length
        return True

    def is_plain(self, at: int) -> bool:
        """Return whether eight bytes are ASCII."""
        word = self.half_word(at) | (self.half_word(at + 4) << 32)
        return word & _HIGH_BITS == 0

    def half_word(self, at: int) -> int:
        """Return four bytes, the lowest first; a C compiler turns this into one load."""
        lowest = self.data[at]
        low = self.data[at + 1]
        high = self.data[at + 2]
        highest = self.data[at + 3]
        return lowest | (low << 8) | (high << 16) | (highest << 24)

    def sequence_size(self, at: int, end: int) -> int:
        """Return the length of the non-ASCII character that begins here; 0 if it is not UTF-8."""
        first = self.data[at]
        if first < 0xC2 or first > 0xF4:
            return 0
        size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        if at + size > end:
            return 0
        index = at + 1
        while index < at + size:
            if self.data[index] & 0xC0 != 0x80:
                return 0
            index += 1
        second = self.data[at + 1]
        # Overlong, half of a surrogate pair, or beyond the last character.
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
            return 0
        return size
