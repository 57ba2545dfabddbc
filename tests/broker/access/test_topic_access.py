"""Permissions that the APIs of topics need; a denied request changes nothing.

Outcomes are those of Apache Kafka 4.3.1 with the same rules as ACLs, except for the order of
entries, which Kafka shuffles or leaves to a hash table.
"""

from collections.abc import Iterable
from uuid import UUID

import pytest

from penstock.broker.authorized_operations import NOT_ASKED
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    metadata,
)
from penstock.protocol.messages import (
    describe_topic_partitions as dtp,
)
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from tests.broker.access.fakes import Rule, RuleSet
from tests.broker.handlers.asker import Asker, fresh_name

TOPIC = ResourceType.TOPIC
CLUSTER = ResourceType.CLUSTER
NO_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
INVALID = ErrorCode.INVALID_REQUEST
NOBODY = UUID("00000000-0000-4000-8000-000000000001")


def describe(name: str) -> Rule:
    return (Operation.DESCRIBE, TOPIC, name)


def on_cluster(operation: Operation) -> Rule:
    return (operation, CLUSTER, CLUSTER_NAME)


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


@pytest.fixture
def topic(asker: Asker, rules: RuleSet) -> str:
    name = fresh_name()
    asker.create(name, 2)
    return name


def exists(asker: Asker, rules: RuleSet, name: str) -> bool:
    """Whether a topic exists, whatever the rules are."""
    rules.all_but()
    return asker.describe(name).error_code == ErrorCode.NONE


# --- Metadata ---


def ask_metadata(
    asker: Asker,
    *topics: str | UUID,
    is_all: bool = False,
    creates: bool = False,
    with_operations: bool = False,
    version: int = 13,
) -> metadata.MetadataResponse:
    named = tuple(
        metadata.MetadataRequestTopic(
            name=None if isinstance(topic, UUID) else topic,
            topic_id=topic if isinstance(topic, UUID) else None,
        )
        for topic in topics
    )
    request = metadata.MetadataRequest(
        topics=None if is_all else named,
        allow_auto_topic_creation=creates,
        include_topic_authorized_operations=with_operations,
        include_cluster_authorized_operations=with_operations and version < 11,
    )
    return asker.ask(request, version, metadata.MetadataResponse)


def test_all_topics_are_those_that_may_be_described(
    asker: Asker, rules: RuleSet, topic: str
) -> None:
    asker.create(fresh_name())
    rules.only(describe(topic))
    answer = ask_metadata(asker, is_all=True)
    assert [found.name for found in answer.topics] == [topic]
    assert rules.denials == []
    assert len(answer.brokers) == 1


def test_all_topics_of_version_0(asker: Asker, rules: RuleSet, topic: str) -> None:
    asker.create(fresh_name())
    rules.only(describe(topic))
    answer = asker.ask(metadata.MetadataRequest(topics=()), 0, metadata.MetadataResponse)
    assert [found.name for found in answer.topics] == [topic]


def test_a_hidden_topic_looks_like_a_missing_one(asker: Asker, rules: RuleSet, topic: str) -> None:
    rules.only()
    hidden, missing = ask_metadata(asker, topic, "nothing").topics
    assert (hidden.name, missing.name) == (topic, "nothing")
    for found in (hidden, missing):
        assert found.error_code == NO_TOPIC
        assert found.topic_id is None
        assert found.partitions == ()
        assert not found.is_internal
    assert rules.denials == [describe(topic), describe("nothing")]
    rules.only(describe(topic), describe("nothing"))
    assert [found.error_code for found in ask_metadata(asker, topic, "nothing").topics] == [
        ErrorCode.NONE,
        UNKNOWN,
    ]


def test_a_hidden_topic_by_its_id_has_no_name(asker: Asker, rules: RuleSet) -> None:
    topic_id = asker.create(fresh_name())
    rules.only()
    hidden, unknown = ask_metadata(asker, topic_id, NOBODY).topics
    assert (hidden.error_code, hidden.name, hidden.topic_id) == (NO_TOPIC, None, topic_id)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("may_create", [None, TOPIC, CLUSTER])
