"""Changing and reading settings over a connection, for the tests of both ways to change them."""

from penstock.protocol.messages import alter_configs, describe_configs, incremental_alter_configs
from penstock.protocol.messages.alter_configs import AlterConfigsResourceResponse as Altered
from penstock.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse as Incremented,
)
from tests.broker.handlers.asker import Asker

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
OWN_SOURCES = {TOPIC: 1, GROUP: 8}
"""What DescribeConfigs says of a value that the resource itself overrides."""
Edit = tuple[str, int, str | None]


def increment_request(
    *resources: tuple[int, str, tuple[Edit, ...]], validate_only: bool = False
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    """One request that edits settings of resources: type, name, edits."""
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=tuple(
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=tuple(
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in edits
                ),
            )
            for kind, name, edits in resources
        ),
        validate_only=validate_only,
    )


def increment(
    asker: Asker, kind: int, name: str, *edits: Edit, validate_only: bool = False
) -> Incremented:
    """Edit settings of one resource."""
    request = increment_request((kind, name, edits), validate_only=validate_only)
    answer = asker.ask(request, 1, incremental_alter_configs.IncrementalAlterConfigsResponse)
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def alter_request(
    *resources: tuple[int, str, tuple[tuple[str, str | None], ...]], validate_only: bool = False
) -> alter_configs.AlterConfigsRequest:
    """One request that replaces the settings of resources: type, name, settings."""
    return alter_configs.AlterConfigsRequest(
        resources=tuple(
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=tuple(
                    alter_configs.AlterableConfig(name=key, value=value) for key, value in settings
                ),
            )
            for kind, name, settings in resources
        ),
        validate_only=validate_only,
    )


def alter(
    asker: Asker,
    kind: int,
    name: str,
    *settings: tuple[str, str | None],
    validate_only: bool = False,
) -> Altered:
    """Replace the settings of one resource."""
    request = alter_request((kind, name, settings), validate_only=validate_only)
    (result,) = asker.ask(request, 2, alter_configs.AlterConfigsResponse).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def overrides(asker: Asker, name: str, kind: int = TOPIC) -> dict[str, str | None]:
    """The settings of a topic or group whose source is the topic or group itself."""
    resource = describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(resources=(resource,))
    (result,) = asker.ask(request, 4, describe_configs.DescribeConfigsResponse).results
    own_source = OWN_SOURCES[kind]
    return {
        config.name: config.value for config in result.configs if config.config_source == own_source
    }
