"""`GroupAdministration`: ListGroups and DescribeGroups for the groups of a shard.

A request reaches a shard with the shard's own group ids only; the handler that split it merges the
answers. Authorized operations are NOT filled in here: the handler knows the client.
"""

from typing import Final

from penstock.coordinator.groups.classic.members import describe
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.groups.state.group_state import Group, GroupState
from penstock.coordinator.shard import Asked, Ticket
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from penstock.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

GROUP_ID_NOT_FOUND_SINCE: Final = 6
"""From this version of DescribeGroups a missing group is an error; before, it was a dead group."""


class GroupAdministration:
    """The requests of administrators."""

    def __init__(self, state: GroupState) -> None:
        self._state = state

    def list_groups(self, request: ListGroupsRequest, ticket: Ticket, reaction: Reaction) -> None:
        """All groups that match the filters; an empty filter matches everything."""
        states = {state.strip().lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        everybody: tuple[Group, ...] = (
            *self._state.classic.values(),
            *self._state.consumer.values(),
            *self._state.share.values(),
        )
        listed = tuple(
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.listed_protocol_type,
                group_state=group.state_name,
                group_type=group.type_name,
            )
            for group in everybody
            if (not states or group.state_name.lower() in states)
            and (not types or group.type_name.lower() in types)
        )
        reaction.reply(ticket, ListGroupsResponse(groups=listed))

    def describe_groups(
        self, request: DescribeGroupsRequest, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Each group by name; one that is not classic is not found here, as in Kafka."""
        groups = tuple(self._describe(group_id, asked.api_version) for group_id in request.groups)
        reaction.reply(ticket, DescribeGroupsResponse(groups=groups))

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self._state.find(group_id)
        if isinstance(group, ClassicGroup):
            return describe(group)
        if group_id == "":
            return _undescribed("", "", ErrorCode.INVALID_GROUP_ID, None)
        if api_version < GROUP_ID_NOT_FOUND_SINCE:
            return _undescribed(group_id, ClassicState.DEAD.value, ErrorCode.NONE, None)
        why = "not found." if group is None else "is not a classic group."
        error = ErrorCode.GROUP_ID_NOT_FOUND
        return _undescribed(group_id, ClassicState.DEAD.value, error, f"Group {group_id} {why}")


def _undescribed(
    group_id: str, state: str, error: ErrorCode, error_message: str | None
) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=error_message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
    )
