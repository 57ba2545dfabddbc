"""DeleteGroups: deletes groups without members, with all their offsets."""

from dataclasses import replace

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_groups
from penstock.broker.pacing.slices import map_in_slices
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from penstock.security.acls.values import Operation


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Ask the coordinator of each group, each once."""
    group_ids = tuple(dict.fromkeys(request.groups_names))
    results = await ask_groups(
        context,
        ((group_id, replace(request, groups_names=(group_id,))) for group_id in group_ids),
        DeleteGroupsResponse,
        needs=Operation.DELETE,
    )
    services = context.services
    pairs = tuple(zip(group_ids, results, strict=True))
    answers = await map_in_slices(_result, pairs, services.turns, services.clock)
    return DeleteGroupsResponse(results=tuple(answers))


def _result(answered: tuple[str, DeleteGroupsResponse | ErrorCode]) -> DeletableGroupResult:
    group_id, result = answered
    if isinstance(result, ErrorCode):
        return DeletableGroupResult(group_id=group_id, error_code=result)
    return result.results[0]
