"""Upserts into an Iceberg table: copy on write, in one snapshot.

Files whose statistics exclude all changed keys are not opened. From the other files the key columns
are read. Only files that have rows of changed keys are rewritten without these rows, and replaced
in the table. This module commits nothing: the caller gets the removed and the added files, for one
commit with the note.

A key with several rows (from earlier appends) has one row afterwards. Deletes of other engines are
applied when files are read. The keys of one file at a time are in memory, or a part of it while it
is rewritten; all other values stay unchanged.

It does not use `Table.upsert` of pyiceberg, which compares rows in memory and commits two
snapshots.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import NestedField, PrimitiveType

from penstock.spark.tables.files.data_files import FileLayout, FileReceipt, write_files
from penstock.spark.tables.files.upsert import (
    Changes,
    newest_of_each,
    require_key,
    rows_among,
    without,
)
from penstock.spark.tables.formats.change_files import ReducedChanges
from penstock.spark.tables.formats.iceberg.position_deletes import (
    NO_DELETES,
    WrittenDeletes,
    own_deletes,
)
from penstock.spark.tables.formats.iceberg.rows import IcebergRows
from penstock.spark.tables.formats.port import TableMovedError
from penstock.spark.tables.values.cdc.sequence import SEQUENCE
from penstock.spark.tables.values.columns import fit


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The files that a commit adds to a table and removes from it."""

    removed: tuple[DataFile, ...] = ()
    added: tuple[FileReceipt, ...] = ()
    removed_deletes: tuple[DataFile, ...] = ()
    """Delete files of removed data files, and those whose positions are in the added ones."""
    added_deletes: WrittenDeletes = NO_DELETES

    @property
    def is_append(self) -> bool:
        """Whether it only adds rows."""
        return not (self.removed or self.removed_deletes or self.added_deletes.entries)

    @property
    def receipts(self) -> tuple[FileReceipt, ...]:
        """All files that it has written."""
        return self.added + self.added_deletes.receipts


def rewrite_files(table: Table, changes: Changes, layout: FileLayout) -> Rewrite:
    """Write the replacement files; `layout` has all columns after the commit."""
    require_key(changes.key, layout.schema)
    reduced = ReducedChanges(changes)
    reduced.require_columns_of(layout.schema)
    if not reduced.count:
        return Rewrite()
    types = key_types(changes, layout)
    try:
        touched = _touched(table, reduced.keys().cast(types))
        if changes.is_sequenced and touched:
            touched = _without_older(table, touched, reduced, types)
        batches = _new_rows(table, touched, reduced, layout.schema)
        added = write_files(batches, layout, "upserted")
    except FileNotFoundError as error:
        # Another process compacted and expired in the meantime: the state that was read no longer
        # exists.
        raise TableMovedError(f"a file that was to be read is gone: {error}") from error
    return Rewrite(
        removed=tuple(task.file for task, _ in touched),
        added=tuple(added),
        removed_deletes=tuple(one for task, _ in touched for one in own_deletes(task)),
    )


def merge_files(table: Table, groups: Sequence[list[FileScanTask]], layout: FileLayout) -> Rewrite:
    """Write the rows of each group of small files into fewer files."""
    reader = IcebergRows(table)
    added = [
        receipt
        for group in groups
        for receipt in write_files(reader.batches(group), layout, "compacted")
    ]
    merged = [task for group in groups for task in group]
    return Rewrite(
        removed=tuple(task.file for task in merged),
        added=tuple(added),
        removed_deletes=tuple(one for task in merged for one in own_deletes(task)),
    )


def key_types(changes: Changes, layout: FileLayout) -> pa.Schema:
    """Return the columns of the key, with their types after the commit."""
    return pa.schema([pa.field(one, layout.schema.field(one).type) for one in changes.key])


