"""Decisions on an image: creations, rejections, and the conditions of the writes."""

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.changes import apply
from penstock.cluster.controller import (
    GuardedWrites,
    NewTopic,
    TopicCreation,
    TopicDecision,
    creation_writes,
    decide_creations,
    decide_deletions,
    decide_producer_ids,
    deletion_writes,
)
from penstock.cluster.image import BrokerImage, Endpoint, MetadataImage, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.interpretation import interpret
from penstock.cluster.stores.port import Compare, DeletePrefix, Event, KeyValue, Put
from penstock.cluster.topic_rules import TopicRules, check_topic_name
from penstock.core.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicConfigError,
    InvalidTopicNameError,
    PenstockError,
    PolicyViolationError,
    TopicExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import PLAINTEXT

KEYS = Keys()
ONE_BROKER = MetadataImage(
    brokers={1: BrokerImage(1, (Endpoint(PLAINTEXT, "localhost", 9092),), None, "d", 1)}
)
GUARD = (Compare.created_at(KEYS.broker(1), 1),)


def ids(count: int, start: int = 1000) -> list[UUID]:
    return [UUID(int=start + number) for number in range(count)]


def decide(image: MetadataImage, *topics: NewTopic, start: int = 1000) -> list[TopicDecision]:
    return decide_creations(image, topics, ids(len(topics), start), TopicRules())


def written(image: MetadataImage, writes: list[GuardedWrites]) -> MetadataImage:
    """The image after these writes, as a store would report them."""
    for write in writes:
        revision = image.revision + 1
        puts = [operation for operation in write.operations if isinstance(operation, Put)]
        events = [
            Event(put.key, KeyValue(put.key, put.value, revision, revision, put.session))
            for put in puts
        ]
        image = apply(image, interpret(KEYS, events), revision)
    return image


def created(image: MetadataImage, *topics: NewTopic, start: int = 1000) -> MetadataImage:
    decisions = decide(image, *topics, start=start)
    creations = [made for made in decisions if isinstance(made, TopicCreation)]
    return written(image, list(creation_writes(KEYS, creations, GUARD)))


def refusal(image: MetadataImage, topic: NewTopic) -> PenstockError:
    (decision,) = decide(image, topic, start=900_000)
    assert isinstance(decision, PenstockError)
    return decision


def test_a_topic_is_led_by_the_one_broker() -> None:
    image = created(ONE_BROKER, NewTopic(name="t", partition_count=3, settings={"flush.ms": "5"}))
    topic = image.topic("t")
    assert topic is not None
    assert [(p.replicas, p.leader, p.leader_epoch, p.isr) for p in topic.partitions] == [
        ((1,), 1, 0, (1,))
    ] * 3
    assert topic.settings == {"flush.ms": "5"}
    assert image.topic_by_id(topic.id) is topic
    assert image.partition_count == 3
    assert image.partition("t", 2) is topic.partitions[2]
    assert image.partition("t", 3) is None
    assert image.partition("t", -1) is None


