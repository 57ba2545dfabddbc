"""DescribeAcls: the access rules that match a filter, those of a rules file too."""

from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import Outcome
from penstock.broker.pacing.slices import in_slices, map_in_slices
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from penstock.security.acls.filters import AclFilter, read_filter
from penstock.security.acls.values import AclBinding, Operation, PatternType, ResourceType

_Resource = tuple[ResourceType, str, PatternType]

_NO_AUTHORIZER: Final = Outcome(
    ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker"
)


async def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Return the matching rules by resource; a filter with an unknown value matches none."""
    services = context.services
    if not context.allows_cluster(Operation.DESCRIBE):
        return refuse(request, *CLUSTER_DENIED)
    if services.access is None:
        return refuse(request, *_NO_AUTHORIZER)
    assert services.acls is not None
    condition = _filter(request)
    found: dict[_Resource, list[AclDescription]] = {}
    async for few in in_slices(services.acls.rules(), services.turns, services.clock):
        for acl in few:
            if condition.matches(acl):
                found.setdefault(acl[:3], []).append(_description(acl))
    resources = await map_in_slices(_resource, tuple(found.items()), services.turns, services.clock)
    # Kafka answers a success with an empty text, not with none.
    return DescribeAclsResponse(error_message="", resources=tuple(resources))


def _filter(request: DescribeAclsRequest) -> AclFilter:
    return read_filter(
        resource_type=request.resource_type_filter,
        name=request.resource_name_filter,
        pattern_type=request.pattern_type_filter,
        principal=request.principal_filter,
        host=request.host_filter,
        operation=request.operation,
        permission=request.permission_type,
    )


def _description(acl: AclBinding) -> AclDescription:
    return AclDescription(
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _resource(found: tuple[_Resource, list[AclDescription]]) -> DescribeAclsResource:
    (resource_type, name, pattern_type), acls = found
    return DescribeAclsResource(
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        acls=tuple(acls),
    )


def refuse(
    _request: DescribeAclsRequest, code: ErrorCode, message: str | None
) -> DescribeAclsResponse:
    """The answer without rules."""
    return DescribeAclsResponse(error_code=code, error_message=message, resources=())
