"""`Rebalances`: moves a classic group from one generation to the next, and answers its members.

    Empty ──join──► PreparingRebalance ──all rejoined, or time is up──► CompletingRebalance
      ▲                 ▲    │ no member left                                │ leader's assignment
      └─────────────────┼────┘                                               ▼
                        └───────── join, leave, death of a member ──────── Stable

Timers of a group: `join_key` ends the wait for members, `sync_key` the wait for their SyncGroup,
`heartbeat_key` a member's silence. Every waiting request is answered when its member leaves, is
replaced, or sends another one: no ticket is lost. It does NOT check requests: `classic.join` and
`classic.members` do.
"""

from functools import partial
from typing import Final

from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.groups.state.classic_member import NO_ASSIGNMENT, ClassicMember
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.shard import Ticket, TimerKey
from penstock.core.limits import (
    COORDINATOR_BATCH_BYTES_MAX,
    GROUPS_METADATA_BYTES_MAX,
    SMALL_MEMBER_BYTES_MAX,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from penstock.protocol.messages.sync_group import SyncGroupResponse
from penstock.protocol.stored.group_records import GroupMetadataKey, GroupMetadataValue

HEARTBEAT: Final = "classic-heartbeat"
JOIN: Final = "classic-join"
SYNC: Final = "classic-sync"
GROUP_RECORD_BYTES_MAX: Final = COORDINATOR_BATCH_BYTES_MAX * 3 // 4
"""Largest generation that is written, so that its batch is within the limit also with names in
other scripts and the lengths of all fields."""


def heartbeat_key(group_id: str, member_id: str) -> TimerKey:
    """The timer of a member's session, also of an id that has not joined yet."""
    return (HEARTBEAT, group_id, member_id)


def join_key(group_id: str) -> TimerKey:
    """The timer that ends the wait for members."""
    return (JOIN, group_id)


def sync_key(group_id: str) -> TimerKey:
    """The timer that ends the wait for SyncGroup."""
    return (SYNC, group_id)


def record_bytes(value: GroupMetadataValue) -> int:
    """Metadata and assignments of the members in the record of a group."""
    return sum(len(member.subscription) + len(member.assignment) for member in value.members)


def join_error(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """The answer to a JoinGroup that failed."""
    return JoinGroupResponse(error_code=error, leader="", member_id=member_id, members=())


def join_response(
    group: ClassicGroup, member_id: str, *, skip_assignment: bool = False
) -> JoinGroupResponse:
    """The answer to a JoinGroup that succeeded; the leader's has all members."""
    members: tuple[JoinGroupResponseMember, ...] = ()
    if group.leader_id == member_id:
        members = tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata_of(group.protocol_name),
            )
            for member in group.members.values()
        )
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """The answer to a SyncGroup that failed."""
    return SyncGroupResponse(error_code=error, assignment=NO_ASSIGNMENT)