def test_defaults_come_from_the_rules() -> None:
    (decision,) = decide_creations(
        ONE_BROKER, [NewTopic(name="t")], ids(1), TopicRules(partition_count_default=7)
    )
    assert isinstance(decision, TopicCreation)
    assert len(decision.topic.partitions) == 7


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (NewTopic(name=""), InvalidTopicNameError, "empty string"),
        (NewTopic(name="."), InvalidTopicNameError, "'.' is not allowed"),
        (NewTopic(name=".."), InvalidTopicNameError, "'..' is not allowed"),
        (NewTopic(name="a/b"), InvalidTopicNameError, "characters other than"),
        (NewTopic(name="../../etc"), InvalidTopicNameError, "characters other than"),
        (NewTopic(name="a\0b"), InvalidTopicNameError, "characters other than"),
        (NewTopic(name="a\n"), InvalidTopicNameError, "characters other than"),
        (NewTopic(name="é"), InvalidTopicNameError, "characters other than"),
        (NewTopic(name="x" * 250), InvalidTopicNameError, "max allowed length 249"),
        (NewTopic(name="t", partition_count=0), InvalidPartitionsError, "non-positive"),
        (NewTopic(name="t", partition_count=-2), InvalidPartitionsError, "non-positive"),
        (NewTopic(name="t", partition_count=10_001), PolicyViolationError, "large number"),
        (NewTopic(name="t", partition_count=2**31 - 1), PolicyViolationError, "large number"),
        (NewTopic(name="t", replication_factor=0), InvalidReplicationFactorError, "larger than 0"),
        (NewTopic(name="t", replication_factor=-2), InvalidReplicationFactorError, "larger than"),
        (NewTopic(name="t", replication_factor=3), InvalidReplicationFactorError, "3 time(s)"),
        (NewTopic(name="t", replication_factor=32767), InvalidReplicationFactorError, "only 1"),
        (NewTopic(name="t", settings={"no": "1"}), InvalidTopicConfigError, "Unknown topic"),
        (NewTopic(name="t", settings={"flush.ms": None}), InvalidTopicConfigError, "Null value"),
        (NewTopic(name="t", assignments=((0, (7,)),)), InvalidReplicaAssignmentError, "broker 7"),
        (NewTopic(name="t", assignments=((0, (-3,)),)), InvalidReplicaAssignmentError, "-3"),
        (NewTopic(name="t", assignments=((1, (1,)),)), InvalidReplicaAssignmentError, "0-based"),
        (NewTopic(name="t", assignments=((0, (1, 1)),)), InvalidReplicaAssignmentError, "once"),
        (NewTopic(name="t", assignments=((0, ()),)), InvalidReplicaAssignmentError, "empty"),
        (
            NewTopic(name="t", assignments=((0, (1,)), (0, (1,)))),
            InvalidReplicaAssignmentError,
            "multiple",
        ),
        (
            NewTopic(name="t", partition_count=1, assignments=((0, (1,)),)),
            InvalidRequestError,
            "numPartitions",
        ),
        (
            NewTopic(name="t", replication_factor=1, assignments=((0, (1,)),)),
            InvalidRequestError,
            "replication factor",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    topic: NewTopic, error: type[PenstockError], message: str
) -> None:
    found = refusal(ONE_BROKER, topic)
    assert type(found) is error
    assert message in str(found)


def test_a_long_name_is_repeated_in_part_only() -> None:
    with pytest.raises(InvalidTopicNameError) as caught:
        check_topic_name("x" * 1_000_000)
    assert len(str(caught.value)) < 500


def test_without_a_broker_there_is_no_topic() -> None:
    assert type(refusal(MetadataImage(), NewTopic(name="t"))) is InvalidReplicationFactorError


def test_names_are_given_once() -> None:
    image = created(ONE_BROKER, NewTopic(name="t"), NewTopic(name="a.b"))
    assert type(refusal(image, NewTopic(name="t"))) is TopicExistsError
    assert type(refusal(image, NewTopic(name="a.b"))) is TopicExistsError
    collision = refusal(image, NewTopic(name="a_b"))
    assert type(collision) is InvalidTopicNameError
    assert str(collision) == "Topic 'a_b' collides with existing topic: a.b"


def test_names_of_one_request_collide_too() -> None:
    first, second = decide(ONE_BROKER, NewTopic(name="a.b"), NewTopic(name="a_b"))
    assert isinstance(first, TopicCreation)
    assert type(second) is InvalidTopicNameError


def test_duplicates_in_one_request_are_all_refused() -> None:
    decisions = decide(ONE_BROKER, *[NewTopic(name=name) for name in ("t", "u", "t")])
    assert [type(decision) for decision in decisions] == [
        InvalidRequestError,
        TopicCreation,
        InvalidRequestError,
    ]


def test_the_cluster_holds_so_many_partitions() -> None:
    rules = TopicRules(partitions_per_broker_max=10)
    topics = [NewTopic(name=name, partition_count=6) for name in ("a", "b")]
    first, second = decide_creations(ONE_BROKER, topics, ids(2), rules)
    assert isinstance(first, TopicCreation)
    assert type(second) is PolicyViolationError


def test_one_request_names_so_many_topics() -> None:
    topics = [NewTopic(name=f"t{number}") for number in range(10_001)]
    decisions = decide(ONE_BROKER, *topics)
    assert {type(decision) for decision in decisions} == {PolicyViolationError}


def test_a_topic_of_this_request_that_exists_is_done() -> None:
    image = created(ONE_BROKER, NewTopic(name="t"))
    (decision,) = decide(image, NewTopic(name="t"))
    assert decision is image.topic("t")


def test_a_large_topic_is_published_last() -> None:
    (decision,) = decide(ONE_BROKER, NewTopic(name="t", partition_count=250))
    assert isinstance(decision, TopicCreation)
    writes = list(creation_writes(KEYS, [decision], GUARD))
    assert [len(write.operations) for write in writes] == [100, 100, 51]
    image = ONE_BROKER
    for write in writes[:-1]:
        image = written(image, [write])
        assert image.topic("t") is None
        assert image.partition_count == 0
    assert writes[-1].compares == (*GUARD, Compare.absent(KEYS.topic("t")))
    topic = written(image, writes[-1:]).topic("t")
    assert topic is not None
    assert len(topic.partitions) == 250


