"""`BinaryColumn`: the byte positions of the rows of an Arrow array, for the encode kernel.

Guarantees: `locate` returns positions within the data buffer or raises `RowError`, for any offsets
of the array; it creates no object for a row. `murmur2` and `digest` read nothing outside the
located bytes.

It is a part of the encode kernel, so the file is compiled: plain Python here, the C types in
`binary_column.pxd`. It does not use pyarrow: `encode.arrow_rows` passes it the buffers.
"""

from typing import Final

from penstock.core.errors import PenstockError

# The names for the C code are private: they are C integers, which Python cannot import.
_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_MASK: Final = 0xFFFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_FACTOR: Final = 0x9E3779B97F4A7C15
_OTHER_FACTOR: Final = 0xC2B2AE3D27D4EB4F
"""Odd numbers with random-looking bits: 2^64 by the golden ratio, and a prime of xxHash."""


class RowError(PenstockError):
    """A row cannot be encoded as a record; the message names the row and the remedy."""


class BinaryColumn:
    """The rows of a binary or string array; without buffers, all of them null."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.is_null = True
        self.has_validity = False
        self.first = 0
        nothing = memoryview(b"")
        self.data = nothing
        self.validity = nothing
        self.offsets = nothing.cast("i")
        self.start = 0
        """The start of the row of the last `locate`."""

    def attach(
        self, offsets: memoryview, data: memoryview, validity: memoryview | None, first: int
    ) -> None:
        """Use the buffers of an array whose rows begin at `first`."""
        if len(offsets) <= first + self.rows:
            raise RowError(f"{len(offsets)} offsets for {first} + {self.rows} rows")
        self.offsets = offsets
        self.data = data
        self.first = first
        self.is_null = False
        if validity is not None:
            if 8 * len(validity) < first + self.rows:
                raise RowError(f"{len(validity)} bytes of validity for {self.rows} rows")
            self.validity = validity
            self.has_validity = True

    def locate(self, row: int) -> int:
        """Return the length of a row, -1 for null; `start` is then its first byte."""
        if row < 0 or row >= self.rows:
            raise RowError(f"there is no row {row} of {self.rows}")
        if self.is_null:
            return -1
        index = self.first + row
        if self.has_validity and (self.validity[index >> 3] >> (index & 7)) & 1 == 0:
            return -1
        start = self.offsets[index]
        end = self.offsets[index + 1]
        if start < 0 or start > end or end > len(self.data):
            raise RowError(f"row {row} is said to be in {start} to {end}")
        self.start = start
        return end - start

    def murmur2(self, length: int) -> int:
        """Return Kafka's hash of the last located row, of this length, unsigned 32 bits."""
        value = (_SEED ^ length) & _MASK
        index = self.start
        whole_end = index + (length & ~3)
        while index < whole_end:
            k = (self.word(index) * _M) & _MASK
            k ^= k >> _R
            k = (k * _M) & _MASK
            value = ((value * _M) & _MASK) ^ k
            index += 4
        rest = 0
        shift = 0
        while index < self.start + length:
            rest |= self.data[index] << shift
            shift += 8
            index += 1
        if shift > 0:
            value = ((value ^ rest) * _M) & _MASK
        value ^= value >> 13
        value = (value * _M) & _MASK
        return value ^ (value >> 15)

    def digest(self, seed: int, length: int) -> int:
        """Return a number for the last located row, of this length, and `seed`.

        For a long row it covers the length and sixteen bytes: a second pass over all bytes would
        cost more than it is worth.
        """
        first = seed
        last = length & _MASK_64
        if length >= 16:
            step = length >> 2
            first ^= self.word(self.start + step - 4) << 32
            first ^= self.word(self.start + 2 * step - 4)
            last ^= self.word(self.start + 3 * step - 4) << 32
            last ^= self.word(self.start + length - 4)
        else:
            index = 0
            while index < length:
                last = ((last ^ self.data[self.start + index]) * _FACTOR) & _MASK_64
                index += 1
        value = ((first * _FACTOR) & _MASK_64) ^ ((last * _OTHER_FACTOR) & _MASK_64)
        value = ((value ^ (value >> 32)) * _FACTOR) & _MASK_64
        return value ^ (value >> 32)

    def word(self, at: int) -> int:
        """Return four bytes, the lowest first; a C compiler turns this into one load."""
        lowest = self.data[at]
        low = self.data[at + 1]
        high = self.data[at + 2]
        highest = self.data[at + 3]
        return lowest | (low << 8) | (high << 16) | (highest << 24)
