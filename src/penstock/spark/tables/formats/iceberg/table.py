"""An Iceberg table as a `Table`, by the `pyiceberg` package and any catalog that it supports.

A commit of ours is one commit to the catalog: the snapshot with the files and the note in its
summary, a copy of the note among the table's properties, and new or widened columns. It is
conditional on the snapshot, the schema and the partitions that were read, and is tried once. It is
sent to the catalog directly: after a conflict, a transaction of `pyiceberg` repeats an append on
top of any other commit, and would add a zombie's files after its successor's. A table's own setting
for retries (`commit.retry.num-retries`) is not changed; it is for other writers.

Notes are searched for among the ancestors of the current snapshot, not only in it: a compaction or
another writer's append may be the newest. Expired notes are in the copy. Maintenance is in
`iceberg.maintenance`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.commit.decisions import Commit, TableState, newest_note
from penstock.spark.tables.commit.note import CommitNote, NoteError, read_note, write_note
from penstock.spark.tables.definition.model import Expectation
from penstock.spark.tables.files.data_files import (
    FileLayout,
    FileReceipt,
    remove_files,
    write_files,
)
from penstock.spark.tables.files.file_partitions import PartitionField, require_partitionable
from penstock.spark.tables.files.table_facts import (
    CREATED_KEY,
    LiveFile,
    Partition,
    Retention,
    SnapshotFacts,
)
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.iceberg import maintenance as iceberg_maintenance
from penstock.spark.tables.formats.iceberg.change import Change
from penstock.spark.tables.formats.iceberg.files import data_files, require_fitting, small_groups
from penstock.spark.tables.formats.iceberg.protocol import (
    data_directory,
    readable_metadata,
    require_supported,
)
from penstock.spark.tables.formats.iceberg.rows import IcebergRows
from penstock.spark.tables.formats.iceberg.schema import (
    fields_of,
    kept_required,
    new_schema,
    new_spec,
    partition_reader,
    plain_schema,
    planned_schema,
    with_ids,
)
from penstock.spark.tables.formats.iceberg.upsert import replacement, rewrite_files
from penstock.spark.tables.formats.port import (
    AnswerLostError,
    Compaction,
    Expiry,
    TableMovedError,
    TableReplacedError,
)

NOTE_KEY: Final = "penstock.note"
"""The key of the note in the summary of our snapshots."""
PIPELINE_KEY: Final = "penstock.pipeline"
"""The key of the note's pipeline, so that the note need not be parsed to find it."""
KEPT_PREFIX: Final = "penstock.note."
"""The prefix of the table's property with a copy of a pipeline's newest note; the name follows."""
KEPT_AT_PREFIX: Final = "penstock.note-at."
"""The prefix of the property with the sequence number of the copy's snapshot."""
CATALOG_NAME: Final = "default"
"""The name of a catalog whose options have no `name`: pyiceberg's own default."""
NO_SNAPSHOT: Final = -1
MAIN: Final = "main"
_NEW_TABLE: Final = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    CREATED_KEY: "true",
}
"""Keeps the metadata small for a table with a commit a minute."""


def _open(options: Mapping[str, str]) -> Catalog:
    """Open a catalog by pyiceberg's options. A database may store several catalogs, by name."""
    others = {name: value for name, value in options.items() if name != "name"}
    return load_catalog(options.get("name", CATALOG_NAME), **others)


def is_table(catalog: Mapping[str, str], name: str) -> bool:
    """Return whether the catalog has a table of this name."""
    opened = _open(catalog)
    try:
        with readable_metadata(name):
            return bool(opened.table_exists(name))
    finally:
        opened.close()


