"""Reads a column of binary values, row by row, by the format of a subclass.

Guarantees: each row is either in the columns or among the doubts. A row in doubt leaves nothing in
the columns, and nothing is said about it: the caller reads it by the reference. No object is
created for a value.

The file is compiled: plain Python here, the C types in `row_kernel.pxd`.
"""

from typing import Final

from penstock.spark.encode.binary_column import BinaryColumn
from penstock.spark.tables.values.columnar.byte_reader import ByteReader
from penstock.spark.tables.values.columnar.columns import ArrowColumns

COMPILED: Final = not __file__.endswith(".py")
"""Whether the C extension runs. Uncompiled, the reference is faster."""
ENDED: Final = 0
"""All rows are read."""

# The names for the C code are private: they are C integers, which Python cannot import.
_READ: Final = 0
_DOUBT: Final = 1
_GROW: Final = 3


class RowKernel:
    """Reads one column after another; a subclass has `read_row`."""

    def __init__(self, columns: ArrowColumns) -> None:
        self.columns = columns
        self.reader = ByteReader()
        self.source = BinaryColumn(0)
        self.row = 0
        self.skip = 0
        self.doubt_count = 0
        self.forget()

    def forget(self) -> None:
        """Release all buffers."""
        self.source = BinaryColumn(0)
        self.reader.forget()
        self.columns.forget()
        self.doubts = self.row_numbers = memoryview(bytearray()).cast("q")

    def begin(self, source: BinaryColumn, skip: int) -> None:
        """Read this column from its first row; `skip` bytes of each value are a header."""
        assert min(len(self.row_numbers), len(self.doubts)) >= source.rows
        self.source = source
        self.reader.open(source.data)
        self.columns.data = source.data
        self.row = 0
        self.skip = skip
        self.doubt_count = 0
        self.columns.begin()

    def run(self) -> int:
        """Read rows; return ENDED, or another code if `columns` has no room for the next one."""
        while self.row < self.source.rows:
            size = self.source.locate(self.row)
            code = _DOUBT
            if size >= self.skip:
                self.reader.position = self.source.start + self.skip
                self.reader.end = self.source.start + size
                code = self.read_row()
            if code == _READ:
                self.row_numbers[self.columns.lengths[0]] = self.row
                self.columns.commit_row()
            else:
                self.columns.abandon_row()
                if code == _GROW:
                    return code
                self.leave_row()
                continue
            self.row += 1
        return _READ

    def leave_row(self) -> None:
        """Go on behind the row: it is in doubt."""
        self.doubts[self.doubt_count] = self.row
        self.doubt_count += 1
        self.row += 1

    def read_row(self) -> int:
        """Read the bytes of the reader into the columns; return _READ, _DOUBT or _GROW."""
        return _DOUBT
