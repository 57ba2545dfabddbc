"""`settle_at_start`: ends an interrupted transfer when the broker of its directory starts.

The directory has decided where the metadata is, so its broker publishes an import or cancels an
export. Any other broker is refused until then: it could found a second cluster, or join the remains
of one.
"""

from penstock.cluster.keys import Keys
from penstock.cluster.link.transfer_mark import Direction, TransferRefusedError
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
        is_own = state.is_in_cluster and transfer.is_of(state.directory_id, state.cluster_id)
        if not is_own:
            raise TransferRefusedError(f"{transfer.problem}.")
        if transfer.direction is Direction.INTO_CLUSTER:
            await target.publish(state.cluster_id)
        else:
            await target.cancel()
    if state.is_in_cluster:
        set_aside(filesystem, state, target.keys.root)
