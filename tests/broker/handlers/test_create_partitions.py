"""CreatePartitions: topics get more partitions, with Kafka's refusals."""

import pytest

from penstock.core.settings.tree import settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of, fresh_name
from tests.broker.handlers.groups import ready

Assignments = tuple[tuple[int, ...], ...]


def wanted(name: str, count: int, assignments: Assignments | None = None) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else tuple(CreatePartitionsAssignment(broker_ids=one) for one in assignments),
    )


def add(
    asker: Asker, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> dict[str, CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)
    answer = asker.ask(request, 3, CreatePartitionsResponse)
    assert len(answer.results) == len({topic.name for topic in topics})
    return {result.name: result for result in answer.results}


def count_of(asker: Asker, name: str) -> int:
    return len(asker.describe(name).partitions)


REFUSED: list[tuple[int, Assignments | None, ErrorCode, str]] = [
    (2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
    (1, None, ErrorCode.INVALID_PARTITIONS, "has 2 partition(s); 1 would not be an increase."),
    (0, None, ErrorCode.INVALID_PARTITIONS, "has 2 partition(s); 0 would not be an increase."),
    (-1, None, ErrorCode.INVALID_PARTITIONS, "; -1 would not be an increase."),
    (
        3,
        ((1,), (1,)),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "Attempted to add 1 additional partition(s), but only 2 assignment(s) were specified.",
    ),
    (3, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "but only 0 assignment(s) were specified."),
    (3, ((),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
    (3, ((9,),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9, but no such broker is"),
    (3, ((1, 2),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 2, but no such broker is"),
    (3, ((1, 1),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once."),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("count", "assignments", "code", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(
    asker: Asker,
    count: int,
    assignments: Assignments | None,
    code: ErrorCode,
    text: str,
    validate_only: bool,
) -> None:
    name = fresh_name()
    asker.create(name, 2)
    result = add(asker, wanted(name, count, assignments), validate_only=validate_only)[name]
    assert result.error_code == code
    assert text in (result.error_message or "")
    assert count_of(asker, name) == 2


@pytest.mark.parametrize("name", ["nobody", "!", ""])
def test_a_topic_that_does_not_exist(asker: Asker, name: str) -> None:
    result = add(asker, wanted(name, 3))[name]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_new_partitions_take_records_and_the_old_ones_keep_theirs(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    asker.produce(name, batch_of(b"old"))
    result = add(asker, wanted(name, 3))[name]
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    asker.until(lambda: count_of(asker, name) == 3)
    asker.until(lambda: asker.list_offsets(name, {2: -1})[2].error_code == ErrorCode.NONE)
    assert asker.produce(name, batch_of(b"new"), partition=2).base_offset == 0
    offsets = asker.list_offsets(name, {0: -1, 1: -1, 2: -1})
    assert [offsets[index].offset for index in range(3)] == [1, 0, 1]


def test_partitions_are_placed_where_the_request_says(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert add(asker, wanted(name, 3, ((1,), (1,))))[name].error_code == ErrorCode.NONE
    asker.until(lambda: count_of(asker, name) == 3)
    partitions = asker.describe(name).partitions
    assert {partition.replica_nodes for partition in partitions} == {(1,)}


def test_validating_adds_nothing(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert add(asker, wanted(name, 3), validate_only=True)[name].error_code == ErrorCode.NONE
    assert count_of(asker, name) == 1


def test_a_name_twice_is_refused_once_and_the_others_are_changed(asker: Asker) -> None:
    twice, other = fresh_name(), fresh_name()
    asker.create(twice)
    asker.create(other)
    results = add(asker, wanted(twice, 2), wanted(other, 2), wanted(twice, 3))
    assert results[twice].error_code == ErrorCode.INVALID_REQUEST
    assert results[twice].error_message == "Duplicate topic name."
    assert results[other].error_code == ErrorCode.NONE
    asker.until(lambda: count_of(asker, other) == 2)
    assert count_of(asker, twice) == 1


def test_no_topics_at_all(asker: Asker) -> None:
    assert add(asker) == {}


def test_new_partitions_are_served_when_the_answer_leaves(penstock: Asker) -> None:
    name = fresh_name()
    penstock.create(name)
    add(penstock, wanted(name, 150))
    assert penstock.produce(name, batch_of(b"x"), partition=149).base_offset == 0


def test_limits_of_this_broker(penstock: Asker) -> None:
    # Kafka answers UNKNOWN_SERVER_ERROR above 10,000 records of metadata at once.
    name = fresh_name()
    penstock.create(name)
    result = add(penstock, wanted(name, 1_000_000))[name]
    assert result.error_code == ErrorCode.POLICY_VIOLATION


def test_a_consumer_group_is_given_the_new_partitions() -> None:
    at_once = {
        "node.storage": "memory",
        "listener.port": 0,
        "groups.consumer_assignment_interval_ms": 0,
    }
    with Broker(settings_of(at_once)) as broker, Asker(broker.port) as asker:
        asker.create("t")
        ready(asker, "g")
        joined = asker.ask(
            heartbeat(0, rebalance_timeout_ms=10_000, subscribed_topic_names=("t",)),
            1,
            ConsumerGroupHeartbeatResponse,
        )
        assert assigned(joined) == {0}
        add(asker, wanted("t", 3))
        after = asker.ask(heartbeat(joined.member_epoch), 1, ConsumerGroupHeartbeatResponse)
        assert after.member_epoch > joined.member_epoch
        assert assigned(after) == {0, 1, 2}


def heartbeat(epoch: int, **fields: object) -> ConsumerGroupHeartbeatRequest:
    owned = () if epoch == 0 else None
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="0123456789abcdef012345",
        member_epoch=epoch,
        topic_partitions=owned,
        **fields,  # type: ignore[arg-type]
    )


def assigned(answer: ConsumerGroupHeartbeatResponse) -> set[int]:
    assert answer.error_code == ErrorCode.NONE, answer
    assert answer.assignment is not None
    return {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
