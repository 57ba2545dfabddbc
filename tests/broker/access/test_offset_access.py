"""Permissions that OffsetCommit, OffsetFetch and OffsetDelete need; partial denials are merged.

Each outcome but the order of entries was seen on Apache Kafka 4.3.1 with the same rules as ACLs.
"""

from uuid import UUID

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import offset_commit, offset_delete, offset_fetch
from penstock.security.acls.values import Operation, ResourceType
from tests.broker.access.fakes import RuleSet
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.groups import commit, commit_request, fetch_offsets, find

GROUP = ResourceType.GROUP
TOPIC = ResourceType.TOPIC
NO_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
MANY = 700
"""Partitions of a request that is handled in pieces."""


@pytest.fixture
def group(asker: Asker) -> str:
    name = fresh_name("group")
    find(asker, name)
    return name


@pytest.fixture
def topics(asker: Asker) -> list[str]:
    """Two topics with two partitions each, and one that does not exist."""
    names = [fresh_name() for _ in range(3)]
    for name in names[:2]:
        asker.create(name, 2)
    return names


def offsets_of(asker: Asker, group: str) -> dict[tuple[str, int], int]:
    found = fetch_offsets(asker, group, None)
    assert found.error_code == ErrorCode.NONE
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in found.topics
        for one in topic.partitions
    }


def may_read(*names: str) -> list[tuple[Operation, ResourceType, str]]:
    return [(Operation.READ, TOPIC, name) for name in names]


# --- OffsetCommit ---


def test_offsets_of_topics_that_may_be_read_are_committed(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    first, second, unknown = topics
    rules.only((Operation.READ, GROUP, group), *may_read(first, unknown))
    codes = commit(asker, group, {(second, 0): 1, (unknown, 0): 2, (first, 1): 3, (first, 9): 4})
    assert codes == {
        (second, 0): NO_TOPIC,
        (unknown, 0): UNKNOWN,
        (first, 1): ErrorCode.NONE,
        (first, 9): UNKNOWN,
    }
    assert rules.denials == may_read(second)
    rules.all_but()
    assert offsets_of(asker, group) == {(first, 1): 3}


def test_a_topic_that_may_not_be_read_is_denied_whether_it_exists_or_not(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    first, _, unknown = topics
    rules.only((Operation.READ, GROUP, group))
    codes = commit(asker, group, {(first, 0): 1, (first, 9): 1, (unknown, 0): 1})
    assert set(codes.values()) == {NO_TOPIC}
    rules.all_but()
    assert offsets_of(asker, group) == {}


def test_the_denial_of_the_group_wins(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    first, second, unknown = topics
    rules.only(*may_read(first))
    codes = commit(asker, group, {(first, 0): 1, (second, 0): 1, (unknown, 0): 1})
    assert set(codes.values()) == {NO_GROUP}
    assert rules.denials == [(Operation.READ, GROUP, group)]
    rules.all_but()
    assert offsets_of(asker, group) == {}


def test_a_topic_is_denied_by_its_id_too(asker: Asker, rules: RuleSet, group: str) -> None:
    name, other = fresh_name(), fresh_name()
    ids = [asker.create(name), asker.create(other), UUID(int=7)]
    rules.only((Operation.READ, GROUP, group), *may_read(other))
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=tuple(
            offset_commit.OffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=(
                    offset_commit.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=1
                    ),
                ),
            )
            for topic_id in ids
        ),
    )
    answer = asker.ask(request, 10, offset_commit.OffsetCommitResponse)
    assert {one.topic_id: one.partitions[0].error_code for one in answer.topics} == {
        ids[0]: NO_TOPIC,
        ids[1]: ErrorCode.NONE,
        ids[2]: ErrorCode.UNKNOWN_TOPIC_ID,
    }
    assert rules.denials == may_read(name)