def test_creating_a_topic_by_metadata_needs_create(
    asker: Asker, rules: RuleSet, may_create: ResourceType | None
) -> None:
    name = fresh_name()
    granted: list[Rule] = [describe(name)]
    if may_create is not None:
        granted.append(
            (Operation.CREATE, may_create, name if may_create is TOPIC else CLUSTER_NAME)
        )
    rules.only(*granted)
    (found,) = ask_metadata(asker, name, creates=True).topics
    is_created = may_create is not None
    assert found.error_code == (ErrorCode.NONE if is_created else NO_TOPIC)
    assert rules.denials == ([] if is_created else [(Operation.CREATE, TOPIC, name)])
    assert exists(asker, rules, name) == is_created


def test_a_topic_that_is_not_visible_is_not_created(asker: Asker, rules: RuleSet) -> None:
    name = fresh_name()
    rules.only(on_cluster(Operation.CREATE), (Operation.CREATE, TOPIC, name))
    (found,) = ask_metadata(asker, name, creates=True).topics
    assert found.error_code == NO_TOPIC
    assert not exists(asker, rules, name)


def test_an_existing_topic_needs_no_permission_to_create(
    asker: Asker, rules: RuleSet, topic: str
) -> None:
    rules.only(describe(topic))
    assert ask_metadata(asker, topic, creates=True).topics[0].error_code == ErrorCode.NONE


def test_an_internal_topic_is_not_created_without_permission(asker: Asker, rules: RuleSet) -> None:
    name = "__transaction_state"
    rules.only(describe(name))
    (found,) = ask_metadata(asker, name, creates=True).topics
    assert (found.error_code, found.is_internal) == (NO_TOPIC, True)
    assert not exists(asker, rules, name)


def test_operations_of_topics(asker: Asker, rules: RuleSet, topic: str) -> None:
    rules.only(describe(topic), describe("nothing"), (Operation.READ, TOPIC, topic), describe("x"))
    answer = ask_metadata(asker, topic, "nothing", "hidden", with_operations=True, version=10)
    found = {one.name: one.topic_authorized_operations for one in answer.topics}
    assert found == {
        topic: bits(Operation.DESCRIBE, Operation.READ),
        "nothing": bits(Operation.DESCRIBE),
        "hidden": NOT_ASKED,
    }
    assert answer.cluster_authorized_operations == 0
    rules.only(on_cluster(Operation.DESCRIBE), on_cluster(Operation.CREATE))
    answer = ask_metadata(asker, with_operations=True, version=10)
    expected = bits(Operation.DESCRIBE, Operation.CREATE)
    assert answer.cluster_authorized_operations == expected


# --- DescribeTopicPartitions ---


def ask_pages(
    asker: Asker, names: Iterable[str] = (), *, limit: int = 2_000
) -> list[list[tuple[str | None, ErrorCode, int]]]:
    """Topic, error and number of partitions, for each topic on each page."""
    pages = []
    cursor: dtp.RequestCursor | None = None
    while True:
        request = dtp.DescribeTopicPartitionsRequest(
            topics=tuple(dtp.TopicRequest(name=name) for name in names),
            response_partition_limit=limit,
            cursor=cursor,
        )
        answer = asker.ask(request, 0, dtp.DescribeTopicPartitionsResponse)
        pages.append([(one.name, one.error_code, len(one.partitions)) for one in answer.topics])
        if answer.next_cursor is None:
            return pages
        cursor = dtp.RequestCursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )


def test_pages_have_the_topics_that_may_be_described(asker: Asker, rules: RuleSet) -> None:
    names = [fresh_name("page") for _ in range(3)]
    for name in names:
        asker.create(name, 2)
    first, _hidden, last = sorted(names)
    rules.only(describe(first), describe(last))
    ok = ErrorCode.NONE
    assert ask_pages(asker) == [[(first, ok, 2), (last, ok, 2)]]
    assert rules.denials == []
    # The cursor of the first page must not name the hidden topic.
    assert ask_pages(asker, limit=2) == [[(first, ok, 2)], [(last, ok, 2)]]


def test_denied_topics_are_on_each_page(asker: Asker, rules: RuleSet, topic: str) -> None:
    rules.only(describe(topic))
    named = [topic, "zz-nothing"]
    assert ask_pages(asker, named, limit=1) == [
        [(topic, ErrorCode.NONE, 1), ("zz-nothing", NO_TOPIC, 0)],
        [(topic, ErrorCode.NONE, 1), ("zz-nothing", NO_TOPIC, 0)],
    ]
    rules.only()
    assert ask_pages(asker, named) == [[(topic, NO_TOPIC, 0), ("zz-nothing", NO_TOPIC, 0)]]
    assert set(rules.denials) == {describe(topic), describe("zz-nothing")}


