"""Calls that move replicas and leaders, as values: like `client.calls`.

An error code for the whole request is raised as `BrokerAnswerError`. Error codes of single
partitions are in the results. Nothing is retried here, and nothing waits for the end of a move.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.client.calls import by_topic
from penstock.client.transport.call import Call, raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)

PREFERRED_ELECTION: Final = 0


class PartitionOutcome(NamedTuple):
    """The result of a change for one partition."""

    code: ErrorCode
    message: str | None


class OngoingReassignment(NamedTuple):
    """A partition whose replicas are moving."""

    replicas: tuple[int, ...]
    """Old and new ones."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]


Outcomes = dict[TopicPartition, PartitionOutcome]


def alter_reassignments(
    targets: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
) -> Call[Outcomes]:
    """Begin to move the replicas of partitions to these brokers; None cancels a move.

    The number of replicas may change.
    """
    messages = alter_partition_reassignments
    request = messages.AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=tuple(
            messages.ReassignableTopic(
                name=topic,
                partitions=tuple(
                    messages.ReassignablePartition(
                        partition_index=at.partition,
                        replicas=None if (target := targets[at]) is None else tuple(target),
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(targets).items()
        ),
    )

    def read(answer: messages.AlterPartitionReassignmentsResponse) -> Outcomes:
        raise_error(answer.error_code, answer.error_message, "reassignment")
        return {
            TopicPartition(topic.name, one.partition_index): PartitionOutcome(
                one.error_code, one.error_message
            )
            for topic in answer.responses
            for one in topic.partitions
        }

    return Call(request, messages.AlterPartitionReassignmentsResponse, read)


def list_reassignments(timeout_ms: int) -> Call[dict[TopicPartition, OngoingReassignment]]:
    """Return all partitions whose replicas are moving."""
    messages = list_partition_reassignments
    request = messages.ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)

    def read(
        answer: messages.ListPartitionReassignmentsResponse,
    ) -> dict[TopicPartition, OngoingReassignment]:
        raise_error(answer.error_code, answer.error_message, "reassignments")
        return {
            TopicPartition(topic.name, one.partition_index): OngoingReassignment(
                one.replicas, one.adding_replicas, one.removing_replicas
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    return Call(request, messages.ListPartitionReassignmentsResponse, read)


def elect_preferred(partitions: Iterable[TopicPartition], timeout_ms: int) -> Call[Outcomes]:
    """Let the first replica of these partitions lead."""
    request = elect_leaders.ElectLeadersRequest(
        election_type=PREFERRED_ELECTION,
        topic_partitions=tuple(
            elect_leaders.TopicPartitions(
                topic=topic, partitions=tuple(at.partition for at in of_topic)
            )
            for topic, of_topic in by_topic(partitions).items()
        ),
        timeout_ms=timeout_ms,
    )

    def read(answer: elect_leaders.ElectLeadersResponse) -> Outcomes:
        raise_error(answer.error_code, None, "election")
        return {
            TopicPartition(topic.topic, one.partition_id): PartitionOutcome(
                one.error_code, one.error_message
            )
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }

    return Call(request, elect_leaders.ElectLeadersResponse, read)


def unregister(broker_id: int) -> Call[None]:
    """Let the cluster forget a broker that does not run."""
    request = unregister_broker.UnregisterBrokerRequest(broker_id=broker_id)

    def read(answer: unregister_broker.UnregisterBrokerResponse) -> None:
        raise_error(answer.error_code, answer.error_message, f"broker {broker_id}")

    return Call(request, unregister_broker.UnregisterBrokerResponse, read)
