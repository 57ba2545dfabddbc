"""Runs a kernel over a column of values, and the reference over the rows that it leaves.

Guarantees: each value has the result of the reference, if the kernel accepts only values of which
the reference gives the same row. `read` gives rows in the order of the values, and rejects.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from penstock.spark.encode.arrow_rows import fill
from penstock.spark.encode.binary_column import BinaryColumn
from penstock.spark.tables.values.columnar.memory import ColumnMemory
from penstock.spark.tables.values.columnar.row_kernel import ENDED, RowKernel
from penstock.spark.tables.values.parser import Parsed
from penstock.spark.tables.values.row_batches import in_place, together

_NUMBER_BYTES: Final = 8


class KernelReading:
    """Reads columns of values of one schema."""

    def __init__(
        self,
        kernel: RowKernel,
        memory: ColumnMemory,
        skip: int,
        reference: Callable[[pa.Array], Parsed],
    ) -> None:
        """`skip` bytes of each value are a header; the reference is for rows in doubt."""
        self._kernel = kernel
        self._memory = memory
        self._skip = skip
        self._reference = reference

    def __call__(self, values: pa.Array) -> Parsed:
        """Read each value; none is null."""
        rows, numbers, doubts = self.by_kernel(values)
        sure = Parsed(rows, numbers)
        if not len(doubts):
            return sure
        rest = in_place(self._reference(values.take(doubts)), doubts)
        return together([sure, rest], rows.schema, len(values))

    def by_kernel(self, values: pa.Array) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
        """Return the rows of the kernel with their numbers, and the numbers of the doubts."""
        try:
            return self._by_kernel(values)
        finally:
            # Nothing of a batch that failed may be in the next one.
            self._kernel.forget()
            self._memory.release()

    def _by_kernel(self, values: pa.Array) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
        kernel, count = self._kernel, len(values)
        self._memory.attach(values)
        numbers, doubts = _room(count), _room(count)
        kernel.row_numbers = memoryview(numbers).cast("B").cast("q")
        kernel.doubts = memoryview(doubts).cast("B").cast("q")
        kernel.begin(source_of(values), self._skip)
        while kernel.run() != ENDED:
            if not self._memory.grow():
                kernel.leave_row()
        rows = self._memory.batch()
        return (
            rows,
            pa.Array.from_buffers(pa.int64(), rows.num_rows, [None, numbers], 0),
            pa.Array.from_buffers(pa.int64(), kernel.doubt_count, [None, doubts], 0),
        )


def _room(count: int) -> pa.Buffer:
    return pa.allocate_buffer(max(_NUMBER_BYTES * count, _NUMBER_BYTES))


def source_of(values: pa.Array) -> BinaryColumn:
    """Return the places of the rows of a column of type binary."""
    column = BinaryColumn(len(values))
    fill(column, values)
    return column
