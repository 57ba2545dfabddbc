"""DescribeClientQuotas: the quotas of every entity that matches a filter."""

from penstock.broker.context import RequestContext
from penstock.cluster.quota_changes import FilterPart, find_quotas
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from penstock.security.acls.values import Operation


def handle(
    request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    """Return all matching entities."""
    if not context.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, entries=None
        )
    parts = [
        FilterPart(component.entity_type, component.match_type, component.match)
        for component in request.components
    ]
    found = find_quotas(context.services.metadata.image, parts, strict=request.strict)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        entries=tuple(
            EntryData(
                entity=tuple(
                    EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts
                ),
                values=tuple(
                    ValueData(key=key, value=value) for key, value in image.quotas.items()
                ),
            )
            for entity, image in found
        ),
    )


def refuse(
    _request: DescribeClientQuotasRequest, code: ErrorCode, message: str
) -> DescribeClientQuotasResponse:
    """The answer without entities."""
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)
