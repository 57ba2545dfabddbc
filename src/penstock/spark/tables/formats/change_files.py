"""Files of changes: their location, the last change of each key, and their removal.

Tasks write them with `changes_layout`, into a folder that readers of the table ignore. They exist
for one commit. `ReducedChanges` reads them twice: first only the keys, to find the last change of
each, and then the rows of these changes, a part at a time. Only the keys are held in memory.

The driver removes its files after the commit. A crashed driver leaves unreferenced files: files
older than any batch are deleted with the table's orphans, in Delta by `clean_changes`, because the
cleanup there skips such folders.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.spark.tables.files.data_files import FileLayout, FileReceipt, open_directory
from penstock.spark.tables.files.storages import below
from penstock.spark.tables.files.upsert import (
    CHANGE_COLUMNS,
    CHANGES_MAX,
    DELETED,
    Changes,
    changes_schema,
    last_of_each,
    not_older,
    order_columns,
    places_among,
)
from penstock.spark.tables.formats.port import LayoutChangedError, Table, TableError
from penstock.spark.tables.values.cdc.carried_columns import CARRIED, carried_field
from penstock.spark.tables.values.cdc.sequence import SEQUENCE
from penstock.spark.tables.values.columns import fit
from penstock.spark.tables.values.schema_changes import Incompatible, all_nullable, change_of

FOLDER: Final = "_changes"
"""A folder beside the data files; readers of both formats skip names with an underscore."""
CLEANED_MAX: Final = 10_000
"""The maximum number of deletions in one step, so that a batch does not wait for minutes; the next
cleanup continues."""
_READ_ROWS: Final = 65_536
"""The number of rows that are read in one step."""


class TooManyChangesError(TableError):
    """A batch has more changes than one upsert accepts."""


def changes_layout(table: Table, schema: pa.Schema, carried: Sequence[str] = ()) -> FileLayout:
    """Return the layout for the changes of rows with this schema.

    Partial changes may carry the columns in `carried`.
    """
    rows = table.layout(schema)
    flags = [carried_field(carried)] if carried else []
    return FileLayout(
        changes_directory(rows.directory),
        pa.schema([*changes_schema(schema), *flags]),
        constraints_key=rows.constraints_key,
    )


def changes_directory(data_directory: str) -> str:
    """Return the folder of the files of changes, for a table with this data folder."""
    return below(data_directory, FOLDER)


def all_changes(changes: Changes, columns: pa.Schema) -> pa.Table:
    """Return these columns of all changes, in the order of the files.

    Raise `LayoutChangedError` if the files have other columns, or other types, than these.
    """
    _require_acceptable(changes)
    filesystem, root = open_directory(changes.directory)
    batches = []
    for one in changes.receipts:
        with pq.ParquetFile(f"{root}/{one.path}", filesystem=filesystem) as file:
            _require_fitting(file.schema_arrow, columns)
            names = [name for name in columns.names if name in file.schema_arrow.names]
            batches += [fit(part, columns) for part in file.iter_batches(_READ_ROWS, columns=names)]
    return pa.Table.from_batches(batches, columns)


def _require_fitting(found: pa.Schema, columns: pa.Schema) -> None:
    """Raise `LayoutChangedError` for a column in a file that the table no longer has, or not so.

    Otherwise the fitting would lose its values, or convert them to another meaning.
    """
    extra = {*CHANGE_COLUMNS.names, CARRIED}
    wanted, come = (
        all_nullable(pa.schema([field for field in one if field.name not in extra]))
        for one in (columns, found)
    )
    change = change_of(wanted, come)
    if isinstance(change, Incompatible):
        reason = change.reasons[0]
    elif change.steps:
        reason = f"column '{'.'.join(change.steps[0].path)}' is not in it, or is narrower."
    else:
        return
    raise LayoutChangedError(
        f"changes were written for other columns than the table has by now: {reason}"
    )


def _require_acceptable(changes: Changes) -> None:
    if changes.count > CHANGES_MAX:
        raise TooManyChangesError(
            f"the batch has {changes.count} changes, and an upsert takes {CHANGES_MAX}. Let a "
            "batch have fewer records (maxOffsetsPerTrigger of the source), and give the "
            "pipeline a new checkpoint: the old one has this batch."
        )


class ReducedChanges:
    """The last changes of a batch: one for each key."""

    def __init__(self, changes: Changes) -> None:
        _require_acceptable(changes)
        self._changes = changes
        self._filesystem, self._root = open_directory(changes.directory)
        names = order_columns(changes.key, is_sequenced=changes.is_sequenced)
        parts = [self._read(one, names) for one in changes.receipts]
        # Deletions may have the table's type of the key, which this commit widens.
        found = pa.concat_tables(parts, promote_options="permissive") if parts else None
        self._numbers = pa.array([], pa.int64())
        if found is not None:
            self._numbers = last_of_each(found, changes.key, is_sequenced=changes.is_sequenced)
        self._found = found
        if self.count and changes.deleted_keys is not None:
            self.leave_out_older(changes.deleted_keys)

    @property
    def count(self) -> int:
        """The number of changed keys."""
        return len(self._numbers)

    def keys(self) -> pa.Table:
        """Return the key of each last change, including deletions."""
        assert self._found is not None, "without changes there are no keys"
        return self._found.select(list(self._changes.key)).take(self._numbers).combine_chunks()

    def last(self) -> pa.Table:
        """Return the key, the order and the kind of each last change of a sequence."""
        assert self._found is not None, "without changes there are no keys"
        names = [*self._changes.key, SEQUENCE, DELETED]
        return self._found.select(names).take(self._numbers).combine_chunks()

    def smallest(self, name: str) -> pa.Array | None:
        """Return the smallest value of a column among all changes of each last change's key.

        None: no key has two changes.
        """
        if self._found is None or self.count == self._found.num_rows:
            return None
        key = list(self._changes.key)
        parts = [self._read(one, [*key, name]) for one in self._changes.receipts]
        every = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
        found = every.group_by(key).aggregate([(name, "min")])
        places = places_among(self.keys(), found.select(key))
        return found[f"{name}_min"].combine_chunks().take(places)

    def leave_out_older(self, held: pa.Table) -> None:
        """Leave out changes that are older than the same key in `held`."""
        is_kept = not_older(self.last(), held, self._changes.key)
        self._numbers = self._numbers.filter(is_kept)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Return the last changes, with the columns of changes."""
        first = 0
        for receipt in self._changes.receipts:
            with self._open(receipt) as file:
                for batch in file.iter_batches(_READ_ROWS):
                    chosen = self._chosen(first, batch.num_rows)
                    first += batch.num_rows
                    if len(chosen):
                        yield batch.take(chosen)

    def kept_rows(self) -> Iterator[pa.RecordBatch]:
        """Return the new rows of the table, without deletions."""
        for batch in self.rows():
            kept = batch.filter(pc.invert(batch.column(DELETED)))
            if kept.num_rows:
                yield kept

    def require_columns_of(self, schema: pa.Schema) -> None:
        """Raise for a column that the table does not have: it would be lost silently."""
        if not self._changes.receipts:
            return
        with self._open(self._changes.receipts[0]) as file:
            found = set(file.schema_arrow.names)
        missing = found - set(schema.names) - set(CHANGE_COLUMNS.names)
        assert not missing, f"the changes have columns that the table does not have: {missing}"

    def _chosen(self, first: int, count: int) -> pa.Array:
        """Return the numbers of last changes among the rows starting at `first`, relative to it."""
        begin = _place(self._numbers, first)
        end = _place(self._numbers, first + count)
        return pc.subtract(self._numbers.slice(begin, end - begin), first)

    def _read(self, receipt: FileReceipt, names: list[str]) -> pa.Table:
        with self._open(receipt) as file:
            found = file.read(columns=names).select(names)
        assert found.num_rows == receipt.row_count, f"{receipt.path} is as it was written"
        return found

    def _open(self, receipt: FileReceipt) -> pq.ParquetFile:
        return pq.ParquetFile(f"{self._root}/{receipt.path}", filesystem=self._filesystem)


def _place(numbers: pa.Array, at: int) -> int:
    """Return the index of the first number that is not below `at`; they are in order."""
    return int(pc.search_sorted(numbers, pa.scalar(at, pa.int64())).as_py()) if len(numbers) else 0


def clean_changes(directory: str, *, older_than_ms: int) -> int:
    """Delete files of changes from before this time; return their number.

    `directory` is that of the layout. The time must be earlier than the first file of any batch
    that may still commit.
    """
    filesystem, root = open_directory(directory)
    removed = 0
    for one in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True)):
        if removed >= CLEANED_MAX:
            break
        is_old = one.mtime_ns is not None and one.mtime_ns // 1_000_000 < older_than_ms
        if one.type == fs.FileType.File and is_old and one.path.endswith(".parquet"):
            with suppress(FileNotFoundError):  # two cleanups at the same time
                filesystem.delete_file(one.path)
                removed += 1
    return removed
