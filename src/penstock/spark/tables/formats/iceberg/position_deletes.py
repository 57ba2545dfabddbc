"""Position deletes of an Iceberg table: which rows of its data files are deleted.

Guarantees: a delete file of ours refers to one data file, which its bounds name in full, so readers
open it for that file only, and it goes when the data file goes. It contains each position once and
no position that was deleted before, so the live rows of a data file are its records minus those of
its delete files. A data file has few delete files: a new one absorbs earlier ones that are not much
larger, so a position is written a few times in all, and not with each upsert.

Delete files of other engines may refer to several data files, in any order. They are read, and left
as they are.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.types import LongType, StringType

from penstock.spark.tables.files.data_files import FileLayout, FileReceipt, write_files

PATH_ID: Final = 2147483546
POSITION_ID: Final = 2147483545
"""The ids that Iceberg reserves for the columns of a delete file."""
ABSORBED_RATIO: Final = 4
"""A new delete file absorbs earlier ones that have at most this number of times its positions."""
_WRITERS: Final = 8
"""The number of delete files that are written in parallel: most of the time is latency."""


def _required(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})


_SCHEMA: Final = pa.schema(
    [
        _required("file_path", pa.string(), PATH_ID),
        _required("pos", pa.int64(), POSITION_ID),
    ]
)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The positions of one data file that one delete file will contain."""

    file: DataFile
    positions: pa.Array
    """Ascending, each once."""
    absorbed: tuple[DataFile, ...] = ()
    """Delete files of this data file whose positions are among them."""


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    """Delete files that no commit refers to yet."""

    receipts: tuple[FileReceipt, ...] = ()
    entries: tuple[DataFile, ...] = ()
    """Their entries for a manifest."""


NO_DELETES: Final = WrittenDeletes()


def own_deletes(task: FileScanTask) -> list[DataFile]:
    """Return the delete files that refer to this data file and to no other."""
    return [one for one in task.delete_files if refers_only_to(one, task.file)]


def refers_only_to(delete: DataFile, file: DataFile) -> bool:
    """Return whether the bounds of the delete file name this data file alone."""
    path = file.file_path.encode()
    lower, upper = delete.lower_bounds or {}, delete.upper_bounds or {}
    return lower.get(PATH_ID) == path == upper.get(PATH_ID)


def own_count(task: FileScanTask) -> int:
    """Return the number of rows that the data file's own delete files delete.

    A rewrite removes these delete files. One of another engine that refers to several data files
    stays, so a rewrite of each of them would gain little.
    """
    count = sum(one.record_count for one in own_deletes(task))
    return int(min(count, task.file.record_count))


def deleted_counts(tasks: Iterable[FileScanTask]) -> Iterator[tuple[FileScanTask, int]]:
    """Return each data file with the number of its deleted rows, from metadata alone.

    Positions of a delete file that refers to several data files count for the first of them, so the
    sum is right unless another engine left positions of files that are gone.
    """
    shared: set[str] = set()
    for task in tasks:
        count = 0
        for one in task.delete_files:
            is_own = refers_only_to(one, task.file)
            if is_own or one.file_path not in shared:
                count += one.record_count
            if not is_own:
                shared.add(one.file_path)
        yield task, min(count, task.file.record_count)


def read_positions(io: FileIO, delete: DataFile) -> dict[str, pa.Array]:
    """Return the deleted positions by data file, ascending, each once."""
    found = _read_deletes(io, delete)
    return {path: ascending([one.combine_chunks()]) for path, one in found.items()}


def ascending(parts: Sequence[pa.Array]) -> pa.Array:
    """Return all positions in order, each once."""
    joined = pc.unique(pa.concat_arrays([one.cast(pa.int64()) for one in parts]))
    return joined.take(pc.sort_indices(joined))


def absorbed_by(count: int, own: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Return the delete files that a new one with this number of positions absorbs."""
    found = []
    for one in sorted(own, key=lambda file: file.record_count):
        if one.record_count > ABSORBED_RATIO * count:
            break
        count += one.record_count
        found.append(one)
    return tuple(found)


def write_deletes(
    deletions: Sequence[Deletion], layout: FileLayout, data_directory: str
) -> WrittenDeletes:
    """Write a delete file for each data file, beside the table's data."""
    if not deletions:
        return NO_DELETES
    columns = FileLayout(layout.directory, _SCHEMA)

    def written(one: Deletion) -> list[FileReceipt]:
        paths = pa.repeat(pa.scalar(one.file.file_path), len(one.positions))
        rows = pa.RecordBatch.from_arrays([paths, one.positions], schema=_SCHEMA)
        return write_files([rows], columns, "deleted")

    with ThreadPoolExecutor(min(_WRITERS, len(deletions))) as pool:
        parts = list(pool.map(written, deletions))
    return WrittenDeletes(
        tuple(receipt for part in parts for receipt in part),
        tuple(
            _entry(one, receipt, data_directory)
            for one, part in zip(deletions, parts, strict=True)
            for receipt in part
        ),
    )


def _entry(deletion: Deletion, receipt: FileReceipt, data_directory: str) -> DataFile:
    file, count = deletion.file, receipt.row_count
    path = to_bytes(StringType(), file.file_path)
    first, last = (to_bytes(LongType(), deletion.positions[at].as_py()) for at in (0, -1))
    entry = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"{data_directory}/{receipt.path}",
        file_format=FileFormat.PARQUET,
        partition=file.partition,
        record_count=count,
        file_size_in_bytes=receipt.size_bytes,
        column_sizes=None,
        value_counts={PATH_ID: count, POSITION_ID: count},
        null_value_counts={PATH_ID: 0, POSITION_ID: 0},
        nan_value_counts=None,
        # The whole path, never shortened: readers find the data file by it.
        lower_bounds={PATH_ID: path, POSITION_ID: first},
        upper_bounds={PATH_ID: path, POSITION_ID: last},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    entry.spec_id = file.spec_id  # of the data file: a delete file applies to its partition only
    return entry
