"""Compaction of a Delta table: merges small files into fewer ones, in one conditional commit.

Guarantees: a row is never duplicated, even if others compact the table at the same time.

- The commit removes and adds files, and succeeds only directly after the version that was read. It
  is rejected after any other commit, including an `OPTIMIZE` of others.
- An `OPTIMIZE` of `deltalake` that read the table before this commit and commits after it would not
  detect that its files are gone (`test_delta_compaction` shows it). It detects a change of the
  table's metadata, so the same entry changes a property of the table. `OPTIMIZE` of Spark detects
  the removed files by itself.
- Rows are not changed: `dataChange` is false, so streams and change feeds of the table see nothing.

In a local folder this module writes the entry, because `deltalake` has no call for files and
metadata together: a complete and synced file gets its name by a hard link, which fails if the name
exists. In other storages `deltalake` commits three entries: the property, the files directly after
it, and the property again. Only an `OPTIMIZE` of `deltalake` that opens the table after the first
and commits between the second and the third would duplicate rows.

Some files are not compacted: files with deletion vectors, which have deleted rows; files outside of
the table's folder, which belong to the table that this one was cloned from; and, in other storages
than a local folder, files whose path has rare characters, which `deltalake` would spell
differently.
"""

import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from penstock.core.clock import SystemClock
from penstock.spark.tables.definition.locations import local_path
from penstock.spark.tables.files.data_files import (
    FileLayout,
    FilesWriter,
    open_directory,
    sync_file,
)
from penstock.spark.tables.files.storages import below
from penstock.spark.tables.files.table_facts import LiveFile, Partition
from penstock.spark.tables.formats.delta.actions import add_action
from penstock.spark.tables.formats.delta.bounds import bounded_columns
from penstock.spark.tables.formats.delta.log import COMMITTED_AT_KEY, LOG_FOLDER, stored_name
from penstock.spark.tables.formats.delta.maintenance import (
    KEEP_LOG,
    MARK_KEY,
    mark,
    plain_properties,
)
from penstock.spark.tables.formats.port import TableMovedError
from penstock.spark.tables.values.columns import fit

_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/=_.-]+")
"""Paths that `deltalake` writes unchanged into the log; another path would not be removed."""
OUTSIDE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
"""The prefix of a file's path outside of the table; Spark writes `file:/`, with one slash."""
_READ_ROWS: Final = 65_536
"""The number of rows that are read and written in one step."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The files that a compaction wrote, before its commit."""

    removed: tuple[LiveFile, ...]
    added: tuple[AddAction, ...]


def bins_of(
    files: Sequence[LiveFile], target_bytes: int, partitions: Collection[Partition] | None
) -> list[list[LiveFile]]:
    """Return groups of small files of one partition to merge into one file, the smallest first."""
    groups: dict[Partition, list[LiveFile]] = {}
    for one in files:
        is_meant = partitions is None or one.partition in partitions
        if is_meant and one.size_bytes < target_bytes:
            groups.setdefault(one.partition, []).append(one)
    found: list[list[LiveFile]] = []
    for group in groups.values():
        size_bytes, bins = 0, list[list[LiveFile]]()
        for one in sorted(group, key=lambda file: (file.size_bytes, file.path)):
            if not bins or size_bytes + one.size_bytes > target_bytes:
                bins.append([])
                size_bytes = 0
            bins[-1].append(one)
            size_bytes += one.size_bytes
        found += [one for one in bins if len(one) > 1]
    return found


def compact(
    table: DeltaTable,
    uri: str,
    files: Sequence[LiveFile],
    *,
    target_bytes: int,
    partitions: Collection[Partition] | None,
    now_ms: int,
) -> tuple[int, int]:
    """Merge small files and commit; return the numbers of removed and added files.

    `files` are those of the handle's version. Raise `TableMovedError` if the table has changed.
    """
    rewriting = _Rewriting(table, uri, now_ms)
    whole = [one for one in files if rewriting.is_whole(one)]
    done = [rewriting.rewrite(one) for one in bins_of(whole, target_bytes, partitions)]
    if not done:
        return 0, 0
    changes = Rewritten(
        tuple(file for one in done for file in one.removed),
        tuple(action for one in done for action in one.added),
    )
    if local_path(uri) is None:
        _commit_remotely(table, changes, now_ms)
    else:
        _commit_locally(table, uri, changes, now_ms, target_bytes)
    return len(changes.removed), len(changes.added)


