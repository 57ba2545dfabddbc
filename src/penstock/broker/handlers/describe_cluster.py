"""DescribeCluster: the registered brokers, and the client's authorized operations."""

from typing import Final

from penstock.broker.advertised import controller_id, reachable_brokers
from penstock.broker.authorized_operations import NOT_ASKED, cluster_operations
from penstock.broker.context import RequestContext
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Name the cluster, its brokers and its controller."""
    image = context.services.metadata.image
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if known
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of the wrong type."
            if known
            else f"Unsupported endpoint type {request.endpoint_type}",
            cluster_id=image.cluster_id,
            brokers=(),
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=image.cluster_id,
        controller_id=controller_id(image, context.services.node_id),
        brokers=tuple(
            DescribeClusterBroker(broker_id=broker.id, host=at.host, port=at.port, rack=broker.rack)
            for broker, at in reachable_brokers(image, context.peer)
        ),
        cluster_authorized_operations=cluster_operations(context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )
