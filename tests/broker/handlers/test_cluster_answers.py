"""The answers of a broker that is one of several, from the image: leaders, replicas, controller."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from penstock.broker.context import RequestContext
from penstock.broker.handlers import (
    describe_cluster,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    metadata,
)
from penstock.broker.peer import Peer
from penstock.cluster.changes import PartitionsChanged, TopicPublished, apply
from penstock.cluster.image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    MetadataImage,
    PartitionImage,
    Replica,
)
from penstock.cluster.link.election_outcomes import ElectionOutcome
from penstock.core.errors import PenstockError, StoreError
from penstock.core.types import PLAINTEXT
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_cluster import DescribeClusterRequest
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from tests.broker.handlers.fakes import FakeServices

TOPIC = UUID(int=7)
STATES = (
    PartitionImage((2, 3), 2, 4, (2, 3), 1),
    PartitionImage((2, 9), 2, 4, (2,), 1, elr=(Replica(9, 5),)),
    PartitionImage((9, 3), 9, 4, (9,), 1),
    PartitionImage((3, 2), -1, 5, (3,), 1),
    PartitionImage((4, 2), 4, 4, (4, 2), 1),
)
"""Led by a peer; with an offline replica; by a broker that is gone; by none; elsewhere."""


def broker(broker_id: int, *listeners: str, rack: str | None = None) -> BrokerImage:
    endpoints = tuple(Endpoint(name, f"host{broker_id}", 9092) for name in listeners)
    return BrokerImage(broker_id, endpoints, rack, f"d{broker_id}", broker_id * 10)


BROKERS = {
    1: broker(1, PLAINTEXT, "INSIDE"),
    2: broker(2, PLAINTEXT, "INSIDE", rack="r2"),
    3: broker(3, PLAINTEXT),
    4: broker(4, "INSIDE"),
}


def image() -> MetadataImage:
    changes = (
        PartitionsChanged(TOPIC, dict(enumerate(STATES))),
        TopicPublished("t", TOPIC, len(STATES), 1),
    )
    empty = MetadataImage(brokers=BROKERS, controller=ControllerImage(2, 20, 99))
    return apply(empty, changes, 100)


class Metadata:
    """The metadata of one image."""

    def __init__(self, found: MetadataImage) -> None:
        self.image = found


class ChangingMetadata:
    """Metadata whose image is another one each time that it is read."""

    def __init__(self, *images: MetadataImage) -> None:
        self._images = [*images]

    @property
    def image(self) -> MetadataImage:
        return self._images.pop(0) if len(self._images) > 1 else self._images[0]


class FakeElections:
    """Elections with outcomes that a test sets."""

    def __init__(self, outcomes: Mapping[tuple[str, int], ElectionOutcome]) -> None:
        self.outcomes = outcomes
        self.asked: list[tuple[list[tuple[str, int]], bool]] = []
        self.failure: PenstockError | None = None

    async def elect(
        self, places: Sequence[tuple[str, int]], *, is_unclean: bool
    ) -> Mapping[tuple[str, int], ElectionOutcome]:
        self.asked.append(([*places], is_unclean))
        if self.failure is not None:
            raise self.failure
        return self.outcomes


def context(
    found: MetadataImage | ChangingMetadata | None = None,
    *,
    listener: str = PLAINTEXT,
    version: int = 12,
    elections: FakeElections | None = None,
) -> RequestContext:
    fake = FakeServices()
    shown = found if isinstance(found, ChangingMetadata) else Metadata(found or image())
    services = replace(fake.services, metadata=shown, node_id=1, elections=elections)
    return RequestContext(
        services, version, "test", is_version_unsupported=False, peer=Peer("", listener=listener)
    )


def partitions(listener: str = PLAINTEXT) -> tuple[MetadataResponsePartition, ...]:
    request = MetadataRequest(topics=(MetadataRequestTopic(topic_id=TOPIC, name=None),))
    answer = asyncio.run(metadata.handle(request, context(listener=listener)))
    return answer.topics[0].partitions


def test_leaders_and_offline_replicas_are_those_of_the_image() -> None:
    shown = [(one.error_code, one.leader_id, one.offline_replicas) for one in partitions("INSIDE")]
    missing = ErrorCode.LEADER_NOT_AVAILABLE
    assert shown == [
        (ErrorCode.NONE, 2, ()),
        (ErrorCode.NONE, 2, (9,)),
        (missing, -1, (9,)),
        (missing, -1, ()),
        (ErrorCode.NONE, 4, ()),
    ]
    assert [one.isr_nodes for one in partitions()] == [state.isr for state in STATES]


def test_a_leader_without_the_clients_listener_is_not_shown() -> None:
    found = partitions(PLAINTEXT)[4]
    assert (found.error_code, found.leader_id) == (ErrorCode.LISTENER_NOT_FOUND, -1)


@pytest.mark.parametrize("returned", [1, 3])
@pytest.mark.parametrize("asked", [None, (MetadataRequestTopic(name="t"),)])
def test_leaders_and_brokers_are_of_one_image(
    asked: tuple[MetadataRequestTopic, ...] | None, returned: int
) -> None:
    """A broker that returns while the answer is built is not a leader without an address."""
    partition = PartitionImage((returned, 2), returned, 4, (returned, 2), 1)
    changes = (PartitionsChanged(TOPIC, {0: partition}), TopicPublished("t", TOPIC, 1, 1))
    later = apply(MetadataImage(brokers=BROKERS), changes, 100)
    others = {number: one for number, one in BROKERS.items() if number != returned}
    earlier = replace(later, brokers=others)
    # The first reads belong to the request's checks; each number of them is tried.
    for reads in range(1, 6):
        images = ChangingMetadata(*[earlier] * reads, later)
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        answer = asyncio.run(metadata.handle(request, context(images)))
        listed = {one.node_id for one in answer.brokers}
        (state,) = answer.topics[0].partitions
        assert state.leader_id in listed | {-1}
        assert (returned in state.offline_replicas) == (returned not in listed)


def test_brokers_racks_and_the_controller() -> None:
    answer = asyncio.run(metadata.handle(MetadataRequest(topics=()), context()))
    assert [(one.node_id, one.host, one.rack) for one in answer.brokers] == [
        (1, "host1", None),
        (2, "host2", "r2"),
        (3, "host3", None),
    ]
    assert answer.controller_id == 2
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    described = describe_cluster.handle(request, context(listener="INSIDE"))
    assert described.controller_id == 2
    assert [one.broker_id for one in described.brokers] == [1, 2, 4]


@pytest.mark.parametrize("controller", [None, ControllerImage(9, 90, 99)])
def test_without_a_controller_the_broker_names_itself(controller: ControllerImage | None) -> None:
    """It carries out administration too."""
    found = replace(image(), controller=controller)
    answer = asyncio.run(metadata.handle(MetadataRequest(topics=()), context(found)))
    assert answer.controller_id == 1


def test_the_controller_is_the_voter() -> None:
    asked = RequestTopicData(
        topic_name="__cluster_metadata", partitions=(RequestPartitionData(partition_index=0),)
    )
    answer = describe_quorum.handle(DescribeQuorumRequest(topics=(asked,)), context(version=2))
    (found,) = answer.topics[0].partitions
    assert (found.leader_id, found.leader_epoch) == (2, 20)
    assert [one.replica_id for one in found.current_voters] == [2]
    assert [(one.node_id, len(one.listeners)) for one in answer.nodes] == [(2, 2)]


def test_eligible_leader_replicas_are_shown() -> None:
    request = DescribeTopicPartitionsRequest(topics=(TopicRequest(name="t"),))
    answer = asyncio.run(describe_topic_partitions.handle(request, context(version=0)))
    shown = [one.eligible_leader_replicas for one in answer.topics[0].partitions]
    assert shown == [(), (9,), (), (), ()]


def elect(
    elections: FakeElections, kind: int = 0, indexes: tuple[int, ...] | None = None
) -> list[tuple[int, ErrorCode, str | None]]:
    asked = None if indexes is None else (TopicPartitions(topic="t", partitions=indexes),)
    request = ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=1)
    answer = asyncio.run(elect_leaders.handle(request, context(version=2, elections=elections)))
    assert answer.error_code == ErrorCode.NONE
    return [
        (one.partition_id, ErrorCode(one.error_code), one.error_message)
        for topic in answer.replica_election_results
        for one in topic.partition_result
    ]


OUTCOMES = {
    ("t", 0): ElectionOutcome.ELECTED,
    ("t", 1): ElectionOutcome.NOT_AVAILABLE,
    ("t", 2): ElectionOutcome.NOT_NEEDED,
    ("t", 3): ElectionOutcome.NOT_NEEDED,
    ("t", 4): ElectionOutcome.NOT_NEEDED,
}


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_a_requested_election_is_carried_out(kind: int, code: ErrorCode) -> None:
    elections = FakeElections(OUTCOMES)
    found = elect(elections, kind, (0, 1, 2))
    assert elections.asked == [([("t", 0), ("t", 1), ("t", 2)], kind == 1)]
    assert [(index, error) for index, error, _ in found] == [
        (0, ErrorCode.NONE),
        (1, code),
        (2, ErrorCode.ELECTION_NOT_NEEDED),
    ]
    assert found[0][2] is None


def test_an_election_of_all_partitions_lists_the_ones_that_need_it() -> None:
    elections = FakeElections(OUTCOMES)
    assert [index for index, _, _ in elect(elections)] == [0, 1]
    assert elections.asked == [([("t", index) for index in range(5)], False)]


def test_a_store_that_fails_is_an_error_of_each_partition() -> None:
    elections = FakeElections(OUTCOMES)
    elections.failure = StoreError("etcd does not answer")
    (found,) = elect(elections, 0, (0,))
    assert found[1] != ErrorCode.NONE
    assert found[2] == "etcd does not answer"
