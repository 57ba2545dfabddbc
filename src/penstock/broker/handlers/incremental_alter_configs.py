"""IncrementalAlterConfigs: single settings are set, deleted, or have items added and taken away."""

from penstock.broker.config_changes import AskedChange, Edit, change_configs
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, message_of
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change each resource or refuse it by itself; a resource changes whole or not at all."""
    asked = [
        AskedChange(
            resource.resource_type,
            resource.resource_name,
            tuple(
                Edit(config.name, config.config_operation, config.value)
                for config in resource.configs
            ),
            replaces_all=False,
        )
        for resource in request.resources
    ]
    outcomes = await change_configs(context, asked, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=ErrorCode.NONE if outcome is None else code_of(outcome),
                error_message=None if outcome is None else message_of(outcome),
                resource_type=one.resource_type,
                resource_name=one.resource_name,
            )
            for one, outcome in zip(asked, outcomes, strict=True)
        )
    )
