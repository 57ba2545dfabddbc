"""ConsumerGroupDescribe: the state and the members of consumer groups (KIP-848)."""

from dataclasses import replace

from penstock.broker.authorized_operations import GROUP_OPERATIONS
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_groups
from penstock.broker.pacing.slices import NextTurn
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Ask the coordinator of each group."""
    group_ids = tuple(dict.fromkeys(request.group_ids))
    results = await ask_groups(
        context,
        ((group_id, replace(request, group_ids=(group_id,))) for group_id in group_ids if group_id),
        ConsumerGroupDescribeResponse,
    )
    answers = iter(results)
    groups = []
    turn = NextTurn(context.services.turns, context.services.clock)
    for group_id in group_ids:
        await turn.wait_if_due()
        result = next(answers) if group_id else ErrorCode.INVALID_GROUP_ID
        group = _refused(group_id, result) if isinstance(result, ErrorCode) else result.groups[0]
        if request.include_authorized_operations and group.error_code is ErrorCode.NONE:
            group = replace(group, authorized_operations=GROUP_OPERATIONS)
        groups.append(group)
    return ConsumerGroupDescribeResponse(groups=tuple(groups))


def _refused(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
    )
