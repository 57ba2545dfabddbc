"""AlterPartitionReassignments: the only valid target is the broker that has the partition.

With one broker this changes nothing. All other targets are refused with Kafka's errors.
"""

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import outcome_of
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


def handle(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    """Answer for each partition by itself."""
    image = context.services.metadata.image
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    _result(image, topic.name, partition) for partition in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _result(
    image: MetadataImage, topic: str, target: ReassignablePartition
) -> ReassignablePartitionResponse:
    message: str | None = None
    try:
        code = _check(image, topic, target)
    except PenstockError as error:
        code, message = outcome_of(error)
    return ReassignablePartitionResponse(
        partition_index=target.partition_index, error_code=code, error_message=message
    )


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
