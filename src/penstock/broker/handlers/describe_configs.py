"""DescribeConfigs: every setting of a topic, a group or this broker, with source and meaning."""

import asyncio
from collections.abc import Iterable
from typing import Final

from penstock.broker.config_changes import RESOURCE_TYPES, ResourceType, denied_access
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import Outcome, outcome_of
from penstock.cluster.configs.broker_configs import describe_broker, describe_shared
from penstock.cluster.configs.described_configs import DescribedConfig, describe_topic
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
from penstock.security.acls.values import Operation

RESOURCES_AT_ONCE: Final = 20
"""Resources described before other connections get a turn: about 5 ms of work. One request may name
thousands of topics."""


async def handle(
    request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    """Describe each resource, once: its description is hundreds of times longer than its name."""
    results: list[DescribeConfigsResult] = []
    for number, resource in enumerate(dict.fromkeys(request.resources), 1):
        results.append(_result(resource, request, context))
        if number % RESOURCES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return DescribeConfigsResponse(results=tuple(results))


def _result(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResult:
    kind, name = resource.resource_type, resource.resource_name
    if kind in RESOURCE_TYPES:
        denied = denied_access(kind, name, Operation.DESCRIBE_CONFIGS, context)
        if denied is not None:
            return _refused(resource, denied)
    try:
        configs = _configs(resource, context)
    except PenstockError as error:
        return _refused(resource, outcome_of(error))
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


def _refused(resource: DescribeConfigsResource, outcome: Outcome) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=(),
    )


def _configs(
    resource: DescribeConfigsResource, context: RequestContext
) -> Iterable[DescribedConfig]:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _of_topic(name, context)
        case ResourceType.GROUP:
            if name == "":
                raise InvalidRequestError("Group name must not be empty")
            return context.services.groups.describe_settings(name)
        case ResourceType.BROKER if name == "":
            return describe_shared(context.services.brokers.layers)
        case ResourceType.BROKER:
            _check_node_id(name, f"{context.services.node_id} or empty string,", context)
            return describe_broker(context.services.brokers.layers)
        case ResourceType.BROKER_LOGGER:
            # No logger has a level that a client could change.
            _check_node_id(name, str(context.services.node_id), context)
            return ()
        case ResourceType.CLIENT_METRICS:
            if name == "":
                raise InvalidRequestError("Client metrics subscription name must not be empty")
            return ()
    raise InvalidRequestError(f"Unsupported resource type: {resource.resource_type}")


def _of_topic(name: str, context: RequestContext) -> Iterable[DescribedConfig]:
    topic = context.services.metadata.image.topic(name)
    if topic is None:
        check_topic_name(name)
        raise UnknownTopicOrPartitionError("This server does not host this topic.")
    return describe_topic(topic.settings, context.services.brokers.layers)


def _check_node_id(name: str, expected: str, context: RequestContext) -> None:
    if name != str(context.services.node_id):
        raise InvalidRequestError(
            f"Unexpected broker id, expected {expected} but received {name[:64]}"
        )


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
