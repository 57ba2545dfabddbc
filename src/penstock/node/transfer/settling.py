"""`settle_at_start`: ends an interrupted transfer when the broker of its directory starts.

The directory has decided where the metadata is, so its broker publishes an import or cancels an
export. Any other broker is refused until then: it could found a second cluster, or join the remains
of one. So is this broker, if the transfer is not the one that the directory has decided about: an
import that was interrupted before its decision may be older than the directory's metadata.
"""

from penstock.cluster.keys import Keys
from penstock.cluster.link.transfer_mark import Direction, Transfer, TransferRefusedError
from penstock.cluster.stores.port import MetadataStore
from penstock.cluster.transfer.transfer_store import TransferStore
from penstock.node.identity import ETCD, STORE_KEY
from penstock.node.transfer.directory_state import DirectoryState, look_at_directory, set_aside
from penstock.storage.disk.data_directory import read_properties
from penstock.storage.disk.filesystem import FileSystem


async def settle_at_start(
    filesystem: FileSystem, path: str, store: MetadataStore, root: str
) -> None:
    """Settle the transfer of this directory; raise an error for that of another one.

    The caller holds the lock of the directory, and is about to start a broker of a cluster.
    """
    target = TransferStore(store, Keys(root))
    if read_properties(filesystem, path).get(STORE_KEY) == ETCD:
        await settle(filesystem, look_at_directory(filesystem, path), target)
        return
    transfer = await target.find()
    if transfer is not None:
        raise TransferRefusedError(f"{transfer.problem}.")


async def settle(filesystem: FileSystem, state: DirectoryState, target: TransferStore) -> None:
    """Finish an import, or cancel an export, of a directory whose metadata is in the cluster.

    Raises an error for the transfer of another directory: it is that broker's to settle.
    """
    transfer = await target.find()
    if transfer is not None:
        check_own(state, transfer, target.keys.root)
        if transfer.direction is Direction.INTO_CLUSTER:
            await target.publish(state.cluster_id)
        else:
            await target.cancel()
    if state.is_in_cluster:
        set_aside(filesystem, state, target.keys.root)


def check_own(state: DirectoryState, transfer: Transfer, root: str) -> None:
    """Raise an error unless the directory, which is in a cluster, decides about this transfer."""
    if not (state.is_in_cluster and transfer.is_of(state.directory_id, state.cluster_id)):
        raise TransferRefusedError(f"{transfer.problem}.")
    if state.decided_root not in (None, root):
        raise TransferRefusedError(
            f"the metadata of {state.path} is in etcd below {state.decided_root}; below {root} is "
            "another transfer of it, which was interrupted.",
            hint=f"Set the name of the cluster (cluster.name, --name) to that of "
            f"{state.decided_root}",
        )
    is_import = transfer.direction is Direction.INTO_CLUSTER
    if is_import and state.decided_nonce != transfer.nonce:
        raise TransferRefusedError(
            f"the interrupted import below {root} is not the one that {state.path} has decided "
            "about: a copy of this data directory is being imported there.",
            hint="Finish it with `penstock cluster import` on the copy that ran alone last.",
        )


def check_remains(state: DirectoryState, transfer: Transfer, root: str) -> None:
    """Raise an error unless the directory, whose broker is alone, may delete these remains.

    Those of an export belong to a cluster until its directory has decided: an old copy from before
    the import does not end it.
    """
    if not transfer.is_of(state.directory_id, state.cluster_id):
        raise TransferRefusedError(f"{transfer.problem}.")
    is_export = transfer.direction is Direction.INTO_DIRECTORY
    if is_export and (state.decided_root, state.decided_nonce) != (root, transfer.nonce):
        raise TransferRefusedError(
            f"the cluster below {root} is being exported, and not into {state.path}: this is a "
            "copy of that data directory.",
            hint="Finish it with `penstock cluster export` on the data directory of the cluster's "
            "broker.",
        )
