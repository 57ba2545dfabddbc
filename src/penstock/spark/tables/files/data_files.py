"""Parquet files of a table: Spark tasks write rows and return receipts.

A task writes files that are not visible to readers yet; only the driver's commit adds them to the
table. Guarantees of a receipt: its file is complete and closed, and, in a local directory, synced
to disk with its name, so that no power cut removes a committed file. A failed task leaves files
without receipts, which are unreferenced and are deleted later by age.

Names are new each time (a random part in each), so two attempts of a task never write to one file.
Layouts and receipts are pickled between driver and tasks, and are independent of Iceberg and Delta:
the layout has the columns of a file and their ids, the receipt has the Parquet footer, from which
each format reads its statistics.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from penstock.spark.tables.definition.locations import local_path, split
from penstock.spark.tables.files.file_order import SortField, in_order
from penstock.spark.tables.files.file_partitions import (
    PartitionField,
    PartitionValue,
    split_rows,
    text_of,
)
from penstock.spark.tables.files.storages import StoreError, reached, storage_of
from penstock.spark.tables.values.leaves import float_paths, nan_counts, paths_of
from penstock.spark.tables.values.nested_arrays import for_parquet

OPEN_FILES_MAX: Final = 64
"""The maximum number of partitions that a task writes at the same time; each costs a row group in
memory. When rows of one more arrive, the file that was opened first is closed."""
FILE_BYTES_TARGET: Final = 256 * 2**20
"""A file of this size is closed, and the next one begins."""
ROW_GROUP_ROWS: Final = 262_144
"""The number of rows in one row group; readers read row groups in parallel."""
STAGING_FOLDER: Final = "_staging"
"""A folder beside the data of a table, for rows before their commit; readers of both formats skip
it."""
DICTIONARY_BYTES_MAX: Final = 65_536
"""The maximum size of a column's dictionary: with more distinct values they are written plainly,
which is smaller and faster for names and ids."""
HELD_BYTES_MAX: Final = 256 * 2**20
"""The maximum size of buffered rows of a task; above it the row groups get smaller."""
SORTED_BYTES_MAX: Final = 128 * 2**20
"""The maximum size of rows in memory that are sorted together, with a copy of them. A larger file
is sorted in parts, and is not marked as sorted."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of the files of a table."""

    directory: str
    """A URI or a path, as in `locations`; it has a folder for each partition. A `Directory` has its
    storage, too."""
    schema: pa.Schema
    """The schema of the rows. Iceberg's has the ids of its fields."""
    partitions: tuple[PartitionField, ...] = ()
    left_out: frozenset[str] = frozenset()
    """Columns that are not in the files because the partition has their values."""
    file_bytes_target: int = FILE_BYTES_TARGET
    compression: str = "zstd"
    constraints_key: str = ""
    """The rules of the table's owner that the rows passed; see `delta.rules`."""
    sort: tuple[SortField, ...] = ()
    """The order of the rows in a file; none: the order of writing."""

    def file_schema(self) -> pa.Schema:
        """Return the columns in a file."""
        kept = [one for one in self.schema if one.name not in self.left_out]
        return pa.schema(kept, self.schema.metadata)


@dataclass(frozen=True, slots=True)
class FileReceipt:
    """A finished file."""

    path: str
    """The path below the layout's directory, with `/` between its parts."""
    row_count: int
    size_bytes: int
    partition: tuple[PartitionValue, ...]
    """A value for each of the layout's partitions."""
    footer: bytes
    """The file's Parquet metadata, as a separate file."""
    partition_names: tuple[str, ...] = ()
    """The names of the layout's partitions, in the order of the values."""
    nan_counts: tuple[tuple[str, int], ...] = ()
    """The number of NaN values in columns of floats, by path in Parquet; a missing column is
    unknown."""
    constraints_key: str = ""
    """The `constraints_key` of the layout."""
    sort: tuple[SortField, ...] = ()
    """The order of all rows in the file; none: it is unknown."""

    def may_have_nan(self, path: str) -> bool:
        """Return whether the column of floats has NaN, or may have it."""
        return dict(self.nan_counts).get(path) != 0

    def metadata(self) -> pq.FileMetaData:
        """Return the parsed footer."""
        return pq.read_metadata(pa.BufferReader(self.footer))


