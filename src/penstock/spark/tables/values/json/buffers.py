"""The JSON kernel for one schema: its tables of fields, its memory, and its Arrow arrays.

Guarantees: `takes` is true for schemas with a kernel: scalars and structs of them. No byte is
copied from the kernel's buffers to Arrow. Texts begin with the size of the last ones, and grow to
at least twice that; they are never larger than the values themselves, so that 32-bit offsets are
enough.

`json.kernel` reads the values; this module only allocates the memory.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.spark.encode.binary_column import BinaryColumn
from penstock.spark.tables.values.json import columns as kinds
from penstock.spark.tables.values.json.kernel import ENDED, PROBLEM_NUMBERS, JsonKernel

_ALIGNMENT: Final = 64
"""Arrow's recommended alignment of a buffer."""
_TEXT_BYTES_MIN: Final = 4_096
_FIELDS_MAX: Final = 4_096
_DEPTH_MAX: Final = 20
"""The kernel calls itself for a struct in a struct."""
_KINDS: Final[Mapping[pa.DataType, tuple[int, int]]] = {
    pa.bool_(): (kinds.BOOLEAN, 0),
    pa.int8(): (kinds.INT8, 1),
    pa.int16(): (kinds.INT16, 2),
    pa.int32(): (kinds.INT32, 4),
    pa.int64(): (kinds.INT64, 8),
    pa.float32(): (kinds.FLOAT, 4),
    pa.float64(): (kinds.DOUBLE, 8),
    pa.string(): (kinds.STRING, 4),
    pa.date32(): (kinds.DATE, 4),
    pa.timestamp("us", tz="UTC"): (kinds.TIMESTAMP, 8),
    pa.timestamp("us"): (kinds.TIMESTAMP_NTZ, 8),
}
"""By the column's type: the kernel's code, and the bytes of each row; 0 is a bit."""


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


@dataclass(slots=True)
class _Field:
    """One place in the schema."""

    number: int
    parent: int
    name: bytes
    type: pa.DataType
    is_required: bool
    kind: int
    width: int
    data_start: int = 0
    validity_start: int = 0
    text_start: int = 0
    text_size: int = _TEXT_BYTES_MIN
    fields: "list[_Field] | None" = None


def takes(schema: pa.Schema) -> bool:
    """Return whether there is a kernel for the schema."""
    is_taken = len(schema) > 0 and all(_is_taken(field, 1) for field in schema)
    return is_taken and _count(list(schema)) <= _FIELDS_MAX


def _count(fields: list[pa.Field]) -> int:
    """Return the number of fields, including those inside of structs."""
    inner = sum(_count(list(one.type)) for one in fields if pa.types.is_struct(one.type))
    return len(fields) + inner


def _is_taken(field: pa.Field, depth: int) -> bool:
    if any(character in '"\\' or character < " " for character in field.name):
        # JSON writes such a name with an escape, which the kernel does not look up.
        return False
    if pa.types.is_struct(field.type):
        return depth < _DEPTH_MAX and all(_is_taken(one, depth + 1) for one in field.type)
    return field.type in _KINDS


