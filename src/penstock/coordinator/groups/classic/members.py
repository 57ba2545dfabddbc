"""`ClassicMembers`: SyncGroup, Heartbeat and LeaveGroup for classic groups; and describing one.

Each checks the member (a static one must be the latest of its instance), its generation, then the
state of the group. It does NOT know consumer groups (KIP-848).
"""

from penstock.coordinator.groups.classic.rebalance import (
    Rebalances,
    heartbeat_key,
    sync_error,
    sync_response,
)
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.shard import Ticket
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest


class ClassicMembers:
    """The requests of members that have joined."""

    def __init__(self, state: GroupState, rebalances: Rebalances) -> None:
        self._state = state
        self._rebalances = rebalances

    def sync(self, request: SyncGroupRequest, ticket: Ticket, reaction: Reaction) -> None:
        """Answer with the assignment, or wait for the leader's SyncGroup."""
        group = self._state.classic.get(request.group_id)
        error = _sync_error_of(group, request)
        if group is None or error is not ErrorCode.NONE:
            reaction.reply(ticket, sync_error(error))
            return
        member = group.members[request.member_id]
        if group.state is ClassicState.STABLE:
            self._rebalances.has_synced(group, member, reaction)
            reaction.reply(ticket, sync_response(group, member))
            return
        self._rebalances.wait_for_sync(group, member, ticket, reaction)
        if group.leader_id == member.member_id:
            assignments = {given.member_id: given.assignment for given in request.assignments}
            self._rebalances.assign(group, assignments, reaction)

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, reaction: Reaction) -> None:
        """Prolong the session; the answer says whether the member must rejoin."""
        error = ErrorCode.UNKNOWN_MEMBER_ID
        group = self._state.classic.get(request.group_id)
        if group is not None:
            error = group.check_member(request.member_id, request.group_instance_id)
            if error is ErrorCode.NONE and request.generation_id != group.generation_id:
                error = ErrorCode.ILLEGAL_GENERATION
            if error is ErrorCode.NONE:
                member = group.members[request.member_id]
                self._rebalances.expect_heartbeat(group, member, reaction)
                if group.state is ClassicState.PREPARING_REBALANCE:
                    error = ErrorCode.REBALANCE_IN_PROGRESS
        reaction.reply(ticket, HeartbeatResponse(error_code=error))

    def leave(self, request: LeaveGroupRequest, ticket: Ticket, reaction: Reaction) -> None:
        """Remove members, each with its own result, then rebalance once."""
        group = self._state.classic.get(request.group_id)
        if group is None:
            reaction.reply(ticket, nobody_leaves(request))
            return
        responses = tuple(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=self._leave_one(group, identity, reaction),
            )
            for identity in request.members
        )
        reaction.reply(ticket, LeaveGroupResponse(members=responses))
        if any(response.error_code is ErrorCode.NONE for response in responses):
            if group.state in {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE}:
                self._rebalances.prepare(group, reaction)
            else:
                self._rebalances.complete_if_all_joined(group, reaction)

    def _leave_one(
        self, group: ClassicGroup, identity: MemberIdentity, reaction: Reaction
    ) -> ErrorCode:
        member_id = identity.member_id
        if member_id == "":
            # An administrator removes an instance without knowing its member id.
            member_id = group.static_members.get(identity.group_instance_id or "", "")
            if member_id == "":
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_joins:
            group.remove(member_id)
            reaction.cancel_timer(heartbeat_key(group.group_id, member_id))
            return ErrorCode.NONE
        else:
            error = group.check_member(member_id, identity.group_instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._rebalances.remove_member(group, group.members[member_id], reaction)
        return ErrorCode.NONE


def nobody_leaves(request: LeaveGroupRequest) -> LeaveGroupResponse:
    """The answer for a group that does not exist: no named member is a member."""
    responses = tuple(
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=ErrorCode.UNKNOWN_MEMBER_ID,
        )
        for identity in request.members
    )
    return LeaveGroupResponse(members=responses)


def _sync_error_of(group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode:
    """Why a SyncGroup cannot be accepted now."""
    if group is None or group.state is ClassicState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    for said, actual in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if said is not None and actual is not None and said != actual:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def describe(group: ClassicGroup) -> DescribedGroup:
    """The group as DescribeGroups shows it; metadata and protocol only of a stable one."""
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata_of(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )
