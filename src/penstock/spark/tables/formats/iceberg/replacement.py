"""One snapshot that adds and removes data files and delete files.

Guarantees: manifests are merged as by an append, and manifests are read in several threads safely.
A removed file must be in the table, or the commit is refused. A delete file that stays keeps its
sequence number, so it never applies to rows that were written after it.

pyiceberg writes no delete files, and its overwrite merges no manifests. Without merging, a table
with an upsert a minute would have two more manifests each time, including those of removed files,
and every scan would read them all.
"""

from collections.abc import Callable, Iterable
from typing import Final

from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import TableProperties
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update.snapshot import UpdateSnapshot, _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from penstock.spark.tables.formats.iceberg.upsert import Rewrite

DELETE_MANIFESTS_MAX: Final = 16
"""With more manifests of delete files than this, the next commit merges them."""


def stage_files(update: UpdateSnapshot, rewrite: Rewrite, added: Iterable[DataFile]) -> None:
    """Stage one snapshot with these files; `added` are the entries of the added data files."""
    if rewrite.is_append:
        append = update.merge_append()
        for file in added:
            append.append_data_file(file)
        append.commit()
        return
    producer = replacement(update)
    for file in rewrite.removed:
        producer.delete_data_file(file)
    for file in rewrite.removed_deletes:
        producer.remove_delete_file(file)
    for file in rewrite.added_deletes.entries:
        producer.append_delete_file(file)
    for file in added:
        producer.append_data_file(file)
    producer.commit()


def replacement(update: UpdateSnapshot) -> "Replacement":
    """Return the update for one snapshot that removes and adds files."""
    return Replacement(
        operation=Operation.OVERWRITE,
        transaction=update._transaction,
        io=update._io,
        branch=update._branch,
        snapshot_properties=update._snapshot_properties,
    )


class Replacement(_OverwriteFiles):
    """The files that a snapshot adds and removes."""

    def append_delete_file(self, file: DataFile) -> None:
        """Add a file of deleted positions."""
        self._added_deletes.append(file)

    def remove_delete_file(self, file: DataFile) -> None:
        """Remove a file of deleted positions."""
        self._removed_deletes[file.file_path] = file

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)  # type: ignore[arg-type] # those of pyiceberg
        self._added_deletes: list[DataFile] = []
        self._removed_deletes: dict[str, DataFile] = {}

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        # pyiceberg finds removed files in a pool of threads, and its evaluator remembers the
        # manifest that it looks at: two threads that share one skip manifests, and the commit is
        # refused ("Missing required files to delete"). Each manifest gets its own evaluator.
        build = super()._build_manifest_evaluator

        def may_have_removed(manifest: ManifestFile) -> bool:
            return build(spec_id)(manifest)

        return may_have_removed

    def _existing_manifests(self) -> list[ManifestFile]:
        found = super()._existing_manifests()
        return [one for one in found if one.has_added_files() or one.has_existing_files()]

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        manager = _ManifestMergeManager(
            target_size_bytes=TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
            min_count_to_merge=TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT,
            merge_enabled=True,
            snapshot_producer=self,
        )
        data = [one for one in manifests if one.content == ManifestContent.DATA]
        deletes = [one for one in manifests if one.content == ManifestContent.DELETES]
        return manager.merge_manifests(data) + self._delete_manifests(deletes)

    def _delete_manifests(self, held: list[ManifestFile]) -> list[ManifestFile]:
        """Return the manifests of delete files after this snapshot."""
        if not self._added_deletes and not self._removed_deletes:
            return held
        must_merge = len(held) >= DELETE_MANIFESTS_MAX
        missing = set(self._removed_deletes)
        kept, entries = [], dict[int, list[ManifestEntry]]()
        for manifest in held:
            found = self.fetch_manifest_entry(manifest, discard_deleted=True)
            removed = {one.data_file.file_path for one in found} & self._removed_deletes.keys()
            missing -= removed
            if removed or must_merge:
                changed = map(self._entry_after, found)
                entries.setdefault(manifest.partition_spec_id, []).extend(changed)
            else:
                kept.append(manifest)
        if missing:
            raise ValidationException(f"Missing required files to delete: {sorted(missing)}")
        for file in self._added_deletes:
            entries.setdefault(file.spec_id, []).append(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=self._snapshot_id,
                    sequence_number=None,
                    file_sequence_number=None,
                    data_file=file,
                )
            )
        return [self._delete_manifest(*one) for one in entries.items()] + kept

    def _entry_after(self, entry: ManifestEntry) -> ManifestEntry:
        is_removed = entry.data_file.file_path in self._removed_deletes
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED if is_removed else ManifestEntryStatus.EXISTING,
            snapshot_id=self._snapshot_id if is_removed else entry.snapshot_id,
            sequence_number=entry.sequence_number,
            file_sequence_number=entry.file_sequence_number,
            data_file=entry.data_file,
        )

    def _delete_manifest(self, spec_id: int, entries: list[ManifestEntry]) -> ManifestFile:
        writer = _DeleteManifestWriter(
            self.spec(spec_id),
            self.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )
        with writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        """Return the summary; pyiceberg's counts no delete files."""
        metadata = self._transaction.table_metadata
        schema, specs = metadata.schema(), metadata.specs()
        limit = metadata.properties.get(TableProperties.WRITE_PARTITION_SUMMARY_LIMIT, "0")
        collector = SnapshotSummaryCollector(int(limit))
        for file in self._added_data_files:
            collector.add_file(file, schema, metadata.spec())
        for file in self._added_deletes:
            collector.add_file(file, schema, specs[file.spec_id])
        for file in (*self._deleted_data_files, *self._removed_deletes.values()):
            collector.remove_file(file, schema, specs[file.spec_id])
        parent = self._parent_snapshot_id
        before = metadata.snapshot_by_id(parent) if parent is not None else None
        return update_snapshot_summaries(
            Summary(self._operation, **collector.build(), **snapshot_properties),
            before.summary if before is not None else None,
        )


class _DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
