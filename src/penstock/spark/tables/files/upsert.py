"""Upserts: changes of rows by key, and the last change of each key. No IO.

A change has the new row of its key, or deletes it (`_change_deleted`). Guarantees of
`last_of_each`: of all changes of a key the last one counts, by topic, partition and offset, in any
files and in any order. The records of a key are in one partition when its producers use one
partitioner, and then this is their order. Otherwise the order is unknown: within a batch the higher
partition wins, and between batches the later batch. Such a table depends on the division into
batches.

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


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one batch, in files that are not part of the table."""

    directory: str
    """The directory of their layout."""
    receipts: tuple[FileReceipt, ...]
    key: tuple[str, ...]
    """The columns that identify a row."""

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


def order_columns(key: Sequence[str]) -> list[str]:
    """Return the columns of changes that decide their order."""
    return [*key, *_ORDER]


def last_of_each(changes: pa.Table, key: Sequence[str]) -> pa.Array:
    """Return the row numbers of the last changes, ascending; `changes` has `order_columns`."""
    if not changes.num_rows:
        return pa.array([], pa.int64())
    order = pc.sort_indices(changes, [(name, "ascending") for name in _ORDER])
    ranks = pa.arange(0, changes.num_rows)
    ranked = changes.select(list(key)).take(order).append_column(_ROW, ranks)
    last = ranked.group_by(list(key)).aggregate([(_ROW, "max")])[f"{_ROW}_max"]
    numbers = order.take(last.combine_chunks()).cast(pa.int64())
    return numbers.take(pc.sort_indices(numbers))


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
