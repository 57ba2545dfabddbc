"""Maintenance of an Iceberg table: expiry of snapshots, and removal of unreferenced files.

`pyiceberg` expires snapshots and leaves their files. This module deletes the files, too, after the
commit that expires the snapshots: manifest lists, manifests and data files that only these
snapshots referenced. A crash in between leaves orphans.

The oldest snapshot of each line and the current one are enough to find the files of the kept
snapshots: a later snapshot of a line has its parent's files, and its own under new names. So the
work grows with the expired snapshots and not with the kept ones. The search for orphans reads all
kept snapshots, so it is rare.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from pyarrow import fs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table as PyIcebergTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from penstock.spark.tables.files.orphans import OrphansUnclearError, StoredFile, orphans_of
from penstock.spark.tables.files.table_facts import CREATED_KEY, Retention, SnapshotFacts

SNAPSHOTS_MAX: Final = 2_000
"""The maximum number of snapshots in one expiry: some seconds of work."""
AGE_KEY: Final = "history.expire.max-snapshot-age-ms"
COUNT_KEY: Final = "history.expire.min-snapshots-to-keep"
"""Iceberg's own properties for the retention of snapshots."""
_FOLDERS: Final = (("data", (".parquet",)), ("metadata", (".avro", ".metadata.json")))
"""The folders of a table, and the suffixes of its files; other files are left alone."""


def snapshot_facts(metadata: TableMetadata) -> SnapshotFacts:
    """Return the number of snapshots, and the time of the oldest."""
    times = [one.timestamp_ms for one in metadata.snapshots]
    return SnapshotFacts(len(times), min(times, default=None))


def retention_of(metadata: TableMetadata) -> Retention:
    """Return the retention in the table's properties and its branch `main`, if set."""
    properties = metadata.properties
    main = metadata.refs.get(MAIN_BRANCH)
    ages = [properties.get(AGE_KEY), None if main is None else main.max_snapshot_age_ms]
    counts = [properties.get(COUNT_KEY), None if main is None else main.min_snapshots_to_keep]
    return Retention(
        properties.get(CREATED_KEY) == "true",
        max((int(one) for one in ages if one is not None), default=0),
        max((int(one) for one in counts if one is not None), default=0),
    )


def old_snapshots(metadata: TableMetadata, older_than_ms: int, keep_count: int) -> list[Snapshot]:
    """Return the snapshots that may expire, the oldest first; branches and tags stay."""
    by_age = sorted(metadata.snapshots, key=lambda one: one.sequence_number or 0)
    in_use = _kept_by_refs(metadata)
    old = [
        one
        for one in by_age[: max(0, len(by_age) - keep_count)]
        if one.timestamp_ms < older_than_ms and one.snapshot_id not in in_use
    ]
    return old[:SNAPSHOTS_MAX]


def _kept_by_refs(metadata: TableMetadata) -> set[int]:
    """Return snapshots of tags and branches, and all ancestors of branches other than `main`."""
    parents = {one.snapshot_id: one.parent_snapshot_id for one in metadata.snapshots}
    kept = {one.snapshot_id for one in metadata.refs.values()}
    for name, ref in metadata.refs.items():
        at: int | None = ref.snapshot_id
        while name != MAIN_BRANCH and ref.snapshot_ref_type == SnapshotRefType.BRANCH:
            at = parents.get(at) if at is not None else None
            if at is None or at in kept:
                break
            kept.add(at)
    return kept


def remove_files_of(expired: Iterable[Snapshot], table: PyIcebergTable) -> int:
    """Delete the files that only expired snapshots referenced; return their number."""
    if not _may_remove(table):
        return 0
    gone = list(expired)
    metadata, io = table.metadata, table.io
    kept_manifests: dict[str, ManifestFile] = {}
    for snapshot in _first_of_each_line(metadata):
        kept_manifests.update((one.manifest_path, one) for one in snapshot.manifests(io))
    kept_files = {path for one in kept_manifests.values() for path in _live_paths(one, io)}
    gone_manifests: dict[str, ManifestFile] = {}
    for snapshot in gone:
        with suppress(FileNotFoundError):  # another process has already deleted it
            gone_manifests.update((one.manifest_path, one) for one in snapshot.manifests(io))
    only_gone = {path: one for path, one in gone_manifests.items() if path not in kept_manifests}
    gone_files: set[str] = set()
    for one in only_gone.values():
        with suppress(FileNotFoundError):
            gone_files.update(_live_paths(one, io))
    # Delete referencing files last: after a crash in between, their reader gets an error that names
    # the missing file.
    return (
        _removed(io, gone_files - kept_files)
        + _removed(io, only_gone)
        + _removed(io, (one.manifest_list for one in gone))
    )


