"""A Delta table as a `Table`, by the `deltalake` package.

A commit of ours consists of:

- A batch is one entry of Delta's log: the files, and the note in its commit information. So is an
  upsert: a merge, with the note.
- Acquiring the table is one entry too: it sets the table's properties, among them a copy of the
  newest note of every pipeline, and that no other writer cleans the log up.
- Each contains the number of the commit as Delta's own mark of a transaction (`txn`, application
  `penstock.<pipeline>`), which no cleanup deletes: it shows a loss of all notes.
- Both are written without retries: `deltalake` then rejects them if the table has another version
  than the one that was read. With retries it would append a zombie's entry after its successor's.

A separate entry directly before the files adds new columns, because `deltalake` has no call for
both together (`delta.growth`). A crash in between leaves a column without values. Types cannot be
widened: that needs a table feature that `deltalake` does not write.

Entries have the time of our clock in addition to that of `deltalake`: our clock decides their age.
Maintenance is in `delta.maintenance` and `delta.compaction`.

A partition by day, hour or month is a separate column in Delta, named `<column>_day` and so on.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.commit.decisions import Commit, TableState
from penstock.spark.tables.commit.note import CommitNote, NoteKind, write_note
from penstock.spark.tables.definition.model import Expectation
from penstock.spark.tables.files.data_files import STAGING_FOLDER, FileLayout, FileReceipt
from penstock.spark.tables.files.file_partitions import (
    PartitionField,
    Transform,
    derived_names,
    require_partitionable,
    text_of,
)
from penstock.spark.tables.files.storages import Directory, below
from penstock.spark.tables.files.table_facts import LiveFile, Partition, Retention, SnapshotFacts
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.change_files import changes_directory, clean_changes
from penstock.spark.tables.formats.delta import compaction as delta_compaction
from penstock.spark.tables.formats.delta import growth as delta_growth
from penstock.spark.tables.formats.delta import maintenance as delta_maintenance
from penstock.spark.tables.formats.delta.actions import add_action
from penstock.spark.tables.formats.delta.bounds import bounded_columns, bounds_properties
from penstock.spark.tables.formats.delta.columns import columns_to_add, derived_fields
from penstock.spark.tables.formats.delta.guard import (
    open_delta,
    protocol_of,
    refused_merge,
    require_fitting,
    require_judged,
    require_mergeable,
    require_no_feed_columns,
    require_supported,
)
from penstock.spark.tables.formats.delta.history import (
    KEPT_AT_KEY,
    KEPT_PREFIX,
    HistoryError,
)
from penstock.spark.tables.formats.delta.identity import SameTable
from penstock.spark.tables.formats.delta.notes import DeltaNotes, application_of, note_properties
from penstock.spark.tables.formats.delta.reading import dataset_of, rows_of_keys
from penstock.spark.tables.formats.delta.rules import constraints_key, constraints_of
from penstock.spark.tables.formats.delta.storage import DeltaStorage, store_options
from penstock.spark.tables.formats.delta.times import KeptTimes
from penstock.spark.tables.formats.delta.upsert import merge, merge_source
from penstock.spark.tables.formats.port import (
    AnswerLostError,
    Compaction,
    Expiry,
    FixedArrangement,
    PartitionsDifferError,
    TableMovedError,
    TableReplacedError,
)
from penstock.spark.tables.formats.secrets import version_of
from penstock.spark.tables.values.columns import fit

_KEEP_LOG: Final = {"delta.enableExpiredLogCleanup": "false"}
"""Entries have our notes; only `expire` removes them, after it has copied the newest."""


Made = TypeVar("Made")


def is_table(uri: str, storage_options: Mapping[str, str]) -> bool:
    """Return whether there is a table at this location."""
    return bool(DeltaTable.is_deltatable(uri, store_options(storage_options)))


class DeltaLakeTable(FixedArrangement):
    """One handle on a Delta table."""

    may_widen = False

    def __init__(
        self,
        uri: str,
        *,
        partitions: Sequence[PartitionField] = (),
        storage_options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        has_upserts: bool = False,
        is_read_only: bool = False,
    ) -> None:
        """Open the table. `has_upserts`: change rows by key. `is_read_only`: read any table."""
        self._uri = Directory(uri, DeltaStorage(tuple(sorted((storage_options or {}).items()))))
        self._fields = tuple(partitions)
        self._clock = clock or SystemClock()
        self._options = dict(storage_options or {})
        self._has_upserts = has_upserts
        self._mergeable: tuple[Expectation, ...] = ()
        """Rules that `deltalake` can evaluate, checked before."""
        self._times = KeptTimes(self._uri)
        self._secrets = version_of(self._options)
        self._table = open_delta(uri, self._options)
        if not is_read_only:
            self._require_supported()
        self._require_partitions()
        self._notes = DeltaNotes(self._open_version)
        self._same = SameTable(uri, lambda: open_delta(uri, self._options))
        self._same.remember(self._table)

    @classmethod
    def create(
        cls,
        uri: str,
        schema: pa.Schema,
        *,
        partitions: Sequence[PartitionField] = (),
        storage_options: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        has_upserts: bool = False,
    ) -> "DeltaLakeTable":
        """Create the table, or open an existing one."""
        require_partitionable(partitions, schema)
        names = [one.name for one in partitions]
        first = pa.schema(
            [*delta_growth.columns_at_first(schema), *derived_fields(partitions, schema)]
        )
        DeltaTable.create(
            uri,
            Schema.from_arrow(first),
            mode="ignore",
            partition_by=names,
            description=delta_maintenance.DESCRIPTION,
            configuration={**_KEEP_LOG, **bounds_properties(schema, names, {})},
            commit_properties=delta_maintenance.plain_properties((clock or SystemClock()).now_ms()),
            storage_options=store_options(storage_options or {}),
        )
        return cls(
            uri,
            partitions=partitions,
            storage_options=storage_options,
            clock=clock,
            has_upserts=has_upserts,
        )

    def close(self) -> None:
        """Do nothing: no resource stays open."""

    def _require_supported(self) -> None:
        """Check the version that was read: an owner may upgrade the table between two commits."""
        require_supported(self._table, self._uri, has_upserts=self._has_upserts)
        rules = self.constraints() if self._has_upserts else ()
        if rules != self._mergeable:
            require_mergeable(self._table, self._uri, rules)
            self._mergeable = rules

    def _require_partitions(self) -> None:
        """Raise if partitions differ: such files would make the table unreadable."""
        held = self._table.metadata().partition_columns
        wanted = [one.name for one in self._fields]
        if held != wanted:
            raise PartitionsDifferError(
                f"the table at {self._uri} is partitioned by {held or 'nothing'}, and "
                f"table.partition_by means {wanted or 'nothing'}. The partitions of a Delta table "
                "cannot change: correct table.partition_by, or name another table."
            )

    # --- Reading ---

    def load(self) -> TableState:
        """Read the table's current state."""
        found = version_of(self._options)
        if found != self._secrets:  # the handle has the credentials of its opening
            self._table, self._secrets = self._newest(self._table), found
        self._table = self._same.current(self._table)
        self._table.update_incremental()
        self._same.remember(self._table)
        return self._read_state()

    def _newest(self, held: DeltaTable) -> DeltaTable:
        """Open the same table anew."""
        found = open_delta(self._uri, self._options)
        if found.metadata().id != held.metadata().id:
            raise TableReplacedError(self._uri)
        return found

    def schema(self) -> pa.Schema:
        """Return the columns, without the columns that partitions have added."""
        derived = derived_names(self._fields)
        return pa.schema([one for one in self._whole_schema() if one.name not in derived])

    def _whole_schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def constraints(self) -> tuple[Expectation, ...]:
        """Return CHECK constraints, invariants and lengths of texts."""
        return constraints_of(protocol_of(self._table))

    def layout(self, schema: pa.Schema) -> FileLayout:
        """Return the layout for files that can be appended with this schema."""
        require_partitionable(self._fields, schema)
        plain = {one.name for one in self._fields if not one.is_derived}
        return FileLayout(
            self._uri,
            schema,
            self._fields,
            frozenset(plain),
            constraints_key=constraints_key(protocol_of(self._table)),
        )

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of all rows."""
        wanted = self.schema()
        for batch in dataset_of(self._table, self._uri).to_batches(columns=list(columns)):
            yield fit(batch, pa.schema([wanted.field(name) for name in columns]))

    def rows_of(self, keys: pa.Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of the rows of these keys."""
        yield from rows_of_keys(dataset_of(self._table, self._uri), self.schema(), keys, columns)

    def live_files(self) -> list[LiveFile]:
        """Return the files of the state that was read last."""
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        return [
            LiveFile(
                one["path"],
                one.get("num_records") or 0,
                one["size_bytes"],
                tuple(
                    (field.name, text_of(value, Transform.IDENTITY))
                    for field in self._fields
                    for value in [one.get(f"partition.{field.name}")]
                ),
            )
            for one in actions
        ]

    def _read_state(self) -> TableState:
        version = self._table.version()
        return TableState(self._notes.read(self._table), version)

    # --- Committing ---

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        """Add files and the note in one entry."""
        self._prepare(commit, files, schema)
        if commit.note.kind in {NoteKind.TAKE, NoteKind.FORGET}:
            assert not files, "such a commit has no files"
            self._made(lambda: self._take(commit))
        else:
            self._made(lambda: self._add(commit.note, files))
        return self._noted(commit)

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        """Merge the changes, with the note, in one entry."""
        self._times.require_kept(self._table)
        self._prepare(commit, changes.receipts, schema)
        source = merge_source(changes, self.schema(), self._fields)
        self._made(lambda: self._merge(commit.note, source, changes.key))
        return self._noted(commit)

    def _merge(self, note: CommitNote, source: pa.Table, key: Sequence[str]) -> None:
        before = self._table.version()
        merge(self._table, source, key, note_properties(note, self._clock.now_ms()))
        if self._table.version() == before:
            self._add(note, ())  # nothing was changed, but the note is required

    def _prepare(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None
    ) -> None:
        self._require(commit.after)
        self._require_new(commit.note)
        require_judged(self._table, files)
        require_fitting(self._table, files, schema)
        if schema is not None:
            self._add_columns(schema)

    def _noted(self, commit: Commit) -> TableState:
        version = self._table.version()
        notes = {**commit.after.notes, commit.note.pipeline: commit.note}
        self._notes.know(notes, version)
        self._same.remember(self._table)
        return TableState(notes, version)

    def _take(self, commit: Commit) -> None:
        notes = {**commit.after.notes, commit.note.pipeline: commit.note}
        self._table.alter.set_table_properties(
            {**self._bounds(), **self._copies(notes)},
            raise_if_not_exists=False,
            commit_properties=note_properties(commit.note, self._clock.now_ms()),
        )

    def _bounds(self) -> dict[str, str]:
        """Return the bounds properties for a table that another program created."""
        metadata = self._table.metadata()
        return bounds_properties(
            self._whole_schema(), metadata.partition_columns, metadata.configuration
        )

    def _copies(self, notes: Mapping[str, CommitNote]) -> dict[str, str]:
        """Return the properties with the copy of the notes, for the next entry."""
        copies = {f"{KEPT_PREFIX}{name}": write_note(note) for name, note in notes.items()}
        return {**_KEEP_LOG, **copies, KEPT_AT_KEY: str(self._table.version() + 1)}

    def _add(self, note: CommitNote, files: Sequence[FileReceipt]) -> None:
        now_ms = self._clock.now_ms()
        bounded = bounded_columns(self._table.metadata().configuration)
        self._table.create_write_transaction(
            [add_action(one, self._fields, now_ms, bounded) for one in files],
            mode="append",
            schema=self._table.schema(),
            partition_by=[one.name for one in self._fields],
            commit_properties=note_properties(note, now_ms),
            post_commithook_properties=delta_maintenance.KEEP_LOG,
        )

    def _add_columns(self, schema: pa.Schema) -> None:
        more = columns_to_add(self.schema(), schema, self._fields)
        require_no_feed_columns(self._table, self._uri, more)
        properties = delta_maintenance.plain_properties(self._clock.now_ms())
        if delta_growth.lacks_feature(self._table, more):
            self._made(lambda: delta_growth.add_feature(self._table, properties))
        if len(more):
            self._made(lambda: delta_growth.add_columns(self._table, more, properties))

    def _require(self, after: TableState) -> None:
        if version_of(self._options) != self._secrets:
            raise TableMovedError("the credentials have changed since the table was read")
        self._require_supported()
        if self._same.current(self._table) is not self._table:
            raise TableMovedError("the log of the table was cut or copied since it was read")
        self._require_partitions()
        if after.version != self._table.version():
            raise TableMovedError(
                f"the commit was decided from version {after.version}, and the table that was read "
                f"has version {self._table.version()}"
            )

    def _require_new(self, note: CommitNote) -> None:
        marked = self._table.transaction_version(application_of(note))
        if marked is not None and marked >= note.sequence:
            raise HistoryError(
                f"pipeline '{note.pipeline}' has written {marked} commits to this table, but the "
                f"table has notes of {note.sequence - 1}: another program changed its properties "
                "and its log. Give the pipeline a new name, and the offsets at which it should "
                "continue."
            )

    def _made(self, commit: Callable[[], Made]) -> Made:
        """Write one entry directly after the version that was read, or none; return its result."""
        before = self._table.version()
        try:
            made = commit()
        except CommitFailedError as error:
            raise TableMovedError(str(error)) from error
        except (DeltaError, OSError) as error:
            refused = refused_merge(self._uri, error)
            if refused is not None:
                raise refused from error
            raise AnswerLostError(str(error)) from error
        if self._table.version() == before:
            self._table.update_incremental()  # some calls of deltalake do not update the handle
        return made

    # --- Maintenance ---

    def snapshots(self) -> SnapshotFacts:
        """Return the number of readable versions, and the time of the oldest."""
        return delta_maintenance.snapshot_facts(self._table)

    def compact(
        self,
        after: TableState,
        *,
        target_bytes: int,
        partitions: Collection[Partition] | None = None,
    ) -> Compaction:
        """Merge small files into fewer ones, in one entry."""
        self._require(after)
        removed, added = self._made(
            lambda: delta_compaction.compact(
                self._table,
                self._uri,
                self.live_files(),
                target_bytes=target_bytes,
                partitions=partitions,
                now_ms=self._clock.now_ms(),
            )
        )
        return Compaction(self.load(), removed, added)

    def retention(self) -> Retention:
        """Return the retention of log and files in the table's properties."""
        metadata = self._table.metadata()
        return delta_maintenance.retention_of(metadata.configuration, metadata.description)

    def expire(self, *, older_than_ms: int, keep_count: int) -> Expiry:
        """Delete old entries of the log, and files that only they reference."""
        state = self.load()
        self._require_supported()
        first = delta_maintenance.first_kept_version(self._table, older_than_ms, keep_count)
        if first is None:
            return Expiry(state, 0)
        self._made(
            lambda: self._table.alter.set_table_properties(
                self._copies(state.notes),
                raise_if_not_exists=False,
                commit_properties=delta_maintenance.plain_properties(self._clock.now_ms()),
            )
        )
        removed_count = delta_maintenance.cut(self._table, self._open_version(first))
        return Expiry(self.load(), removed_count)

    def remove_orphans(self, *, older_than_ms: int) -> int:
        """Delete old files that no version references."""
        self.load()
        self._require_supported()
        count = delta_maintenance.remove_orphans(self._table, self._open_version, older_than_ms)
        for directory in (changes_directory(self._uri), below(self._uri, STAGING_FOLDER)):
            count += clean_changes(directory, older_than_ms=older_than_ms)
        return count

    def _open_version(self, version: int) -> DeltaTable:
        return open_delta(self._uri, self._options, version)
