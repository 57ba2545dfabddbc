"""CreateAcls: access rules are stored; they are in force when the answer is sent."""

from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.denials import CLUSTER_DENIED
from penstock.broker.error_mapping import Outcome, outcome_of
from penstock.broker.pacing.slices import map_in_slices
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from penstock.security.acls.filters import read_binding
from penstock.security.acls.values import AclBinding, Operation
from penstock.security.audit import rule_values

_NO_AUTHORIZER: Final = Outcome(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


async def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Each rule is stored or refused by itself; a rule that exists already is a success."""
    services = context.services
    if not context.allows_cluster(Operation.ALTER):
        return refuse(request, *CLUSTER_DENIED)
    if services.access is None:
        return refuse(request, *_NO_AUTHORIZER)
    assert services.acls is not None
    wanted = await map_in_slices(_rule, request.creations, services.turns, services.clock)
    outcomes = await services.acls.create(wanted)
    stored = [rule for rule, error in zip(wanted, outcomes, strict=True) if error is None]
    context.record_changes(stored, rule_values)
    results = await map_in_slices(_result, outcomes, services.turns, services.clock)
    return CreateAclsResponse(results=tuple(results))


def _rule(asked: AclCreation) -> AclBinding:
    return read_binding(
        resource_type=asked.resource_type,
        name=asked.resource_name,
        pattern_type=asked.resource_pattern_type,
        principal=asked.principal,
        host=asked.host,
        operation=asked.operation,
        permission=asked.permission_type,
    )


def _result(error: PenstockError | None) -> AclCreationResult:
    code, message = outcome_of(error)
    # Kafka answers a success with an empty text, not with none.
    return AclCreationResult(error_code=code, error_message=message or "")


def refuse(request: CreateAclsRequest, code: ErrorCode, message: str | None) -> CreateAclsResponse:
    """The answer that refuses each rule."""
    refused = AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=(refused,) * len(request.creations))
