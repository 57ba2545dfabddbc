"""ShareGroupDescribe: the state and the members of share groups (KIP-932).

As in Kafka, a group is described only to a client that may describe every topic that its members
have.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.broker.authorized_operations import GROUP_OPERATIONS
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_groups
from penstock.broker.pacing.slices import NextTurn
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from penstock.security.acls.values import Operation, ResourceType

_HAS_HIDDEN_TOPICS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)


async def handle(
    request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Ask the coordinator of each group."""
    group_ids = tuple(dict.fromkeys(request.group_ids))
    if context.services.shares is None:
        unsupported = (_refused(one, ErrorCode.UNSUPPORTED_VERSION) for one in group_ids)
        return ShareGroupDescribeResponse(groups=tuple(unsupported))
    results = await ask_groups(
        context,
        ((group_id, replace(request, group_ids=(group_id,))) for group_id in group_ids if group_id),
        ShareGroupDescribeResponse,
        needs=Operation.DESCRIBE,
    )
    answers = iter(results)
    groups = []
    shown: dict[str, bool] = {}
    turn = NextTurn(context.services.turns, context.services.clock)
    for group_id in group_ids:
        await turn.wait_if_due()
        result = next(answers) if group_id else _without_id(context)
        group = _refused(group_id, result) if isinstance(result, ErrorCode) else result.groups[0]
        if request.include_authorized_operations and group.error_code is ErrorCode.NONE:
            bits = context.operations(ResourceType.GROUP, group_id, GROUP_OPERATIONS)
            group = replace(group, authorized_operations=bits)
        for name in _topics(group.members):
            if name not in shown:
                await turn.wait_if_due()
                shown[name] = context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
            if not shown[name]:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                group = replace(_refused(group_id, code), error_message=_HAS_HIDDEN_TOPICS)
                break
        groups.append(group)
    return ShareGroupDescribeResponse(groups=tuple(groups))


def _topics(members: tuple[Member, ...]) -> Iterator[str]:
    for member in members:
        for topic in member.assignment.topic_partitions:
            yield topic.topic_name


def _without_id(context: RequestContext) -> ErrorCode:
    is_allowed = context.allows(Operation.DESCRIBE, ResourceType.GROUP, "")
    return ErrorCode.INVALID_GROUP_ID if is_allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED


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
