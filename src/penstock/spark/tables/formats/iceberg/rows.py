"""The rows of an Iceberg table's data files, each value as it is in the file.

Guarantees: the ids of fields identify columns, at every depth, whatever their names were when a
file was written. A field that is missing in a file is null, or has the value of the partition or
the field's default. A field that was widened since is cast. Rows in delete files of other engines
are left out. All other values are those of the file: a null list stays null.

It replaces `ArrowScan` of pyiceberg, which converts a null list of structs to an empty list, and a
null map of structs to an empty map. A rewrite of rows must not change a value.

Files are read one after the other, a part at a time; only small ones are read ahead.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.io.pyarrow import (
    _get_column_projection_values,
    _read_all_delete_files,
    pyarrow_to_schema,
)
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema, promote
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
)

from penstock.spark.tables.formats.iceberg.schema import plain_schema
from penstock.spark.tables.formats.port import TableError
from penstock.spark.tables.values.nested_arrays import list_of, map_of, struct_of

READ_AHEAD_FILES: Final = 8
"""The number of small files that are read in parallel: with an object store most of the time is
latency."""
SMALL_FILE_BYTES: Final = 4 * 2**20
"""A larger file is read a part at a time, and alone."""
_BUFFER_BYTES: Final = 8 * 2**20
_BATCHES_AHEAD: Final = 4
READ_FORMATS: Final = (FileFormat.PARQUET, FileFormat.ORC)
"""The readable formats of data files; files of other formats are left unchanged."""
_TIMES: Final = (TimestampType, TimestamptzType)


class IcebergRows:
    """Reads the rows of files of the table, as of the creation of this object."""

    def __init__(self, table: Table, names: Sequence[str] | None = None) -> None:
        by_name = {one.name: one for one in table.schema().fields}
        self._fields = [by_name[name] for name in (by_name if names is None else names)]
        self._metadata, self._io = table.metadata, table.io
        self.schema = plain_schema(Schema(*self._fields))
        """The columns of the rows: the table's, or the requested ones."""

    def batches(self, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
        """Return the rows of these files, in their order."""
        deleted = _read_all_delete_files(self._io, tasks)
        ahead: deque[Future[list[pa.RecordBatch]]] = deque()
        with ThreadPoolExecutor(READ_AHEAD_FILES) as pool:
            for task in tasks:
                part = self._batches_of(task, deleted.get(task.file.file_path, ()))
                is_small = task.file.file_size_in_bytes <= SMALL_FILE_BYTES
                while ahead and (not is_small or len(ahead) >= READ_AHEAD_FILES):
                    yield from ahead.popleft().result()
                if is_small:
                    ahead.append(pool.submit(list, part))
                else:
                    yield from part
            while ahead:
                yield from ahead.popleft().result()

    def all_rows(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        """Return the rows of this file in their order, deleted rows as well."""
        return self._batches_of(task, ())

    def _batches_of(
        self, task: FileScanTask, deleted: Sequence[pa.ChunkedArray]
    ) -> Iterator[pa.RecordBatch]:
        metadata = self._metadata
        with self._io.new_input(task.file.file_path).open() as source:
            fragment = _format_of(task).make_fragment(source)
            held = pyarrow_to_schema(
                fragment.physical_schema,
                metadata.name_mapping(),
                downcast_ns_timestamp_to_us=metadata.format_version <= 2,
                format_version=metadata.format_version,
            )
            partition_values = _get_column_projection_values(
                task.file,
                Schema(*self._fields),
                metadata.schema(),
                metadata.specs().get(task.file.spec_id),
                held.field_ids,
            )
            projection = _Projection(task.file.file_path, partition_values)
            wanted = {one.field_id for one in self._fields}
            found = [one for one in held.fields if one.field_id in wanted]
            scanner = ds.Scanner.from_fragment(
                fragment,
                schema=fragment.physical_schema,
                columns=[one.name for one in found],
                batch_readahead=_BATCHES_AHEAD,
            )
            first = 0
            for rows in scanner.to_batches():
                left = _without(rows, deleted, first)
                first += rows.num_rows
                if left.num_rows:
                    columns = projection.of_fields(
                        found, left.columns, self._fields, list(self.schema), left.num_rows
                    )
                    yield pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _format_of(task: FileScanTask) -> ds.FileFormat:
    if task.file.file_format is FileFormat.PARQUET:
        # Imported files may have times as INT96, which Arrow reads as nanoseconds. Nanoseconds end
        # in 2262, and a later time would silently become another time.
        return ds.ParquetFileFormat(
            pre_buffer=True, buffer_size=_BUFFER_BYTES, coerce_int96_timestamp_unit="us"
        )
    if task.file.file_format is FileFormat.ORC:
        return ds.OrcFileFormat()
    raise TableError(
        f"{task.file.file_path} is a file of {task.file.file_format.value}, and Penstock reads "
        "Parquet and ORC. Let the engine that wrote it write the table's files again as Parquet."
    )


def _without(
    rows: pa.RecordBatch, deleted: Sequence[pa.ChunkedArray], first: int
) -> pa.RecordBatch:
    """Return the rows that are not deleted, by number in the file; the first row is `first`."""
    if not deleted:
        return rows
    numbers = pa.arange(first, first + rows.num_rows)
    for one in deleted:
        kept = pc.invert(pc.is_in(numbers, value_set=one.cast(pa.int64()).combine_chunks()))
        rows, numbers = rows.filter(kept), numbers.filter(kept)
    return rows


class _Projection:
    """Maps the fields of one file to those of the table, by their ids."""

    def __init__(self, path: str, partition_values: Mapping[int, Any]) -> None:
        self._path = path
        self._partition_values = partition_values
        """The partition's values of fields that are missing in the file."""

    def of_fields(
        self,
        held: Sequence[NestedField],
        columns: Sequence[pa.Array],
        wanted: Sequence[NestedField],
        kinds: Sequence[pa.Field],
        count: int,
    ) -> list[pa.Array]:
        """Return a column for each requested field; `held` are the fields of `columns`."""
        by_id = {one.field_id: (one, column) for one, column in zip(held, columns, strict=True)}
        made = []
        for field, kind in zip(wanted, kinds, strict=True):
            if field.field_id in by_id:
                one, column = by_id[field.field_id]
                made.append(self._of(column, one.field_type, field.field_type, kind.type))
            else:
                made.append(self._missing(field, kind.type, count))
        return made

    def _missing(self, field: NestedField, kind: pa.DataType, count: int) -> pa.Array:
        value = self._partition_values.get(field.field_id, field.initial_default)
        if value is not None:
            return pa.repeat(pa.scalar(value, kind), count)
        if field.required:
            raise TableError(
                f"{self._path} has no column '{field.name}', which the table requires. Let the "
                "engine that wrote it write the file again, or make the column optional."
            )
        return pa.nulls(count, kind)

    def _of(
        self, column: pa.Array, held: IcebergType, wanted: IcebergType, kind: pa.DataType
    ) -> pa.Array:
        if held == wanted and column.type == kind:
            return column
        match held, wanted:
            case StructType(), StructType():
                inner = [column.field(one.name) for one in held.fields]
                children = self.of_fields(
                    held.fields, inner, wanted.fields, list(kind), len(column)
                )
                return struct_of(column, kind, children)
            case ListType(), ListType():
                return list_of(
                    column,
                    kind,
                    lambda one: self._of(
                        one, held.element_type, wanted.element_type, kind.value_type
                    ),
                )
            case MapType(), MapType():
                return map_of(
                    column,
                    kind,
                    lambda one: self._of(one, held.key_type, wanted.key_type, kind.key_type),
                    lambda one: self._of(one, held.value_type, wanted.value_type, kind.item_type),
                )
        return _cast(column, held, wanted, kind)


def _cast(column: pa.Array, held: IcebergType, wanted: IcebergType, kind: pa.DataType) -> pa.Array:
    are_times = isinstance(held, _TIMES) and isinstance(wanted, _TIMES)
    if held != wanted and not are_times:
        promote(held, wanted)  # or raises an error
    if are_times:  # of other writers, in nanoseconds, which tables of this version do not have
        return column.cast(kind, safe=column.type.unit != "ns")
    return column.cast(kind)
