"""Metadata: all, none, by name, by id; topics that are auto-created."""

from uuid import UUID, uuid4

import pytest

from penstock.core.settings.config import BrokerConfig
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of, fresh_name

NOT_ASKED = -2147483648


def ask(asker: Asker, version: int, *names: str, create: bool = False) -> MetadataResponse:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=create or version < 4,
    )
    return asker.ask(request, version, MetadataResponse)


def ask_ids(asker: Asker, *ids: UUID, version: int = 13) -> tuple[MetadataResponseTopic, ...]:
    request = MetadataRequest(
        topics=tuple(MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids),
        allow_auto_topic_creation=False,
    )
    return asker.ask(request, version, MetadataResponse).topics


def test_version_0_asks_for_all_with_an_empty_list(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    answer = asker.ask(MetadataRequest(topics=()), 0, MetadataResponse)
    assert name in {topic.name for topic in answer.topics}


@pytest.mark.parametrize("version", [1, 8, 9, 13])
def test_null_asks_for_all_and_empty_for_none(asker: Asker, version: int) -> None:
    name = fresh_name()
    asker.create(name)
    every = asker.ask(MetadataRequest(topics=None), version, MetadataResponse)
    assert name in {topic.name for topic in every.topics}
    none = asker.ask(MetadataRequest(topics=()), version, MetadataResponse)
    assert none.topics == ()
    assert none.brokers == every.brokers


def test_a_topic_and_where_its_partitions_are(asker: Asker) -> None:
    name = fresh_name()
    topic_id = asker.create(name, partitions=3)
    answer = ask(asker, 13, name)
    (broker,) = answer.brokers
    assert (broker.host, broker.port, broker.rack) == ("127.0.0.1", asker.port, None)
    assert answer.controller_id == broker.node_id
    assert answer.cluster_id
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.NONE, name, topic_id)
    assert not topic.is_internal
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    assert [partition.partition_index for partition in partitions] == [0, 1, 2]
    for partition in partitions:
        assert partition.error_code == ErrorCode.NONE
        assert (partition.leader_id, partition.leader_epoch) == (broker.node_id, 0)
        assert partition.replica_nodes == partition.isr_nodes == (broker.node_id,)
        assert partition.offline_replicas == ()


def test_by_id(asker: Asker) -> None:
    names = [fresh_name(), fresh_name()]
    ids = [asker.create(name) for name in names]
    for version in (12, 13):
        found = ask_ids(asker, *ids, version=version)
        assert {(topic.name, topic.topic_id) for topic in found} == set(
            zip(names, ids, strict=True)
        )


def test_an_id_that_nobody_has(asker: Asker) -> None:
    unknown = uuid4()
    (topic,) = ask_ids(asker, unknown)
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (topic.name, topic.topic_id, topic.partitions) == (None, unknown, ())


def test_a_name_that_nobody_has(asker: Asker) -> None:
    name = fresh_name()
    for version in (4, 13):
        (topic,) = ask(asker, version, name).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (topic.name, topic.topic_id, topic.partitions) == (name, None, ())


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250, "a/../b"])
def test_a_name_that_cannot_be(asker: Asker, name: str, create: bool) -> None:
    (topic,) = ask(asker, 9, name, create=create).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topic.name == name


def test_a_topic_named_twice_is_answered_once(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert [topic.name for topic in ask(asker, 13, name, name).topics] == [name]


def test_asking_for_a_topic_makes_it(asker: Asker) -> None:
    name = fresh_name()
    ask(asker, 13, name, create=True)
    asker.until_described(name, ErrorCode.NONE)
    assert len(asker.describe(name).partitions) == 1


def test_a_topic_made_by_asking_is_served_at_once(penstock: Asker) -> None:
    """Kafka answers UNKNOWN_TOPIC_OR_PARTITION first, and the client asks again."""
    name = fresh_name()
    (topic,) = ask(penstock, 13, name, create=True).topics
    assert topic.error_code == ErrorCode.NONE
    assert [partition.leader_id for partition in topic.partitions] == [1]
    assert penstock.produce(name, batch_of(b"first")).base_offset == 0


def test_two_who_ask_at_once_get_the_same_topic(penstock: Asker) -> None:
    name = fresh_name()
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),))
    with penstock.another() as second:
        penstock.send(request, 13)
        second.send(request, 13)
        answers = [one.receive(MetadataResponse).topics[0] for one in (penstock, second)]
    assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 2
    assert answers[0].topic_id == answers[1].topic_id


def test_a_broker_may_be_told_to_make_none() -> None:
    settings = BrokerConfig(port=0, storage="memory", auto_create_topics=False)
    with Broker(settings) as broker, Asker(broker.port) as asker:
        for version in (0, 13):
            (topic,) = ask(asker, version, "wanted", create=True).topics
            assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert asker.ask(MetadataRequest(topics=None), 13, MetadataResponse).topics == ()


def test_a_topic_made_by_asking_has_the_default_partitions() -> None:
    settings = BrokerConfig(port=0, storage="memory", default_partitions=3)
    with Broker(settings) as broker, Asker(broker.port) as asker:
        (topic,) = ask(asker, 13, "wanted", create=True).topics
        assert len(topic.partitions) == 3


def test_operations_are_told_to_who_asks(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=name),),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = asker.ask(request, 10, MetadataResponse)
    # READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
    assert answer.topics[0].topic_authorized_operations == 0b1101_1111_1000
    # CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE.
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000


def test_operations_are_not_told_to_who_does_not(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    answer = ask(asker, 10, name)
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED
    assert answer.cluster_authorized_operations == NOT_ASKED


def test_the_topic_of_the_cluster_itself_is_not_made(asker: Asker) -> None:
    for _ in range(2):
        (topic,) = ask(asker, 13, "__cluster_metadata", create=True).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