def test_operations_in_pages(asker: Asker, rules: RuleSet, topic: str) -> None:
    rules.only(describe(topic), describe("nothing"), (Operation.ALTER, TOPIC, topic))
    request = dtp.DescribeTopicPartitionsRequest(
        topics=tuple(dtp.TopicRequest(name=name) for name in (topic, "nothing", "hidden"))
    )
    answer = asker.ask(request, 0, dtp.DescribeTopicPartitionsResponse)
    assert {one.name: one.topic_authorized_operations for one in answer.topics} == {
        topic: bits(Operation.DESCRIBE, Operation.ALTER),
        "nothing": bits(Operation.DESCRIBE),
        "hidden": NOT_ASKED,
    }


# --- CreateTopics ---


def ask_create(
    asker: Asker, *names: str, validate_only: bool = False
) -> dict[str, create_topics.CreatableTopicResult]:
    request = create_topics.CreateTopicsRequest(
        topics=tuple(
            create_topics.CreatableTopic(
                name=name, num_partitions=2, replication_factor=1, assignments=(), configs=()
            )
            for name in names
        ),
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    answer = asker.ask(request, 7, create_topics.CreateTopicsResponse)
    assert len({found.name for found in answer.topics}) == len(answer.topics)
    return {found.name: found for found in answer.topics}


@pytest.mark.parametrize("may_create", [TOPIC, CLUSTER])
def test_a_new_topic_needs_create(
    asker: Asker, rules: RuleSet, topic: str, may_create: ResourceType
) -> None:
    new, other = fresh_name("new"), fresh_name("new")
    rule: Rule = (Operation.CREATE, TOPIC, new)
    if may_create is CLUSTER:
        rule = on_cluster(Operation.CREATE)
    rules.only(rule)
    found = ask_create(asker, new, other, topic)
    assert found[new].error_code == ErrorCode.NONE
    is_over_all = may_create is CLUSTER
    assert found[other].error_code == (ErrorCode.NONE if is_over_all else NO_TOPIC)
    exists_already = ErrorCode.TOPIC_ALREADY_EXISTS
    assert found[topic].error_code == (exists_already if is_over_all else NO_TOPIC)
    if not is_over_all:
        assert found[other].error_message == "Authorization failed."
        create = Operation.CREATE
        assert rules.denials == [(create, TOPIC, other), (create, TOPIC, topic)]
    assert exists(asker, rules, other) == is_over_all
    assert exists(asker, rules, new)


def test_what_is_refused_before_the_permission(asker: Asker, rules: RuleSet) -> None:
    name = fresh_name()
    rules.only()
    found = ask_create(asker, name, name, "__cluster_metadata", "b@d")
    assert {topic: one.error_code for topic, one in found.items()} == {
        name: INVALID,
        "__cluster_metadata": INVALID,
        "b@d": NO_TOPIC,
    }
    assert found[name].error_message == "Duplicate topic name."
    assert not exists(asker, rules, name)


def test_settings_of_a_new_topic_need_describe_configs(asker: Asker, rules: RuleSet) -> None:
    shown, hidden = fresh_name(), fresh_name()
    rules.only(on_cluster(Operation.CREATE), (Operation.DESCRIBE_CONFIGS, TOPIC, shown))
    found = ask_create(asker, shown, hidden)
    assert found[shown].configs
    assert found[shown].topic_config_error_code == ErrorCode.NONE
    assert (found[shown].num_partitions, found[shown].replication_factor) == (2, 1)
    assert found[hidden].error_code == ErrorCode.NONE
    assert found[hidden].topic_id is not None
    assert not found[hidden].configs
    assert found[hidden].topic_config_error_code == NO_TOPIC
    assert (found[hidden].num_partitions, found[hidden].replication_factor) == (-1, -1)
    assert rules.denials == []


def test_validation_needs_create_too(asker: Asker, rules: RuleSet) -> None:
    name = fresh_name()
    rules.only()
    assert ask_create(asker, name, validate_only=True)[name].error_code == NO_TOPIC


# --- DeleteTopics ---


def ask_delete(asker: Asker, *topics: str | UUID) -> list[delete_topics.DeletableTopicResult]:
    request = delete_topics.DeleteTopicsRequest(
        topics=tuple(
            delete_topics.DeleteTopicState(
                name=None if isinstance(topic, UUID) else topic,
                topic_id=topic if isinstance(topic, UUID) else None,
            )
            for topic in topics
        ),
        timeout_ms=10_000,
    )
    return list(asker.ask(request, 6, delete_topics.DeleteTopicsResponse).responses)


@pytest.mark.parametrize("is_by_id", [False, True])
def test_deleting_needs_delete(asker: Asker, rules: RuleSet, is_by_id: bool) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    asked: str | UUID = topic_id if is_by_id else name
    rules.only(describe(name))
    (found,) = ask_delete(asker, asked)
    assert (found.error_code, found.name) == (NO_TOPIC, name)
    assert found.topic_id == (topic_id if is_by_id else None)
    assert found.error_message == "Topic authorization failed."
    assert exists(asker, rules, name)
    rules.only(describe(name), (Operation.DELETE, TOPIC, name))
    (found,) = ask_delete(asker, asked)
    assert (found.error_code, found.name, found.topic_id) == (ErrorCode.NONE, name, topic_id)
    assert not exists(asker, rules, name)


def test_deleting_with_a_permission_on_the_cluster(asker: Asker, rules: RuleSet) -> None:
    name, by_id = fresh_name(), fresh_name()
    asker.create(name)
    topic_id = asker.create(by_id)
    rules.only(on_cluster(Operation.DELETE))
    codes = [found.error_code for found in ask_delete(asker, name, topic_id, "nothing", NOBODY)]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID]
    assert not exists(asker, rules, name)
    assert not exists(asker, rules, by_id)


