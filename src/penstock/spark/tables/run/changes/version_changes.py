"""Turns the changes of a batch into versions of rows, for a table of history.

Guarantees: the result depends on the changes and on the table's state of the commit alone. All
versions of the changed keys are read, by the statistics of the files; the files of versions are
deleted when the upsert has read them. `values.cdc.row_versions` decides about the versions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.files.data_files import remove_files, write_files
from penstock.spark.tables.files.upsert import DELETED, Changes, distinct_keys, places_among
from penstock.spark.tables.formats.change_files import ReducedChanges, changes_layout
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.values.cdc.row_versions import (
    HISTORY_COLUMNS,
    IS_CURRENT,
    IS_DELETED,
    VALID_FROM,
    VALID_TO,
    Versions,
    versions_after,
)
from penstock.spark.tables.values.cdc.sequence import SEQUENCE
from penstock.spark.tables.values.columns import fit


@contextmanager
def as_versions(table: Table, changes: Changes, schema: pa.Schema | None) -> Iterator[Changes]:
    """Return the upsert that adds these changes as versions; `schema` as for `Table.upsert`."""
    by = (*changes.key, SEQUENCE)
    changes = replace(changes, key=by, is_sequenced=False, has_history=False)
    reduced = ReducedChanges(changes)
    if not reduced.count:
        yield changes
        return
    layout = changes_layout(table, schema or table.schema())
    come = _come(reduced, by)
    held = _held(table, come, by)
    versions = versions_after(held, come, by[:-1])
    plain = pa.schema([pa.field(one.name, one.type) for one in layout.schema])
    batches = _batches(table, reduced, versions, plain)
    receipts = tuple(write_files(batches, layout, "versions"))
    try:
        yield replace(changes, receipts=receipts)
    finally:
        remove_files(layout.directory, receipts)


def _come(reduced: ReducedChanges, by: tuple[str, ...]) -> pa.Table:
    """Return the new versions, without their other columns."""
    parts = []
    begins = reduced.smallest(VALID_FROM)
    for batch in reduced.rows():
        rows = pa.Table.from_batches([batch]).select([*by, VALID_FROM, DELETED])
        count = rows.num_rows
        rows = rows.append_column(VALID_TO, pa.nulls(count, pa.timestamp("us", tz="UTC")))
        rows = rows.append_column(IS_CURRENT, pa.repeat(pa.scalar(value=True), count))
        parts.append(rows.rename_columns({DELETED: IS_DELETED}))
    come = pa.concat_tables(parts).combine_chunks()
    if begins is None:
        return come
    return come.set_column(come.schema.get_field_index(VALID_FROM), VALID_FROM, begins)


def _held(table: Table, come: pa.Table, by: tuple[str, ...]) -> pa.Table:
    """Return all versions of the same keys in the table."""
    names = [*by, *HISTORY_COLUMNS.names]
    keys = distinct_keys(come, by[:-1])
    columns = come.select(names).schema
    if not set(names) <= set(table.schema().names):
        return columns.empty_table()  # a table that was just created, or whose key is new
    batches = table.rows_of(keys, names)
    held = pa.Table.from_batches([fit(one, columns) for one in batches], columns)
    if held[SEQUENCE].null_count:
        raise SchemaError(
            "table.history",
            "the table has rows that are no versions: they have no _sequence.",
            "Name a new table.",
        )
    return held


def _batches(
    table: Table, reduced: ReducedChanges, versions: Versions, columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Return the rows of new and of amended versions, as changes."""
    first = 0
    for batch in reduced.rows():
        ends = versions.ends.slice(first, batch.num_rows)
        first += batch.num_rows
        deleted = batch.column(DELETED)
        rows = _set(_with_ends(batch, ends), VALID_FROM, ends[VALID_FROM].combine_chunks())
        rows = _set(_set(rows, IS_DELETED, deleted), DELETED, _all(rows.num_rows, value=False))
        yield fit(rows, columns)
    if not versions.amended.num_rows:
        return
    keys = versions.amended.drop_columns([VALID_TO, IS_CURRENT])
    held = table.schema()
    for batch in table.rows_of(keys, held.names):
        # This commit may widen the key.
        rows = pa.Table.from_batches([fit(batch.select(keys.schema.names), keys.schema)])
        places = places_among(rows, keys)
        ends = versions.amended.select([VALID_TO, IS_CURRENT]).take(places)
        amended = _with_ends(batch, ends)
        amended = amended.append_column(DELETED, _all(amended.num_rows, value=False))
        yield fit(amended, columns)


def _with_ends(batch: pa.RecordBatch, ends: pa.Table) -> pa.RecordBatch:
    rows = _set(batch, VALID_TO, ends[VALID_TO].combine_chunks())
    return _set(rows, IS_CURRENT, ends[IS_CURRENT].combine_chunks())


def _set(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks)
    return batch.set_column(batch.schema.get_field_index(name), name, values)


def _all(count: int, *, value: bool) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)
