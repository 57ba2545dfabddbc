"""ListPartitionReassignments: partitions do not move here, so the list is always empty."""

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from penstock.security.acls.values import Operation


def handle(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """No reassignment is in progress; topics that do not exist are passed over, as in Kafka."""
    if not context.allows_cluster(Operation.DESCRIBE):
        return _denied(request)
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=())


def _denied(request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """As Kafka answers: with the partitions of the request, and nothing about them."""
    return ListPartitionReassignmentsResponse(
        error_code=CLUSTER_DENIED.code,
        error_message=CLUSTER_DENIED.message,
        topics=tuple(
            OngoingTopicReassignment(
                name=topic.name,
                partitions=tuple(
                    OngoingPartitionReassignment(partition_index=index)
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.topics or ()
        ),
    )
