"""`import_directory`: moves the metadata of a broker that ran alone into the store of a cluster.

The order of the steps, each of which may be the last before a crash:

1. the key `transfer` is written to the store, what an earlier attempt left there is deleted, and
   all keys but the cluster id are written: until then the broker starts alone as before;
2. `meta.properties` gets the mark of etcd, with the root and the nonce of this import, in one step:
   the metadata is in the cluster from here;
3. the last transaction publishes the cluster and deletes `transfer`. After a crash before it, the
   start of this broker does it, or the command that is repeated;
4. the metadata file is renamed, and a note is left.

So after each crash the broker starts in exactly one of the two ways. No other broker founds or
joins a cluster before it is published. It holds the lock of the directory, and opens no log.
"""

import secrets
from dataclasses import dataclass, field

from penstock.cluster.keys import ALL_BROKERS, DEFAULT_ROOT, Keys
from penstock.cluster.link.transfer_mark import Direction, Transfer, TransferRefusedError
from penstock.cluster.stores.port import Compare, MetadataStore
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.cluster.transfer.carried import (
    Carried,
    carried,
    into_cluster,
    replicas_elsewhere,
    short_of_replicas,
)
from penstock.cluster.transfer.transfer_store import TransferStore
from penstock.node.identity import METADATA_FILE
from penstock.node.transfer.directory_state import (
    DirectoryState,
    lock_directory,
    look_at_directory,
    mark_in_cluster,
    set_aside,
)
from penstock.node.transfer.settling import check_remains, settle
from penstock.storage.disk.filesystem import FileSystem

SHOWN_MAX = 5
"""Names in one message."""


@dataclass(frozen=True, slots=True)
class TransferReport:
    """The outcome of an import or an export."""

    broker_id: int
    cluster_id: str
    root: str
    counts: dict[str, int]
    """Number of objects by kind; empty if an earlier run had moved them."""
    warnings: tuple[str, ...] = field(default=())


async def import_directory(
    filesystem: FileSystem, path: str, store: MetadataStore, root: str, *, only_checks: bool
) -> TransferReport:
    """Move the metadata of a directory into the store, below `root`; return what was moved.

    `only_checks`: nothing is changed.
    """
    lock = lock_directory(filesystem, path)
    try:
        state = look_at_directory(filesystem, path)
        target = TransferStore(store, Keys(root))
        if state.is_in_cluster:
            if not only_checks:
                await settle(filesystem, state, target)
            await check_published(state, target)
            return TransferReport(state.broker_id, state.cluster_id, root, {})
        found = await read_directory(state)
        await _check_target(state, target)
        report = TransferReport(
            state.broker_id, state.cluster_id, root, found.counts(), _warnings(found)
        )
        if not only_checks:
            await _move(filesystem, state, found, target)
        return report
    finally:
        lock.release()


async def _move(
    filesystem: FileSystem, state: DirectoryState, found: Carried, target: TransferStore
) -> None:
    keys = target.keys
    earlier = await target.find()
    transfer = new_transfer(Direction.INTO_CLUSTER, state)
    # What an interrupted export has left here is deleted with the rest.
    is_new = earlier is None
    await target.begin(transfer, (Compare.absent(keys.cluster_id()),) if is_new else ())
    await target.clear()
    disk_revision = await target.write_disk(state.broker_id, state.directory_id)
    await target.write_all(into_cluster(found, keys, state.broker_id, disk_revision))
    mark_in_cluster(filesystem, state.path, keys.root, transfer.nonce)
    await target.publish(state.cluster_id)
    set_aside(filesystem, state, keys.root)


def new_transfer(direction: Direction, state: DirectoryState) -> Transfer:
    """Return a transfer that differs from all others."""
    return Transfer(
        direction, state.broker_id, state.directory_id, state.cluster_id, secrets.token_hex(8)
    )


