"""`BinaryColumn`: where the bytes of each row of an Arrow array are, for the encode kernel.

Guarantees: `locate` gives positions within the data buffer or raises `RowError`, whatever
the offsets of the array say; it makes no object for a row.

It is a part of the encode kernel, so the file is compiled: plain Python here, the C types in
`binary_column.pxd`. It does not know pyarrow: `encode.arrow_rows` hands it the buffers.
"""

from penstock.core.errors import PenstockError


class RowError(PenstockError):
    """A row cannot become a record; the message names the row and what to do."""


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
        """Where the row begins that `locate` was asked for last."""

    def attach(
        self, offsets: memoryview, data: memoryview, validity: memoryview | None, first: int
    ) -> None:
        """The buffers of an array whose rows begin at `first`."""
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
        """The length of a row, -1 when it is null; `start` is then where it begins."""
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
