"""DescribeTopicPartitions: topics page by page, in the order of their names."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    RequestCursor,
    TopicRequest,
)
from tests.broker.handlers.asker import Asker, fresh_name

Page = list[tuple[str | None, list[int]]]


def ask(
    asker: Asker, *names: str, limit: int = 2_000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=name) for name in names),
        response_partition_limit=limit,
        cursor=None
        if cursor is None
        else RequestCursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return asker.ask(request, 0, DescribeTopicPartitionsResponse)


def page_of(answer: DescribeTopicPartitionsResponse) -> Page:
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in answer.topics
    ]


def cursor_of(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


@pytest.fixture
def names(asker: Asker) -> list[str]:
    """Three topics with 2, 3 and 1 partitions, in the order of their names."""
    stem = fresh_name("paged")
    made = [f"{stem}-{letter}" for letter in "abc"]
    for name, partitions in zip(made, (2, 3, 1), strict=True):
        asker.create(name, partitions)
    return made


def test_all_of_a_topic(asker: Asker, names: list[str]) -> None:
    answer = ask(asker, names[1])
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, names[1])
    assert topic.topic_id == asker.describe(names[1]).topic_id
    assert not topic.is_internal
    assert topic.topic_authorized_operations == 0b1101_1111_1000
    for index, partition in enumerate(topic.partitions):
        assert (partition.error_code, partition.partition_index) == (ErrorCode.NONE, index)
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert partition.replica_nodes == partition.isr_nodes == (1,)
        assert partition.offline_replicas == ()
        assert partition.eligible_leader_replicas == ()
        assert partition.last_known_elr == ()
    assert answer.next_cursor is None


def test_pages_follow_each_other(asker: Asker, names: list[str]) -> None:
    a, b, c = names
    first = ask(asker, c, a, b, limit=3)
    assert page_of(first) == [(a, [0, 1]), (b, [0])]
    assert cursor_of(first) == (b, 1)
    second = ask(asker, c, a, b, limit=3, cursor=(b, 1))
    assert page_of(second) == [(b, [1, 2]), (c, [0])]
    assert cursor_of(second) is None


def test_a_page_that_ends_with_a_topic_goes_on_with_the_next(
    asker: Asker, names: list[str]
) -> None:
    a, b, c = names
    first = ask(asker, *names, limit=2)
    assert page_of(first) == [(a, [0, 1])]
    assert cursor_of(first) == (b, 0)
    second = ask(asker, *names, limit=3, cursor=(b, 0))
    assert page_of(second) == [(b, [0, 1, 2])]
    assert cursor_of(second) == (c, 0)


@pytest.mark.parametrize("limit", [0, -1, 1])
def test_a_page_has_at_least_one_partition(asker: Asker, names: list[str], limit: int) -> None:
    answer = ask(asker, *names, limit=limit)
    assert page_of(answer) == [(names[0], [0])]
    assert cursor_of(answer) == (names[0], 1)


def test_all_topics_page_by_page(asker: Asker, names: list[str]) -> None:
    found: Page = []
    cursor: tuple[str, int] | None = None
    while True:
        answer = ask(asker, limit=2, cursor=cursor)
        found += page_of(answer)
        cursor = cursor_of(answer)
        if cursor is None:
            break
    ours = [(name, index) for name, indexes in found for index in indexes if name in names]
    a, b, c = names
    assert ours == [(a, 0), (a, 1), (b, 0), (b, 1), (b, 2), (c, 0)]
    assert [name for name, _ in found] == sorted(str(name) for name, _ in found)


def test_a_cursor_at_a_topic_that_is_gone(asker: Asker, names: list[str]) -> None:
    a, b, c = names
    asker.delete(b)
    found = page_of(ask(asker, cursor=(b, 1)))
    assert (c, [0]) in found
    assert {a, b}.isdisjoint(name for name, _ in found)
    asked = ask(asker, a, b, c, cursor=(b, 1))
    assert page_of(asked) == [(b, []), (c, [0])]
    assert asked.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_cursor_past_the_end_of_a_topic(asker: Asker, names: list[str]) -> None:
    assert page_of(ask(asker, *names[1:], cursor=(names[1], 9))) == [
        (names[1], []),
        (names[2], [0]),
    ]


def test_a_cursor_outside_of_what_is_asked_for(asker: Asker, names: list[str]) -> None:
    a, b, c = names
    for cursor in ((b, 0), ("", 0), (c, -1)):
        answer = ask(asker, a, c, cursor=cursor)
        assert {(topic.name, topic.error_code) for topic in answer.topics} == {
            (a, ErrorCode.INVALID_REQUEST),
            (c, ErrorCode.INVALID_REQUEST),
        }
        assert answer.next_cursor is None


def test_names_that_nobody_has(asker: Asker, names: list[str]) -> None:
    missing = fresh_name("missing")
    answer = ask(asker, missing, names[0])
    found = {topic.name: topic for topic in answer.topics}
    assert found[names[0]].error_code == ErrorCode.NONE
    assert found[missing].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found[missing].partitions == ()
    assert found[missing].topic_id is None


def test_a_name_twice_is_answered_once(asker: Asker, names: list[str]) -> None:
    assert page_of(ask(asker, names[2], names[2])) == [(names[2], [0])]