def test_a_hidden_topic_cannot_be_found_by_deleting(asker: Asker, rules: RuleSet) -> None:
    name = fresh_name()
    topic_id = asker.create(name)
    rules.only((Operation.DELETE, TOPIC, "nothing"))
    hidden, missing = ask_delete(asker, name, "nothing")
    for found in (hidden, missing):
        assert (found.error_code, found.topic_id) == (NO_TOPIC, None)
        assert found.error_message == "Topic authorization failed."
    (by_id,) = ask_delete(asker, topic_id)
    assert (by_id.error_code, by_id.name, by_id.topic_id) == (NO_TOPIC, None, topic_id)
    assert exists(asker, rules, name)


def test_a_missing_topic_is_shown_to_a_client_that_may_describe_it(
    asker: Asker, rules: RuleSet
) -> None:
    rules.only(describe("nothing"))
    (found,) = ask_delete(asker, "nothing")
    assert found.error_code == UNKNOWN


def test_a_topic_that_is_named_twice_is_refused_before_the_permission(
    asker: Asker, rules: RuleSet, topic: str
) -> None:
    rules.only()
    assert {found.error_code for found in ask_delete(asker, topic, topic)} == {INVALID}


# --- CreatePartitions ---


def ask_grow(asker: Asker, *names: str) -> list[tuple[str, ErrorCode, str | None]]:
    request = create_partitions.CreatePartitionsRequest(
        topics=tuple(
            create_partitions.CreatePartitionsTopic(name=name, count=3, assignments=None)
            for name in names
        ),
        timeout_ms=10_000,
        validate_only=False,
    )
    answer = asker.ask(request, 3, create_partitions.CreatePartitionsResponse)
    return [(found.name, found.error_code, found.error_message) for found in answer.results]


def test_more_partitions_need_alter(asker: Asker, rules: RuleSet, topic: str) -> None:
    alter: Rule = (Operation.ALTER, TOPIC, topic)
    rules.all_but(alter, (Operation.ALTER, TOPIC, "nothing"))
    denied = ask_grow(asker, topic, "nothing")
    assert denied == [(topic, NO_TOPIC, None), ("nothing", NO_TOPIC, None)]
    rules.all_but()
    assert len(asker.describe(topic).partitions) == 2
    rules.only(alter)
    assert ask_grow(asker, topic, "nothing") == [
        ("nothing", NO_TOPIC, None),
        (topic, ErrorCode.NONE, None),
    ]
    rules.all_but()
    assert len(asker.describe(topic).partitions) == 3


def test_repeated_names_come_before_the_permission(
    asker: Asker, rules: RuleSet, topic: str
) -> None:
    rules.only()
    assert ask_grow(asker, topic, topic) == [(topic, INVALID, "Duplicate topic name.")]