def _may_remove(table: PyIcebergTable) -> bool:
    """Return whether files may be deleted: Iceberg's property is false if others use them."""
    return table.metadata.properties.get("gc.enabled", "true").lower() != "false"


def _first_of_each_line(metadata: TableMetadata) -> Iterator[Snapshot]:
    """Return snapshots without a parent in the table, and the current one."""
    ids = {one.snapshot_id for one in metadata.snapshots}
    for one in metadata.snapshots:
        is_current = one.snapshot_id == metadata.current_snapshot_id
        if is_current or one.parent_snapshot_id not in ids:
            yield one


def _live_paths(manifest: ManifestFile, io: FileIO) -> Iterator[str]:
    """Return the live files of a manifest."""
    for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
        yield entry.data_file.file_path


def _removed(io: FileIO, paths: Iterable[str]) -> int:
    count = 0
    for path in paths:
        with suppress(FileNotFoundError):
            io.delete(path)
            count += 1
    return count


# --- Orphans ---


def remove_orphans(table: PyIcebergTable, older_than_ms: int) -> int:
    """Delete old, unreferenced files of the table's folders."""
    if not _may_remove(table):
        return 0
    storage = _Storage(table)
    live = [storage.name(task.file.file_path) for task in table.scan().plan_files()]
    stored = [one for folder, ends in _FOLDERS for one in storage.listed(folder, ends)]
    table.refresh()
    referred = {storage.name(one) for one in _referred(table)}
    return storage.remove(orphans_of(stored, referred, live, older_than_ms))


def _referred(table: PyIcebergTable) -> Iterator[str]:
    """Return all files that the table's metadata references."""
    yield table.metadata_location
    yield from (one.metadata_file for one in table.metadata.metadata_log)
    manifests: dict[str, ManifestFile] = {}
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        manifests.update((one.manifest_path, one) for one in snapshot.manifests(table.io))
    for path, manifest in manifests.items():
        yield path
        yield from _live_paths(manifest, table.io)


class _Storage:
    """The folders of a table; names are paths without scheme and host."""

    def __init__(self, table: PyIcebergTable) -> None:
        if not isinstance(table.io, PyArrowFileIO):
            raise OrphansUnclearError(
                f"the table's storage is opened by {type(table.io).__name__}, which cannot list "
                'files. Set py-io-impl = "pyiceberg.io.pyarrow.PyArrowFileIO" in table.catalog, '
                "or remove orphans with another tool."
            )
        self._io = table.io
        scheme, netloc, self._root = self._parsed(table.location().rstrip("/"))
        self._filesystem: fs.FileSystem = self._io.fs_by_scheme(scheme, netloc)

    def _parsed(self, location: str) -> tuple[str, str, str]:
        return PyArrowFileIO.parse_location(location, self._io.properties)

    def name(self, location: str) -> str:
        """Return the name of a file, as in the listing."""
        return self._parsed(location)[2]

    def listed(self, folder: str, ends: tuple[str, ...]) -> Iterator[StoredFile]:
        """Return the files of one folder of the table with these suffixes."""
        selector = fs.FileSelector(f"{self._root}/{folder}", allow_not_found=True, recursive=True)
        for info in self._filesystem.get_file_info(selector):
            if info.type == fs.FileType.File and info.path.endswith(ends):
                yield StoredFile(info.path, info.mtime_ns // 1_000_000)

    def remove(self, names: Iterable[str]) -> int:
        """Delete these files; missing ones do not count."""
        count = 0
        for name in names:
            with suppress(FileNotFoundError):
                self._filesystem.delete_file(name)
                count += 1
        return count
