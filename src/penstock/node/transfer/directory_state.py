"""The data directory of a transfer: where its metadata is, and the files that a transfer changes.

`meta.properties` decides: with the mark of etcd, the metadata is in the cluster's store and the
broker never starts alone; without it, the metadata is the file in the directory and the broker
never starts in a cluster. The file is replaced in one step, so there is no state in between. With
each decision are the root and the nonce of its transfer: the remains of another attempt, at this
root or elsewhere, are not taken for it. A metadata file in a directory with the mark is out of
date: `set_aside` renames it.
"""

from dataclasses import dataclass
from typing import Final

from penstock.cluster.link.transfer_mark import TransferRefusedError
from penstock.core.errors import DataDirectoryLockedError
from penstock.node.identity import ETCD, METADATA_FILE, STORE_KEY
from penstock.storage.disk.checkpoint import replace_file
from penstock.storage.disk.data_directory import (
    CLEAN_FILE,
    LOCK_FILE,
    read_properties,
    write_properties,
)
from penstock.storage.disk.filesystem import FileSystem, Lock

SET_ASIDE_FILE: Final = "metadata.sqlite3.imported"
"""The metadata of the broker alone, as it was when it was imported."""
DRAFT_FILE: Final = "metadata.sqlite3.exporting"
"""The metadata that an export writes, before it is complete."""
NOTE_FILE: Final = "metadata.moved.txt"
"""A note for people, in a directory whose metadata was imported."""
ROOT_KEY: Final = "metadata.root"
NONCE_KEY: Final = "metadata.transfer"
_OF_SQLITE: Final = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """A data directory that a broker has used."""

    path: str
    broker_id: int
    directory_id: str
    cluster_id: str
    is_in_cluster: bool
    """Whether its metadata is in the store of a cluster."""
    has_metadata: bool
    """Whether there is a metadata file."""
    is_clean: bool
    """Whether the last stop was clean."""
    decided_root: str | None = None
    """Root of the transfer that it decided about last; None for a broker that had none."""
    decided_nonce: str | None = None
    """Nonce of that transfer."""


def lock_directory(filesystem: FileSystem, path: str) -> Lock:
    """Lock a directory: no broker uses it, and none starts meanwhile."""
    if not filesystem.is_directory(path):
        raise TransferRefusedError(
            f"there is no data directory {path}.", hint="Name that of the broker: node.data_dir."
        )
    try:
        return filesystem.lock(f"{path}/{LOCK_FILE}")
    except DataDirectoryLockedError as error:
        raise TransferRefusedError(
            f"a running broker uses the data directory {path}.", hint="Stop it first."
        ) from error


def look_at_directory(filesystem: FileSystem, path: str) -> DirectoryState:
    """Return the state of a directory; raise an error if no broker has used it."""
    properties = read_properties(filesystem, path)
    missing = {"cluster.id", "node.id", "directory.id"} - properties.keys()
    if missing:
        raise TransferRefusedError(
            f"{path} is not the data directory of a broker that has run: its meta.properties lacks "
            f"{', '.join(sorted(missing))}.",
            hint=f"Start a broker with it once (`penstock serve --data-dir {path}`), and stop it.",
        )
    mark = properties.get(STORE_KEY)
    if mark not in (None, ETCD):
        raise TransferRefusedError(
            f"{path} belongs to a broker whose metadata is in another place ({mark}).",
            hint="Import and export are for a broker that runs alone or in a cluster with etcd.",
        )
    names = filesystem.list_directory(path)
    return DirectoryState(
        path,
        int(properties["node.id"]),
        properties["directory.id"],
        properties["cluster.id"],
        mark == ETCD,
        METADATA_FILE in names,
        CLEAN_FILE in names,
        properties.get(ROOT_KEY),
        properties.get(NONCE_KEY),
    )


def mark_in_cluster(filesystem: FileSystem, path: str, root: str, nonce: str) -> None:
    """Note durably that the metadata is in the cluster's store, by this import."""
    mark = {STORE_KEY: ETCD, ROOT_KEY: root, NONCE_KEY: nonce}
    write_properties(filesystem, path, {**read_properties(filesystem, path), **mark})


def mark_alone(filesystem: FileSystem, path: str, root: str, nonce: str) -> None:
    """Note durably that the metadata is in the directory, by this export."""
    properties = read_properties(filesystem, path)
    properties.pop(STORE_KEY, None)
    decided = {ROOT_KEY: root, NONCE_KEY: nonce}
    write_properties(filesystem, path, {**properties, **decided})


def set_aside(filesystem: FileSystem, state: DirectoryState, root: str) -> None:
    """Rename the metadata file of a directory whose metadata is in the cluster's store."""
    path, names = state.path, filesystem.list_directory(state.path)
    note = (
        f"The metadata of broker {state.broker_id} is in etcd, below {root}.\n"
        f"{SET_ASIDE_FILE} is as it was at the import: a broker does not read it.\n"
        f"Back to a broker alone, while no other broker has replicas:\n"
        f"    penstock cluster export --data-dir {path} --etcd ADDRESS\n"
    )
    if METADATA_FILE in names:
        replace_file(filesystem, path, NOTE_FILE, note.encode())
        filesystem.rename(f"{path}/{METADATA_FILE}", f"{path}/{SET_ASIDE_FILE}")
        filesystem.sync_directory(path)


def remove_draft(filesystem: FileSystem, path: str) -> None:
    """Remove the file of an export that was interrupted."""
    _remove(filesystem, path, [f"{DRAFT_FILE}{suffix}" for suffix in _OF_SQLITE])


def place_draft(filesystem: FileSystem, path: str) -> None:
    """Make the written draft the metadata file; the directory still has the mark of etcd."""
    names = filesystem.list_directory(path)
    rest = [f"{DRAFT_FILE}{suffix}" for suffix in _OF_SQLITE[1:]]
    assert not set(rest) & set(names), "a closed SQLite file is complete"
    filesystem.rename(f"{path}/{DRAFT_FILE}", f"{path}/{METADATA_FILE}")
    filesystem.sync_directory(path)


def remove_note(filesystem: FileSystem, path: str) -> None:
    """Remove the remains of an import, after an export."""
    _remove(filesystem, path, [NOTE_FILE, SET_ASIDE_FILE])


def _remove(filesystem: FileSystem, path: str, wanted: list[str]) -> None:
    names = filesystem.list_directory(path)
    for name in wanted:
        if name in names:
            filesystem.remove_file(f"{path}/{name}")
    filesystem.sync_directory(path)
