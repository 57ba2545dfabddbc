"""The view of a cluster, from the answers to Metadata."""

import uuid
from dataclasses import replace

import pytest

from penstock.client.cluster_view import (
    ClusterView,
    Leader,
    PartitionDescription,
    check_topics,
    present_topics,
    topic_problem,
)
from penstock.client.transport.addresses import Address
from penstock.core.errors import BrokerAnswerError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = uuid.UUID(int=5)


def topic(name: str, code: ErrorCode = ErrorCode.NONE, leader_id: int = 1) -> MetadataResponseTopic:
    partitions = (
        MetadataResponsePartition(partition_index=1, leader_id=leader_id, leader_epoch=4),
        MetadataResponsePartition(partition_index=0, leader_id=2, leader_epoch=3),
    )
    return MetadataResponseTopic(
        name=name, topic_id=ID, error_code=code, partitions=() if code else partitions
    )


def response(*topics: MetadataResponseTopic) -> MetadataResponse:
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=number, host=f"b{number}", port=9) for number in (1, 2)
        ),
        controller_id=2,
        cluster_id="c",
        topics=topics,
    )


def test_brokers_and_leaders_are_learnt() -> None:
    view = ClusterView()
    assert view.candidates([Address("boot", 1)]) == [Address("boot", 1)]
    assert view.controller() is None
    view.learn(response(topic("orders")))
    assert view.leader(TopicPartition("orders", 1)) == Leader(Address("b1", 9), 4)
    assert view.leader(TopicPartition("orders", 0)) == Leader(Address("b2", 9), 3)
    assert view.controller() == Address("b2", 9)
    bootstrap = [Address("boot", 1), Address("b1", 9)]
    assert view.candidates(bootstrap) == [Address("b1", 9), Address("b2", 9), Address("boot", 1)]


def test_known_brokers_take_turns_when_what_one_told_was_wrong() -> None:
    view, bootstrap = ClusterView(), [Address("boot", 1)]
    view.forget_topics()
    assert view.candidates(bootstrap) == bootstrap
    view.learn(replace(response(topic("orders")), brokers=response().brokers[::-1]))
    one, two = Address("b1", 9), Address("b2", 9)
    asked = []
    for _ in range(4):
        view.forget_topics()
        first, second, last = view.candidates(bootstrap)
        asked.append(first)
        assert {first, second, last} == {one, two, *bootstrap}
        assert last == bootstrap[0], "who was told of comes after those that are known"
    assert asked == [one, two, one, two]


def test_what_must_be_learnt_first_is_named_once() -> None:
    view = ClusterView()
    view.learn(response(topic("a"), topic("b", ErrorCode.LEADER_NOT_AVAILABLE)))
    wanted = [TopicPartition(name, number) for name in "abc" for number in range(2)]
    assert view.unknown_topics(wanted) == ["b", "c"]
    view.forget_topic("a")
    assert view.unknown_topics(wanted) == ["a", "b", "c"]


def test_a_partition_that_is_not_there() -> None:
    view = ClusterView()
    view.learn(response(topic("orders")))
    with pytest.raises(UnknownTopicOrPartitionError, match="orders-7"):
        view.leader(TopicPartition("orders", 7))


@pytest.mark.parametrize("leader_id", [-1, 3])
def test_a_partition_without_a_leader_is_worth_a_repetition(leader_id: int) -> None:
    view = ClusterView()
    view.learn(response(topic("orders", leader_id=leader_id)))
    with pytest.raises(BrokerAnswerError, match="LEADER_NOT_AVAILABLE"):
        view.leader(TopicPartition("orders", 1))


def test_a_topic_that_was_forgotten_meanwhile_is_worth_a_repetition() -> None:
    view = ClusterView()
    view.learn(response(topic("orders")))
    view.forget_topics()
    with pytest.raises(BrokerAnswerError, match="LEADER_NOT_AVAILABLE"):
        view.leader(TopicPartition("orders", 1))


def test_descriptions_leave_out_what_is_not_there() -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found = present_topics(response(topic("b", leader_id=-1), topic("a"), topic("c", unknown)))
    assert list(found) == ["a", "b"]
    assert found["b"].topic_id == ID
    assert found["b"].partitions == {0: PartitionDescription(2, 3), 1: PartitionDescription(-1, 4)}
    assert list(found["b"].partitions) == [0, 1]
    with pytest.raises(BrokerAnswerError, match="TOPIC_AUTHORIZATION_FAILED"):
        present_topics(response(topic("d", ErrorCode.TOPIC_AUTHORIZATION_FAILED)))


def test_errors_of_topics() -> None:
    check_topics(response(topic("a")))
    with pytest.raises(UnknownTopicOrPartitionError, match="c"):
        check_topics(response(topic("a"), topic("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    with pytest.raises(BrokerAnswerError, match="LEADER_NOT_AVAILABLE"):
        check_topics(response(topic("a", ErrorCode.LEADER_NOT_AVAILABLE)))


def test_a_topic_can_be_used_when_all_of_it_can() -> None:
    assert topic_problem(topic("a")) == ErrorCode.NONE
    assert topic_problem(topic("a", ErrorCode.INVALID_TOPIC_EXCEPTION)) == (
        ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    nothing = MetadataResponseTopic(name="a", partitions=())
    assert topic_problem(nothing) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
