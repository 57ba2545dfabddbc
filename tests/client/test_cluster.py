"""Finding brokers, and what is repeated and what is not."""

import pytest

from penstock.client.addresses import Address
from penstock.client.calls import NewTopic
from penstock.client.cluster import Cluster
from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    create_topics,
    delete_topics,
    init_producer_id,
    list_offsets,
    metadata,
)
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster


def count_of(fake: FakeCluster, kind: type) -> int:
    return sum(isinstance(request, kind) for request in fake.requests)


def test_nobody_there_is_told_at_once(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    fake.is_down = True
    with pytest.raises(BrokerUnreachableError, match="bootstrap:9000: connection refused"):
        cluster.all_topics()
    assert clock.seconds == 0


def test_the_second_bootstrap_address_helps(fake: FakeCluster) -> None:
    def connect(address: Address) -> object:
        if address.host == "dead":
            raise BrokerUnreachableError("dead:1: no route to host")
        return fake.connect(address)

    fake.add_topic("orders")
    cluster = Cluster([Address("dead", 1), Address("bootstrap", 9000)], connect)  # type: ignore[arg-type]
    assert [topic.name for topic in cluster.all_topics()] == ["orders"]


def test_reads_are_repeated_after_a_lost_answer(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    cluster.all_topics()
    fake.fail_next(metadata.MetadataRequest, "lost", times=3)
    assert cluster.topic("orders").name == "orders"


def test_a_failed_connection_is_not_used_again(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    cluster.all_topics()
    opened = fake.connections_opened
    fake.fail_next(metadata.MetadataRequest, "lost")
    cluster.topic("orders")
    assert fake.connections_opened > opened


def test_creating_is_repeated_only_when_nothing_was_done(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.fail_next(create_topics.CreateTopicsRequest, ErrorCode.NOT_CONTROLLER)
    fake.fail_next(create_topics.CreateTopicsRequest, "unreachable")
    cluster.create_topic(NewTopic("orders", 2))
    assert count_of(fake, create_topics.CreateTopicsRequest) == 3
    assert len(cluster.topic("orders").partitions) == 2


def test_creating_with_a_lost_answer_is_ambiguous(fake: FakeCluster, cluster: Cluster) -> None:
    fake.fail_next(create_topics.CreateTopicsRequest, "lost")
    with pytest.raises(AnswerLostError):
        cluster.create_topic(NewTopic("orders"))
    assert count_of(fake, create_topics.CreateTopicsRequest) == 1


def test_deleting_what_is_not_there_fails_at_once(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        cluster.delete_topic("nothing")
    assert count_of(fake, delete_topics.DeleteTopicsRequest) == 1
    assert clock.seconds == 0


def test_an_unknown_topic_is_not_waited_for(cluster: Cluster, clock: StepClock) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        cluster.topic("nothing")
    assert clock.seconds == 0


def test_a_topic_that_is_being_created_is_waited_for(fake: FakeCluster, cluster: Cluster) -> None:
    fake.auto_create = True
    assert len(cluster.topic("orders", auto_create=True).partitions) == 1


def test_a_topic_that_never_appears_is_given_up(cluster: Cluster, clock: StepClock) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.topic("orders", auto_create=True)
    assert 3 < clock.seconds <= 5


def test_a_leader_that_moved_is_found_again(clock: StepClock) -> None:
    fake = FakeCluster(broker_ids=(1, 2))
    cluster = Cluster([Address("b", 9000)], fake.connect, clock=clock, sleep=clock.sleep)
    fake.add_topic("orders")
    at = TopicPartition("orders", 0)
    assert cluster.find_offsets({at: -1}) == {at: 0}
    assert cluster.by_leader([at]) == {Address("fake", 9001): [at]}
    fake.leaders[at] = 2
    fake.fail_next(list_offsets.ListOffsetsRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert cluster.find_offsets({at: -1}) == {at: 0}
    assert cluster.by_leader([at]) == {Address("fake", 9002): [at]}


def test_time_is_bounded(fake: FakeCluster, cluster: Cluster, clock: StepClock) -> None:
    fake.add_topic("orders")
    cluster.all_topics()
    fake.fail_next(
        init_producer_id.InitProducerIdRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 100
    )
    with pytest.raises(BrokerAnswerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        cluster.start_producer()
    assert 8 < clock.seconds <= 10
