"""`export_cluster`: moves the metadata of a cluster back into the data directory of one broker.

It is possible as long as no other broker has a replica, and while no broker runs. The directory
must be the one that the broker used last: the logs of a former disk are older, and so are those of
a copy. The order of the steps, each of which may be the last before a crash:

1. the key `transfer` is written to the store: no broker registers then. The start of this
   broker deletes the key, and the cluster goes on;
2. the metadata is written to a new file, which then gets its name; the directory still has the mark
   of etcd, so the file counts for nothing;
3. `meta.properties` loses the mark, in one step: the broker starts alone from here;
4. everything below the root is deleted in the store. After a crash before it, no broker joins the
   remains, and the command that is repeated deletes them.

It holds the lock of the directory, and opens no log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.cluster.keys import DEFAULT_ROOT, Keys
from penstock.cluster.link.transfer_mark import Direction, TransferRefusedError
from penstock.cluster.stores.port import Compare, MetadataStore
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.cluster.transfer.carried import (
    Carried,
    carried,
    in_batches,
    into_directory,
    replicas_elsewhere,
)
from penstock.cluster.transfer.transfer_store import (
    BYTES_PER_TRANSACTION,
    KEYS_PER_TRANSACTION,
    TransferStore,
)
from penstock.cluster.values import write_cluster_id, write_format
from penstock.node.transfer.directory_state import (
    DRAFT_FILE,
    DirectoryState,
    lock_directory,
    look_at_directory,
    mark_alone,
    place_draft,
    remove_draft,
    remove_note,
)
from penstock.node.transfer.importing import (
    TransferReport,
    check_published,
    new_transfer,
    shown,
)
from penstock.node.transfer.settling import check_own, check_remains
from penstock.storage.disk.filesystem import FileSystem

Sleep = Callable[[float], Awaitable[None]]

LOOK_SECONDS: Final = 1.0
SESSION_LOOKS_MAX: Final = 62
"""The longest session has 60 seconds (cluster.session_seconds), and etcd ends it a little late."""


async def export_cluster(
    filesystem: FileSystem,
    path: str,
    store: MetadataStore,
    root: str,
    *,
    only_checks: bool,
    sleep: Sleep = asyncio.sleep,
) -> TransferReport:
    """Move the metadata below `root` into the directory; return what was moved.

    `only_checks`: nothing is changed.
    """
    lock = lock_directory(filesystem, path)
    try:
        state = look_at_directory(filesystem, path)
        source = TransferStore(store, Keys(root))
        if not state.is_in_cluster:
            await _finish(filesystem, state, source, only_checks=only_checks)
            return TransferReport(state.broker_id, state.cluster_id, root, {})
        await _check_source(state, source, only_checks=only_checks)
        await _wait_gone(state, source, sleep)
        if only_checks:
            found = await _look(state, source)
        else:
            found = await _move(filesystem, state, source)
        return TransferReport(state.broker_id, state.cluster_id, root, found.counts())
    finally:
        lock.release()


async def _move(filesystem: FileSystem, state: DirectoryState, source: TransferStore) -> Carried:
    keys = source.keys
    own = Compare.absent(keys.broker(state.broker_id))
    transfer = new_transfer(Direction.INTO_DIRECTORY, state)
    await source.begin(transfer, (own,))
    try:
        # No broker registers any more: this look sees all registrations.
        found = await _look(state, source)
    except TransferRefusedError:
        await source.cancel()
        raise
    remove_draft(filesystem, state.path)
    await _write_draft(state, found)
    place_draft(filesystem, state.path)
    mark_alone(filesystem, state.path, keys.root, transfer.nonce)
    await source.remove_all()
    remove_note(filesystem, state.path)
    return found


async def _finish(
    filesystem: FileSystem, state: DirectoryState, source: TransferStore, *, only_checks: bool
) -> None:
    """Delete what an interrupted transfer has left in the store: the broker is alone already."""
    transfer = await source.find()
    if transfer is not None and transfer.is_of(state.directory_id, state.cluster_id):
        check_remains(state, transfer, source.keys.root)
        if not only_checks:
            await source.remove_all()
    elif transfer is not None or await source.cluster_id() is not None:
        raise TransferRefusedError(
            f"{state.path} belongs to a broker that is alone, and etcd has another cluster below "
            f"{source.keys.root}.",
            hint="There is nothing to export; start the broker with `penstock serve`, without "
            "cluster.etcd.",
        )
    if not only_checks:
        remove_note(filesystem, state.path)


async def _check_source(state: DirectoryState, source: TransferStore, *, only_checks: bool) -> None:
    """Raise an error unless the store has the cluster of this directory."""
    transfer = await source.find()
    if transfer is not None:
        check_own(state, transfer, source.keys.root)
    if transfer is not None and transfer.direction is Direction.INTO_CLUSTER:
        # The import of this directory was interrupted after its decision.
        if only_checks:
            raise TransferRefusedError(f"{transfer.problem}.")
        await source.publish(state.cluster_id)
        await source.find()
    await check_published(state, source)
    _check_disk(state, await source.directory_of(state.broker_id))


def _check_disk(state: DirectoryState, directory_id: str | None) -> None:
    """Raise an error unless the broker used this directory last: others have older logs."""
    if directory_id != state.directory_id:
        used = "has not used a" if directory_id is None else f"used {directory_id} as its last"
        raise TransferRefusedError(
            f"{state.path} has the directory id {state.directory_id}, and broker {state.broker_id} "
            f"{used} data directory: the records of the cluster are not in this one.",
            hint="Export into the directory of the broker that has the replicas: node.data_dir; "
            "its meta.properties has the directory id.",
        )


async def _wait_gone(state: DirectoryState, source: TransferStore, sleep: Sleep) -> None:
    """Wait for the end of this broker's session: it was killed a moment ago.

    A session that does not end belongs to a running broker, and this directory is a copy.
    """
    for _ in range(SESSION_LOOKS_MAX):
        if state.broker_id not in await source.registered():
            return
        await sleep(LOOK_SECONDS)
    raise TransferRefusedError(
        f"broker {state.broker_id} runs, and {state.path} is a copy of its data directory.",
        hint="Stop it, and export on its machine.",
    )


async def _look(state: DirectoryState, source: TransferStore) -> Carried:
    """Return the metadata of the cluster; raise an error if other brokers need it."""
    running = sorted((await source.registered()).keys() - {state.broker_id})
    if running:
        raise TransferRefusedError(
            f"brokers of the cluster run: {shown([str(one) for one in running])}.",
            hint="Stop them first. They cannot start again with their data directories, because "
            "the cluster ends.",
        )
    found = carried(source.keys, await source.snapshot())
    disk = found.image.nodes.get(state.broker_id)
    _check_disk(state, None if disk is None else disk.directory_id)
    elsewhere = replicas_elsewhere(found.image, state.broker_id)
    if elsewhere:
        raise TransferRefusedError(
            f"other brokers have replicas of {shown(elsewhere)}: a broker alone would lose them.",
            hint=f"Move all replicas to broker {state.broker_id} first, or delete the topics.",
        )
    return found


async def _write_draft(state: DirectoryState, found: Carried) -> None:
    store = await SqliteMetadataStore.open(f"{state.path}/{DRAFT_FILE}")
    keys = Keys(DEFAULT_ROOT)
    named = (
        (keys.format(), write_format()),
        (keys.cluster_id(), write_cluster_id(state.cluster_id)),
    )
    pairs = (*into_directory(found, keys, state.broker_id), *named)
    try:
        for batch in in_batches(pairs, KEYS_PER_TRANSACTION, BYTES_PER_TRANSACTION):
            await store.transact((), batch)
    finally:
        await store.close()
