"""Read-only access to a Delta table, by the `deltalake` package."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow import fs

from penstock.spark.tables.commit.note import read_note
from penstock.spark.tables.files.upsert import rows_among
from penstock.spark.tables.formats.delta.history import NOTE_KEY
from penstock.spark.tables.formats.delta.log import history_of
from penstock.spark.tables.formats.delta.storage import store_options
from penstock.spark.tables.formats.reading import COMMITS_MAX, CommitSeen, TableFacts
from penstock.spark.tables.values.columns import fit


def dataset_of(table: DeltaTable, uri: str) -> ds.Dataset:
    """Return the rows of a table; on this machine, read with Arrow's own files.

    deltalake's files are Python, called by Arrow's threads: a process that ends while a thread
    still closes a file is aborted, after all its work was done.
    """
    if "deletionVectors" in (table.protocol().reader_features or ()):
        # Arrow does not support deletion vectors; such a table is read whole. Only bad records are.
        return ds.dataset(pa.table(table.scan().read_all()).cast(table.schema().to_arrow()))
    is_local = not urlsplit(uri).scheme
    own = fs.SubTreeFileSystem(uri, fs.LocalFileSystem()) if is_local else None
    return table.to_pyarrow_dataset(filesystem=own)


def rows_of_keys(
    dataset: ds.Dataset, schema: pa.Schema, keys: pa.Table, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Return these columns of the rows of these keys; `schema` is the table's."""
    keys = keys.cast(
        pa.schema([pa.field(one, schema.field(one).type) for one in keys.schema.names])
    )
    names = list(dict.fromkeys([*columns, *keys.schema.names]))
    wanted = pa.schema([schema.field(name) for name in names])
    for batch in dataset.to_batches(columns=names, filter=_between(keys)):
        rows = fit(batch, wanted)
        found = rows.take(rows_among(rows, keys))
        if found.num_rows:
            yield found.select(list(columns))


def _between(keys: pa.Table) -> ds.Expression | None:
    """Return the condition for the ranges of the keys, by which files are left out.

    Texts and bytes leave out none: deltalake describes their ranges by views, which Arrow does not
    compare.
    """
    found = None
    for name in keys.schema.names:
        kind = keys.schema.field(name).type
        if not keys.num_rows or not _has_order(kind):
            continue
        limits = pc.min_max(keys[name])
        inside = (ds.field(name) >= limits["min"]) & (ds.field(name) <= limits["max"])
        found = inside if found is None else found & inside
    return found


def _has_order(kind: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_temporal, pa.types.is_decimal)
    return any(test(kind) for test in tests)


class DeltaReader:
    """The newest version of one table."""

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        self._uri = uri
        self._table = DeltaTable(uri, storage_options=store_options(storage_options))

    def facts(self) -> TableFacts:
        """Return the size and the age of the table."""
        files = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        entries = history_of(self._table)
        return TableFacts(
            version=self._table.version(),
            row_count=sum(one.get("num_records") or 0 for one in files),
            file_count=len(files),
            file_bytes=sum(one["size_bytes"] for one in files),
            snapshot_count=len(entries),
            oldest_snapshot_ms=min((one["timestamp"] for one in entries), default=None),
            commits=tuple(_commits(entries[:COMMITS_MAX])),
        )

    def rows(
        self, columns: Sequence[str], *, equal: Mapping[str, str | int], limit: int
    ) -> pa.Table:
        """Return rows whose columns have these values, in no order; at most `limit`."""
        wanted = None
        for name, value in equal.items():
            is_equal = ds.field(name) == value
            wanted = is_equal if wanted is None else wanted & is_equal
        dataset = dataset_of(self._table, self._uri)
        found = dataset.to_table(columns=list(columns), filter=wanted)
        return found.slice(0, limit)

    def close(self) -> None:
        """Do nothing: no resource stays open."""


def _commits(entries: Sequence[Mapping[str, Any]]) -> list[CommitSeen]:
    return [
        CommitSeen(read_note(entry[NOTE_KEY]).pipeline, entry["timestamp"])
        for entry in entries
        if entry.get(NOTE_KEY) is not None
    ]
