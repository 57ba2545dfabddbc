"""`with_offline_metadata`: work on the metadata of a data directory that no broker uses.

It is for the first administrator, and for one whose password is lost: a broker with SASL lets no
client in that could set a password. The lock of the directory guarantees that no broker runs on it
meanwhile. A new directory gets a cluster id, which the first start of a broker keeps.

It opens no log. The directory of a broker in a cluster is rejected: its metadata is in etcd, and
`penstock` asks any running broker of the cluster instead.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

from penstock.cluster.service import MetadataService
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.core.errors import ConfigError, DataDirectoryLockedError, PenstockError
from penstock.node.identity import METADATA_FILE, check_alone, known_cluster_id
from penstock.storage.disk.data_directory import LOCK_FILE, make_directories
from penstock.storage.disk.filesystem import DiskFileSystem, Lock

Result = TypeVar("Result")


async def with_offline_metadata(
    path: str, work: Callable[[MetadataService], Awaitable[Result]], *, creates: bool = False
) -> Result:
    """Lock a data directory, load its metadata, and return the result of `work`.

    `creates`: create a missing directory.
    """
    filesystem = DiskFileSystem()
    async with AsyncExitStack() as stack:
        stack.callback(_lock(filesystem, path, creates=creates).release)
        check_alone(filesystem, path)
        store = await SqliteMetadataStore.open(f"{path}/{METADATA_FILE}")
        stack.push_async_callback(store.close)
        metadata = MetadataService(store)
        result: Result | PenstockError
        async with asyncio.TaskGroup() as tasks:
            # An error that leaves a task group becomes a group of errors.
            try:
                await metadata.start(tasks, cluster_id=known_cluster_id(filesystem, path))
                result = await work(metadata)
            except PenstockError as error:
                result = error
            finally:
                await metadata.stop()
    if isinstance(result, PenstockError):
        raise result
    return result


def _lock(filesystem: DiskFileSystem, path: str, *, creates: bool) -> Lock:
    if creates:
        make_directories(filesystem, path)
    elif not filesystem.is_directory(path):
        raise ConfigError(
            f"there is no data directory {path}.", hint="Name that of the broker: node.data_dir."
        )
    try:
        return filesystem.lock(f"{path}/{LOCK_FILE}")
    except DataDirectoryLockedError as error:
        raise ConfigError(
            f"a running broker uses the data directory {path}.",
            hint="Leave --data-dir out to ask the broker, or stop it first.",
        ) from error
