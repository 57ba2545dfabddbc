"""ListPartitionReassignments: partitions do not move here, so the list is always empty."""

from penstock.broker.context import RequestContext
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    _request: ListPartitionReassignmentsRequest, _context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """No reassignment is in progress; topics that do not exist are passed over, as in Kafka."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=())
