"""Where the keys of a table are: an index in memory, of data files that this driver has read.

Guarantees: the places found are those of the files, never fewer and never more: the index has the
keys themselves, and no hashes of them. A data file never changes, so its index is valid as long as
the file is in the table; a file that is not in the index is read. The index is a cache, and an
upsert needs nothing of it: a new driver begins with an empty one. All tables of a process share one
bound of memory.

The keys of a file are sorted, so a lookup costs steps that grow with the logarithm of its rows. So
after the first batch an upsert costs what its changes cost, and not what the table's keys cost to
read. If the keys of the table do not fit, some files stay in the index and the others are read each
time: files that the last upsert did not need are evicted first.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Final
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table

from penstock.spark.tables.formats.iceberg.position_deletes import read_positions
from penstock.spark.tables.formats.iceberg.rows import (
    READ_AHEAD_FILES,
    SMALL_FILE_BYTES,
    IcebergRows,
)
from penstock.spark.tables.values.cdc.sequence import SEQUENCE

INDEX_BYTES_MAX: Final = 256 * 2**20
"""The maximum size of all indexes of a process: the keys of some 20 million rows whose key is a
number."""
_POSITIONS: Final = pa.uint32()
"""A data file has fewer rows than 2**32."""


@dataclass(frozen=True, slots=True)
class _Index:
    """The keys of one file, in their order."""

    keys: pa.Array
    positions: pa.Array
    """The row number of each key."""
    sequences: pa.Array | None
    """The `_sequence` of each key's row."""

    @property
    def size_bytes(self) -> int:
        """The memory that it needs."""
        return sum(one.nbytes for one in (self.keys, self.positions, self.sequences) if one)


@dataclass(slots=True)
class _Held:
    """One entry of the cache."""

    value: "_Index | dict[str, pa.Array]"
    size_bytes: int
    used_at: int


class SharedBound:
    """The memory that the indexes of several tables may use; a table that is gone uses none."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._lock = Lock()
        self._sharers: WeakSet[KeyPlaces] = WeakSet()

    def add(self, places: "KeyPlaces") -> None:
        """Count this index, too."""
        with self._lock:
            self._sharers.add(places)

    def has_room(self, size_bytes: int) -> bool:
        """Return whether this size fits beside all that the indexes hold."""
        with self._lock:
            return sum(one.size_bytes for one in self._sharers) + size_bytes <= self.bytes_max


_PROCESS: Final = SharedBound(INDEX_BYTES_MAX)


class KeyPlaces:
    """The index of one table."""

    def __init__(self, bound: SharedBound = _PROCESS) -> None:
        self._bound = bound
        bound.add(self)
        self._held: dict[tuple[object, ...], _Held] = {}
        self._size_bytes = 0
        self._time = 0
        self.read_count = 0
        """The number of data files that were read, for tests and measurements."""

    @property
    def size_bytes(self) -> int:
        """The memory that the index needs."""
        return self._size_bytes

    def begin(self) -> None:
        """Begin an upsert: entries that it does not use may be evicted."""
        self._time += 1

    def indexes(
        self, table: Table, tasks: Sequence[FileScanTask], types: pa.Schema, *, has_sequence: bool
    ) -> Iterator[_Index]:
        """Return the index of each file; `types` are the key's, with `_sequence` if it has one."""
        columns = pa.schema([*types, pa.field(SEQUENCE, pa.string())]) if has_sequence else types
        reader = IcebergRows(table, columns.names)
        ids = [table.schema().find_field(one).field_id for one in columns.names]
        kind = (*ids, str(columns))  # a widened key is another kind

        def read(task: FileScanTask) -> _Index:
            batches = list(reader.all_rows(task))
            return _sorted(pa.Table.from_batches(batches, reader.schema).cast(columns), types)

        with ThreadPoolExecutor(READ_AHEAD_FILES) as pool:
            for group in _groups(tasks):
                names = [(one.file.file_path, kind) for one in group]
                missing = [
                    one for one, name in zip(group, names, strict=True) if self._used(name) is None
                ]
                self.read_count += len(missing)
                found = dict(
                    zip(
                        (one.file.file_path for one in missing),
                        pool.map(read, missing),
                        strict=True,
                    )
                )
                for task, name in zip(group, names, strict=True):
                    index = found.get(task.file.file_path)
                    if index is not None:
                        self._keep(name, index, index.size_bytes)
                        yield index
                    else:
                        held = self._held[name].value
                        assert isinstance(held, _Index), "the name of an index"
                        yield held

    def deleted(self, io: FileIO, delete: DataFile, path: str) -> pa.Array:
        """Return the positions of a data file in a delete file, ascending."""
        name = (delete.file_path,)
        found = self._used(name)
        if found is None:
            found = read_positions(io, delete)
            self._keep(name, found, sum(one.nbytes for one in found.values()))
        assert isinstance(found, dict), "the name of a delete file"
        return found.get(path, pa.array([], pa.int64()))

    def clear(self) -> None:
        """Drop everything: the table is closed."""
        for name in list(self._held):
            self._drop(name)

    def forget_except(self, tasks: Iterable[FileScanTask]) -> None:
        """Drop files that are no longer in the table."""
        live = {one.file.file_path for one in tasks}
        live |= {delete.file_path for one in tasks for delete in one.delete_files}
        for name in [one for one in self._held if one[0] not in live]:
            self._drop(name)

    # --- The cache ---

    def _used(self, name: tuple[object, ...]) -> "_Index | dict[str, pa.Array] | None":
        held = self._held.get(name)
        if held is None:
            return None
        held.used_at = self._time
        return held.value

    def _keep(
        self, name: tuple[object, ...], value: "_Index | dict[str, pa.Array]", size_bytes: int
    ) -> None:
        idle = sorted(
            (one for one, held in self._held.items() if held.used_at < self._time),
            key=lambda one: self._held[one].used_at,
        )
        while idle and not self._bound.has_room(size_bytes):
            self._drop(idle.pop(0))
        if self._bound.has_room(size_bytes):
            self._held[name] = _Held(value, size_bytes, self._time)
            self._size_bytes += size_bytes

    def _drop(self, name: tuple[object, ...]) -> None:
        self._size_bytes -= self._held.pop(name).size_bytes


