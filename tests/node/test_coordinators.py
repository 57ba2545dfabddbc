"""The shards of this node follow their topic: none is created for a deleted topic."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from penstock.broker.peer import Peer
from penstock.cluster.image import MetadataImage, PartitionImage, TopicImage
from penstock.cluster.persistent_map import PersistentMap
from penstock.core.errors import NotCoordinatorError
from penstock.core.settings.tree import Settings
from penstock.core.types import OFFSETS_TOPIC
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.replication.replicas import Node
from tests.storage.logs import Clock

OTHER_ID = UUID(int=99)
PEER = Peer("127.0.0.1")


@dataclass
class Metadata:
    """An image that a test sets."""

    image: MetadataImage


class NoAuthorizer:
    """The services of a broker that allows everything."""

    access = None


@dataclass
class Context:
    """The caller of a request."""

    api_version: int = 5
    client_id: str = "client"
    peer: Peer = PEER
    services: NoAuthorizer = field(default_factory=NoAuthorizer)

    def allows(self, *_: object, **__: object) -> bool:
        return True


def image_of(topic_id: UUID) -> MetadataImage:
    partition = PartitionImage((1,), 1, 0, (1,), 1)
    topic = TopicImage(OFFSETS_TOPIC, topic_id, (partition,), {}, 1)
    return MetadataImage(topics=PersistentMap({OFFSETS_TOPIC: topic}))


def test_no_shard_is_made_on_the_log_of_a_topic_that_was_deleted() -> None:
    async def run() -> list[type]:
        node = Node()
        hosted = node.add(OFFSETS_TOPIC)
        metadata = Metadata(MetadataImage())
        async with asyncio.TaskGroup() as tasks:
            unused = cast("Any", None)
            coordinators = NodeCoordinators(
                Settings(),
                cast("Any", metadata),
                unused,
                unused,
                node.replicas,
                unused,
                Clock(),
                tasks,
            )
            answers: list[type] = []
            for image in (MetadataImage(), image_of(OTHER_ID), image_of(hosted.topic_id)):
                metadata.image = image
                request = ListGroupsRequest(states_filter=(), types_filter=())
                context = cast("Any", Context())
                coordinators.submit_to("group", 0, request, context).then(
                    lambda answer: answers.append(type(answer))
                )
            coordinators.stop()
        return answers

    answers = asyncio.run(run())
    assert answers == [NotCoordinatorError, NotCoordinatorError, ListGroupsResponse]
