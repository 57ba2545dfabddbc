"""An Iceberg table as a `Table`, by the `pyiceberg` package and any catalog that it supports.

A commit of ours is one commit to the catalog: the snapshot with the files and the note in its
summary, a copy of the note among the table's properties, and new or widened columns. It is
conditional on the snapshot, the schema and the partitions that were read, and is tried once. It is
sent to the catalog directly: after a conflict, a transaction of `pyiceberg` repeats an append on
top of any other commit, and would add a zombie's files after its successor's. A table's own setting
for retries (`commit.retry.num-retries`) is not changed; it is for other writers.

Notes are searched for among the ancestors of the current snapshot, not only in it: a compaction or
another writer's append may be the newest (`iceberg.note_history`). Maintenance is in
`iceberg.maintenance`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import ExpireSnapshots, UpdateSnapshot

from penstock.core.clock import Clock, SystemClock
from penstock.spark.tables.commit.decisions import Commit, TableState
from penstock.spark.tables.commit.note import write_note
from penstock.spark.tables.definition.model import Expectation, Upserts
from penstock.spark.tables.files.data_files import (
    FileLayout,
    FileReceipt,
    remove_files,
)
from penstock.spark.tables.files.file_order import SortField, require_sortable
from penstock.spark.tables.files.file_partitions import PartitionField, require_partitionable
from penstock.spark.tables.files.storages import Directory
from penstock.spark.tables.files.table_facts import (
    LiveFile,
    Partition,
    Retention,
    SnapshotFacts,
)
from penstock.spark.tables.files.upsert import Changes
from penstock.spark.tables.formats.iceberg import maintenance as iceberg_maintenance
from penstock.spark.tables.formats.iceberg import nessie
from penstock.spark.tables.formats.iceberg.arrangement import (
    changes_for,
    fields_of,
    new_sort_order,
    new_spec,
    partition_reader,
    sort_of,
)
from penstock.spark.tables.formats.iceberg.change import Change
from penstock.spark.tables.formats.iceberg.files import (
    data_files,
    groups_to_merge,
    require_fitting,
)
from penstock.spark.tables.formats.iceberg.key_places import KeyPlaces
from penstock.spark.tables.formats.iceberg.merge_on_read import mark_deleted
from penstock.spark.tables.formats.iceberg.note_history import state_of
from penstock.spark.tables.formats.iceberg.note_keys import (
    KEPT_AT_PREFIX,
    KEPT_PREFIX,
    MAIN,
    NEW_TABLE,
    NO_SNAPSHOT,
    NOTE_KEY,
    PIPELINE_KEY,
)
from penstock.spark.tables.formats.iceberg.position_deletes import deleted_counts, own_count
from penstock.spark.tables.formats.iceberg.protocol import (
    data_directory,
    readable_metadata,
    require_merge_on_read,
    require_supported,
)
from penstock.spark.tables.formats.iceberg.replacement import stage_files
from penstock.spark.tables.formats.iceberg.rows import IcebergRows
from penstock.spark.tables.formats.iceberg.schema import (
    kept_required,
    new_schema,
    plain_schema,
    planned_schema,
    with_ids,
)
from penstock.spark.tables.formats.iceberg.storage import (
    IcebergStorage,
    has_expired,
    open_catalog,
)
from penstock.spark.tables.formats.iceberg.truncatable import require_truncatable
from penstock.spark.tables.formats.iceberg.upsert import (
    Rewrite,
    merge_files,
    rewrite_files,
    rows_of_keys,
)
from penstock.spark.tables.formats.port import (
    AnswerLostError,
    Arrangement,
    Compaction,
    Expiry,
    TableMovedError,
    TableReplacedError,
)
from penstock.spark.tables.formats.secrets import keep_hidden, version_of


def is_table(catalog: Mapping[str, str], name: str) -> bool:
    """Return whether the catalog has a table of this name."""
    opened = open_catalog(catalog)
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
        upserts: Upserts = Upserts.COPY_ON_WRITE,
    ) -> None:
        """Open the table; with `is_read_only`, any table can be read."""
        self._clock = clock or SystemClock()
        self._options = dict(catalog)
        self._secrets = version_of(self._options)
        self._upserts = upserts
        self._places = KeyPlaces()
        self._catalog: Catalog = open_catalog(catalog)
        self._storage = IcebergStorage(tuple(sorted(catalog.items())), name)
        with readable_metadata(name):
            self._table: PyIcebergTable = self._catalog.load_table(name)
        keep_hidden(self._table.io.properties)
        if not is_read_only:
            require_supported(self._table)
            nessie.require_snapshot(self._catalog, self._table)
            if upserts is Upserts.MERGE_ON_READ:
                require_merge_on_read(self._table)

    @classmethod
    def create(
        cls,
        catalog: Mapping[str, str],
        name: str,
        schema: pa.Schema,
        *,
        partitions: Sequence[PartitionField] = (),
        sort: Sequence[SortField] = (),
        clock: Clock | None = None,
        upserts: Upserts = Upserts.COPY_ON_WRITE,
    ) -> "IcebergTable":
        """Create the table and its namespace, or open an existing table."""
        require_partitionable(partitions, schema)
        require_sortable(sort, schema)
        opened = open_catalog(catalog)
        with suppress(NamespaceAlreadyExistsError):  # two processes create it at the same time
            opened.create_namespace_if_not_exists(Catalog.namespace_from(name))
        columns = new_schema(schema)
        nessie.create_table(
            opened,
            name,
            columns,
            spec=new_spec(columns, partitions),
            order=new_sort_order(columns, sort),
            properties=NEW_TABLE,
        )
        opened.close()
        return cls(catalog, name, clock=clock, upserts=upserts)

    def close(self) -> None:
        """Close the catalog."""
        self._places.clear()
        self._catalog.close()

    # --- Reading ---

    def load(self) -> TableState:
        """Read the table's current state."""
        self._read()
        return self._state()

    def _read(self) -> None:
        """Read the metadata, with the credentials of now."""
        found = version_of(self._options)
        if found != self._secrets:
            self._catalog.close()
            self._catalog = self._table.catalog = open_catalog(self._options)
            self._secrets = found
        try:
            self._table.refresh()
        except NoSuchTableError as error:
            raise TableReplacedError(".".join(self._table.name())) from error
        except ValueError as error:
            if "UUID does not match" not in str(error):
                raise
            raise TableReplacedError(".".join(self._table.name())) from error
        keep_hidden(self._table.io.properties)

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
        directory = Directory(self._directory(), self._storage)
        return FileLayout(directory, rows, fields, sort=sort_of(self._table.metadata))

    def arrangement(self) -> Arrangement:
        """Return the partitions and the sort order of new files."""
        return Arrangement(fields_of(self._table), sort_of(self._table.metadata))

    def require_arrangeable(self, wanted: Arrangement) -> None:
        """Raise `OptionError` if an upsert could not rewrite a row into these partitions."""
        require_truncatable(self._table, set(wanted.partitions) - set(fields_of(self._table)))

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of all rows."""
        tasks = list(self._table.scan().plan_files())
        yield from IcebergRows(self._table, columns).batches(tasks)

    def rows_of(self, keys: pa.Table, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Return these columns of the rows of these keys."""
        yield from rows_of_keys(self._table, keys, columns)

    def live_files(self) -> list[LiveFile]:
        """Return the files of the state that was read last."""
        partition_of = partition_reader(self._table)
        return [
            LiveFile(
                task.file.file_path,
                task.file.record_count - deleted,
                task.file.file_size_in_bytes,
                partition_of(task.file),
                own_count(task),
            )
            for task, deleted in deleted_counts(self._table.scan().plan_files())
        ]

    def _directory(self) -> str:
        return data_directory(self._table.metadata)

    def _state(self) -> TableState:
        return state_of(self._table.metadata)

    # --- Committing ---

    def append(
        self, commit: Commit, files: Sequence[FileReceipt], schema: pa.Schema | None = None
    ) -> TableState:
        """Add files, the note and its copy, and columns, in one commit."""
        return self._replace(commit, Rewrite(added=tuple(files)), schema)

    def upsert(
        self, commit: Commit, changes: Changes, schema: pa.Schema | None = None
    ) -> TableState:
        """Replace the rows of changed keys, in one commit with the rest."""
        self._require(commit.after)
        layout = self.layout(self._planned(schema))
        if self._upserts is Upserts.MERGE_ON_READ:
            rewrite = mark_deleted(self._table, changes, layout, self._places, self._directory())
        else:
            rewrite = rewrite_files(self._table, changes, layout)
        try:
            return self._replace(commit, rewrite, schema)
        except TableMovedError:
            remove_files(layout.directory, rewrite.receipts)  # the next attempt writes other files
            raise

    def arrange(self, after: TableState, wanted: Arrangement) -> TableState:
        """Change the default partition spec and sort order, in one commit without a snapshot."""
        self._require(after)
        require_partitionable(wanted.partitions, self.schema())
        require_sortable(wanted.sort, self.schema())
        self.require_arrangeable(wanted)
        change = Change(self._table)
        change._apply(*changes_for(self._table, wanted))
        self._commit(change)
        return self._state()

    def _planned(self, schema: pa.Schema | None) -> pa.Schema:
        """Return all columns after a commit with this schema."""
        if schema is None:
            return self.schema()
        return plain_schema(planned_schema(self._table, schema))

    def _replace(
        self,
        commit: Commit,
        rewrite: Rewrite,
        schema: pa.Schema | None,
    ) -> TableState:
        self._require(commit.after)
        change = Change(self._table)
        columns = self._table.schema()
        if schema is not None:
            columns = planned_schema(self._table, schema)
            change.update_schema().union_by_name(kept_required(self._table, schema)).commit()
        require_fitting(rewrite.added, columns, [one.name for one in fields_of(self._table)])
        text, name = write_note(commit.note), commit.note.pipeline
        at = self._table.metadata.next_sequence_number()
        change.set_properties({f"{KEPT_PREFIX}{name}": text, f"{KEPT_AT_PREFIX}{name}": str(at)})
        update = change.update_snapshot({NOTE_KEY: text, PIPELINE_KEY: name})
        self._stage(update, rewrite, columns)
        self._commit(change)
        current = self._table.current_snapshot()
        assert current is not None, "a commit makes a snapshot"
        return TableState({**commit.after.notes, name: commit.note}, current.snapshot_id)

    def _stage(self, update: UpdateSnapshot, rewrite: Rewrite, columns: Schema) -> None:
        metadata, directory = self._table.metadata, self._directory()
        stage_files(update, rewrite, data_files(rewrite.added, metadata, columns, directory))

    def _require(self, after: TableState) -> None:
        has_old_keys = has_expired(self._table.io.properties, SystemClock().now_ms())
        if has_old_keys or version_of(self._options) != self._secrets:
            self._read()
        require_supported(self._table)
        nessie.require_snapshot(self._catalog, self._table)
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
            refused = nessie.refused_columns(self._catalog, self._table, change._updates, error)
            raise refused or AnswerLostError(str(error)) from error

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
        partition_of = partition_reader(self._table)
        wanted = (
            (task, own_count(task))
            for task in self._table.scan().plan_files()
            if partitions is None or partition_of(task.file) in partitions
        )
        groups = groups_to_merge(wanted, self._table.metadata.default_spec_id, target_bytes)
        if not groups:
            return Compaction(after, 0, 0)
        rewrite = merge_files(self._table, groups, self.layout(self.schema()))
        change = Change(self._table)
        self._stage(change.update_snapshot(), rewrite, self._table.schema())
        self._commit(change)
        return Compaction(self._state(), len(rewrite.removed), len(rewrite.added))

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