def _groups(tasks: Sequence[FileScanTask]) -> Iterator[list[FileScanTask]]:
    """Return the files in groups that are read in parallel: small ones, or one that is not."""
    group: list[FileScanTask] = []
    for task in tasks:
        is_small = task.file.file_size_in_bytes <= SMALL_FILE_BYTES
        if group and (not is_small or len(group) >= READ_AHEAD_FILES):
            yield group
            group = []
        if is_small:
            group.append(task)
        else:
            yield [task]
    if group:
        yield group


def _sorted(rows: pa.Table, types: pa.Schema) -> _Index:
    keys = sortable(rows.select(types.names))
    order = pc.sort_indices(keys)  # nulls at the end
    order = order.slice(0, len(keys) - keys.null_count)  # a row without a key is never changed
    has_sequence = SEQUENCE in rows.schema.names
    sequences = rows[SEQUENCE].combine_chunks().take(order) if has_sequence else None
    return _Index(keys.take(order), order.cast(_POSITIONS), sequences)


def sortable(keys: pa.Table) -> pa.Array:
    """Return the keys as one column: equal if and only if all columns are equal.

    Null if one of the columns is null. Several columns are texts with their lengths before them.
    """
    if keys.num_columns == 1:
        column = keys.column(0).combine_chunks()
        kind = column.type
        if pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
            return column.cast(pa.string())  # Arrow searches neither
        return column
    parts = []
    for column in keys.columns:
        text = _bytes(column.combine_chunks())
        parts += [pc.binary_length(text).cast(pa.string()).cast(pa.binary()), text]
    return pc.binary_join_element_wise(*parts, b":")


def _bytes(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        column = column.cast(pa.string())
    return column.cast(pa.binary())


def matches(index: _Index, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the places in the index with one of these keys, and the number of each one's key."""
    if not len(index.keys) or not len(keys):
        return pa.array([], pa.int64()), pa.array([], pa.int64())
    last = len(index.keys) - 1
    first = pc.search_sorted(index.keys, keys).cast(pa.int64())
    held = index.keys.take(pc.min_element_wise(first, last))
    is_found = pc.and_(pc.less_equal(first, last), pc.equal(held, keys))
    numbers = pc.indices_nonzero(is_found).cast(pa.int64())
    first = first.take(numbers)
    ends = pc.search_sorted(index.keys, keys.take(numbers), side="right").cast(pa.int64())
    counts = pc.subtract(ends, first)
    if not len(counts) or pc.max(counts).as_py() == 1:
        return first, numbers
    # A key with several rows, from appends.
    spans = zip(first.to_pylist(), ends.to_pylist(), numbers.to_pylist(), strict=True)
    expanded = [(place, number) for begin, end, number in spans for place in range(begin, end)]
    places, of_keys = zip(*expanded, strict=True)
    return pa.array(places, pa.int64()), pa.array(of_keys, pa.int64())
