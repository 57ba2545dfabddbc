"""ListConfigResources: the resources whose settings DescribeConfigs can show.

Every broker and every topic is listed, and the groups that have settings of their own, as in Kafka.
Client metrics have no settings here, and loggers have no levels that a client could change: these
kinds are not listed.
"""

from typing import Final

from penstock.broker.config_changes import RESOURCE_TYPES, ResourceType
from penstock.broker.context import RequestContext
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.security.acls.values import Operation

_TYPES_VERSION: Final = 1
"""The first version that knows more than client metrics."""


def handle(
    request: ListConfigResourcesRequest, context: RequestContext
) -> ListConfigResourcesResponse:
    """List the resources of the types that are asked for; all types when none is."""
    if not context.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, config_resources=()
        )
    if context.api_version < _TYPES_VERSION:
        return ListConfigResourcesResponse(config_resources=())
    wanted = frozenset(request.resource_types) or RESOURCE_TYPES
    if not wanted <= RESOURCE_TYPES:
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=()
        )
    image = context.services.metadata.image
    resources: list[ConfigResource] = []
    if ResourceType.BROKER in wanted:
        resources += (
            ConfigResource(resource_name=str(broker_id), resource_type=ResourceType.BROKER)
            for broker_id in image.brokers
        )
    if ResourceType.GROUP in wanted:
        resources += (
            ConfigResource(resource_name=name, resource_type=ResourceType.GROUP)
            for name in image.groups
        )
    if ResourceType.TOPIC in wanted:
        resources += (
            ConfigResource(resource_name=name, resource_type=ResourceType.TOPIC)
            for name in image.topics
        )
    return ListConfigResourcesResponse(config_resources=tuple(resources))
