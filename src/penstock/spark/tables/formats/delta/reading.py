"""Read-only access to a Delta table, by the `deltalake` package."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow import fs

from penstock.spark.tables.commit.note import read_note
from penstock.spark.tables.formats.delta.history import NOTE_KEY
from penstock.spark.tables.formats.delta.log import history_of
from penstock.spark.tables.formats.reading import COMMITS_MAX, CommitSeen, TableFacts


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


class DeltaReader:
    """The newest version of one table."""

    def __init__(self, uri: str, storage_options: Mapping[str, str]) -> None:
        self._uri = uri
        self._table = DeltaTable(uri, storage_options=dict(storage_options))

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
