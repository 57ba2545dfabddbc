"""DescribeGroups: the state and the members of classic groups, each group once."""

from dataclasses import replace

from penstock.broker.authorized_operations import GROUP_OPERATIONS
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_groups
from penstock.broker.pacing.slices import NextTurn
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.security.acls.values import Operation, ResourceType


async def handle(request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    """Ask the coordinator of each group."""
    group_ids = tuple(dict.fromkeys(request.groups))
    results = await ask_groups(
        context,
        ((group_id, replace(request, groups=(group_id,))) for group_id in group_ids),
        DescribeGroupsResponse,
        needs=Operation.DESCRIBE,
    )
    groups = []
    turn = NextTurn(context.services.turns, context.services.clock)
    for group_id, result in zip(group_ids, results, strict=True):
        await turn.wait_if_due()
        group = _refused(group_id, result) if isinstance(result, ErrorCode) else result.groups[0]
        if request.include_authorized_operations and group.error_code is ErrorCode.NONE:
            bits = context.operations(ResourceType.GROUP, group_id, GROUP_OPERATIONS)
            group = replace(group, authorized_operations=bits)
        groups.append(group)
    return DescribeGroupsResponse(groups=tuple(groups))


def _refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=(),
    )
