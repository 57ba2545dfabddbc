"""Times that an upsert into a Delta table would change: distant times in Spark's files.

Spark writes times as INT96. The merge of `deltalake` reads such a time as nanoseconds, which cover
only the years 1677 to 2262. Outside of them it silently reads another time: 9999-12-31 would be
1816 afterwards in every row of a rewritten file.

Guarantees: `require_kept` raises `TableRefusedError` before a merge if the table has such a time.
The footer of each file is read once. Values are read only if the footer has INT96 and the bounds in
the log do not prove that all its times are preserved.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import fs

from penstock.spark.tables.files.data_files import open_directory
from penstock.spark.tables.formats.delta.compaction import OUTSIDE
from penstock.spark.tables.formats.delta.log import stored_name
from penstock.spark.tables.formats.port import TableRefusedError

FILES_AT_ONCE: Final = 16
_MICROSECONDS_MAX: Final = (2**63 - 1) // 1_000
"""The limit before and after 1970: the range of 64-bit nanoseconds."""


class KeptTimes:
    """The checked files of one table."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._known: set[str] = set()
        """Files whose times are preserved."""

    def require_kept(self, table: DeltaTable) -> None:
        """Check the files that were added since the last call."""
        files = {one["path"]: one for one in _added(table)}
        self._known &= files.keys()
        wanted = [one for one in files if one not in self._known and not OUTSIDE.match(one)]
        if not wanted:
            return
        filesystem, root = open_directory(self._uri)
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            found = pool.map(lambda one: _lost_in(filesystem, root, files[one]), wanted)
            for path, column in zip(wanted, found, strict=True):
                if column is not None:
                    raise self._refused(path, column)
        self._known |= set(wanted)

    def _refused(self, path: str, column: str) -> TableRefusedError:
        return TableRefusedError(
            f"the Delta table at {self._uri} cannot be upserted to (INT96): column '{column}' of "
            f"{path} has times before 1678 or after 2261 as INT96, and deltalake, which merges "
            "changes, would turn them into others. Set spark.sql.parquet.outputTimestampType to "
            "TIMESTAMP_MICROS and let Spark write the table's files again, set table.mode to "
            '"append", or name another table.'
        )


def _added(table: DeltaTable) -> list[dict[str, Any]]:
    actions = pa.table(table.get_add_actions(flatten=True))
    return list(actions.to_pylist())


def _lost_in(filesystem: fs.FileSystem, root: str, file: Mapping[str, Any]) -> str | None:
    """Return the first column of a file with a time that a merge would change."""
    with suppress(FileNotFoundError):  # the merge will report it
        place = f"{root}/{stored_name(file['path'])}"
        with pq.ParquetFile(
            place, filesystem=filesystem, coerce_int96_timestamp_unit="us"
        ) as source:
            for number in range(source.metadata.num_columns):
                column = source.schema.column(number)
                if column.physical_type != "INT96" or _is_bounded(file, column.path):
                    continue
                for batch in source.iter_batches(columns=[column.path]):
                    if any(map(_has_lost, batch.columns)):
                        return str(column.path)
    return None


def _is_bounded(file: Mapping[str, Any], path: str) -> bool:
    """Return whether the log's bounds prove that all times of the column are preserved."""
    bounds = [file.get(f"{end}.{path}") for end in ("min", "max")]
    if None in bounds:
        return False
    kept = pa.array(bounds).cast(pa.timestamp("us", "UTC"))
    return not _has_lost(kept)


def _has_lost(column: pa.Array) -> bool:
    return any(
        pc.any(pc.greater(pc.abs_checked(times.cast(pa.int64())), _MICROSECONDS_MAX)).as_py()
        for times in _times_in(column)
    )


def _times_in(column: pa.Array) -> Iterator[pa.Array]:
    """Return the times in a column, at any depth."""
    if pa.types.is_timestamp(column.type):
        yield column
    elif pa.types.is_struct(column.type):
        for one in column.flatten():
            yield from _times_in(one)
    elif pa.types.is_map(column.type):
        yield from _times_in(column.keys)
        yield from _times_in(column.items)
    elif pa.types.is_list(column.type):
        yield from _times_in(column.flatten())
