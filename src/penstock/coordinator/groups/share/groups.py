"""`ShareGroups`: the interface to all share groups of a shard.

`replay` alone changes the groups. Heartbeats, timers and the ends of effects lead to records; a new
epoch of a group is noticed by its members in their next heartbeats. It does NOT know records in
flight: those are with the leaders of partitions.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import cast

from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.share import records, share_sessions
from penstock.coordinator.groups.share.share_describe import (
    describe_share_group,
    share_group_not_found,
)
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.groups.share.share_heartbeat import ShareHeartbeats
from penstock.coordinator.groups.share.share_offsets import ShareOffsets
from penstock.coordinator.groups.share.share_sessions import MemberSessions
from penstock.coordinator.groups.share.state_effects import (
    DeleteStates,
    InitializeStates,
    ReadSummaries,
    StateResults,
)
from penstock.coordinator.groups.share.state_upkeep import StateUpkeep
from penstock.coordinator.groups.state.group_state import Group, GroupState
from penstock.coordinator.shard import Asked, Ticket, TimerKey
from penstock.protocol.codec import Message
from penstock.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from penstock.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from penstock.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
)
from penstock.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.protocol.stored.share_records import ShareGroupMetadataKey


class ShareGroups:
    """The share groups of a group shard."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self.upkeep = StateUpkeep(state)
        self._sessions = MemberSessions(state.times)
        self._heartbeats = ShareHeartbeats(state, self._sessions, self.upkeep.initialize)
        self._offsets = ShareOffsets(state, self.upkeep)

    # --- Requests ---

    def handle(self, request: Message, asked: Asked, ticket: Ticket, reaction: Reaction) -> bool:
        """Answer a request about share groups; False: it is not one."""
        match request:
            case ShareGroupHeartbeatRequest():
                self._heartbeats.handle(request, asked, ticket, reaction)
            case ShareGroupDescribeRequest():
                reaction.reply(ticket, self._describe(request))
            case DescribeShareGroupOffsetsRequest():
                self._offsets.describe(request, ticket, reaction)
            case AlterShareGroupOffsetsRequest():
                self._offsets.alter(request, ticket, reaction)
            case DeleteShareGroupOffsetsRequest():
                self._offsets.delete(request, ticket, reaction)
            case _:
                return False
        return True

    def _describe(self, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
        groups = []
        for group_id in request.group_ids:
            if group_id in self._state.share:
                groups.append(describe_share_group(self._group(group_id), self._state.topics))
            else:
                exists = self._state.find(group_id) is not None
                groups.append(share_group_not_found(group_id, exists=exists))
        return ShareGroupDescribeResponse(groups=tuple(groups))

    # --- Other events ---

    def timer_fired(self, key: TimerKey, reaction: Reaction) -> bool:
        """Fence the member whose time is up; False: it is not one of our timers."""
        if self.upkeep.timer_fired(key, reaction):
            return True
        if not isinstance(key, tuple) or key[0] != share_sessions.SESSION:
            return False
        _, group_id, member_id = key
        if group_id in self._state.share:
            group = self._group(group_id)
            member = group.members.get(member_id)
            if member is not None:
                self._heartbeats.fence(group, member, reaction)
                reaction.when_refused(partial(self._sessions.postpone, key))
        return True

    def effect_done(
        self,
        effect: object,
        result: object,
        reaction: Reaction,
        group_emptied: Callable[[str, StateResults, Reaction], None],
    ) -> None:
        """Note the end of an effect, and answer the request that waits for it."""
        match effect:
            case InitializeStates():
                results = self.upkeep.initialized(effect, result, reaction)
                if effect.ticket is not None:
                    self._offsets.altered(effect, results, reaction)
            case DeleteStates():
                results = self.upkeep.deleted(effect, result, reaction)
                if effect.ticket is not None:
                    self._offsets.deleted(effect, results, reaction)
                elif effect.is_of_group:
                    group_emptied(effect.group_id, results, reaction)
            case ReadSummaries():
                self._offsets.summarized(effect, result, reaction)
            case _:
                raise AssertionError(f"share groups have no effect {effect!r}")

    def topics_changed(self, gone: Collection[str], reaction: Reaction) -> None:
        """Forget states of deleted topics; each group checks the rest in its next heartbeat."""
        self.upkeep.topics_gone(gone, reaction)

    def loaded(self, reaction: Reaction) -> None:
        """Start each member's session timer, and send interrupted deletions again."""
        for group_id in self._state.share:
            for member_id in self._group(group_id).members:
                self._sessions.heard_of(group_id, member_id, reaction)
        self.upkeep.loaded(reaction)

    # --- Replicated state ---

    def replay(self, key: Message, value: Message | None) -> bool:
        """Apply a record of a share group; False: it is not one."""
        group_id = records.group_id_of(key)
        if group_id is None:
            return False
        group = self._state.share.get(group_id)
        if isinstance(key, ShareGroupMetadataKey) and value is None:
            self._state.share.pop(group_id, None)
            return True
        if group is None:
            if value is None:
                return True  # a tombstone of an unknown group
            group = cast("Group", ShareGroup(group_id))
        cast("ShareGroup", group).apply(key, value)
        # After the record was applied: one that cannot be applied creates no group.
        self._state.share[group_id] = group
        return True

    def validate(self) -> None:
        """Assert the invariants between events."""
        for group_id in self._state.share:
            group = self._group(group_id)
            assert group.group_id == group_id
            assert group_id not in self._state.consumer, "a group has one protocol"
            assert group_id not in self._state.classic, "a group has one protocol"
            group.validate()
        self.upkeep.validate()

    def _group(self, group_id: str) -> ShareGroup:
        return cast("ShareGroup", self._state.share[group_id])
