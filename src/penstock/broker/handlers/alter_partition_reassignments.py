"""AlterPartitionReassignments: the only valid target is the broker that has the partition.

With one broker this changes nothing. All other targets are refused with Kafka's errors.
"""

from collections.abc import Callable
from functools import partial

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import Outcome, outcome_of
from penstock.cluster.image import MetadataImage
from penstock.cluster.topic_rules import check_replicas
from penstock.core.errors import (
    InvalidReplicaAssignmentError,
    PenstockError,
    UnknownTopicOrPartitionError,
)
from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.security.acls.values import Operation


def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Answer for each partition by itself; a client without ALTER gets one error for all."""
    image = context.services.metadata.image
    if context.allows_cluster(Operation.ALTER):
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_code=ErrorCode.NONE,
            responses=_answer(request, partial(_checked, image)),
        )
    return AlterPartitionReassignmentsResponse(
        error_code=CLUSTER_DENIED.code,
        error_message=CLUSTER_DENIED.message,
        responses=_answer(request, lambda _topic, _target: CLUSTER_DENIED),
    )


def _answer(
    request: AlterPartitionReassignmentsRequest,
    outcome_for: Callable[[str, ReassignablePartition], Outcome],
) -> tuple[ReassignableTopicResponse, ...]:
    return tuple(
        ReassignableTopicResponse(
            name=topic.name,
            partitions=tuple(
                _result(target.partition_index, outcome_for(topic.name, target))
                for target in topic.partitions
            ),
        )
        for topic in request.topics
    )


def _result(index: int, outcome: Outcome) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index, error_code=outcome.code, error_message=outcome.message
    )


def _checked(image: MetadataImage, topic: str, target: ReassignablePartition) -> Outcome:
    try:
        return Outcome(_check(image, topic, target), None)
    except PenstockError as error:
        return outcome_of(error)


def _check(image: MetadataImage, topic: str, target: ReassignablePartition) -> ErrorCode:
    if image.topic(topic) is None:
        # Bounded, because it is repeated for each partition.
        shown = topic[:TOPIC_NAME_CHARACTERS_MAX]
        raise UnknownTopicOrPartitionError(f"Unable to find a topic named {shown}.")
    partition = image.partition(topic, target.partition_index)
    if partition is None:
        raise UnknownTopicOrPartitionError(
            f"Unable to find partition {topic}:{target.partition_index}."
        )
    if target.replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    check_replicas(target.replicas, None, image.brokers)
    if target.replicas != partition.replicas:
        raise InvalidReplicaAssignmentError(
            "Penstock cannot move a partition to another broker yet."
        )
    return ErrorCode.NONE