class KernelReader:
    """Reads columns of values of one schema, for which `takes` is true."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._fields: list[_Field] = []
        self._columns = self._add(list(schema), 0)
        level = self._columns
        while level:
            inner: list[_Field] = []
            for one in level:
                if one.kind == kinds.STRUCT:
                    one.fields = self._add(list(one.type), one.number)
                    inner += one.fields
            level = inner
        self._kernel = JsonKernel(len(self._fields) + 1)
        self._fill_tables()
        self._texts: pa.Buffer | None = None

    def _add(self, fields: list[pa.Field], parent: int) -> list[_Field]:
        added = []
        for field in fields:
            kind, width = _KINDS.get(field.type, (kinds.STRUCT, 0))
            number = len(self._fields) + 1
            name = field.name.encode()
            one = _Field(number, parent, name, field.type, not field.nullable, kind, width)
            self._fields.append(one)
            added.append(one)
        return added

    def _fill_tables(self) -> None:
        kernel = self._kernel
        names = bytearray()
        for one in self._fields:
            kernel.parents[one.number] = one.parent
            kernel.name_starts[one.number] = len(names)
            kernel.name_sizes[one.number] = len(one.name)
            kernel.is_required[one.number] = one.is_required
            kernel.columns.kinds[one.number] = one.kind
            names += one.name
            if one.is_required:
                kernel.has_required[one.parent] = 1
        kernel.set_names(bytes(names))

    def read(self, values: pa.Array) -> KernelAnswer:
        """Read each value of a column of type binary."""
        kernel, count = self._kernel, len(values)
        fixed = self._attach(count)
        # The rows that were read, and the others.
        row_numbers = pa.allocate_buffer(max(8 * count, 1))
        kernel.row_numbers = memoryview(row_numbers).cast("B")[: 8 * count].cast("q")
        kernel.doubts = _numbers(count)
        kernel.malformed = _numbers(count)
        kernel.cut = _numbers(count)
        kernel.problems = _numbers(count * PROBLEM_NUMBERS)
        kernel.begin(_source(values))
        while kernel.run() != ENDED:
            self._grow(kernel.columns.full_field, values.nbytes)
        rows = kernel.columns.rows
        answer = KernelAnswer(
            self._batch(fixed, rows),
            pa.Array.from_buffers(pa.int64(), rows, [None, row_numbers], null_count=0),
            list(kernel.doubts[: kernel.doubt_count]),
            list(kernel.malformed[: kernel.malformed_count]),
            list(kernel.cut[: kernel.cut_count]),
            _problems(values, kernel.problems[: kernel.problem_count * PROBLEM_NUMBERS]),
        )
        kernel.forget()
        self._texts = None
        return answer

    def _attach(self, rows: int) -> pa.Buffer:
        """Allocate new memory for `rows` rows of all columns, and for texts."""
        columns, size = self._kernel.columns, 0
        bitmap = _aligned((rows + 7) // 8)
        for one in self._fields:
            one.validity_start = size
            columns.validity_bases[one.number] = size
            size += bitmap
        validity_size = size
        for one in self._fields:
            one.data_start = size
            columns.bases[one.number] = size // max(one.width, 1)
            size += _aligned((rows + 1) * one.width) if one.width else bitmap
        fixed = pa.allocate_buffer(max(size, _ALIGNMENT))
        view = memoryview(fixed).cast("B")
        view[:validity_size] = b"\xff" * validity_size
        columns.set_buffer(view)
        self._place_texts()
        return fixed

    def _place_texts(self) -> None:
        """Assign each column of texts its part of one new buffer; keep the written texts."""
        columns, old, size = self._kernel.columns, self._texts, 0
        before = [(one.text_start, columns.text_ends[one.number]) for one in self._fields]
        for one in self._fields:
            if one.kind == kinds.STRING:
                one.text_start = size
                columns.text_bases[one.number] = size
                columns.text_ends[one.number] = size + one.text_size
                size += _aligned(one.text_size)
        self._texts = pa.allocate_buffer(max(size, 1))
        view = memoryview(self._texts).cast("B")
        if old is not None:
            written = memoryview(old).cast("B")
            for one, (start, end) in zip(self._fields, before, strict=True):
                if one.kind == kinds.STRING:
                    view[one.text_start : one.text_start + end - start] = written[start:end]
        columns.texts = view

    def _grow(self, number: int, bytes_max: int) -> None:
        """Enlarge the buffer for one more text of this field."""
        field = self._fields[number - 1]
        assert field.text_size <= bytes_max, "texts are never more than the values"
        field.text_size = min(max(2 * field.text_size, _TEXT_BYTES_MIN), bytes_max + 1)
        self._place_texts()

    def _batch(self, fixed: pa.Buffer, rows: int) -> pa.RecordBatch:
        arrays = [self._array(one, fixed, rows) for one in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: _Field, fixed: pa.Buffer, rows: int) -> pa.Array:
        nulls = self._kernel.columns.nulls[field.number]
        bitmap = (rows + 7) // 8
        buffers = [fixed.slice(field.validity_start, bitmap) if nulls else None]
        if field.kind == kinds.STRUCT:
            children = [self._array(one, fixed, rows) for one in field.fields or []]
            return pa.Array.from_buffers(field.type, rows, buffers, nulls, children=children)
        if field.kind == kinds.STRING:
            buffers.append(fixed.slice(field.data_start, 4 * (rows + 1)))
            used = self._kernel.columns.text_size(field.number)
            assert self._texts is not None, "texts have their memory while rows are read"
            buffers.append(self._texts.slice(field.text_start, used))
            # Start the next texts with slightly more than the size of these.
            field.text_size = max(used + used // 8, _TEXT_BYTES_MIN)
        else:
            buffers.append(fixed.slice(field.data_start, rows * field.width or bitmap))
        return pa.Array.from_buffers(field.type, rows, buffers, nulls)


def _problems(values: pa.Array, numbers: memoryview) -> Iterator[Problem]:
    found, data = iter(list(numbers)), values.buffers()[2]
    view = memoryview(b"" if data is None else data)
    for row, column, start, end in zip(found, found, found, found, strict=True):
        yield row, column, str(view[start:end], "utf-8") if start >= 0 else None


def _source(values: pa.Array) -> BinaryColumn:
    column = BinaryColumn(len(values))
    validity, offsets, data = values.buffers()
    if offsets is not None and len(values) > 0:
        column.attach(
            memoryview(offsets).cast("B").cast("i"),
            memoryview(b"" if data is None else data).cast("B"),
            None if validity is None else memoryview(validity).cast("B"),
            values.offset,
        )
    return column


def _numbers(count: int) -> memoryview:
    return memoryview(bytearray(8 * count)).cast("q")


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
