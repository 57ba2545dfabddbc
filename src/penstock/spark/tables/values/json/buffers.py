"""The JSON kernel for one schema: its tables of fields, its memory, and its Arrow arrays.

Guarantees: `takes` is true for schemas with a kernel: all but binary columns and a few names. The
memory is that of `columnar.memory`.

`json.kernel` reads the values; this module only fills its tables and takes its results.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.spark.tables.values.columnar.column_tree import (
    ColumnNode,
    ColumnTree,
    children_of,
)
from penstock.spark.tables.values.columnar.memory import ColumnMemory
from penstock.spark.tables.values.columnar.reading import source_of
from penstock.spark.tables.values.json import columns as kinds
from penstock.spark.tables.values.json.kernel import ENDED, PROBLEM_NUMBERS, JsonKernel

_FIELDS_MAX: Final = 4_096
_DEPTH_MAX: Final = 20
"""The kernel calls itself for a value in a value."""
_HALF: Final = 2**64
_KINDS: Final[Mapping[pa.DataType, int]] = {
    pa.bool_(): kinds.BOOLEAN,
    pa.int8(): kinds.INT8,
    pa.int16(): kinds.INT16,
    pa.int32(): kinds.INT32,
    pa.int64(): kinds.INT64,
    pa.float32(): kinds.FLOAT,
    pa.float64(): kinds.DOUBLE,
    pa.string(): kinds.STRING,
    pa.date32(): kinds.DATE,
    pa.timestamp("us", tz="UTC"): kinds.TIMESTAMP,
    pa.timestamp("us"): kinds.TIMESTAMP_NTZ,
}
"""By the column's type: the kernel's code."""


Problem: TypeAlias = tuple[int, int, str | None]
"""A value that its column seems to reject: the row, the column, and the value's JSON, which is None
for a missing value."""


@dataclass(frozen=True, slots=True)
class KernelAnswer:
    """The kernel's result for one column of values."""

    rows: pa.RecordBatch
    row_numbers: pa.Array
    doubts: list[int]
    """The rows without a result, in order."""
    malformed: list[int]
    """The rows that are not JSON, in order."""
    cut: list[int]
    """The rows that end too early to be JSON, in order."""
    problems: Iterator[Problem]
    """In order."""


def takes(schema: pa.Schema) -> bool:
    """Return whether there is a kernel for the schema."""
    is_taken = len(schema) > 0 and all(_is_taken(field, 1) for field in schema)
    return is_taken and _count(list(schema)) <= _FIELDS_MAX


def _count(fields: list[pa.Field]) -> int:
    """Return the number of fields, including those inside of others."""
    return len(fields) + sum(_count(children_of(one.type)) for one in fields)


def _is_taken(field: pa.Field, depth: int) -> bool:
    if any(character in '"\\' or character < " " for character in field.name):
        # JSON writes such a name with an escape, which the kernel does not look up.
        return False
    if pa.types.is_map(field.type) and not pa.types.is_string(field.type.key_type):
        return False
    inner = children_of(field.type)
    if inner:
        return depth < _DEPTH_MAX and all(_is_taken(one, depth + 1) for one in inner)
    return field.type in _KINDS or pa.types.is_decimal128(field.type)


class KernelReader:
    """Reads columns of values of one schema, for which `takes` is true."""

    def __init__(self, schema: pa.Schema) -> None:
        self._tree = ColumnTree(schema)
        self._memory = ColumnMemory(self._tree)
        self._kernel = JsonKernel(self._memory.columns)
        self._fill_tables()

    def _fill_tables(self) -> None:
        kernel = self._kernel
        names = bytearray()
        for parent in self._tree.nodes:
            for one in parent.children:
                kernel.names.parents[one.number] = parent.number
                kernel.is_required[one.number] = one.is_required
                if one.is_required:
                    kernel.has_required[parent.number] = 1
        for one in self._tree.nodes[1:]:
            name = one.name.encode()
            kernel.names.name_starts[one.number] = len(names)
            kernel.names.name_sizes[one.number] = len(name)
            kernel.inner_levels[one.number] = one.inner_level
            self._fill_column(one)
            names += name
        kernel.names.set_names(bytes(names))

    def _fill_column(self, node: ColumnNode) -> None:
        columns = self._kernel.columns
        columns.kinds[node.number] = _kind(node.type)
        if pa.types.is_decimal128(node.type):
            columns.scales[node.number] = node.type.scale
            high, low = divmod(10**node.type.precision, _HALF)
            columns.limits_high[node.number], columns.limits_low[node.number] = high, low

    def read(self, values: pa.Array) -> KernelAnswer:
        """Read each value of a column of type binary."""
        try:
            return self._read(values)
        finally:
            # Nothing of a batch that failed may be in the next one.
            self._kernel.forget()
            self._memory.release()

    def _read(self, values: pa.Array) -> KernelAnswer:
        kernel, count = self._kernel, len(values)
        self._memory.attach(values)
        # The rows that were read, and the others.
        row_numbers = pa.allocate_buffer(max(8 * count, 1))
        kernel.row_numbers = memoryview(row_numbers).cast("B")[: 8 * count].cast("q")
        kernel.doubts = _numbers(count)
        kernel.malformed = _numbers(count)
        kernel.cut = _numbers(count)
        kernel.problems = _numbers(count * PROBLEM_NUMBERS)
        kernel.begin(source_of(values))
        while kernel.run() != ENDED:
            if not self._memory.grow():
                kernel.doubt_row()
        rows = self._memory.batch()
        return KernelAnswer(
            rows,
            pa.Array.from_buffers(pa.int64(), rows.num_rows, [None, row_numbers], null_count=0),
            list(kernel.doubts[: kernel.doubt_count]),
            list(kernel.malformed[: kernel.malformed_count]),
            list(kernel.cut[: kernel.cut_count]),
            _problems(values, kernel.problems[: kernel.problem_count * PROBLEM_NUMBERS]),
        )


def _kind(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return kinds.STRUCT
    if pa.types.is_map(kind):
        return kinds.MAP
    if pa.types.is_list(kind):
        return kinds.LIST
    return kinds.DECIMAL if pa.types.is_decimal128(kind) else _KINDS[kind]


def _problems(values: pa.Array, numbers: memoryview) -> Iterator[Problem]:
    found, data = iter(list(numbers)), values.buffers()[2]
    view = memoryview(b"" if data is None else data)
    for row, column, start, end in zip(found, found, found, found, strict=True):
        yield row, column, str(view[start:end], "utf-8") if start >= 0 else None


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")
