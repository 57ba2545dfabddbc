"""AlterConfigs: replaces the settings of a resource; unnamed settings get their defaults."""

from penstock.broker.config_changes import AskedChange, Edit, change_configs
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import Outcome
from penstock.broker.pacing.slices import map_in_slices
from penstock.cluster.configs.setting_changes import EditKind
from penstock.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(request: AlterConfigsRequest, context: RequestContext) -> AlterConfigsResponse:
    """Change each resource or refuse it by itself; a resource changes whole or not at all."""
    services = context.services
    asked = await map_in_slices(_asked, request.resources, services.turns, services.clock)
    outcomes = await change_configs(context, asked, validate_only=request.validate_only)
    pairs = tuple(zip(asked, outcomes, strict=True))
    responses = await map_in_slices(_response, pairs, services.turns, services.clock)
    return AlterConfigsResponse(responses=tuple(responses))


def _asked(resource: AlterConfigsResource) -> AskedChange:
    return AskedChange(
        resource.resource_type,
        resource.resource_name,
        tuple(Edit(config.name, EditKind.SET, config.value) for config in resource.configs),
        replaces_all=True,
    )


def _response(answered: tuple[AskedChange, Outcome]) -> AlterConfigsResourceResponse:
    one, outcome = answered
    return AlterConfigsResourceResponse(
        error_code=outcome.code,
        error_message=outcome.message,
        resource_type=one.resource_type,
        resource_name=one.resource_name,
    )