class _Rewriting:
    """Reads rows of files of a table and writes them into new ones."""

    def __init__(self, table: DeltaTable, uri: str, now_ms: int) -> None:
        self._uri = below(uri, "")
        self._now_ms = now_ms
        self._is_local = local_path(uri) is not None
        self._filesystem, self._root = open_directory(uri)
        metadata = table.metadata()
        self._bounded = bounded_columns(metadata.configuration)
        columns = [
            one
            for one in pa.schema(table.schema().to_arrow())
            if one.name not in metadata.partition_columns
        ]
        self._schema = pa.schema([one.remove_metadata() for one in columns])
        self._deleted_from = _with_deleted_rows(table)

    def is_whole(self, file: LiveFile) -> bool:
        """Return whether the file is in the table's folder and has no deleted rows."""
        name = stored_name(file.path)
        if OUTSIDE.match(name):
            return False
        if not self._is_local and not _PLAIN_PATH.fullmatch(file.path):
            return False
        return not any(one.endswith(f"/{name}") for one in self._deleted_from)

    def rewrite(self, files: Sequence[LiveFile]) -> Rewritten:
        """Write the rows of these files into new ones, in the folder of the first."""
        folder, _, _ = stored_name(files[0].path).rpartition("/")
        directory = below(self._uri, folder)
        count = 0
        layout = FileLayout(directory, self._schema)
        with FilesWriter(layout, f"compacted-{uuid4().hex[:8]}") as writer:
            for file in files:
                with self._open(file) as source:
                    count += source.metadata.num_rows
                    for batch in source.iter_batches(_READ_ROWS):
                        writer.write(fit(batch, self._schema))
            receipts = writer.finish()
        assert count == sum(one.row_count for one in receipts), "every row, once"
        added = [add_action(one, (), self._now_ms, self._bounded) for one in receipts]
        prefix = f"{quote(folder, safe='/=-_.~')}/" if folder else ""
        values = dict(files[0].partition)
        named = [
            replace(one, path=f"{prefix}{one.path}", partition_values=values, data_change=False)
            for one in added
        ]
        return Rewritten(tuple(files), tuple(named))

    def _open(self, file: LiveFile) -> pq.ParquetFile:
        # Spark writes times as INT96, which Arrow reads as nanoseconds: those end in 2262.
        return pq.ParquetFile(
            f"{self._root}/{stored_name(file.path)}",
            filesystem=self._filesystem,
            coerce_int96_timestamp_unit="us",
        )


def _with_deleted_rows(table: DeltaTable) -> frozenset[str]:
    """Return the paths of files with deletion vectors."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return frozenset()
    found = pa.table(table.deletion_vectors().read_all())
    return frozenset(unquote(one) for one in found["filepath"].to_pylist())


# --- The commit ---


def _commit_remotely(table: DeltaTable, changes: Rewritten, now_ms: int) -> None:
    read = table.version()
    mark(table, now_ms)
    table.update_incremental()
    if table.version() != read + 1:
        raise TableMovedError(
            f"the files of version {read} were read, and the table has version {table.version()}"
        )
    _commit_files(table, changes, now_ms)
    with suppress(DeltaError):  # the files are committed, even if this fails
        table.update_incremental()
        mark(table, now_ms)


def _commit_files(table: DeltaTable, changes: Rewritten, now_ms: int) -> None:
    removed = [
        RemoveAction(
            one.path,
            data_change=False,
            deletion_timestamp=now_ms,
            size=one.size_bytes,
            partition_values=dict(one.partition),
        )
        for one in changes.removed
    ]
    table.create_write_transaction(
        [*changes.added, *removed],
        mode="append",
        schema=table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=plain_properties(now_ms),
        post_commithook_properties=KEEP_LOG,
    )


def _commit_locally(
    table: DeltaTable, uri: str, changes: Rewritten, now_ms: int, target_bytes: int
) -> None:
    """Write one entry with all changes, directly after the version that was read or not at all."""
    actions = [
        {"commitInfo": _information(table, now_ms, target_bytes)},
        {"metaData": _marked_metadata(table)},
        *({"remove": _remove(one, now_ms)} for one in changes.removed),
        *({"add": _add(one)} for one in changes.added),
    ]
    text = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in actions)
    place = local_path(uri)
    assert place is not None
    publish_entry(Path(place) / LOG_FOLDER, table.version() + 1, text)
    table.update_incremental()


def publish_entry(log: Path, version: int, text: str) -> None:
    """Write this entry of the log; raise `TableMovedError` if the version already exists."""
    entry = log / f"{version:020d}.json"
    draft = log / f".{entry.name}.{uuid4().hex}.tmp"
    try:
        draft.write_text(text, encoding="utf-8")
        sync_file(str(draft))
        os.link(draft, entry)
    except FileExistsError as error:
        raise TableMovedError(f"version {version} of the table is there already") from error
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
    sync_file(str(entry))


def _information(table: DeltaTable, now_ms: int, target_bytes: int) -> dict[str, Any]:
    return {
        "timestamp": SystemClock().now_ms(),
        "operation": "OPTIMIZE",
        "operationParameters": {"predicate": "[]", "targetSize": str(target_bytes)},
        "readVersion": table.version(),
        "isBlindAppend": False,
        "engineInfo": "penstock",
        COMMITTED_AT_KEY: str(now_ms),
    }


def _marked_metadata(table: DeltaTable) -> dict[str, Any]:
    """Return the table's metadata with another value of the mark."""
    held = table.metadata()
    return {
        "id": str(held.id),
        "name": held.name,
        "description": held.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": list(held.partition_columns),
        "createdTime": held.created_time,
        "configuration": {**held.configuration, MARK_KEY: uuid4().hex},
    }


def _remove(file: LiveFile, now_ms: int) -> dict[str, Any]:
    return {
        "path": file.path,
        "dataChange": False,
        "deletionTimestamp": now_ms,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition),
        "size": file.size_bytes,
    }


def _add(action: AddAction) -> Mapping[str, Any]:
    return {
        "path": action.path,
        "partitionValues": dict(action.partition_values),
        "size": action.size,
        "modificationTime": action.modification_time,
        "dataChange": action.data_change,
        "stats": action.stats,
    }
