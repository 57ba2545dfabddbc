"""Upserts into a Delta table: one MERGE by `deltalake`, with the last change of each key.

The merge gets the table's columns, those of partitions included, so that a row whose day changes
moves to another partition. A column that the changes lack becomes null: a change has the whole row.
The statistics of the changed keys are used to skip files.

A merge without changes writes no entry in the log; then the caller writes one, because the note is
required. If a key has several rows (from earlier appends), each of its rows is changed: a merge
does not combine rows.

Unlike our files, files that `deltalake` writes are not synced to disk before the commit.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties

from penstock.spark.tables.files.file_partitions import PartitionField, column_at
from penstock.spark.tables.files.upsert import DELETED, Changes, require_key
from penstock.spark.tables.formats.change_files import ReducedChanges
from penstock.spark.tables.formats.delta.bounds import writer_properties
from penstock.spark.tables.formats.delta.columns import derived_column
from penstock.spark.tables.values.cdc.sequence import SEQUENCE
from penstock.spark.tables.values.columns import fit

_SEQUENCED: Final = b"penstock.sequenced"
"""Marks the rows of a merge that are compared with the order of the table's rows."""
_NEWER: Final = f'(target."{SEQUENCE}" IS NULL OR source."{SEQUENCE}" >= target."{SEQUENCE}")'


def merge_source(changes: Changes, schema: pa.Schema, fields: Sequence[PartitionField]) -> pa.Table:
    """Return the source rows of a merge: the last change of each key, and whether it is a deletion.

    `schema` is the table's, without the columns of partitions.
    """
    require_key(changes.key, schema)
    reduced = ReducedChanges(changes)
    reduced.require_columns_of(schema)
    derived = [one for one in fields if one.is_derived]
    # Not as strict as the table's: a deletion has only its key.
    columns = pa.schema([pa.field(one.name, one.type) for one in schema])
    parts = [_source(batch, columns, derived) for batch in reduced.rows()]
    found = pa.Table.from_batches(parts) if parts else columns.empty_table()
    return found.replace_schema_metadata({_SEQUENCED: b""}) if changes.is_sequenced else found


def merge(
    table: DeltaTable, source: pa.Table, key: Sequence[str], properties: CommitProperties
) -> None:
    """Write one entry of the log with the changes, or none if they change nothing."""
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
        streamed_exec=False,  # otherwise the statistics of the keys are not used to skip files
        writer_properties=writer_properties(pa.schema(table.schema().to_arrow())),
        commit_properties=properties,
        post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
    )
    newer = _NEWER if _SEQUENCED in (source.schema.metadata or {}) else "true"
    merger = merger.when_matched_delete(f"source.{DELETED} AND {newer}")
    merger = merger.when_matched_update(values, predicate=newer)
    merger.when_not_matched_insert(values, predicate=f"NOT source.{DELETED}").execute()


def _source(
    changes: pa.RecordBatch, columns: pa.Schema, derived: Sequence[PartitionField]
) -> pa.RecordBatch:
    rows = fit(changes, columns)
    for one in derived:
        rows = rows.append_column(one.name, derived_column(column_at(rows, one.column), one))
    return rows.append_column(DELETED, changes.column(DELETED))


def _quoted(name: str) -> str:
    """Return a name quoted for DataFusion's SQL, capital letters included."""
    return '"' + name.replace('"', '""') + '"'