def test_deletion_by_name_and_id() -> None:
    image = created(ONE_BROKER, NewTopic(name="t"), NewTopic(name="u"))
    decisions = decide_deletions(image, ["t", UUID(int=1001), "none", UUID(int=7)])
    assert decisions[:2] == [image.topic("t"), image.topic("u")]
    assert [type(error) for error in decisions[2:]] == [
        UnknownTopicOrPartitionError,
        UnknownTopicIdError,
    ]
    twice = decide_deletions(image, ["t", UUID(int=1000)])
    assert [type(error) for error in twice] == [InvalidRequestError] * 2
    topics = [topic for topic in decisions if isinstance(topic, TopicImage)]
    (write,) = deletion_writes(KEYS, topics, GUARD)
    assert Compare.unchanged(KEYS.topic("t"), topics[0].revision) in write.compares
    assert DeletePrefix(KEYS.partitions(UUID(int=1001))) in write.operations


def test_producer_ids_follow_each_other() -> None:
    image = ONE_BROKER
    taken: list[range] = []
    for _ in range(3):
        block, write = decide_producer_ids(KEYS, image, GUARD)
        taken.append(block)
        assert write.compares[-1].revision == image.producer_ids_revision
        image = written(image, [write])
    assert taken == [range(1000), range(1000, 2000), range(2000, 3000)]


NAMES = st.sampled_from(["a.b", "a_b", "a-b", "t", "T", "..", "x/y", "long" * 70])
TOPICS = st.builds(
    NewTopic,
    name=NAMES,
    partition_count=st.sampled_from([-1, 0, 1, 3, 130, 20_000]),
    replication_factor=st.sampled_from([-1, 1, 2]),
    settings=st.sampled_from([{}, {"flush.ms": "1"}, {"bad": "1"}]),
)


@settings(max_examples=40)
@given(st.lists(st.lists(TOPICS, max_size=4), max_size=4))
def test_invariants_hold_whatever_is_asked(requests: list[list[NewTopic]]) -> None:
    image = ONE_BROKER
    for number, topics in enumerate(requests):
        image = created(image, *topics, start=1000 * (number + 1))
        check_invariants(image)


def check_invariants(image: MetadataImage) -> None:
    names: Mapping[str, TopicImage] = image.topics
    assert len({name.replace(".", "_") for name in names}) == len(names)
    assert len(image.topic_names) == len(names)
    assert image.partition_count == sum(len(topic.partitions) for topic in names.values())
    assert not image.unpublished
    for name, topic in names.items():
        check_topic_name(name)
        assert topic.name == name
        assert image.topic_names[topic.id] == name
        assert topic.partitions
        for partition in topic.partitions:
            assert partition.leader in partition.isr
            assert set(partition.isr) <= set(partition.replicas)
            assert set(partition.replicas) <= image.brokers.keys()
            assert partition.leader_epoch == 0


@settings(max_examples=20)
@given(st.lists(st.integers(1, 220), max_size=6))
def test_transactions_stay_within_the_stores_limits(counts: list[int]) -> None:
    topics = [NewTopic(name=f"t{n}", partition_count=count) for n, count in enumerate(counts)]
    decisions = decide(ONE_BROKER, *topics)
    creations = [made for made in decisions if isinstance(made, TopicCreation)]
    writes = list(creation_writes(KEYS, creations, GUARD))
    for write in writes:
        assert write.compares[: len(GUARD)] == GUARD
        assert len(write.compares) <= 128
        assert 0 < len(write.operations) <= 128
    assert len(written(ONE_BROKER, writes).topics) == len(counts)


@pytest.mark.parametrize(
    ("defaults", "settings"),
    [
        ({"min.compaction.lag.ms": "1000"}, {"max.compaction.lag.ms": "500"}),
        ({"max.compaction.lag.ms": "500"}, {"min.compaction.lag.ms": "1000"}),
    ],
)
def test_settings_must_go_with_the_defaults_that_the_topic_follows(
    defaults: dict[str, str], settings: dict[str, str]
) -> None:
    topics = [NewTopic(name="t", settings=settings), NewTopic(name="u")]
    refused, made = decide_creations(ONE_BROKER, topics, ids(2), TopicRules(), defaults)
    assert isinstance(refused, InvalidTopicConfigError)
    assert "min.compaction.lag.ms (1000) > max.compaction.lag.ms (500)" in str(refused)
    assert isinstance(made, TopicCreation)
