"""Upserts into a Delta table: one MERGE by `deltalake`, with the last change of each key.

The merge is given the table's columns, those that partitions have made included, so that a row
whose day changes moves to another partition. A column that the changes do not have becomes null:
a change says the whole row. Statistics of the changed keys let files be passed over.

A merge that finds nothing to do makes no entry in the log; whoever calls this makes one then,
because the note has to be there. A key that was there several times before (the table was once
appended to) has each of its rows changed: a merge does not take rows together.

Files that `deltalake` writes are not synced to disk before the commit, as ours are.
"""

from collections.abc import Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties

from penstock.spark.tables.change_files import ReducedChanges
from penstock.spark.tables.columns import fit
from penstock.spark.tables.delta_bounds import writer_properties
from penstock.spark.tables.delta_columns import derived_column
from penstock.spark.tables.file_partitions import PartitionField, column_at
from penstock.spark.tables.upsert import DELETED, Changes, require_key


def merge_source(changes: Changes, schema: pa.Schema, fields: Sequence[PartitionField]) -> pa.Table:
    """The rows that a merge is given: the last change of each key, and whether it is a deletion.

    `schema` is the table's, without the columns that partitions have made.
    """
    require_key(changes.key, schema)
    reduced = ReducedChanges(changes)
    reduced.require_columns_of(schema)
    derived = [one for one in fields if one.is_derived]
    # Not as strict as the table's: a deletion has only its key.
    columns = pa.schema([pa.field(one.name, one.type) for one in schema])
    parts = [_source(batch, columns, derived) for batch in reduced.rows()]
    return pa.Table.from_batches(parts) if parts else columns.empty_table()


def merge(
    table: DeltaTable, source: pa.Table, key: Sequence[str], properties: CommitProperties
) -> None:
    """One entry of the log that has the changes, or none if they change nothing."""
    if not source.num_rows:
        return
    columns = [_quoted(name) for name in source.schema.names if name != DELETED]
    values = {name: f"source.{name}" for name in columns}
    matches = [f"target.{_quoted(name)} = source.{_quoted(name)}" for name in key]
    merger = table.merge(
        source,
        " AND ".join(matches),
        source_alias="source",
        target_alias="target",
        streamed_exec=False,  # or the statistics of the keys are not used to pass over files
        writer_properties=writer_properties(pa.schema(table.schema().to_arrow())),
        commit_properties=properties,
        post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
    )
    merger = merger.when_matched_delete(f"source.{DELETED}")
    merger = merger.when_matched_update(values)
    merger.when_not_matched_insert(values, predicate=f"NOT source.{DELETED}").execute()


def _source(
    changes: pa.RecordBatch, columns: pa.Schema, derived: Sequence[PartitionField]
) -> pa.RecordBatch:
    rows = fit(changes, columns)
    for one in derived:
        rows = rows.append_column(one.name, derived_column(column_at(rows, one.column), one))
    return rows.append_column(DELETED, changes.column(DELETED))


def _quoted(name: str) -> str:
    """A name as DataFusion's SQL takes it, capital letters included."""
    return '"' + name.replace('"', '""') + '"'
