"""`ClassicJoin`: JoinGroup for classic groups, with Kafka's checks in Kafka's order.

A new dynamic member first gets its id (MEMBER_ID_REQUIRED, from version 4) and must join again; a
static one replaces the member that had its instance id. A current member gets the current
generation again if nothing changed, and starts a rebalance otherwise. It does NOT know consumer
groups (KIP-848): `shard` sends their JoinGroup requests elsewhere.
"""

from typing import Final

from penstock.coordinator.groups.classic.rebalance import (
    Rebalances,
    heartbeat_key,
    join_error,
    join_response,
)
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.classic_group import (
    ClassicGroup,
    ClassicState,
    metadata_bytes,
)
from penstock.coordinator.groups.state.classic_member import ClassicMember
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.shard import Asked, Ticket
from penstock.core.limits import (
    GROUP_METADATA_BYTES_MAX,
    GROUPS_METADATA_BYTES_MAX,
    SMALL_MEMBER_BYTES_MAX,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.stored.group_records import GroupMetadataKey, GroupMetadataValue

KNOWN_MEMBER_ID_SINCE: Final = 4
"""From this version a client gets its id before it can join."""
MEMBER_ID_PREFIX_BYTES_MAX: Final = 32_000
"""Of the client's name in a member id. A string of a record has at most 32,767 bytes, and the name
may be that long: the whole id would not fit, and the group could not be written."""
SKIP_ASSIGNMENT_SINCE: Final = 9
"""Starting at this version an answer can make a restarted static leader keep the assignment."""


class ClassicJoin:
    """The first half of the classic protocol."""

    def __init__(self, state: GroupState, rebalances: Rebalances) -> None:
        self._state = state
        self._rebalances = rebalances

    def handle(
        self, request: JoinGroupRequest, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Answer at once, or let the request wait for the other members."""
        settings = self._state.settings
        timeout_ms = request.session_timeout_ms
        if request.group_id == "":
            error = ErrorCode.INVALID_GROUP_ID
            reaction.reply(ticket, join_error(request.member_id, error))
            return
        if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            error = ErrorCode.INVALID_SESSION_TIMEOUT
            reaction.reply(ticket, join_error(request.member_id, error))
            return
        group = self._state.classic.get(request.group_id)
        is_new_group = group is None
        if group is None:
            if request.member_id != "":
                error = ErrorCode.UNKNOWN_MEMBER_ID
                reaction.reply(ticket, join_error(request.member_id, error))
                return
            group = ClassicGroup(request.group_id, reaction.now_ms)
            self._state.keep_classic(group)
        count = reaction.record_count
        self._join(group, request, asked, ticket, reaction)
        if is_new_group:
            reaction.when_refused(lambda _: self._forget_new(group))
        if is_new_group and reaction.record_count == count:
            # Kafka writes a new group at once, although it has no generation yet.
            value = GroupMetadataValue(
                protocol_type="",
                generation=0,
                protocol=None,
                leader=None,
                current_state_timestamp=reaction.now_ms,
                members=(),
            )
            reaction.write(GroupMetadataKey(group=group.group_id), value)

    def _forget_new(self, group: ClassicGroup) -> None:
        """Drop a new group whose record was not written, and answer the members that joined it."""
        self._state.drop_classic(group.group_id)

    def _join(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        asked: Asked,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        member_id = request.member_id
        if not self._has_room(group, member_id) or not self._has_bytes(group, request):
            member = group.members.get(member_id)
            if member is not None:
                self._rebalances.remove_member(group, member, reaction)
            group.remove(member_id)
            reaction.reply(ticket, join_error("", ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not group.supports(
            request.protocol_type, [protocol.name for protocol in request.protocols]
        ):
            reaction.reply(ticket, join_error(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif member_id == "":
            self._join_new(group, request, asked, ticket, reaction)
        elif member_id in group.pending_joins:
            if request.group_instance_id is not None:
                # A pending id belongs to a dynamic member; a static one never gets such an id.
                reaction.reply(ticket, join_error(member_id, ErrorCode.UNKNOWN_MEMBER_ID))
                return
            self._add(group, request, asked, member_id, ticket, reaction)
        else:
            self._join_again(group, request, ticket, reaction)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        most = self._state.settings.classic_group_members_max
        if group.state is ClassicState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is ClassicState.PREPARING_REBALANCE:
            # Waiting members are counted, not all: a group above a lowered limit shrinks to it,
            # because the last members to rejoin are refused.
            is_waiting = member is not None and member.join_ticket is not None
            return is_waiting or group.awaiting_join_count < most
        return member is not None or len(group.members) < most

    def _has_bytes(self, group: ClassicGroup, request: JoinGroupRequest) -> bool:
        """Whether the metadata of all members, with this one, is within the bounds."""
        size = metadata_bytes(request.protocols)
        member = group.members.get(request.member_id)
        more = size - (0 if member is None else metadata_bytes(member.protocols))
        if group.metadata_bytes + more > GROUP_METADATA_BYTES_MAX:
            return False
        if more <= 0 or size <= SMALL_MEMBER_BYTES_MAX:
            return True
        return self._state.all_classic_bytes() + more <= GROUPS_METADATA_BYTES_MAX

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        asked: Asked,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        instance_id = request.group_instance_id
        prefix = asked.client_id if instance_id is None else instance_id
        member_id = f"{_shortened(prefix)}-{self._state.new_id()}"
        if instance_id is not None:
            existing = group.static_members.get(instance_id)
            if existing is None:
                self._add(group, request, asked, member_id, ticket, reaction)
            else:
                old = group.members[existing]
                self._replace(group, request, asked, old, member_id, ticket, reaction)
        elif asked.api_version >= KNOWN_MEMBER_ID_SINCE:
            group.pending_joins.add(member_id)
            key = heartbeat_key(group.group_id, member_id)
            reaction.set_timer(key, request.session_timeout_ms)
            reaction.reply(ticket, join_error(member_id, ErrorCode.MEMBER_ID_REQUIRED))
        else:
            self._add(group, request, asked, member_id, ticket, reaction)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        asked: Asked,
        member_id: str,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        member = ClassicMember(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=asked.client_id,
            client_host=asked.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
        )
        self._rebalances.add_member(group, member, ticket, reaction)

    def _join_again(
        self, group: ClassicGroup, request: JoinGroupRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        member_id = request.member_id
        error = group.check_member(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE or group.state is ClassicState.EMPTY:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            reaction.reply(ticket, join_error(member_id, error or unknown))
            return
        member = group.members[member_id]
        changed = member.protocols != request.protocols
        # A leader that rejoins a stable group wants a rebalance: it may have seen new partitions.
        leads_stable = group.state is ClassicState.STABLE and group.leader_id == member_id
        if group.state is ClassicState.PREPARING_REBALANCE or changed or leads_stable:
            self._rebalances.update_member(group, member, request, ticket, reaction)
            self._rebalances.prepare_or_complete(group, reaction)
        else:
            reaction.reply(ticket, join_response(group, member_id))

    def _replace(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        asked: Asked,
        old: ClassicMember,
        member_id: str,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        leader_before = group.leader_id
        self._rebalances.fence_member(group, old, reaction)
        member = group.replace_static(old, member_id)
        self._rebalances.expect_heartbeat(group, member, reaction)
        self._rebalances.update_member(group, member, request, ticket, reaction)
        if group.state is ClassicState.STABLE:
            if group.select_protocol() != group.protocol_name:
                self._rebalances.prepare(group, reaction)
                return
            assignments = {m.member_id: m.assignment for m in group.members.values()}
            reaction.write(GroupMetadataKey(group=group.group_id), group.stored_value(assignments))
            reaction.when_refused(lambda _: group.take_back_static(old, member))
            response = _replaced(group, member_id, leader_before, asked.api_version)
            self._rebalances.answer_join(group, member, response, reaction)
        elif group.state is ClassicState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old member id; that assignment would be lost.
            self._rebalances.prepare(group, reaction)
        else:
            self._rebalances.complete_if_all_joined(group, reaction)


def _shortened(name: str) -> str:
    if len(name) * 4 <= MEMBER_ID_PREFIX_BYTES_MAX:
        return name
    return name.encode()[:MEMBER_ID_PREFIX_BYTES_MAX].decode(errors="ignore")


def _replaced(
    group: ClassicGroup, member_id: str, leader_before: str | None, api_version: int
) -> JoinGroupResponse:
    """The answer to a static member that rejoins a stable group: no rebalance."""
    if api_version >= SKIP_ASSIGNMENT_SINCE:
        leads = group.leader_id == member_id
        return join_response(group, member_id, skip_assignment=leads)
    # An old client that learned it leads would compute an assignment that is not needed. It gets
    # the id that led before, which is its own old one if it was the leader.
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_before or "",
        member_id=member_id,
        members=(),
    )
