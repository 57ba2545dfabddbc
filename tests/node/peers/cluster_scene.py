"""`Scene`: the coordinators of one broker of a cluster; a test changes the roles of partitions."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from penstock.broker.peer import Peer
from penstock.cluster.changes import Change
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage, PartitionImage, TopicImage
from penstock.cluster.persistent_map import PersistentMap
from penstock.core.errors import PenstockError
from penstock.core.settings.tree import Settings
from penstock.core.types import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.node.coordination.other_brokers import EndOf
from penstock.node.peers.peer_calls import Codes
from penstock.protocol.codec import Message
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.isr import InSyncReplicas
from penstock.replication.partition import PartitionState
from tests.replication.replicas import Node
from tests.storage.logs import Clock

OWN_ID = 1


class FakePeers:
    """Other brokers that answer as a test says."""

    own_id = OWN_ID

    def __init__(self) -> None:
        self.isolated = False
        self.markers: list[tuple[int, EndOf]] = []
        self.codes: Callable[[int, EndOf], Codes | PenstockError] = lambda _, end: {}
        self.asked: list[tuple[int, AddPartitionsToTxnTransaction]] = []
        self.answer: AddPartitionsToTxnResponse | PenstockError = AddPartitionsToTxnResponse()

    def is_isolated(self) -> bool:
        return self.isolated

    async def write_markers(self, broker_id: int, end: EndOf) -> Codes | PenstockError:
        self.markers.append((broker_id, end))
        await asyncio.sleep(0)
        return self.codes(broker_id, end)

    async def ask(
        self, broker_id: int, transaction: AddPartitionsToTxnTransaction
    ) -> AddPartitionsToTxnResponse | PenstockError:
        self.asked.append((broker_id, transaction))
        return self.answer


class FakeMetadata:
    """An image that a test publishes."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._subscribers: list[Callable[..., None]] = []

    def subscribe(self, subscriber: Callable[..., None]) -> Callable[[], None]:
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def publish(self, image: MetadataImage, *changes: Change) -> None:
        before, self.image = self.image, image
        for subscriber in self._subscribers:
            subscriber(before, image, changes)


class FakeTopics:
    """Notes the topics that are to be created."""

    def __init__(self) -> None:
        self.created: list[NewTopic] = []
        self.outcome: PenstockError | None = None

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool
    ) -> list[PenstockError | None]:
        assert not validate_only
        self.created += topics
        return [self.outcome] * len(topics)


class NoAuthorizer:
    """The services of a broker that allows everything."""

    access = None


@dataclass
class Context:
    """The caller of a request."""

    api_version: int = 5
    client_id: str = "client"
    peer: Peer = field(default_factory=lambda: Peer("127.0.0.1"))
    services: NoAuthorizer = field(default_factory=NoAuthorizer)

    def allows(self, *_: object, **__: object) -> bool:
        return True


def topic_image(name: str, topic_id: UUID, leader: int = OWN_ID, epoch: int = 0) -> TopicImage:
    partition = PartitionImage((1, 2, 3), leader, epoch, (1, 2, 3), 1)
    return TopicImage(name, topic_id, (partition,), {}, 1)


def image_with(*topics: TopicImage, revision: int = 1) -> MetadataImage:
    return MetadataImage(
        revision=revision,
        topics=PersistentMap({one.name: one for one in topics}),
        topic_names=PersistentMap({one.id: one.name for one in topics}),
    )


class Scene:
    """Coordinators over one partition of each internal topic."""

    def __init__(self, tasks: asyncio.TaskGroup, *, has_peers: bool = True) -> None:
        self.node = Node()
        self.groups = self.node.add(OFFSETS_TOPIC)
        self.transactions = self.node.add(TRANSACTIONS_TOPIC)
        self.metadata = FakeMetadata()
        self.metadata.image = image_with(
            topic_image(OFFSETS_TOPIC, self.groups.topic_id),
            topic_image(TRANSACTIONS_TOPIC, self.transactions.topic_id),
        )
        self.topics = FakeTopics()
        self.peers = FakePeers()
        self.coordinators = NodeCoordinators(
            Settings(),
            cast("Any", self.metadata),
            cast("Any", self.topics),
            cast("Any", None),
            self.node.replicas,
            cast("Any", None),
            Clock(),
            tasks,
            cast("Any", self.peers) if has_peers else None,
        )

    def role(
        self,
        name: str,
        *,
        epoch: int,
        leads: bool,
        isr: tuple[int, ...] | None = None,
        min_isr: int = 2,
    ) -> HostedPartition:
        """Give a partition another role; with `isr` it has followers."""
        partition = self.node.replicas.partition(TopicPartition(name, 0))
        in_sync = None
        if isr is not None:
            state = PartitionImage((1, 2, 3), 1, epoch, isr, 1, min_isr=min_isr)
            in_sync = InSyncReplicas(OWN_ID, state, partition.log.end_offset, 0.0)
        role = PartitionState(
            partition.name,
            leader_epoch=epoch,
            is_leader=leads,
            durable_offset=partition.log.durable_offset,
            leader_id=-1 if leads else 2,
            in_sync=in_sync,
        )
        return self.node.replicas.change_role(partition, role)

    def ask(self, request: Message, kind: Any = "group", version: int = 5) -> list[Any]:  # noqa: ANN401
        """Send a request to partition 0; the answer is in the list when there is one."""
        answers: list[Any] = []
        context = cast("Any", Context(version))
        self.coordinators.submit_to(kind, 0, request, context).then(answers.append)
        return answers