def _touched(table: Table, keys: pa.Table) -> list[tuple[FileScanTask, pa.Table]]:
    """Return the files that have rows of changed keys, each with those keys."""
    names = keys.schema.names
    by_name = {one.name: one for one in table.schema().fields}
    if any(name not in by_name for name in names):
        return []  # a column that this commit adds: no row has such a key
    reader = IcebergRows(table, names)
    fields = [by_name[name] for name in names]
    found = []
    for task in table.scan().plan_files():
        possible = keys.filter(may_hold(task.file, keys, fields))
        if not possible.num_rows:
            continue
        rows = pa.Table.from_batches(reader.batches([task]), reader.schema).cast(keys.schema)
        numbers = rows_among(rows, possible)
        if len(numbers):
            found.append((task, rows.take(numbers).combine_chunks()))
    return found


def rows_of_keys(table: Table, keys: pa.Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Return these columns of the rows of these keys, from the files that may have them."""
    names = list(dict.fromkeys([*columns, *keys.schema.names]))
    reader = IcebergRows(table, names)
    # Rows are cast, not keys: the commit may widen a key, and only the wide type has all of them.
    types = pa.schema([pa.field(one.name, one.type) for one in keys.schema])
    by_name = {one.name: one for one in table.schema().fields}
    fields = [by_name[name] for name in types.names]
    files = [
        task
        for task in table.scan().plan_files()
        if pc.any(may_hold(task.file, keys, fields), min_count=0).as_py()
    ]
    for batch in reader.batches(files):
        of_keys = pa.Table.from_batches([batch]).select(types.names).cast(types)
        found = batch.take(rows_among(of_keys, keys))
        if found.num_rows:
            yield found.select(list(columns))


def _without_older(
    table: Table,
    touched: list[tuple[FileScanTask, pa.Table]],
    reduced: ReducedChanges,
    types: pa.Schema,
) -> list[tuple[FileScanTask, pa.Table]]:
    """Leave out changes that are older than their rows; return the files of the other changes."""
    if SEQUENCE not in {one.name for one in table.schema().fields}:
        return touched  # a column that this commit adds: no row has an order yet
    names = types.names
    reader = IcebergRows(table, [*names, SEQUENCE])
    columns = pa.schema([*types, pa.field(SEQUENCE, pa.string())])
    parts = []
    for task, keys in touched:
        rows = pa.Table.from_batches(reader.batches([task]), reader.schema).cast(columns)
        parts.append(rows.take(rows_among(rows, keys)))
    reduced.leave_out_older(newest_of_each(pa.concat_tables(parts), names))
    if not reduced.count:
        return []
    changed = reduced.keys().cast(types)
    left = [(task, keys.take(rows_among(keys, changed))) for task, keys in touched]
    return [(task, keys) for task, keys in left if keys.num_rows]


def may_hold(file: DataFile, keys: pa.Table, fields: Iterable[NestedField]) -> pa.Array:
    """Return for each key whether the file may have it, by its statistics."""
    mask = pa.repeat(pa.scalar(value=True), keys.num_rows)
    for field in fields:
        column = keys.column(field.name).combine_chunks()
        if pa.types.is_boolean(column.type):
            continue  # Arrow cannot compare them
        for bounds, compare in (
            (file.lower_bounds, pc.greater_equal),
            (file.upper_bounds, pc.less_equal),
        ):
            raw = (bounds or {}).get(field.field_id)
            if raw is not None:
                mask = pc.and_(mask, compare(column, _bound(raw, field, column.type)))
    return mask


def _bound(raw: bytes, field: NestedField, kind: pa.DataType) -> pa.Scalar:
    assert isinstance(field.field_type, PrimitiveType), "keys are not nested"
    value: Any = from_bytes(field.field_type, raw)
    if isinstance(value, int) and not pa.types.is_integer(kind):
        stored = pa.int32() if pa.types.is_date32(kind) else pa.int64()  # days, or microseconds
        return pa.scalar(value, stored).cast(kind)
    return pa.scalar(value, kind)


def _new_rows(
    table: Table,
    touched: Iterable[tuple[FileScanTask, pa.Table]],
    reduced: ReducedChanges,
    columns: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Return the remaining rows of the files, and the new rows."""
    reader = IcebergRows(table)
    for task, keys in touched:
        for batch in reader.batches([task]):
            rows = fit(batch, columns)
            left = without(rows, rows_among(rows, keys))
            if left.num_rows:
                yield left
    for batch in reduced.kept_rows():
        yield fit(batch, columns)
