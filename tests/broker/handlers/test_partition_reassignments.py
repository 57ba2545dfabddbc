"""AlterPartitionReassignments and ListPartitionReassignments: partitions stay where they are."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.broker.handlers.asker import Asker, fresh_name

Replicas = tuple[int, ...] | None


def reassign(
    asker: Asker, name: str, index: int, replicas: Replicas, *, may_grow: bool = True
) -> ReassignablePartitionResponse:
    request = AlterPartitionReassignmentsRequest(
        topics=(
            ReassignableTopic(
                name=name,
                partitions=(ReassignablePartition(partition_index=index, replicas=replicas),),
            ),
        ),
        allow_replication_factor_change=may_grow,
    )
    answer = asker.ask(request, 1, AlterPartitionReassignmentsResponse)
    assert answer.error_code == ErrorCode.NONE
    assert answer.allow_replication_factor_change == may_grow
    (topic,) = answer.responses
    assert topic.name == name
    (result,) = topic.partitions
    assert result.partition_index == index
    return result


@pytest.mark.parametrize("may_grow", [False, True])
def test_a_partition_may_be_placed_where_it_is(asker: Asker, may_grow: bool) -> None:
    name = fresh_name()
    asker.create(name)
    result = reassign(asker, name, 0, (1,), may_grow=may_grow)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)


REFUSED: list[tuple[int, Replicas, ErrorCode, str]] = [
    (0, (9,), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9, but no such broker is registered."),
    (0, (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9, but no such broker is registered"),
    (0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once."),
    (0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list."),
    (0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ""),
    (7, (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition "),
]


@pytest.mark.parametrize(("index", "replicas", "code", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(
    asker: Asker, index: int, replicas: Replicas, code: ErrorCode, text: str
) -> None:
    name = fresh_name()
    asker.create(name)
    result = reassign(asker, name, index, replicas)
    assert result.error_code == code, result
    assert text in (result.error_message or "")


@pytest.mark.parametrize("replicas", [(1,), None])
def test_a_topic_that_does_not_exist(asker: Asker, replicas: Replicas) -> None:
    result = reassign(asker, "nobody", 0, replicas)
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result.error_message == "Unable to find a topic named nobody."


def test_nothing_is_on_its_way(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    some = tuple(
        ListPartitionReassignmentsTopics(name=one, partition_indexes=(0, 7))
        for one in (name, "nobody")
    )
    for topics in (None, some):
        request = ListPartitionReassignmentsRequest(topics=topics)
        answer = asker.ask(request, 0, ListPartitionReassignmentsResponse)
        assert (answer.error_code, answer.topics) == (ErrorCode.NONE, ())
