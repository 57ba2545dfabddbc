"""DeleteShareGroupState: a broker deletes the delivery state of share-partitions.

Each share-partition has its own share coordinator; the answer is sent when each of them on this
broker has answered. An API between brokers: it needs CLUSTER_ACTION on the cluster.
"""

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.shares.share_state_requests import ask_coordinators
from penstock.core.deferred import Deferred
from penstock.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
)


def handle(request: DeleteShareGroupStateRequest, context: RequestContext) -> Deferred[Answer]:
    """Ask the coordinator of each share-partition."""
    return ask_coordinators(request, DeleteShareGroupStateResponse, context)
