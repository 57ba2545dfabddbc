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

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table import FileScanTask, Table, TableProperties
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import UpdateSnapshot, _ManifestMergeManager, _OverwriteFiles
from pyiceberg.types import NestedField, PrimitiveType

from penstock.spark.tables.files.data_files import FileLayout, FileReceipt, write_files
from penstock.spark.tables.files.upsert import Changes, require_key, rows_among, without
from penstock.spark.tables.formats.change_files import ReducedChanges
from penstock.spark.tables.formats.iceberg.rows import IcebergRows
from penstock.spark.tables.formats.port import TableMovedError
from penstock.spark.tables.values.columns import fit


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The files that an upsert adds to a table and removes from it."""

    removed: tuple[DataFile, ...]
    added: tuple[FileReceipt, ...]


def rewrite_files(table: Table, changes: Changes, layout: FileLayout) -> Rewrite:
    """Write the replacement files; `layout` has all columns after the commit."""
    require_key(changes.key, layout.schema)
    reduced = ReducedChanges(changes)
    reduced.require_columns_of(layout.schema)
    if not reduced.count:
        return Rewrite((), ())
    names = list(changes.key)
    types = pa.schema([pa.field(one, layout.schema.field(one).type) for one in names])
    try:
        touched = _touched(table, reduced.keys().cast(types))
        batches = _new_rows(table, touched, reduced, layout.schema)
        added = write_files(batches, layout, "upserted")
    except FileNotFoundError as error:
        # Another process compacted and expired in the meantime: the state that was read no longer
        # exists.
        raise TableMovedError(f"a file that was to be read is gone: {error}") from error
    return Rewrite(tuple(task.file for task, _ in touched), tuple(added))


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


def replacement(update: UpdateSnapshot) -> _OverwriteFiles:
    """Return the update for one snapshot that removes and adds files."""
    return _Replacement(
        operation=Operation.OVERWRITE,
        transaction=update._transaction,
        io=update._io,
        branch=update._branch,
        snapshot_properties=update._snapshot_properties,
    )


class _Replacement(_OverwriteFiles):
    """An overwrite that merges manifests, and that looks at manifests in several threads safely.

    pyiceberg merges them only for appends. Without it a table with an upsert a minute would have
    two more manifests each time, including those of removed files, and every scan would read them
    all.
    """

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        # pyiceberg finds removed files in a pool of threads, and its evaluator remembers the
        # manifest that it looks at: two threads that share one skip manifests, and the commit is
        # refused ("Missing required files to delete"). Each manifest gets its own evaluator.
        build = super()._build_manifest_evaluator

        def may_have_removed(manifest: ManifestFile) -> bool:
            return build(spec_id)(manifest)

        return may_have_removed

    def _existing_manifests(self) -> list[ManifestFile]:
        found = super()._existing_manifests()
        return [one for one in found if one.has_added_files() or one.has_existing_files()]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        manager = _ManifestMergeManager(
            target_size_bytes=TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
            min_count_to_merge=TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT,
            merge_enabled=True,
            snapshot_producer=self,
        )
        data = [one for one in manifests if one.content == ManifestContent.DATA]
        deletes = [one for one in manifests if one.content == ManifestContent.DELETES]
        return manager.merge_manifests(data) + deletes
