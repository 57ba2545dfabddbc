"""DescribeConfigs: every setting of a topic, a group or this broker, with source and meaning."""

from collections.abc import Iterable

from penstock.broker.config_changes import ResourceType
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, message_of
from penstock.cluster.broker_configs import describe_broker, describe_shared
from penstock.cluster.described_configs import DescribedConfig, describe_topic
from penstock.cluster.topic_rules import check_topic_name
from penstock.core.errors import (
    InvalidRequestError,
    PenstockError,
    UnknownTopicOrPartitionError,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


def handle(request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
    """Describe each resource, once: its description is hundreds of times longer than its name."""
    resources = dict.fromkeys(request.resources)
    return DescribeConfigsResponse(
        results=tuple(_result(resource, request, context) for resource in resources)
    )


def _result(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    try:
        configs = _configs(resource, context)
    except PenstockError as error:
        return DescribeConfigsResult(
            error_code=code_of(error),
            error_message=message_of(error),
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=(),
        )
    wanted = frozenset(resource.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            _config(config, request)
            for config in configs
            if not wanted or config.config.name in wanted
        ),
    )


def _configs(
    resource: DescribeConfigsResource, context: RequestContext
) -> Iterable[DescribedConfig]:
    services = context.services
    if resource.resource_type == ResourceType.TOPIC:
        topic = services.metadata.image.topic(resource.resource_name)
        if topic is None:
            check_topic_name(resource.resource_name)
            raise UnknownTopicOrPartitionError("This server does not host this topic.")
        return describe_topic(topic.settings, services.brokers.layers)
    if resource.resource_type == ResourceType.GROUP:
        if resource.resource_name == "":
            raise InvalidRequestError("Group name must not be empty")
        return services.groups.describe_settings(resource.resource_name)
    if resource.resource_type == ResourceType.BROKER:
        if resource.resource_name == "":
            return describe_shared(services.brokers.layers)
        if resource.resource_name != str(services.node_id):
            raise InvalidRequestError(
                f"Unexpected broker id, expected {services.node_id} or empty string, "
                f"but received {resource.resource_name[:64]}"
            )
        return describe_broker(services.brokers.layers)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        if resource.resource_name != str(services.node_id):
            raise InvalidRequestError(
                f"Unexpected broker id, expected {services.node_id} but received "
                f"{resource.resource_name[:64]}"
            )
        return ()
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if resource.resource_name == "":
            raise InvalidRequestError("Client metrics subscription name must not be empty")
        return ()
    raise InvalidRequestError(f"Unsupported resource type: {resource.resource_type}")


def _config(
    described: DescribedConfig, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    config = described.config
    return DescribeConfigsResourceResult(
        name=config.name,
        value=described.value,
        read_only=described.is_read_only,
        config_source=described.source,
        is_sensitive=config.sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source)
            for s in described.synonyms
        )
        if request.include_synonyms
        else (),
        config_type=config.type,
        documentation=config.documentation if request.include_documentation else None,
    )
