"""Several brokers on one metadata store: the connection of each with its own faults.

`BrokerStore` is one broker's connection to a `MemoryMetadataStore` that others use too. A test
delays its watch, loses its answers, cuts it off, counts its loads, and stops it at a transaction.
`Cluster` starts and registers the services. It knows no logs.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from penstock.cluster.image import BrokerImage, BrokerState, Endpoint, MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.change_values import ClusterRules
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import (
    Compare,
    EventBatch,
    Operation,
    Snapshot,
    TransactionResult,
)
from penstock.core.errors import StoreError
from penstock.core.types import PLAINTEXT
from penstock.testing.memory_store import Fault, MemoryMetadataStore

CLUSTER = ClusterRules(rebalance_seconds=None)
"""Rules of brokers in a cluster, without moves of leaders by time."""
Pause = Callable[[Sequence[Operation]], Awaitable[None]]


class BrokerStore:
    """The connection of one broker to a shared store."""

    def __init__(self, shared: MemoryMetadataStore) -> None:
        self.shared = shared
        self.faults: deque[Fault] = deque()
        """Outcomes of this broker's next transactions."""
        self.loads = 0
        """Number of loads of all keys."""
        self.transactions = 0
        self.lost: tuple[Sequence[Compare], Sequence[Operation]] = ((), ())
        """The last transaction that was lost, for a test that lets it arrive later."""
        self.is_cut_off = False
        self.before_transaction: Pause | None = None
        """Awaited before each transaction of this broker."""
        self._watching = asyncio.Event()
        self._watching.set()

    def delay_watch(self) -> None:
        """Deliver no change until `deliver` is called."""
        self._watching.clear()

    def deliver(self) -> None:
        """Deliver the delayed changes and the next ones."""
        self._watching.set()

    async def read(self, key: str, *, revision: int | None = None) -> Snapshot:
        self._reach()
        return await self.shared.read(key, revision=revision)

    async def read_prefix(self, prefix: str, *, revision: int | None = None) -> Snapshot:
        self._reach()
        self.loads += 1
        return await self.shared.read_prefix(prefix, revision=revision)

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        # Other brokers get a turn between the decision and the transaction.
        await asyncio.sleep(0)
        if self.before_transaction is not None:
            await self.before_transaction(operations)
        self._reach()
        self.transactions += 1
        # The shared store takes it in the same step of the event loop.
        fault = self.faults.popleft() if self.faults else Fault.NONE
        if fault is Fault.LOST:
            self.lost = (compares, operations)
        self.shared.faults.append(fault)
        return await self.shared.transact(compares, operations, read_on_failure=read_on_failure)

    async def watch(self, prefix: str, *, from_revision: int) -> AsyncIterator[EventBatch]:
        async for batch in self.shared.watch(prefix, from_revision=from_revision):
            await self._watching.wait()
            yield batch

    async def open_session(self, time_to_live_seconds: float) -> int:
        self._reach()
        return await self.shared.open_session(time_to_live_seconds)

    async def keep_alive(self, session: int) -> None:
        self._reach()
        await self.shared.keep_alive(session)

    async def end_session(self, session: int) -> None:
        self._reach()
        await self.shared.end_session(session)

    async def close(self) -> None:
        """Leave the shared store open for the other brokers."""

    def _reach(self) -> None:
        if self.is_cut_off:
            raise StoreError("the store does not answer")


def broker(broker_id: int, directory: str | None = None) -> BrokerImage:
    """Return the registration of a broker."""
    endpoint = Endpoint(PLAINTEXT, "localhost", 9092 + broker_id)
    return BrokerImage(broker_id, (endpoint,), None, directory or f"directory-{broker_id}", 0)


class Cluster:
    """Brokers that share a store."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.shared = MemoryMetadataStore()
        self.keys = Keys()
        self.tasks = tasks
        self.services: dict[int, MetadataService] = {}
        self.stores: dict[int, BrokerStore] = {}

    async def start(self, broker_id: int) -> MetadataService:
        """Start a broker's service and register the broker."""
        store = self.stores[broker_id] = BrokerStore(self.shared)
        service = self.services[broker_id] = MetadataService(store)
        await service.start(self.tasks)
        await service.register_broker(broker(broker_id), self.tasks)
        return service

    async def join(
        self,
        broker_id: int,
        *,
        rules: ClusterRules = CLUSTER,
        is_running: bool = True,
        directory: str | None = None,
    ) -> MetadataService:
        """Start a broker that is one of several, with elections."""
        store = self.stores[broker_id] = BrokerStore(self.shared)
        service = self.services[broker_id] = MetadataService(store, cluster=rules)
        await service.start(self.tasks)
        await service.register_broker(broker(broker_id, directory), self.tasks)
        if is_running:
            await service.change_state(BrokerState.RUNNING)
        return service

    async def three(self) -> list[MetadataService]:
        """Start three brokers that run; the first is the controller."""
        return [await self.join(broker_id) for broker_id in (1, 2, 3)]

    async def stop_broker(self, broker_id: int) -> None:
        """Stop a broker: its session ends."""
        await self.services.pop(broker_id).stop()

    async def settle(self) -> MetadataImage:
        """Wait until every image has the newest revision; return it. All images are equal."""
        revision = (await self.shared.read("/")).revision
        for service in self.services.values():
            await until(lambda service=service: service.image.revision >= revision)  # type: ignore[misc]
        images = [service.image for service in self.services.values()]
        assert all(image == images[0] for image in images)
        return images[0]

    async def expire(self, broker_id: int) -> None:
        """End a broker's session, as the store does when the broker was suspended."""
        (pair,) = (await self.shared.read(self.keys.broker(broker_id))).values
        await self.shared.end_session(pair.session)


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition does not hold")


def run_cluster(body: Callable[[Cluster], Awaitable[None]]) -> None:
    """Run `body` with an empty cluster; stop its services afterwards."""

    async def main() -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            cluster = Cluster(tasks)
            async with AsyncExitStack() as stack:
                stack.push_async_callback(stop, cluster)
                await body(cluster)
        await cluster.shared.close()

    asyncio.run(main())


async def stop(cluster: Cluster) -> None:
    """Stop every service; the connections work again."""
    for broker_id, service in cluster.services.items():
        store = cluster.stores[broker_id]
        store.is_cut_off, store.before_transaction = False, None
        store.faults.clear()
        store.deliver()
        await service.stop()