async def read_directory(state: DirectoryState) -> Carried:
    """Return the metadata of a broker that ran alone; nothing of it is changed."""
    if not state.has_metadata:
        raise TransferRefusedError(
            f"{state.path} has no metadata ({METADATA_FILE}).",
            hint="Name the data directory of a broker that ran alone: node.data_dir.",
        )
    if not state.is_clean:
        raise TransferRefusedError(
            f"the last stop of the broker of {state.path} was not clean: its logs must be verified "
            "first.",
            hint=f"Start it alone (`penstock serve --data-dir {state.path}`), stop it with "
            "SIGTERM, and import then.",
        )
    store = await SqliteMetadataStore.open(f"{state.path}/{METADATA_FILE}")
    try:
        snapshot = await store.read_prefix("")
    finally:
        await store.close()
    keys = Keys(DEFAULT_ROOT)
    found = carried(keys, snapshot)
    if found.image.cluster_id != state.cluster_id:
        raise TransferRefusedError(
            f"{state.path} belongs to the cluster {state.cluster_id}, the metadata in it to "
            f"{found.image.cluster_id}: they were copied together from two brokers. Restore both "
            "from one backup."
        )
    if not any(pair.key == keys.adopted() for pair in snapshot.values):
        raise TransferRefusedError(
            f"the first start of the broker of {state.path} did not finish: its logs may not be "
            "known yet.",
            hint=f"Start it alone once (`penstock serve --data-dir {state.path}`), and stop it.",
        )
    elsewhere = replicas_elsewhere(found.image, state.broker_id)
    if elsewhere:
        raise TransferRefusedError(
            f"the metadata of {state.path} has partitions of other brokers: "
            f"{shown(elsewhere)}. It is not that of a broker that ran alone."
        )
    return found


async def _check_target(state: DirectoryState, target: TransferStore) -> None:
    """Raise an error unless the store has nothing but the remains of this directory's transfer."""
    root, transfer = target.keys.root, await target.find()
    if transfer is not None:
        if not transfer.is_of(state.directory_id, state.cluster_id):
            raise TransferRefusedError(f"{transfer.problem}.", hint=_another_root(root))
        check_remains(state, transfer, root)
        return
    found = await target.cluster_id()
    if found is not None:
        raise TransferRefusedError(
            f"etcd has the cluster {found} below {root} already: an import needs an empty place.",
            hint=_another_root(root),
        )
    count = len((await target.snapshot()).values)
    if count:
        raise TransferRefusedError(
            f"etcd has {count} keys below {root} already, and they are no cluster of Penstock's: "
            "an import needs an empty place.",
            hint=_another_root(root),
        )


def _another_root(root: str) -> str:
    return f"Choose another name (cluster.name, --name); the keys of this one begin with {root}"


async def check_published(state: DirectoryState, target: TransferStore) -> None:
    """Raise an error unless the store has the cluster of this directory."""
    found = await target.cluster_id()
    if found != state.cluster_id:
        place = "no cluster" if found is None else f"the cluster {found}"
        raise TransferRefusedError(
            f"{state.path} belongs to the cluster {state.cluster_id}, and etcd has {place} below "
            f"{target.keys.root}.",
            hint="Check the addresses of etcd and the name of the cluster; if etcd was lost, "
            "restore its backup.",
        )


def _warnings(found: Carried) -> tuple[str, ...]:
    short = short_of_replicas(found.image, found.image.settings_of_broker(ALL_BROKERS))
    warning = (
        f"min.insync.replicas is above 1 for {shown(short)}: with one replica, a produce with "
        "acks=all is accepted as before; while replicas are added, it is rejected "
        "(NOT_ENOUGH_REPLICAS) until as many are in sync. Set it after that to avoid the pause"
    )
    return (warning,) if short else ()


def shown(names: list[str]) -> str:
    """Return the first names, and the number of the others."""
    rest = len(names) - SHOWN_MAX
    return ", ".join(names[:SHOWN_MAX]) + (f" and {rest} more" if rest > 0 else "")
