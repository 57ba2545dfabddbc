"""Upserts: changes of rows by key, and the last change of each key. No IO.

A change has the new row of its key, or deletes it (`_change_deleted`). Guarantees of
`last_of_each`: of all changes of a key the last one counts, by topic, partition and offset, in any
files and in any order. The records of a key are in one partition when its producers use one
partitioner, and then this is their order. Otherwise the order is unknown: within a batch the higher
partition wins, and between batches the later batch. Such a table depends on the division into
batches.

With `is_sequenced` the column `_sequence` is the order, see `values.cdc.sequence`, in a batch and
against the table: a change that is older than its key's row, or than the remembered deletion of its
key, does nothing. It is the same for any division into batches, and for a change that comes twice.

A key has no nulls: such a record is a reject before it becomes a change. Rows of the table whose
key has a null are left alone. Floats cannot be keys, because NaN is not equal to itself, and
neither can lists, maps and structs.

Each format changes tables in its own way, see `delta.upsert` and `iceberg.upsert`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.errors import OptionError
from penstock.spark.tables.files.data_files import FileReceipt
from penstock.spark.tables.values.cdc.sequence import SEQUENCE

DELETED: Final = "_change_deleted"
CHANGE_COLUMNS: Final = pa.schema(
    [
        pa.field(DELETED, pa.bool_()),
        pa.field("_change_topic", pa.string()),
        pa.field("_change_partition", pa.int32()),
        pa.field("_change_offset", pa.int64()),
    ]
)
"""Additional columns in a file of changes. They are not `_kafka`, which a table may lack."""
_ORDER: Final = tuple(CHANGE_COLUMNS.names[1:])
KEY_COLUMNS_MAX: Final = 16
"""The maximum number of columns in a key; more are a mistake."""
CHANGES_MAX: Final = 2**24
"""The maximum number of changes in one batch: their keys need about a gigabyte of memory."""
_ROW: Final = "_change_row"
_PLACE: Final = "_change_place"


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one batch, in files that are not part of the table."""

    directory: str
    """The directory of their layout."""
    receipts: tuple[FileReceipt, ...]
    key: tuple[str, ...]
    """The columns that identify a row."""
    is_sequenced: bool = False
    """Whether the column `_sequence` has the order of changes and of rows in the table."""
    has_history: bool = False
    """Whether each change becomes a version of its row, see `values.cdc.row_versions`."""
    deleted_keys: pa.Table | None = None
    """Remembered deletions: the keys and their `_sequence`, each key once."""
    always_set: tuple[str, ...] | None = None
    """The columns that each partial change sets: it keeps the table's other columns unless it
    carries them, see `files.partial_rows`. None: changes are whole."""

    @property
    def count(self) -> int:
        """The number of changes, including several of one key."""
        return sum(one.row_count for one in self.receipts)


