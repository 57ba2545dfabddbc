"""ConsumerGroupDescribe: the state and the members of consumer groups (KIP-848).

As in Kafka, a group is described only to a client that may describe every topic that its members
have or shall have.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.broker.authorized_operations import GROUP_OPERATIONS
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_groups
from penstock.broker.pacing.slices import NextTurn
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
)
from penstock.security.acls.values import Operation, ResourceType

_HAS_HIDDEN_TOPICS: Final = "The client is not authorized to describe all topics of the group."


async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    """Ask the coordinator of each group."""
    group_ids = tuple(dict.fromkeys(request.group_ids))
    results = await ask_groups(
        context,
        ((group_id, replace(request, group_ids=(group_id,))) for group_id in group_ids if group_id),
        ConsumerGroupDescribeResponse,
        needs=Operation.DESCRIBE,
    )
    answers = iter(results)
    groups = []
    view = None if context.services.access is None else _TopicsView(context)
    turn = NextTurn(context.services.turns, context.services.clock)
    for group_id in group_ids:
        await turn.wait_if_due()
        result = next(answers) if group_id else _without_id(context)
        group = _refused(group_id, result) if isinstance(result, ErrorCode) else result.groups[0]
        if request.include_authorized_operations and group.error_code is ErrorCode.NONE:
            bits = context.operations(ResourceType.GROUP, group_id, GROUP_OPERATIONS)
            group = replace(group, authorized_operations=bits)
        if view is not None and not await view.shows_all(group.members, turn):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group = replace(_refused(group_id, code), error_message=_HAS_HIDDEN_TOPICS)
        groups.append(group)
    return ConsumerGroupDescribeResponse(groups=tuple(groups))


class _TopicsView:
    """The topics that the client may describe; each is checked once."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._is_shown: dict[str, bool] = {}

    async def shows_all(self, members: tuple[Member, ...], turn: NextTurn) -> bool:
        """Whether the client may describe all topics of these members."""
        for member in members:
            await turn.wait_if_due()
            if not all(map(self._shows, _topics(member))):
                return False
        return True

    def _shows(self, name: str) -> bool:
        is_shown = self._is_shown.get(name)
        if is_shown is None:
            is_shown = self._context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)
            self._is_shown[name] = is_shown
        return is_shown


def _topics(member: Member) -> Iterator[str]:
    for assignment in (member.assignment, member.target_assignment):
        for topic in assignment.topic_partitions:
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
