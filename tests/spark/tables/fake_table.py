"""A table in memory: the port `Table` with everything a test wants to happen to it.

It behaves as a real one does at its seams: a commit is rejected when anything was committed since
the state of its decision; snapshots expire with their notes; a copy of each newest note stays. Its
files are real, so that they can be orphans.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.commit.decisions import Commit, TableState, newest_note
from penstock.spark.tables.commit.note import CommitNote, read_note, write_note
from penstock.spark.tables.definition.model import Expectation
from penstock.spark.tables.files.data_files import FileLayout, FileReceipt, write_files
from penstock.spark.tables.files.orphans import StoredFile, orphans_of
from penstock.spark.tables.files.table_facts import LiveFile, Partition, Retention, SnapshotFacts
from penstock.spark.tables.files.upsert import CHANGE_COLUMNS, DELETED, Changes, rows_among
from penstock.spark.tables.formats.port import (
    AnswerLostError,
    Compaction,
    Expiry,
    FixedArrangement,
    TableMovedError,
)

ORDER = CHANGE_COLUMNS.names[1:]


@dataclass(frozen=True)
class Snapshot:
    """One state of the table."""

    version: int
    files: tuple[FileReceipt, ...]
    note_text: str | None
    schema: pa.Schema
    parent: int | None
    committed_at_ms: int


@dataclass
class Store:
    """The state that all handles of the table share."""

    directory: str
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    current: int | None = None
    next_version: int = 0
    kept: dict[str, str] = field(default_factory=dict)
    """The copy of each pipeline's newest note."""
    clock: Clock = field(default_factory=SystemClock)