@pytest.mark.parametrize("is_group_denied", [True, False])
def test_a_commit_in_pieces_is_denied_too(
    asker: Asker, rules: RuleSet, group: str, topics: list[str], is_group_denied: bool
) -> None:
    first, second, _ = topics
    offsets = {(first, 0): 1, (first, 1): 1} | {(second, number): 1 for number in range(MANY)}
    denied = (Operation.READ, GROUP, group) if is_group_denied else may_read(second)[0]
    rules.all_but(denied)
    request = commit_request(group, offsets)
    answer = asker.ask(request, 9, offset_commit.OffsetCommitResponse)
    codes = {topic.name: {one.error_code for one in topic.partitions} for topic in answer.topics}
    assert codes == {
        first: {NO_GROUP if is_group_denied else ErrorCode.NONE},
        second: {NO_GROUP if is_group_denied else NO_TOPIC},
    }
    assert set(rules.denials) == {denied}
    rules.all_but()
    assert offsets_of(asker, group) == ({} if is_group_denied else {(first, 0): 1, (first, 1): 1})


# --- OffsetFetch ---


def test_offsets_are_fetched_for_topics_that_may_be_described(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    first, second, unknown = topics
    commit(asker, group, {(first, 0): 4, (second, 1): 5})
    rules.only((Operation.DESCRIBE, GROUP, group), (Operation.DESCRIBE, TOPIC, second))
    found = fetch_offsets(asker, group, {first: (0,), second: (1, 0), unknown: (0,)})
    assert found.error_code == ErrorCode.NONE
    assert {
        (topic.name, one.partition_index): (one.committed_offset, one.error_code)
        for topic in found.topics
        for one in topic.partitions
    } == {
        (first, 0): (-1, NO_TOPIC),
        (second, 1): (5, ErrorCode.NONE),
        (second, 0): (-1, ErrorCode.NONE),
        (unknown, 0): (-1, NO_TOPIC),
    }


def test_all_topics_of_a_group_are_those_that_may_be_described(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    first, second, _ = topics
    commit(asker, group, {(first, 0): 4, (second, 1): 5})
    rules.only((Operation.DESCRIBE, GROUP, group), (Operation.DESCRIBE, TOPIC, second))
    for version in (9, 10):
        found = fetch_offsets(asker, group, None, version)
        assert [one.partitions[0].committed_offset for one in found.topics] == [5]
    rules.only((Operation.DESCRIBE, GROUP, group))
    assert offsets_of(asker, group) == {}
    assert rules.denials == []


def test_groups_are_denied_one_by_one(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    first = topics[0]
    commit(asker, group, {(first, 0): 4})
    other = fresh_name("group")
    find(asker, other)
    rules.all_but((Operation.DESCRIBE, GROUP, other))
    topic = offset_fetch.OffsetFetchRequestTopics(name=first, partition_indexes=(0,))
    request = offset_fetch.OffsetFetchRequest(
        groups=tuple(
            offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=(topic,))
            for name in (other, group, other)
        )
    )
    answer = asker.ask(request, 9, offset_fetch.OffsetFetchResponse)
    assert [(one.group_id, one.error_code, len(one.topics)) for one in answer.groups] == [
        (other, NO_GROUP, 0),
        (group, ErrorCode.NONE, 1),
        (other, NO_GROUP, 0),
    ]
    assert rules.denials == [(Operation.DESCRIBE, GROUP, other)]


@pytest.mark.parametrize("version", [1, 7])
def test_an_old_client_gets_the_denial_of_its_group(
    asker: Asker, rules: RuleSet, group: str, topics: list[str], version: int
) -> None:
    rules.only((Operation.DESCRIBE, TOPIC, topics[0]))
    request = offset_fetch.OffsetFetchRequest(
        group_id=group,
        topics=(offset_fetch.OffsetFetchRequestTopic(name=topics[0], partition_indexes=(0,)),),
    )
    answer = asker.ask(request, version, offset_fetch.OffsetFetchResponse)
    if version < 2:
        assert [one.error_code for one in answer.topics[0].partitions] == [NO_GROUP]
    else:
        assert (answer.error_code, answer.topics) == (NO_GROUP, ())


def test_offsets_are_fetched_by_id_for_topics_that_may_be_described(
    asker: Asker, rules: RuleSet, group: str
) -> None:
    name, other = fresh_name(), fresh_name()
    ids = [asker.create(name), UUID(int=7), asker.create(other)]
    commit(asker, group, {(name, 0): 4, (other, 0): 5})
    rules.only((Operation.DESCRIBE, GROUP, group), (Operation.DESCRIBE, TOPIC, other))
    request = offset_fetch.OffsetFetchRequest(
        groups=(
            offset_fetch.OffsetFetchRequestGroup(
                group_id=group,
                topics=tuple(
                    offset_fetch.OffsetFetchRequestTopics(topic_id=one, partition_indexes=(0,))
                    for one in ids
                ),
            ),
        )
    )
    (found,) = asker.ask(request, 10, offset_fetch.OffsetFetchResponse).groups
    assert {
        one.topic_id: (one.partitions[0].committed_offset, one.partitions[0].error_code)
        for one in found.topics
    } == {
        ids[0]: (-1, NO_TOPIC),
        ids[1]: (-1, ErrorCode.UNKNOWN_TOPIC_ID),
        ids[2]: (5, ErrorCode.NONE),
    }


def test_a_fetch_in_pieces_has_each_topic_once(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    first, second, unknown = topics
    commit(asker, group, {(first, 0): 4, (second, 1): 5})
    rules.all_but((Operation.DESCRIBE, TOPIC, second))
    many = tuple(range(MANY))
    found = fetch_offsets(asker, group, {first: many, second: many, unknown: many})
    assert sorted(
        (topic.name, len(topic.partitions), {one.error_code for one in topic.partitions})
        for topic in found.topics
    ) == [
        (first, MANY, {ErrorCode.NONE}),
        (second, MANY, {NO_TOPIC}),
        (unknown, MANY, {ErrorCode.NONE}),
    ]


# --- OffsetDelete ---


def delete(
    asker: Asker, group: str, names: dict[str, int]
) -> tuple[ErrorCode, dict[str, set[ErrorCode]]]:
    request = offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=tuple(
            offset_delete.OffsetDeleteRequestTopic(
                name=name,
                partitions=tuple(
                    offset_delete.OffsetDeleteRequestPartition(partition_index=number)
                    for number in range(count)
                ),
            )
            for name, count in names.items()
        ),
    )
    answer = asker.ask(request, 0, offset_delete.OffsetDeleteResponse)
    topics = {one.name: {part.error_code for part in one.partitions} for one in answer.topics}
    return answer.error_code, topics


@pytest.mark.parametrize("count", [2, MANY])
def test_offsets_of_topics_that_may_be_read_are_deleted(
    asker: Asker, rules: RuleSet, group: str, topics: list[str], count: int
) -> None:
    first, second, unknown = topics
    offsets = {(first, 0): 1, (second, 0): 2}
    commit(asker, group, offsets)
    rules.only((Operation.DELETE, GROUP, group), *may_read(second, unknown))
    code, found = delete(asker, group, {first: count, second: 1, unknown: 1})
    assert code == ErrorCode.NONE
    assert found == {first: {NO_TOPIC}, second: {ErrorCode.NONE}, unknown: {UNKNOWN}}
    rules.all_but()
    assert offsets_of(asker, group) == {(first, 0): 1}


@pytest.mark.parametrize("count", [2, MANY])
def test_offsets_of_a_group_that_may_not_be_deleted_stay(
    asker: Asker, rules: RuleSet, group: str, topics: list[str], count: int
) -> None:
    first = topics[0]
    commit(asker, group, {(first, 0): 1})
    rules.all_but((Operation.DELETE, GROUP, group))
    assert delete(asker, group, {first: count}) == (NO_GROUP, {})
    assert offsets_of(asker, group) == {(first, 0): 1}


def test_an_unknown_group_is_reported_even_if_each_topic_is_denied(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    rules.only((Operation.DELETE, GROUP, group))
    assert delete(asker, group, {topics[0]: 1}) == (ErrorCode.GROUP_ID_NOT_FOUND, {})


# --- The order of an answer ---


def test_a_partly_denied_answer_has_the_order_of_its_request(
    asker: Asker, rules: RuleSet, group: str, topics: list[str]
) -> None:
    """Kafka puts denied topics first or last; its clients look them up by name."""
    names = [topics[2], topics[1], topics[0]]
    rules.all_but((Operation.DESCRIBE, TOPIC, topics[1]), *may_read(topics[1]))
    answers = [
        commit(asker, group, {(name, 0): 1 for name in names}).keys(),
        (
            (topic.name, 0)
            for topic in fetch_offsets(asker, group, dict.fromkeys(names, (0,))).topics
        ),
        ((name, 0) for name in delete(asker, group, dict.fromkeys(names, 1))[1]),
    ]
    for answer in answers:
        assert [name for name, _ in answer] == names
