"""`ThreeBrokers`: a cluster in one process, on one event loop; metadata and logs are in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.client.transport.connection import AsyncConnection, connect
from penstock.cluster.controller import NewTopic
from penstock.cluster.features.levels import SUPPORTED, Ranges
from penstock.cluster.image import BrokerState, MetadataImage, TopicImage
from penstock.cluster.service import MetadataService
from penstock.coordinator.hashing import key_partition
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.coordinator_settings import GroupsSettings, TransactionsSettings
from penstock.core.settings.share_coordinator_settings import SharesSettings
from penstock.core.settings.tree import Settings
from penstock.node.admin_parts import Served
from penstock.node.server import BrokerServer
from penstock.node.stand_ins import StandIns
from penstock.protocol.codec import Message
from penstock.replication.hosted_partition import HostedPartition
from penstock.storage.disk.memory_disk import MemoryDisk
from penstock.testing.memory_store import MemoryMetadataStore

Answer = TypeVar("Answer")

IDS: Final = (1, 2, 3)
SECONDS_MAX: Final = 10.0


def settings(broker_id: int) -> Settings:
    """Return settings with few partitions of internal topics, so that a cluster starts quickly."""
    config = BrokerConfig(port=0, node_id=broker_id, storage="memory", auto_create_topics=False)
    return config.model_copy(
        update={
            "groups": GroupsSettings(offsets_partitions=3),
            "transactions": TransactionsSettings(state_partitions=3),
            "shares": SharesSettings(state_partitions=3),
            "admin": config.admin.model_copy(update={"enabled": False}),
        }
    )


class ThreeBrokers:
    """Three running brokers."""

    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.servers: dict[int, BrokerServer] = {}
        self.features: Ranges = SUPPORTED
        """Levels of features of the brokers that start."""
        self._connections: dict[int, AsyncConnection] = {}
        self._disks = {broker_id: MemoryDisk() for broker_id in IDS}

    async def start_one(self, broker_id: int) -> None:
        """Start a broker on its disk."""
        disk = self._disks[broker_id]
        stand_ins = StandIns(filesystem=disk, metadata_store=self.store, features=self.features)
        server = BrokerServer(settings(broker_id), stand_ins=stand_ins)
        await server.__aenter__()
        self.servers[broker_id] = server

    async def start(self) -> None:
        """Start all brokers; return when they are announced as running."""
        for broker_id in IDS:
            await self.start_one(broker_id)
        await until(
            lambda: all(one.state is BrokerState.RUNNING for one in self.image.brokers.values())
        )

    def is_running(self, broker_id: int) -> bool:
        """Return whether a broker is announced as running."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.state is BrokerState.RUNNING

    async def stop(self, broker_id: int) -> None:
        """Stop one broker."""
        connection = self._connections.pop(broker_id, None)
        if connection is not None:
            await connection.close()
        await self.servers.pop(broker_id).__aexit__(None, None, None)

    async def stop_all(self) -> None:
        """Stop the brokers that run."""
        for broker_id in tuple(self.servers):
            await self.stop(broker_id)

    # --- State ---

    def served(self, broker_id: int) -> Served:
        """Return the parts of a broker."""
        parts = self.servers[broker_id]._parts
        assert parts is not None
        assert parts.admin._served is not None
        return parts.admin._served

    @property
    def metadata(self) -> MetadataService:
        """The metadata of the first running broker."""
        return self.served(next(iter(self.servers))).metadata

    @property
    def image(self) -> MetadataImage:
        """The metadata, as the first running broker knows it."""
        parts = next(iter(self.servers.values()))._parts
        assert parts is not None
        return parts.metadata.image

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition."""
        found = self.image.partition(topic, partition)
        assert found is not None
        return found.leader

    def replica(self, broker_id: int, topic: str, partition: int) -> HostedPartition:
        """Return a replica on a broker."""
        found = self.served(broker_id).replicas.find(topic, partition)
        assert found is not None
        return found

    def coordinator(self, topic: str, key: str) -> int:
        """Return the coordinator of a key."""
        return self.leader(topic, key_partition(key, len(self.topic(topic).partitions)))

    def topic(self, name: str) -> TopicImage:
        """Return a topic."""
        found = self.image.topic(name)
        assert found is not None
        return found

    # --- Requests ---

    async def connect(self, broker_id: int, listener: str | None = None) -> AsyncConnection:
        """Open a connection to the first listener of a broker, or to another one."""
        broker = self.image.brokers[broker_id]
        at = broker.endpoints[0] if listener is None else broker.endpoint(listener)
        assert at is not None
        return await connect(Address(at.host, at.port), timeout_seconds=SECONDS_MAX)

    async def ask(
        self,
        broker_id: int,
        request: Message,
        answer_type: type[Answer],
        version: int | None = None,
    ) -> Answer:
        """Send a request to a broker, as a client."""
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = self._connections[broker_id] = await self.connect(broker_id)
        call: Call[Answer] = Call(
            request, answer_type, lambda answer: answer, version_max=version, version_min=version
        )
        return await connection.carry(call)

    @staticmethod
    async def next_turn() -> None:
        """Let the brokers run for a moment."""
        await asyncio.sleep(0.002)

    async def create(
        self, name: str, partitions: int, assignments: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        """Create a topic with three replicas, or others; return when each is in its role."""
        parts = next(iter(self.servers.values()))._parts
        assert parts is not None
        (created,) = await parts.metadata.create_topics(
            [
                NewTopic(
                    name=name,
                    partition_count=-1 if assignments else partitions,
                    replication_factor=-1 if assignments else len(IDS),
                    assignments=tuple(enumerate(assignments)),
                    settings={} if assignments else {"min.insync.replicas": "2"},
                )
            ]
        )
        assert isinstance(created, TopicImage), created
        await self.until_served(name)

    async def until_served(self, name: str) -> None:
        """Wait until the leader of each partition leads it."""

        def is_served() -> bool:
            return all(
                (found := self.served(state.leader).replicas.find(name, index)) is not None
                and found.state.is_leader
                for index, state in enumerate(self.topic(name).partitions)
            )

        await until(is_served)


async def until(is_met: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds."""
    async with asyncio.timeout(SECONDS_MAX):
        while not is_met():  # noqa: ASYNC110 (has a deadline)
            await asyncio.sleep(0.002)


@asynccontextmanager
async def three_brokers() -> AsyncIterator[ThreeBrokers]:
    """Start three brokers, and stop them."""
    brokers = ThreeBrokers()
    try:
        await brokers.start()
        yield brokers
    finally:
        await brokers.stop_all()


def run(act: Callable[[ThreeBrokers], Awaitable[None]]) -> None:
    """Let a test act on three brokers."""

    async def begin() -> None:
        async with three_brokers() as brokers:
            await act(brokers)

    asyncio.run(begin())


def run_some(act: Callable[[ThreeBrokers], Awaitable[None]]) -> None:
    """Let a test act on brokers that it starts itself."""

    async def begin() -> None:
        brokers = ThreeBrokers()
        try:
            await act(brokers)
        finally:
            await brokers.stop_all()

    asyncio.run(begin())
