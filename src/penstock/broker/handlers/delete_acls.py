"""DeleteAcls: the access rules that filters match are deleted, all of them or none."""

from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import Outcome, outcome_of
from penstock.broker.pacing.slices import in_slices, map_in_slices
from penstock.broker.ports import AclDeletion
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from penstock.security.acls.filters import AclFilter, read_filter
from penstock.security.acls.values import AclBinding, Operation
from penstock.security.audit import rule_values

_NO_AUTHORIZER: Final = Outcome(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


async def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Return the rules of each filter; a rule of a rules file stays in force, with an error."""
    services = context.services
    if not context.allows_cluster(Operation.ALTER):
        return refuse(request, *CLUSTER_DENIED)
    if services.access is None:
        return refuse(request, *_NO_AUTHORIZER)
    assert services.acls is not None
    filters = await map_in_slices(_filter, request.filters, services.turns, services.clock)
    results, deleted = [], list[AclBinding]()
    for found in await services.acls.delete(filters):
        if isinstance(found, PenstockError):
            code, message = outcome_of(found)
            results.append(_refused(code, message))
            continue
        matching: list[DeleteAclsMatchingAcl] = []
        async for few in in_slices(found, services.turns, services.clock):
            matching += [_matching(one) for one in few]
            deleted += [one.acl for one in few if one.problem is None]
        results.append(DeleteAclsFilterResult(matching_acls=tuple(matching)))
    context.record_changes(deleted, rule_values)
    return DeleteAclsResponse(filter_results=tuple(results))


def _filter(asked: DeleteAclsFilter) -> AclFilter:
    return read_filter(
        resource_type=asked.resource_type_filter,
        name=asked.resource_name_filter,
        pattern_type=asked.pattern_type_filter,
        principal=asked.principal_filter,
        host=asked.host_filter,
        operation=asked.operation,
        permission=asked.permission_type,
    )


def _matching(deletion: AclDeletion) -> DeleteAclsMatchingAcl:
    code, message = outcome_of(deletion.problem)
    acl = deletion.acl
    return DeleteAclsMatchingAcl(
        error_code=code,
        error_message=message,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _refused(code: ErrorCode, message: str | None) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=())


def refuse(request: DeleteAclsRequest, code: ErrorCode, message: str | None) -> DeleteAclsResponse:
    """The answer that refuses each filter."""
    return DeleteAclsResponse(filter_results=(_refused(code, message),) * len(request.filters))
