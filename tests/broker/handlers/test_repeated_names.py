"""A name that a request repeats is answered once, so no request chooses the size of its answer.

The answers to these requests are larger than their names: a group has its members' metadata, a
partition its producers, an offset its client's text. Apache Kafka answers each mention; its
clients name each thing once, so they see no difference.
"""

from collections.abc import Iterator

import pytest

from penstock.broker.handlers import describe_producers as handler
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    consumer_group_describe,
    describe_groups,
    describe_producers,
    describe_transactions,
    offset_fetch,
)
from penstock.protocol.messages.produce import ProduceResponse
from penstock.testing import Broker
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fresh_name, produce_request
from tests.broker.handlers.groups import commit, join, ready

REPEATED = 300


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def asker(broker: Broker) -> Iterator[Asker]:
    with Asker(broker.port) as connection:
        yield connection


def test_classic_groups(asker: Asker) -> None:
    group, other = fresh_name("group"), fresh_name("group")
    ready(asker, group)
    joined = join(asker, group)
    request = describe_groups.DescribeGroupsRequest(groups=(group, other) * REPEATED)
    answer = asker.ask(request, 5, describe_groups.DescribeGroupsResponse)
    assert [found.group_id for found in answer.groups] == [group, other]
    assert [member.member_id for member in answer.groups[0].members] == [joined.member_id]


def test_consumer_groups(asker: Asker) -> None:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=("a", "b", "") * REPEATED, include_authorized_operations=False
    )
    answer = asker.ask(request, 0, consumer_group_describe.ConsumerGroupDescribeResponse)
    assert [found.group_id for found in answer.groups] == ["a", "b", ""]


def test_transactions(asker: Asker) -> None:
    request = describe_transactions.DescribeTransactionsRequest(
        transactional_ids=("a", "b") * REPEATED
    )
    answer = asker.ask(request, 0, describe_transactions.DescribeTransactionsResponse)
    assert [found.transactional_id for found in answer.transaction_states] == ["a", "b"]


# --- Producers ---


def describe(asker: Asker, *asked: tuple[str, tuple[int, ...]]) -> list[tuple[int, int, int]]:
    """Partition, error and number of producers of all that the answer has."""
    request = describe_producers.DescribeProducersRequest(
        topics=tuple(
            describe_producers.TopicRequest(name=name, partition_indexes=indexes)
            for name, indexes in asked
        )
    )
    answer = asker.ask(request, 0, describe_producers.DescribeProducersResponse)
    return [
        (found.partition_index, found.error_code, len(found.active_producers))
        for topic in answer.topics
        for found in topic.partitions
    ]


def with_producers(asker: Asker, *counts: int) -> str:
    """The name of a topic with as many producers in each of its partitions."""
    topic = fresh_name()
    asker.create(topic, partitions=len(counts))
    for partition, count in enumerate(counts):
        for start in range(0, count, 50):
            few = range(start, min(start + 50, count))
            batches = [batch_of(b"x", producer_id=10_000 + number, sequence=0) for number in few]
            requests = [(produce_request(topic, {partition: one}), NAMED) for one in batches]
            asker.send_together(*requests)
            for _ in requests:
                asker.receive(ProduceResponse)
    return topic


def test_producers_of_a_partition(asker: Asker) -> None:
    topic = with_producers(asker, 3, 2)
    asked = (topic, (0, 1, 0) * REPEATED), (topic, (1,))
    assert describe(asker, *asked) == [(0, 0, 3), (1, 0, 2)]


def test_more_producers_than_an_answer_has_room_for(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = with_producers(asker, 3, 3, 1)
    monkeypatch.setattr(handler, "PRODUCERS_DESCRIBED_MAX", 5)
    refused = ErrorCode.INVALID_REQUEST
    assert describe(asker, (topic, (0, 1, 2))) == [(0, 0, 3), (1, refused, 0), (2, 0, 1)]
    request = describe_producers.DescribeProducersRequest(
        topics=(describe_producers.TopicRequest(name=topic, partition_indexes=(0, 1)),)
    )
    answer = asker.ask(request, 0, describe_producers.DescribeProducersResponse)
    message = answer.topics[0].partitions[1].error_message
    assert message is not None
    assert "3 producers, and this answer has room for 2 of 5; ask for fewer" in message


def test_many_producers_are_described_in_slices(broker: Broker, asker: Asker) -> None:
    topic = with_producers(asker, 6_000)
    before = broker.metrics()["turns_put_off_total"]
    assert describe(asker, (topic, (0,))) == [(0, 0, 6_000)]
    assert broker.metrics()["turns_put_off_total"] > before


# --- Offsets ---


def offset_request(
    group: str, *topics: tuple[str, tuple[int, ...]]
) -> offset_fetch.OffsetFetchRequestGroup:
    return offset_fetch.OffsetFetchRequestGroup(
        group_id=group,
        topics=tuple(
            offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
            for name, indexes in topics
        ),
    )


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, partitions=2)
    return name


def test_offsets_of_a_partition(asker: Asker, topic: str) -> None:
    group = fresh_name("group")
    ready(asker, group)
    commit(asker, group, {(topic, 0): 7, (topic, 1): 8})
    one = offset_request(group, (topic, (0, 1) * REPEATED), (topic, (1, 0)), ("none", (3,)))
    request = offset_fetch.OffsetFetchRequest(groups=(one,))
    answer = asker.ask(request, 9, offset_fetch.OffsetFetchResponse)
    found = {
        (place.name, part.partition_index, part.committed_offset)
        for place in answer.groups[0].topics
        for part in place.partitions
    }
    assert found == {(topic, 0, 7), (topic, 1, 8), ("none", 3, -1)}
    assert [len(place.partitions) for place in answer.groups[0].topics] == [2, 1]


def test_offsets_of_a_partition_before_groups_were_a_list(asker: Asker, topic: str) -> None:
    group = fresh_name("group")
    ready(asker, group)
    commit(asker, group, {(topic, 0): 7})
    named = offset_fetch.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,) * REPEATED)
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=(named,))
    answer = asker.ask(request, 7, offset_fetch.OffsetFetchResponse)
    ((only,),) = (place.partitions for place in answer.topics)
    assert (only.partition_index, only.committed_offset, only.metadata) == (0, 7, "note")


def test_a_group_twice(asker: Asker, topic: str) -> None:
    group = fresh_name("group")
    ready(asker, group)
    commit(asker, group, {(topic, 0): 7})
    request = offset_fetch.OffsetFetchRequest(
        groups=(offset_request(group, (topic, (0,))), offset_request(group, (topic, (1,))))
    )
    answer = asker.ask(request, 9, offset_fetch.OffsetFetchResponse)
    assert [(found.error_code, len(found.topics)) for found in answer.groups] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.INVALID_REQUEST, 0),
    ]