class IcebergTable:
    """One handle on an Iceberg table."""

    may_widen = True

    def __init__(
        self,
        catalog: Mapping[str, str],
        name: str,
        *,
        clock: Clock | None = None,
        is_read_only: bool = False,
    ) -> None:
        """Open the table; with `is_read_only`, any table can be read."""
        self._clock = clock or SystemClock()
        self._catalog: Catalog = _open(catalog)
        with readable_metadata(name):
            self._table: PyIcebergTable = self._catalog.load_table(name)
        if not is_read_only:
            require_supported(self._table)

    @classmethod
    def create(
        cls,
        catalog: Mapping[str, str],
        name: str,
        schema: pa.Schema,
        *,
        partitions: Sequence[PartitionField] = (),
        clock: Clock | None = None,
    ) -> "IcebergTable":
        """Create the table and its namespace, or open an existing table."""
        require_partitionable(partitions, schema)
        opened = _open(catalog)
        with suppress(NamespaceAlreadyExistsError):  # two processes create it at the same time
            opened.create_namespace_if_not_exists(Catalog.namespace_from(name))
        columns = new_schema(schema)
        opened.create_table_if_not_exists(
            name, columns, partition_spec=new_spec(columns, partitions), properties=_NEW_TABLE
        )
        opened.close()
        return cls(catalog, name, clock=clock)

    def close(self) -> None:
        """Close the catalog."""
        self._catalog.close()

    # --- Reading ---

    def load(self) -> TableState:
        """Read the table's current state."""
        try:
            self._table.refresh()
        except NoSuchTableError as error:
            raise TableReplacedError(".".join(self._table.name())) from error
        except ValueError as error:
            if "UUID does not match" not in str(error):
                raise
            raise TableReplacedError(".".join(self._table.name())) from error
        return self._state()

    def schema(self) -> pa.Schema:
        """Return the columns."""
        return plain_schema(self._table.schema())

    def constraints(self) -> tuple[Expectation, ...]:
        """Return no rules: Iceberg has only required columns, which are in the schema."""
        return ()

    def layout(self, schema: pa.Schema) -> FileLayout:
        """Return the layout for files that can be appended with this schema."""
        fields = fields_of(self._table)
        require_partitionable(fields, schema)
        rows = with_ids(schema, planned_schema(self._table, schema))
        return FileLayout(self._directory(), rows, fields)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of all rows."""
        tasks = list(self._table.scan().plan_files())
        yield from IcebergRows(self._table, columns).batches(tasks)

    def live_files(self) -> list[LiveFile]:
        """Return the files of the state that was read last."""
        partition_of = partition_reader(self._table)
        return [
            LiveFile(
                task.file.file_path,
                task.file.record_count,
                task.file.file_size_in_bytes,
                partition_of(task.file),
            )
            for task in self._table.scan().plan_files()
        ]

    def _directory(self) -> str:
        return data_directory(self._table.metadata)

    def _state(self) -> TableState:
        properties = self._table.metadata.properties
        kept = {
            name.removeprefix(KEPT_PREFIX): read_note(text)
            for name, text in properties.items()
            if name.startswith(KEPT_PREFIX)
        }
        found, is_whole = self._notes_in_history(frozenset(kept))
        current = self._table.current_snapshot()
        notes = {}
        for name in {*kept, *found}:
            if name not in found and not is_whole:
                self._require_not_before(current, name)
            note = newest_note(found.get(name), kept.get(name), is_whole=is_whole)
            if note is not None:
                notes[name] = note
        return TableState(notes, NO_SNAPSHOT if current is None else current.snapshot_id)

    def _notes_in_history(self, wanted: frozenset[str]) -> tuple[dict[str, CommitNote], bool]:
        """Return the newest note of each pipeline in the history; whether it is complete."""
        by_id = {one.snapshot_id: one for one in self._table.metadata.snapshots}
        found: dict[str, CommitNote] = {}
        at = self._table.metadata.current_snapshot_id
        while at is not None:
            snapshot = by_id.get(at)
            if snapshot is None:
                return found, False
            pipeline = snapshot.summary[PIPELINE_KEY] if snapshot.summary else None
            if pipeline is not None and pipeline not in found:
                assert snapshot.summary is not None
                found[pipeline] = read_note(str(snapshot.summary[NOTE_KEY]))
                if wanted and wanted <= found.keys():
                    return found, False  # earlier snapshots are older
            at = snapshot.parent_snapshot_id
            if at is None:
                # An expiry by pyiceberg leaves the oldest snapshot without a parent, like the
                # table's first one: only the first has the first sequence number.
                return found, snapshot.sequence_number == 1
        return found, True

    def _require_not_before(self, current: Snapshot | None, pipeline: str) -> None:
        """Raise after a rollback to before a note if the history is cut: the state is unknown."""
        kept_at = int(self._table.metadata.properties.get(f"{KEPT_AT_PREFIX}{pipeline}", "0"))
        if current is None or (current.sequence_number or 0) < kept_at:
            raise NoteError(
                f"the table was rolled back to a snapshot from before the last commit of pipeline "
                f"'{pipeline}', and the snapshots that say what it held then have expired. Roll it "
                "forward again, or name another table and the offsets from which the pipeline "
                "shall go on there."
            )

    # --- Committing ---

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        """Add files, the note and its copy, and columns, in one commit."""
        return self._replace(commit, (), files, schema)

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        """Rewrite the files with rows of changed keys, in one commit with the rest."""
        self._require(commit.after)
        rewrite = rewrite_files(self._table, changes, self.layout(self._planned(schema)))
        try:
            return self._replace(commit, rewrite.removed, rewrite.added, schema)
        except TableMovedError:
            remove_files(self._directory(), rewrite.added)  # the next attempt writes other files
            raise

    def _planned(self, schema: pa.Schema | None) -> pa.Schema:
        """Return all columns after a commit with this schema."""
        if schema is None:
            return self.schema()
        return plain_schema(planned_schema(self._table, schema))

    def _replace(
        self,
        commit: Commit,
        removed: Sequence[DataFile],
        added: Sequence[FileReceipt],
        schema: pa.Schema | None,
    ) -> TableState:
        self._require(commit.after)
        change = Change(self._table)
        columns = self._table.schema()
        if schema is not None:
            columns = planned_schema(self._table, schema)
            change.update_schema().union_by_name(kept_required(self._table, schema)).commit()
        require_fitting(added, columns, [one.name for one in fields_of(self._table)])
        text, name = write_note(commit.note), commit.note.pipeline
        at = self._table.metadata.next_sequence_number()
        change.set_properties({f"{KEPT_PREFIX}{name}": text, f"{KEPT_AT_PREFIX}{name}": str(at)})
        update = change.update_snapshot({NOTE_KEY: text, PIPELINE_KEY: name})
        producer = replacement(update) if removed else update.merge_append()
        for file in removed:
            producer.delete_data_file(file)
        for file in data_files(added, self._table.metadata, columns, self._directory()):
            producer.append_data_file(file)
        producer.commit()
        self._commit(change)
        current = self._table.current_snapshot()
        assert current is not None, "a commit makes a snapshot"
        return TableState({**commit.after.notes, name: commit.note}, current.snapshot_id)

    def _require(self, after: TableState) -> None:
        require_supported(self._table)
        current = self._table.current_snapshot()
        version = NO_SNAPSHOT if current is None else current.snapshot_id
        if after.version != version:
            raise TableMovedError(
                f"the commit was decided from snapshot {after.version}, and the table that was "
                f"read has snapshot {version}"
            )

    def _commit(self, change: Transaction) -> None:
        """Commit once, on condition that the table has not changed since it was read."""
        metadata = self._table.metadata
        required: list[TableRequirement] = [
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId.model_validate(
                {"ref": MAIN, "snapshot-id": metadata.current_snapshot_id}
            ),
            AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}),
        ]
        others = [one for one in change._requirements if type(one) not in set(map(type, required))]
        try:
            updates = tuple(map(self._timed, change._updates))
            self._table._do_commit(updates=updates, requirements=(*required, *others))
        except CommitFailedException as error:
            for producer in change._snapshot_producers:
                producer._clean_all_uncommitted()
            raise TableMovedError(str(error)) from error
        except Exception as error:  # any error of a catalog: the result is unknown
            raise AnswerLostError(str(error)) from error

    def _timed(self, update: TableUpdate) -> TableUpdate:
        """Set the time of our clock in a snapshot; pyiceberg sets the machine's."""
        if not isinstance(update, AddSnapshotUpdate):
            return update
        timed = update.snapshot.model_copy(update={"timestamp_ms": self._clock.now_ms()})
        return update.model_copy(update={"snapshot": timed})

    # --- Maintenance ---

    def retention(self) -> Retention:
        """Return the retention of snapshots in the table's properties."""
        return iceberg_maintenance.retention_of(self._table.metadata)

    def snapshots(self) -> SnapshotFacts:
        """Return the number of snapshots, and the time of the oldest."""
        return iceberg_maintenance.snapshot_facts(self._table.metadata)

    def compact(
        self,
        after: TableState,
        *,
        target_bytes: int,
        partitions: Collection[Partition] | None = None,
    ) -> Compaction:
        """Rewrite the rows of small files into fewer ones."""
        self._require(after)
        metadata = self._table.metadata
        partition_of = partition_reader(self._table)
        wanted = (
            task
            for task in self._table.scan().plan_files()
            if partitions is None or partition_of(task.file) in partitions
        )
        groups = small_groups(wanted, metadata.default_spec_id, target_bytes)
        if not groups:
            return Compaction(after, 0, 0)
        reader = IcebergRows(self._table)
        layout = self.layout(self.schema())
        added = [
            receipt
            for group in groups
            for receipt in write_files(reader.batches(group), layout, "compacted")
        ]
        removed = [task.file for group in groups for task in group]
        change = Change(self._table)
        producer = replacement(change.update_snapshot())
        for file in removed:
            producer.delete_data_file(file)
        for file in data_files(added, metadata, self._table.schema(), self._directory()):
            producer.append_data_file(file)
        producer.commit()
        self._commit(change)
        return Compaction(self._state(), len(removed), len(added))

    def expire(self, *, older_than_ms: int, keep_count: int) -> Expiry:
        """Expire old snapshots, then delete the files that only they referenced."""
        self.load()
        require_supported(self._table)
        old = iceberg_maintenance.old_snapshots(self._table.metadata, older_than_ms, keep_count)
        if old:
            change = Change(self._table)
            ExpireSnapshots(change).by_ids([one.snapshot_id for one in old]).commit()
            self._commit(change)
            iceberg_maintenance.remove_files_of(old, self._table)
        return Expiry(self._state(), len(old))

    def remove_orphans(self, *, older_than_ms: int) -> int:
        """Delete old files that no snapshot and no metadata references."""
        return iceberg_maintenance.remove_orphans(self._table, older_than_ms)