def changes_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a file of changes, all nullable: a deletion has only its key."""
    columns = [pa.field(one.name, one.type) for one in schema]
    return pa.schema([*columns, *CHANGE_COLUMNS])


def as_changes(rows: pa.RecordBatch, source: pa.RecordBatch, *, deleted: bool) -> pa.RecordBatch:
    """Return the rows as changes, by the topics, partitions and offsets of their records."""
    count = rows.num_rows
    assert count == source.num_rows, "a row for each record"
    order_columns = [source.column(name.removeprefix("_change_")) for name in _ORDER]
    return pa.RecordBatch.from_arrays(
        [*rows.columns, pa.repeat(pa.scalar(deleted), count), *order_columns],
        schema=pa.schema([*rows.schema, *CHANGE_COLUMNS]),
    )


def require_key(key: Sequence[str], schema: pa.Schema) -> None:
    """Raise `OptionError` if these columns cannot identify a row."""
    if not 0 < len(key) <= KEY_COLUMNS_MAX or len(set(key)) < len(key):
        raise OptionError(
            "key",
            f"it has {len(key)} columns, or one of them twice.",
            f"Name 1 to {KEY_COLUMNS_MAX} different columns.",
        )
    for name in key:
        index = schema.get_field_index(name)
        if index < 0:
            raise OptionError(
                "key",
                f"the table has no column '{name}'.",
                f"Its columns are {', '.join(schema.names)[:500]}.",
            )
        kind = schema.field(index).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise OptionError(
                "key",
                f"column '{name}' is of type {kind}, which cannot be compared for sure.",
                "Use columns of whole numbers, texts, decimals, dates, times, booleans or bytes.",
            )


def order_columns(key: Sequence[str], *, is_sequenced: bool = False) -> list[str]:
    """Return the columns of changes that decide their order."""
    return [*key, *((SEQUENCE, DELETED) if is_sequenced else ()), *_ORDER]


def last_of_each(changes: pa.Table, key: Sequence[str], *, is_sequenced: bool = False) -> pa.Array:
    """Return the row numbers of the last changes, ascending; `changes` has `order_columns`."""
    if not changes.num_rows:
        return pa.array([], pa.int64())
    names = [SEQUENCE, *_ORDER] if is_sequenced else _ORDER
    order = pc.sort_indices(changes, [(name, "ascending") for name in names])
    ranks = pa.arange(0, changes.num_rows)
    ranked = changes.select(list(key)).take(order).append_column(_ROW, ranks)
    last = ranked.group_by(list(key)).aggregate([(_ROW, "max")])[f"{_ROW}_max"]
    numbers = order.take(last.combine_chunks()).cast(pa.int64())
    return numbers.take(pc.sort_indices(numbers))


def not_older(changes: pa.Table, held: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return for each change whether it is as new as its key among those held, or is not there.

    Both have the key and `_sequence`; `held` has each key once.
    """
    held = held.cast(pa.schema([changes.schema.field(name) for name in held.schema.names]))
    places = places_among(changes, held.select(list(key)))
    newest = held[SEQUENCE].combine_chunks().take(places)
    is_newer = pc.greater_equal(changes[SEQUENCE].combine_chunks(), newest)
    return pc.fill_null(is_newer, fill_value=True)


def newest_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return each key once, with its greatest `_sequence`; null if it has none."""
    names = [*key, SEQUENCE]
    found = rows.group_by(list(key)).aggregate([(SEQUENCE, "max")])
    return found.rename_columns([*key, SEQUENCE]).select(names)


def distinct_keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return each key once."""
    return rows.select(list(key)).group_by(list(key)).aggregate([]).combine_chunks()


def places_among(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """Return the number of each row's key among the keys; null if it is not there."""
    names = keys.schema.names
    if len(names) == 1:
        wanted = keys.column(0).combine_chunks()
        found = pc.index_in(rows.column(names[0]).combine_chunks(), value_set=wanted)
        return found.cast(pa.int64())
    numbered = rows.select(names).append_column(_ROW, pa.arange(0, rows.num_rows))
    placed = keys.append_column(_PLACE, pa.arange(0, keys.num_rows))
    joined = numbered.join(placed, names, join_type="left outer", use_threads=False)
    order = pc.sort_indices(joined[_ROW])
    return joined[_PLACE].take(order).combine_chunks()


def rows_among(rows: pa.RecordBatch | pa.Table, keys: pa.Table) -> pa.Array:
    """Return the numbers of the rows with one of these keys, ascending. Types are equal."""
    names = keys.schema.names
    if len(names) == 1:
        wanted = keys.column(0).combine_chunks()
        found = pc.is_in(rows.column(names[0]), value_set=wanted, skip_nulls=True)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        return pc.indices_nonzero(found).cast(pa.int64())
    # Arrow has no set of pairs. Join only keys and numbers, because Arrow cannot join lists.
    columns = [rows.column(name) for name in names]
    numbers = pa.arange(0, rows.num_rows)
    numbered = pa.table([*columns, numbers], names=[*names, _ROW])
    joined = numbered.join(keys, names, join_type="left semi", use_threads=False)
    found = joined[_ROW].combine_chunks()
    return found.take(pc.sort_indices(found))


def without(rows: pa.RecordBatch, numbers: pa.Array) -> pa.RecordBatch:
    """Return the rows without these numbers."""
    if not len(numbers):
        return rows
    every = pa.arange(0, rows.num_rows)
    return rows.filter(pc.invert(pc.is_in(every, value_set=numbers)))