def write_files(rows: Iterable[pa.RecordBatch], layout: FileLayout, name: str) -> list[FileReceipt]:
    """Write rows to files that begin with `name`; return the receipts after all are stored."""
    with FilesWriter(layout, name) as writer:
        for batch in rows:
            writer.write(batch)
        return writer.finish()


class FilesWriter:
    """Writes arriving rows into one open file for each partition.

    Use it in a `with` block: its end closes unfinished files, which have no receipt.
    """

    def __init__(self, layout: FileLayout, name: str) -> None:
        self._layout = layout
        self._name = name
        self._place: tuple[fs.FileSystem, str] | None = None
        self._open: dict[tuple[PartitionValue, ...], _OpenFile] = {}
        self._finished: list[FileReceipt] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._open.values():
            one.discard()
        self._open = {}

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows to the files of their partitions."""
        with reached(self._layout.directory):
            for partition, part in split_rows(rows, self._layout.partitions):
                self._write(partition, part)
            if sum(one.held_bytes for one in self._open.values()) > HELD_BYTES_MAX:
                for one in self._open.values():
                    one.flush()

    def finish(self) -> list[FileReceipt]:
        """Close all files; return the receipts after all of them are stored."""
        with reached(self._layout.directory):
            while self._open:
                self._finish_first()
        return self._finished

    def _write(self, partition: tuple[PartitionValue, ...], part: pa.RecordBatch) -> None:
        file = self._file(partition)
        if file.would_hide(part):
            self._finished.append(self._open.pop(partition).finish())
            file = self._file(partition)
        file.write(part)
        if file.size_bytes >= self._layout.file_bytes_target:
            self._finished.append(self._open.pop(partition).finish())

    def _file(self, partition: tuple[PartitionValue, ...]) -> "_OpenFile":
        file = self._open.get(partition)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish_first()
            if self._place is None:  # most tasks write no file of rejects
                self._place = open_directory(self._layout.directory)
            file = _OpenFile(*self._place, self._layout, partition, self._name)
            self._open[partition] = file
        return file

    def _finish_first(self) -> None:
        first = next(iter(self._open))
        self._finished.append(self._open.pop(first).finish())


class _OpenFile:
    """An unfinished file."""

    def __init__(
        self,
        filesystem: fs.FileSystem,
        root: str,
        layout: FileLayout,
        partition: tuple[PartitionValue, ...],
        name: str,
    ) -> None:
        self._schema = layout.file_schema()
        self._partition = partition
        self._partition_names = tuple(one.name for one in layout.partitions)
        folders = [_folder(*one) for one in zip(layout.partitions, partition, strict=True)]
        self._path = "/".join([*folders, f"{name}-{uuid4().hex}.parquet"])
        self._full_path = f"{root}/{self._path}"
        self._is_local = isinstance(filesystem, fs.LocalFileSystem)
        if self._is_local:
            os.makedirs(os.path.dirname(self._full_path), exist_ok=True)
        self._sink = filesystem.open_output_stream(self._full_path)
        self._compression = layout.compression
        self._constraints_key = layout.constraints_key
        self._sort = layout.sort
        self._part_count = 0
        self._writer: pq.ParquetWriter | None = None
        self._nan_counts = dict.fromkeys(float_paths(self._schema), 0)
        self._row_count = 0
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self.held_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The written and the buffered bytes; the latter before compression."""
        return int(self._sink.tell()) + self.held_bytes

    def would_hide(self, rows: pa.RecordBatch) -> bool:
        """Return whether a column first has NaN in these rows, after the file has begun.

        Bounds in Parquet do not include NaN. Spark and DuckDB sort it above all numbers, and would
        skip it. So a column with NaN has no bounds, from the file's beginning.
        """
        if self._writer is None or not self._nan_counts:
            return False
        found = nan_counts(rows.select(self._schema.names))
        return any(count and not self._nan_counts[path] for path, count in found.items())

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; columns by name, in the order of the layout."""
        chosen = rows.select(self._schema.names)
        columns = [
            for_parquet(
                column if column.type == field.type else column.cast(field.type), field.type
            )
            for column, field in zip(chosen.columns, self._schema, strict=True)
        ]
        gathered = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        for path, count in nan_counts(gathered).items():
            self._nan_counts[path] += count
        self._held.append(gathered)
        self.held_bytes += rows.nbytes
        self._held_rows += rows.num_rows
        self._row_count += rows.num_rows
        is_full = self._held_rows >= ROW_GROUP_ROWS
        if self.held_bytes >= SORTED_BYTES_MAX if self._sort else is_full:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group; sorted rows may be several."""
        if self._held_rows:
            gathered = pa.Table.from_batches(self._held, self._schema)
            if self._sort:
                gathered = in_order(gathered, self._sort)
            self._parquet().write_table(gathered, min(self._held_rows, ROW_GROUP_ROWS))
            self._part_count += 1
        self._held, self.held_bytes, self._held_rows = [], 0, 0

    def finish(self) -> FileReceipt:
        """Close the file and return its receipt."""
        self.flush()
        writer = self._parquet()
        writer.close()
        footer = pa.BufferOutputStream()
        writer.writer.metadata.write_metadata_file(footer)
        size_bytes = self._sink.tell()
        self._sink.close()
        if self._is_local:
            sync_file(self._full_path)
        return FileReceipt(
            self._path,
            self._row_count,
            size_bytes,
            self._partition,
            footer.getvalue().to_pybytes(),
            self._partition_names,
            tuple(self._nan_counts.items()),
            self._constraints_key,
            self._sort if self._part_count <= 1 else (),
        )

    def _parquet(self) -> pq.ParquetWriter:
        """Return the writer; it is opened with the first row group, when NaN columns are known."""
        if self._writer is None:
            hidden = {path for path, count in self._nan_counts.items() if count}
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=self._compression,
                version="2.6",
                coerce_timestamps="us",  # the only unit that both formats have
                allow_truncated_timestamps=True,
                write_batch_size=4_096,
                dictionary_pagesize_limit=DICTIONARY_BYTES_MAX,
                write_statistics=True if not hidden else sorted(paths_of(self._schema) - hidden),
            )
        return self._writer

    def discard(self) -> None:
        """Close the file; it stays in place, unreferenced."""
        with suppress(OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
            self._sink.close()


def remove_files(directory: str, receipts: Iterable[FileReceipt]) -> None:
    """Delete unreferenced files. The cleanup later deletes files that could not be deleted."""
    with suppress(StoreError):
        filesystem, root = open_directory(directory)
        for one in receipts:
            with suppress(OSError):
                filesystem.delete_file(f"{root}/{one.path}")


def sync_file(path: str) -> None:
    """Sync a local file and its name to disk."""
    for one, flags in ((path, os.O_RDONLY), (os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)):
        descriptor = os.open(one, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_directory(directory: str) -> tuple[fs.FileSystem, str]:
    """Return the file system and the path of a URI or a path; `%20` in it is three characters.

    A remote `Directory` is opened by its storage, with the credentials of now.
    """
    path = local_path(directory)
    if path is not None:
        return fs.LocalFileSystem(), path.rstrip("/")
    storage = storage_of(directory)
    if storage is not None:
        return storage.open(directory)
    scheme, rest = split(directory)
    # Arrow decodes %20 to a space: escape the path so that Arrow finds the right file.
    filesystem, root = fs.FileSystem.from_uri(f"{scheme}://{quote(rest, safe='/@:')}")
    return filesystem, root.rstrip("/")


def _folder(field: PartitionField, value: PartitionValue) -> str:
    """Return a name such as `day=2026-01-31`, safe as a folder and in a URI for any value."""
    text = text_of(value, field.transform)
    shown = "null" if text is None else "".join(map(_safe, text[:64])) or "empty"
    return f"{''.join(map(_safe, field.name))}={shown}"


def _safe(character: str) -> str:
    is_safe = character.isascii() and (character.isalnum() or character in "-_")
    return character if is_safe else "_"
