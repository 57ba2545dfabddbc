"""Turns partial changes of a batch into whole rows, for a table that takes partial updates.

Guarantees: the result depends on the changes and on the table's state of the commit alone. Rows of
the table are read only for keys whose changes keep a value; with `_sequence` the orders of all
changed keys are read before. The files of whole rows are deleted when the upsert has read them.
`files.partial_rows` decides about each value.

The changes of a batch and the rows that they change are in memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.tables.files.data_files import (
    FileLayout,
    FileReceipt,
    remove_files,
    write_files,
)
from penstock.spark.tables.files.partial_rows import Fold, fold
from penstock.spark.tables.files.upsert import (
    Changes,
    distinct_keys,
    places_among,
)
from penstock.spark.tables.formats.change_files import (
    all_changes,
    changes_layout,
)
from penstock.spark.tables.formats.port import Table, TableError
from penstock.spark.tables.values.cdc.carried_columns import carried_field
from penstock.spark.tables.values.cdc.sequence import SEQUENCE
from penstock.spark.tables.values.columns import fit

_PART_ROWS: Final = 1_024
"""The number of rows that are put together at once: an array of texts has up to 2 GiB, and a record
about 1 MiB."""


class SeveralRowsError(TableError):
    """The table has several rows of a key, and a partial change keeps columns of one row."""


@contextmanager
def as_whole_rows(table: Table, changes: Changes, schema: pa.Schema | None) -> Iterator[Changes]:
    """Return the upsert of whole rows; `schema` as for `Table.upsert`."""
    if changes.always_set is None or not changes.count:
        yield changes
        return
    # The columns of this commit: another writer may have added one since the batch was planned.
    rows = schema or table.schema()
    kept = tuple(name for name in rows.names if name not in changes.always_set)
    if not kept:
        yield replace(changes, always_set=None)
        return
    layout = _judged(changes, changes_layout(table, rows))
    columns = pa.schema([one.remove_metadata() for one in layout.schema])
    come = all_changes(changes, columns.append(carried_field(kept)))
    orders = _orders(table, changes, come) if changes.is_sequenced else None
    found = fold(come, changes.key, kept, orders)
    receipts = _written(table, changes, come.select(columns.names), found, layout)
    try:
        yield replace(changes, receipts=receipts, always_set=None)
    finally:
        remove_files(layout.directory, receipts)


def _judged(changes: Changes, layout: FileLayout) -> FileLayout:
    """Return the layout of rows that were judged by the constraints of the changes.

    A constraint that the table has got since is then found, as for whole changes.
    """
    keys = {one.constraints_key for one in changes.receipts}
    return replace(
        layout, constraints_key=min(keys - {layout.constraints_key}, default=layout.constraints_key)
    )


def _orders(table: Table, changes: Changes, come: pa.Table) -> pa.Table:
    """Return the orders of the rows and of the remembered deletions of the changed keys."""
    names = [*changes.key, SEQUENCE]
    columns = come.select(names).schema
    parts = [columns.empty_table()]
    if changes.deleted_keys is not None:
        parts.append(changes.deleted_keys.select(names).cast(columns))
    parts.append(_rows_of(table, distinct_keys(come, changes.key), columns))
    return pa.concat_tables(parts)


def _rows_of(table: Table, keys: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return these columns of the rows of these keys; null in columns that the table lacks."""
    held = table.schema().names
    if not keys.num_rows or not set(keys.schema.names) <= set(held):
        return columns.empty_table()  # a key that this commit adds: no row has it
    names = [name for name in columns.names if name in held]
    parts = [fit(one, columns) for one in table.rows_of(keys, names)]
    return pa.Table.from_batches(parts, columns)


def _written(
    table: Table, changes: Changes, come: pa.Table, found: Fold, layout: FileLayout
) -> tuple[FileReceipt, ...]:
    """Write the whole rows of all keys."""
    needed = found.needs_row()
    names = [*changes.key, *(name for name, one in found.sources.items() if one.null_count)]
    columns = pa.schema([come.schema.field(name) for name in names])
    held = _rows_of(table, found.keys.filter(needed), columns)
    _require_once(held, changes.key)
    base = places_among(found.keys, held.select(list(changes.key)))
    base = pc.if_else(needed, base, pa.scalar(None, pa.int64()))
    count = len(found.last)
    parts = (
        _whole(come, held, found, base, slice(first, min(first + _PART_ROWS, count)))
        for first in range(0, count, _PART_ROWS)
    )
    return tuple(write_files(parts, layout, "whole"))


def _require_once(held: pa.Table, key: tuple[str, ...]) -> None:
    counts = held.select(list(key)).group_by(list(key)).aggregate([([], "count_all")])
    several = counts.filter(pc.greater(counts["count_all"], 1))
    if several.num_rows:
        named = ", ".join(f"{name} = {several[name][0].as_py()!r}" for name in key)
        raise SeveralRowsError(
            f"the table has {several['count_all'][0].as_py()} rows with {named[:500]}, and a "
            "partial change keeps the columns of one row. Nothing was committed. Delete the other "
            "rows, then start the pipeline again."
        )


def _whole(
    come: pa.Table, held: pa.Table, found: Fold, base: pa.Array, part: slice
) -> pa.RecordBatch:
    """Return the rows of a part of the keys."""
    last = found.last[part]
    arrays = []
    for field in come.schema:
        source = found.sources.get(field.name)
        if source is None:
            arrays.append(_taken(come[field.name], last))
            continue
        values = _taken(come[field.name], source[part])
        if field.name in held.schema.names and values.null_count:
            stored = _taken(held[field.name], base[part])
            values = _chosen(values, stored, source[part].is_valid())
        arrays.append(values)
    return pa.RecordBatch.from_arrays(arrays, schema=come.schema)


def _taken(column: pa.ChunkedArray, places: pa.Array) -> pa.Array:
    """Return the values at these places, and null without one.

    Chunk by chunk: Arrow's own `take` joins all chunks first, which fails beyond 2 GiB of texts.
    """
    order = pc.sort_indices(places)  # nulls are last
    wanted = places.take(order)
    known = wanted.slice(0, len(wanted) - wanted.null_count)
    ends = pc.cumulative_sum(pa.array([len(one) for one in column.chunks], pa.int64()))
    parts = [pa.nulls(wanted.null_count, column.type)]
    begin = first = 0
    for chunk, end in zip(column.chunks, ends.to_pylist(), strict=True):
        count = pc.search_sorted(known, pa.scalar(end, pa.int64())).as_py() - begin
        if count:
            parts.insert(-1, chunk.take(pc.subtract(known.slice(begin, count), first)))
        begin, first = begin + count, end
    return pa.concat_arrays(parts).take(pc.sort_indices(order))


def _chosen(values: pa.Array, stored: pa.Array, is_set: pa.Array) -> pa.Array:
    """Return the values where they are set, and the stored ones elsewhere."""
    count = len(values)
    every = pa.arange(0, count)
    return pa.concat_arrays([values, stored]).take(pc.if_else(is_set, every, pc.add(every, count)))
