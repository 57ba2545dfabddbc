"""The parts that differ between the kinds of stores: time, and an etcd for each version.

`HandClock` is moved by a test and read by the store. An etcd reads no clock of ours, so `RealClock`
lets time pass, with shorter sessions.
"""

import asyncio
import math
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from penstock.cluster.stores.port import DeletePrefix, MetadataStore
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.node.workers.channel_store import ChannelStore
from penstock.node.workers.store_server import StoreServer
from penstock.node.workers.worker_channel import Channel
from tests.oracle.etcd_server import EtcdCluster


class HandClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def time_to_live(self, seconds: float) -> float:
        """The time to live for a session in a test's time."""
        return seconds

    async def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


class RealClock(HandClock):
    """The time of a real etcd, whose sessions are a third as long as a test says."""

    SCALE: Final = 1 / 3
    LATE_SECONDS: Final = 1.5
    """etcd ends a session up to half a second late, and more on a busy machine."""

    def time_to_live(self, seconds: float) -> float:
        return math.ceil(seconds * self.SCALE)

    async def advance(self, seconds: float) -> None:
        is_end = seconds > 8.5
        await asyncio.sleep(seconds * self.SCALE + (self.LATE_SECONDS if is_end else 0))


class EtcdServers:
    """An etcd of one member for each version, started when a test needs it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, EtcdCluster] = {}
        self.stack = ExitStack()

    def cluster(self, version: str) -> EtcdCluster:
        """Return an etcd of this version, with no key in it."""
        if version not in self._running:
            cluster = EtcdCluster(self._folder / version, members=1, version=version)
            self._running[version] = self.stack.enter_context(cluster)
        return self._running[version]


async def opened_etcd(cluster: EtcdCluster) -> MetadataStore:
    from penstock.cluster.etcd.etcd_options import EtcdOptions, parse_endpoint
    from penstock.cluster.etcd.etcd_store import EtcdMetadataStore

    options = EtcdOptions(tuple(parse_endpoint(url) for url in cluster.endpoints))
    store = await EtcdMetadataStore.open(options)
    await store.transact((), (DeletePrefix(""),))
    return store


@asynccontextmanager
async def store_over_a_channel(clock: HandClock) -> AsyncIterator[MetadataStore]:
    """A store as a worker has it: its supervisor's, over a pair of sockets."""
    store = await SqliteMetadataStore.open(None, clock=clock)
    ours, workers = socket.socketpair()
    server = StoreServer(store, await Channel.open(ours), lambda _: None)
    served = ChannelStore(await Channel.open(workers))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.run())
        tasks.create_task(served.run())
        try:
            yield served
        finally:
            await served.close()
    await store.close()