class FakeTable(FixedArrangement):
    """One handle on a table."""

    may_widen = True

    def close(self) -> None:
        pass

    def __init__(self, store: Store, schema: pa.Schema) -> None:
        self._store = store
        self._schema = schema
        self._files: tuple[FileReceipt, ...] = ()
        self.loses_answer = False
        """The next commit is made, and its answer lost."""

    def load(self) -> TableState:
        current = self._current()
        if current is not None:
            self._schema, self._files = current.schema, current.files
        return self._state()

    def schema(self) -> pa.Schema:
        return self._schema

    def constraints(self) -> tuple[Expectation, ...]:
        return ()

    def layout(self, schema: pa.Schema) -> FileLayout:
        return FileLayout(self._store.directory, schema)

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        self._require(commit.after)
        current = self._current()
        before = () if current is None else current.files
        return self._commit(commit, (*before, *files), schema or self._schema)

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        """Row by row in Python: slow, and too simple to be wrong."""
        self._require(commit.after)
        columns = schema or self._schema
        rows = {
            tuple(row[name] for name in changes.key): row
            for one in self._files
            for row in pq.read_table(f"{self._store.directory}/{one.path}").to_pylist()
        }
        found = [
            row
            for one in changes.receipts
            for row in pq.read_table(f"{changes.directory}/{one.path}").to_pylist()
        ]
        for change in sorted(found, key=lambda one: tuple(one[name] for name in ORDER)):
            key = tuple(change[name] for name in changes.key)
            rows.pop(key, None)
            if not change[DELETED]:
                rows[key] = change
        chosen = [{name: row.get(name) for name in columns.names} for row in rows.values()]
        batches = pa.Table.from_pylist(chosen, columns).to_batches()
        files = write_files(batches, self.layout(columns), "upserted")
        return self._commit(commit, tuple(files), columns)

    def _commit(
        self, commit: Commit, files: tuple[FileReceipt, ...], schema: pa.Schema
    ) -> TableState:
        text = write_note(commit.note)
        self._push(files, text, schema)
        self._store.kept[commit.note.pipeline] = text
        if self.loses_answer:
            self.loses_answer = False
            raise AnswerLostError("the answer was lost")
        return self.load()

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for one in self.live_files():
            yield from pq.read_table(
                f"{self._store.directory}/{one.path}", columns=list(columns)
            ).to_batches()

    def rows_of(self, keys: pa.Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.scan(list(dict.fromkeys([*columns, *keys.schema.names]))):
            found = batch.take(rows_among(batch, keys))
            if found.num_rows:
                yield found.select(list(columns))

    def live_files(self) -> list[LiveFile]:
        return [LiveFile(one.path, one.row_count, one.size_bytes) for one in self._files]

    def snapshots(self) -> SnapshotFacts:
        times = [one.committed_at_ms for one in self._store.snapshots.values()]
        return SnapshotFacts(len(times), min(times, default=None))

    def compact(
        self,
        after: TableState,
        *,
        target_bytes: int,
        partitions: Collection[Partition] | None = None,
    ) -> Compaction:
        self._require(after)
        small = [one for one in self._files if one.size_bytes < target_bytes]
        if len(small) < 2 or (partitions is not None and () not in partitions):
            return Compaction(after, 0, 0)
        rows = [
            batch
            for one in small
            for batch in pq.read_table(f"{self._store.directory}/{one.path}").to_batches()
        ]
        added = write_files(rows, self.layout(self._schema), "compacted")
        kept = [one for one in self._files if one not in small]
        self._push((*kept, *added), None, self._schema)
        return Compaction(self.load(), len(small), len(added))

    def retention(self) -> Retention:
        return Retention(is_own=True)

    def expire(self, *, older_than_ms: int, keep_count: int) -> Expiry:
        snapshots = self._store.snapshots
        versions = sorted(snapshots)
        removed = [
            snapshots.pop(version)
            for version in versions[: max(0, len(versions) - keep_count)]
            if snapshots[version].committed_at_ms < older_than_ms
        ]
        for path in {file.path for one in removed for file in one.files} - self._referred():
            Path(self._store.directory, path).unlink()
        return Expiry(self.load(), len(removed))

    def remove_orphans(self, *, older_than_ms: int) -> int:
        folder = Path(self._store.directory)
        live = [one.path for one in self._files]
        stored = [
            StoredFile(str(one.relative_to(folder)), one.stat().st_mtime_ns // 1_000_000)
            for one in folder.rglob("*.parquet")
        ]
        self.load()
        orphans = orphans_of(stored, self._referred(), live, older_than_ms)
        for name in orphans:
            (folder / name).unlink()
        return len(orphans)

    def _referred(self) -> set[str]:
        return {file.path for one in self._store.snapshots.values() for file in one.files}

    def _require(self, after: TableState) -> None:
        version = -1 if self._store.current is None else self._store.current
        if after.version != version:
            raise TableMovedError(f"version {version} is not {after.version}")

    def _push(self, files: tuple[FileReceipt, ...], text: str | None, schema: pa.Schema) -> None:
        store = self._store
        version = store.next_version
        store.next_version += 1
        now_ms = store.clock.now_ms()
        store.snapshots[version] = Snapshot(version, files, text, schema, store.current, now_ms)
        store.current = version

    def _current(self) -> Snapshot | None:
        current = self._store.current
        return None if current is None else self._store.snapshots[current]

    def _state(self) -> TableState:
        found: dict[str, CommitNote] = {}
        at, is_whole = self._store.current, True
        while at is not None:
            snapshot = self._store.snapshots.get(at)
            if snapshot is None:
                is_whole = False
                break
            if snapshot.note_text is not None:
                note = read_note(snapshot.note_text)
                found.setdefault(note.pipeline, note)
            at = snapshot.parent
        notes = {}
        for name in {*found, *self._store.kept}:
            kept = self._store.kept.get(name)
            note_or_none = newest_note(
                found.get(name), None if kept is None else read_note(kept), is_whole=is_whole
            )
            if note_or_none is not None:
                notes[name] = note_or_none
        version = -1 if self._store.current is None else self._store.current
        return TableState(notes, version)