def sync_response(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    """The answer to a SyncGroup that succeeded."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


class Rebalances:
    """The transitions between the states of classic groups."""

    def __init__(self, state: GroupState) -> None:
        self._state = state

    # --- Members ---

    def expect_heartbeat(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        reaction: Reaction,
        delay_ms: int | None = None,
    ) -> None:
        """Start the member's session timeout anew."""
        delay_ms = member.session_timeout_ms if delay_ms is None else delay_ms
        reaction.set_timer(heartbeat_key(group.group_id, member.member_id), delay_ms)

    def add_member(
        self, group: ClassicGroup, member: ClassicMember, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Add a new member; its JoinGroup waits for the others."""
        member.is_new = True
        first = group.previous_state is ClassicState.EMPTY
        if group.state is ClassicState.PREPARING_REBALANCE and first:
            group.new_member_added = True
        group.add(member, ticket)
        # A new member cannot send heartbeats before its JoinGroup is answered. If its client has
        # disconnected it joins again as another member, so dead members must not be kept for long.
        delay_ms = self._state.settings.new_member_join_timeout_ms
        self.expect_heartbeat(group, member, reaction, delay_ms)
        self.prepare_or_complete(group, reaction)

    def update_member(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinGroupRequest,
        ticket: Ticket | None,
        reaction: Reaction,
    ) -> None:
        """A member joins again; its earlier waiting JoinGroup is answered."""
        error = join_error(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS)
        self.answer_join(group, member, error, reaction)
        group.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        group.wait_for_join(member, ticket)

    def remove_member(self, group: ClassicGroup, member: ClassicMember, reaction: Reaction) -> None:
        """Remove a member and answer its waiting requests."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join(group, member, join_error("", unknown), reaction)
        self._answer_sync(member, sync_error(unknown), reaction)
        reaction.cancel_timer(heartbeat_key(group.group_id, member.member_id))
        group.remove(member.member_id)

    def fence_member(self, group: ClassicGroup, member: ClassicMember, reaction: Reaction) -> None:
        """Another process took over this instance: the old one's waiting requests fail."""
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join(group, member, join_error(member.member_id, fenced), reaction)
        self._answer_sync(member, sync_error(fenced), reaction)
        reaction.cancel_timer(heartbeat_key(group.group_id, member.member_id))

    def answer_join(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        response: JoinGroupResponse,
        reaction: Reaction,
    ) -> None:
        """Answer the JoinGroup that waits, if there is one."""
        if member.join_ticket is not None:
            reaction.reply(member.join_ticket, response)
            group.wait_for_join(member, None)

    def wait_for_sync(
        self, group: ClassicGroup, member: ClassicMember, ticket: Ticket, reaction: Reaction
    ) -> None:
        """The member's SyncGroup waits for the leader's; an earlier one is answered."""
        self._answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS), reaction)
        member.sync_ticket = ticket
        self.has_synced(group, member, reaction)

    def has_synced(self, group: ClassicGroup, member: ClassicMember, reaction: Reaction) -> None:
        """The member sent its SyncGroup."""
        group.pending_syncs.discard(member.member_id)
        if not group.pending_syncs:
            reaction.cancel_timer(sync_key(group.group_id))

    def _answer_sync(
        self, member: ClassicMember, response: SyncGroupResponse, reaction: Reaction
    ) -> bool:
        if member.sync_ticket is None:
            return False
        reaction.reply(member.sync_ticket, response)
        member.sync_ticket = None
        return True

    # --- The phases ---

    def prepare_or_complete(self, group: ClassicGroup, reaction: Reaction) -> None:
        """Members changed: begin a rebalance, or go on with the one that runs."""
        if group.can_rebalance:
            self.prepare(group, reaction)
        else:
            self.complete_if_all_joined(group, reaction)

    def prepare(self, group: ClassicGroup, reaction: Reaction) -> None:
        """Ask all members to rejoin."""
        if group.state is ClassicState.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = NO_ASSIGNMENT
                if self._answer_sync(member, sync_error(ErrorCode.REBALANCE_IN_PROGRESS), reaction):
                    self.expect_heartbeat(group, member, reaction)
        group.pending_syncs.clear()
        reaction.cancel_timer(sync_key(group.group_id))
        if group.state is ClassicState.EMPTY:
            # A new group waits for more members, so that not each of them causes a rebalance.
            delay_ms = self._state.settings.initial_rebalance_delay_ms
            group.initial_delay_ms = delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            reaction.set_timer(join_key(group.group_id), delay_ms)
            group.move_to(ClassicState.PREPARING_REBALANCE, reaction.now_ms)
            return
        group.move_to(ClassicState.PREPARING_REBALANCE, reaction.now_ms)
        if group.has_all_joined:
            self.complete_join(group, reaction)
        else:
            reaction.set_timer(join_key(group.group_id), group.rebalance_timeout_ms)

    def complete_if_all_joined(self, group: ClassicGroup, reaction: Reaction) -> None:
        """End the wait if no member is missing; a first rebalance waits in any case."""
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return
        if group.previous_state is not ClassicState.EMPTY and group.has_all_joined:
            self.complete_join(group, reaction)

    def join_time_is_up(self, group: ClassicGroup, reaction: Reaction) -> None:
        """The wait for members ends, or a first rebalance is delayed once more."""
        if group.state is not ClassicState.PREPARING_REBALANCE:
            return
        delay_ms = group.initial_delay_ms
        if delay_ms is not None and group.new_member_added and group.initial_remaining_ms:
            group.new_member_added = False
            most_ms = self._state.settings.initial_rebalance_delay_ms
            group.initial_delay_ms = min(most_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - delay_ms, 0)
            reaction.set_timer(join_key(group.group_id), group.initial_delay_ms)
            return
        self.complete_join(group, reaction)

    def complete_join(self, group: ClassicGroup, reaction: Reaction) -> None:
        """Members that rejoined form the next generation; the others are removed.

        Static members stay without having rejoined: until their session ends they may come back.
        """
        reaction.cancel_timer(join_key(group.group_id))
        for member in tuple(group.members.values()):
            if member.join_ticket is None and member.group_instance_id is None:
                self.remove_member(group, member, reaction)
        if not group.elect_joined_leader() and group.members:
            # No member has rejoined. Wait until sessions end and the group is empty.
            reaction.set_timer(join_key(group.group_id), group.rebalance_timeout_ms)
            return
        group.begin_generation(reaction.now_ms)
        if group.state is ClassicState.EMPTY:
            # If it cannot be written, a start loads the generation before; its members are gone, so
            # their sessions end, and the group is empty again.
            reaction.stand_when_refused()
            reaction.write(GroupMetadataKey(group=group.group_id), group.stored_value({}))
            return
        for member in group.members.values():
            self.answer_join(group, member, join_response(group, member.member_id), reaction)
            self.expect_heartbeat(group, member, reaction)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        reaction.set_timer(sync_key(group.group_id), group.rebalance_timeout_ms)

    def assign(
        self, group: ClassicGroup, assignments: dict[str, bytes], reaction: Reaction
    ) -> None:
        """Store the leader's assignment, answer all waiting members, and become stable."""
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}
        size_bytes = group.stored_bytes(complete)
        is_small = size_bytes <= SMALL_MEMBER_BYTES_MAX * len(group.members)
        value = group.stored_value(complete)
        is_full = not (is_small or self._has_bytes(group, value))
        if size_bytes > GROUP_RECORD_BYTES_MAX or is_full:
            self._refuse_assignment(group, ErrorCode.UNKNOWN_SERVER_ERROR, reaction)
            return
        reaction.write(GroupMetadataKey(group=group.group_id), value)
        error = ErrorCode.NOT_COORDINATOR
        reaction.when_written(partial(self._assigned, group, complete))
        reaction.when_refused(partial(self._refuse_assignment, group, error))

    def _has_bytes(self, group: ClassicGroup, value: GroupMetadataValue) -> bool:
        """Whether all groups are within their bound once this record replaces the one before."""
        before = self._state.stored_classic.get(group.group_id)
        more = record_bytes(value) - (0 if before is None else record_bytes(before))
        return more <= 0 or self._state.all_classic_bytes() + more <= GROUPS_METADATA_BYTES_MAX

    def _assigned(
        self, group: ClassicGroup, assignments: dict[str, bytes], reaction: Reaction
    ) -> None:
        for member in group.members.values():
            member.assignment = assignments[member.member_id]
            if self._answer_sync(member, sync_response(group, member), reaction):
                self.expect_heartbeat(group, member, reaction)
        group.move_to(ClassicState.STABLE, reaction.now_ms)

    def _refuse_assignment(self, group: ClassicGroup, error: ErrorCode, reaction: Reaction) -> None:
        """The generation is too large to be written, or there is no room. Its members rejoin."""
        for member in group.members.values():
            if self._answer_sync(member, sync_error(error), reaction):
                self.expect_heartbeat(group, member, reaction)
        self.prepare(group, reaction)

    def sync_time_is_up(self, group: ClassicGroup, reaction: Reaction) -> None:
        """Remove the members that have not sent SyncGroup by now."""
        if not group.pending_syncs:
            return
        for member_id in sorted(group.pending_syncs):
            self.remove_member(group, group.members[member_id], reaction)
        self.prepare(group, reaction)

    def session_ended(self, group: ClassicGroup, member_id: str, reaction: Reaction) -> None:
        """The session of a member, or of an id that has not joined yet, timed out."""
        member = group.members.get(member_id)
        if member is None:
            if member_id in group.pending_joins:
                group.remove(member_id)
                self._go_on_without(group, reaction)
        elif not member.needs_no_heartbeat:
            self.remove_member(group, member, reaction)
            if group.state in {ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE}:
                self.prepare(group, reaction)
            else:
                self._go_on_without(group, reaction)

    def _go_on_without(self, group: ClassicGroup, reaction: Reaction) -> None:
        if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_joined:
            self.complete_join(group, reaction)
