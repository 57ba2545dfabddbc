"""Upserts into an Iceberg table: merge on read, in one snapshot.

Guarantees: no row is rewritten. Rows of changed keys are deleted by their positions, and the new
rows are in new files, so an upsert writes what it changes. A data file whose rows are all deleted
is removed with its delete files. This module commits nothing: the caller gets the files, for one
commit with the note.

Files whose statistics exclude all changed keys are not opened. The keys of the others are in the
index of `key_places`, or are read into it. A key with several rows (from earlier appends) has one
row afterwards. Deletes of other engines apply.

Readers merge the deletes each time that they read, until a compaction drops deleted rows, see
`files.maintenance`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from penstock.spark.tables.files.data_files import FileLayout, write_files
from penstock.spark.tables.files.upsert import Changes, newest_of_each, require_key, rows_among
from penstock.spark.tables.formats.change_files import ReducedChanges
from penstock.spark.tables.formats.iceberg.key_places import KeyPlaces, matches, sortable
from penstock.spark.tables.formats.iceberg.position_deletes import (
    Deletion,
    absorbed_by,
    ascending,
    own_deletes,
    write_deletes,
)
from penstock.spark.tables.formats.iceberg.upsert import Rewrite, key_types, may_hold
from penstock.spark.tables.formats.port import TableMovedError
from penstock.spark.tables.values.cdc.sequence import SEQUENCE
from penstock.spark.tables.values.columns import fit


@dataclass(frozen=True, slots=True)
class _Found:
    """The rows of changed keys in one file that are not deleted yet."""

    task: FileScanTask
    positions: pa.Array
    keys: pa.Table
    """The key of each position, with `_sequence` if the table has it."""

    def only(self, changed: pa.Table) -> "_Found":
        """Leave out rows with other keys."""
        numbers = rows_among(self.keys, changed)
        return _Found(self.task, self.positions.take(numbers), self.keys.take(numbers))


def mark_deleted(
    table: Table, changes: Changes, layout: FileLayout, places: KeyPlaces, data_directory: str
) -> Rewrite:
    """Write the new rows and the delete files; `layout` has all columns after the commit."""
    require_key(changes.key, layout.schema)
    reduced = ReducedChanges(changes)
    reduced.require_columns_of(layout.schema)
    if not reduced.count:
        return Rewrite()
    try:
        found = list(
            _found(table, reduced.keys().cast(key_types(changes, layout)), changes, places)
        )
        if changes.is_sequenced and found and SEQUENCE in found[0].keys.schema.names:
            held = pa.concat_tables([one.keys for one in found])
            reduced.leave_out_older(newest_of_each(held, list(changes.key)))
            found = _of_changes_left(found, reduced, key_types(changes, layout))
        removed, deletions = _split(table, found, places)
    except FileNotFoundError as error:
        # Another process compacted and expired in the meantime: the state that was read no longer
        # exists.
        raise TableMovedError(f"a file that was to be read is gone: {error}") from error
    rows = (fit(batch, layout.schema) for batch in reduced.kept_rows())
    return Rewrite(
        removed=tuple(one.file for one in removed),
        added=tuple(write_files(rows, layout, "upserted")),
        removed_deletes=(
            *(delete for one in removed for delete in own_deletes(one)),
            *(delete for one in deletions for delete in one.absorbed),
        ),
        added_deletes=write_deletes(deletions, layout, data_directory),
    )


def _found(table: Table, keys: pa.Table, changes: Changes, places: KeyPlaces) -> Iterator[_Found]:
    """Return the files that have rows of changed keys, with these rows."""
    by_name = {one.name: one for one in table.schema().fields}
    if any(name not in by_name for name in keys.schema.names):
        return  # a column that this commit adds: no row has such a key
    fields = [by_name[name] for name in keys.schema.names]
    tasks = list(table.scan().plan_files())
    places.begin()
    places.forget_except(tasks)
    wanted = sortable(keys)
    order = pc.sort_indices(wanted)  # neighbours are near each other in the index, too
    keys, wanted = keys.take(order), wanted.take(order)
    possible = []
    for task in tasks:
        may_be = may_hold(task.file, keys, fields)
        if pc.any(may_be).as_py():
            possible.append((task, may_be))
    has_sequence = changes.is_sequenced and SEQUENCE in by_name
    files = [task for task, _ in possible]
    indexes = places.indexes(table, files, keys.schema, has_sequence=has_sequence)
    for (task, may_be), index in zip(possible, indexes, strict=True):
        chosen = keys.filter(may_be)
        at, numbers = matches(index, wanted.filter(may_be))
        positions = index.positions.take(at).cast(pa.int64())
        is_live = _live(table, task, positions, places)
        if not pc.any(is_live).as_py():
            continue
        found = chosen.take(numbers)
        if index.sequences is not None:
            found = found.append_column(SEQUENCE, index.sequences.take(at))
        yield _Found(task, positions.filter(is_live), found.filter(is_live))


def _live(table: Table, task: FileScanTask, positions: pa.Array, places: KeyPlaces) -> pa.Array:
    """Return whether each row is not deleted yet."""
    is_live = pa.repeat(pa.scalar(value=True), len(positions))
    for delete in task.delete_files if len(positions) else ():
        gone = places.deleted(table.io, delete, task.file.file_path)
        if len(gone):
            at = pc.min_element_wise(pc.search_sorted(gone, positions), len(gone) - 1)
            is_gone = pc.equal(gone.take(at), positions)
            is_live = pc.and_(is_live, pc.invert(is_gone))
    return is_live


def _of_changes_left(
    found: Iterable[_Found], reduced: ReducedChanges, types: pa.Schema
) -> list[_Found]:
    """Leave out rows that are newer than the changes of their keys."""
    if not reduced.count:
        return []
    changed = reduced.keys().cast(types)
    left = [one.only(changed) for one in found]
    return [one for one in left if len(one.positions)]


def _split(
    table: Table, found: Iterable[_Found], places: KeyPlaces
) -> tuple[list[FileScanTask], list[Deletion]]:
    """Return the files without any row left, and the deletions in the others."""
    removed, deletions = [], []
    for one in found:
        task, path = one.task, one.task.file.file_path

        def held(delete: DataFile, path: str = path) -> pa.Array:
            return places.deleted(table.io, delete, path)

        count = sum(delete.record_count for delete in task.delete_files) + len(one.positions)
        if count >= task.file.record_count:
            every = ascending([one.positions, *map(held, task.delete_files)])
            if len(every) == task.file.record_count:
                removed.append(task)
                continue
        absorbed = absorbed_by(len(one.positions), own_deletes(task))
        positions = ascending([one.positions, *map(held, absorbed)])
        deletions.append(Deletion(task.file, positions, absorbed))
    return removed, deletions
