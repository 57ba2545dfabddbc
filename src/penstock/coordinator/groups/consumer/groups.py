"""`ConsumerGroups`: the interface to all KIP-848 groups of a shard.

`replay` alone changes the groups. Heartbeats of members, requests of classic members and timers
lead to records; a new epoch of a group is noticed by its members in their next heartbeats, so that
no request ever waits here. Changes of topics take effect in the next heartbeat too, as in Kafka. It
does NOT know offsets.
"""

from functools import partial
from typing import cast

from penstock.coordinator.groups.classic.groups import ClassicGroups
from penstock.coordinator.groups.consumer import records
from penstock.coordinator.groups.consumer import sessions as consumer_sessions
from penstock.coordinator.groups.consumer.classic_members import ClassicMembersOfConsumerGroups
from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.consumer.consumer_member import MemberState
from penstock.coordinator.groups.consumer.describe import describe_group, not_found
from penstock.coordinator.groups.consumer.heartbeat import Heartbeats
from penstock.coordinator.groups.consumer.leaving import Leaving
from penstock.coordinator.groups.consumer.sessions import Sessions
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.state.group_state import Group, GroupState
from penstock.coordinator.shard import Asked, Ticket, TimerKey
from penstock.protocol.codec import Message
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.protocol.stored.group_records import ConsumerGroupMetadataKey


class ConsumerGroups:
    """The KIP-848 half of a group shard."""

    def __init__(self, state: GroupState, classic: ClassicGroups) -> None:
        self._state = state
        self._sessions = Sessions(state.times)
        self._leaving = Leaving(state, classic, self._sessions)
        self._heartbeats = Heartbeats(state, classic, self._sessions, self._leaving)
        self._classic_members = ClassicMembersOfConsumerGroups(
            state, classic, self._sessions, self._leaving
        )

    # --- Requests ---

    def handle_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        asked: Asked,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        """Answer a member of KIP-848."""
        self._heartbeats.handle(request, asked, ticket, reaction)

    def describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        """Describe the groups of this shard that are named."""
        return ConsumerGroupDescribeResponse(
            groups=tuple(self._describe(group_id) for group_id in request.group_ids)
        )

    def _describe(self, group_id: str) -> DescribedGroup:
        if group_id not in self._state.consumer:
            return not_found(group_id, exists=self._state.find(group_id) is not None)
        default_assignor = self._state.settings.consumer_assignors[0]
        return describe_group(self._group(group_id), default_assignor, self._state.topics)

    def handle_classic_join(
        self, request: JoinGroupRequest, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> None:
        """JoinGroup to a consumer group; a group without members becomes a classic group."""
        group = self._group(request.group_id)
        self._classic_members.join(group, request, asked, ticket, reaction)

    def handle_classic_sync(
        self, request: SyncGroupRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        """SyncGroup to a consumer group."""
        group = self._group(request.group_id)
        self._classic_members.sync(group, request, ticket, reaction)

    def handle_classic_heartbeat(
        self, request: HeartbeatRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Heartbeat of a classic member to a consumer group."""
        group = self._group(request.group_id)
        self._classic_members.heartbeat(group, request, ticket, reaction)

    def handle_classic_leave(
        self, request: LeaveGroupRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        """LeaveGroup to a consumer group."""
        group = self._group(request.group_id)
        self._classic_members.leave(group, request, ticket, reaction)

    # --- Other events ---

    def timer_fired(self, key: TimerKey, reaction: Reaction) -> bool:
        """Fence the member whose time is up; False: it is not one of our timers."""
        if not isinstance(key, tuple) or key[0] not in consumer_sessions.KINDS:
            return False
        self._sessions.fired(key)
        kind, group_id, member_id = key
        if group_id not in self._state.consumer:
            return True
        group = self._group(group_id)
        member = group.members.get(member_id)
        if member is None:
            return True
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if kind != consumer_sessions.REBALANCE or is_revoking:
            self._leaving.fence(group, [member], reaction)
            reaction.when_refused(partial(self._sessions.postpone, key))
        return True

    def topics_changed(self, reaction: Reaction) -> None:
        """Do nothing now: each group checks the topics in its next heartbeat."""

    def loaded(self, reaction: Reaction) -> None:
        """Start each member's session timer, and the timer for partitions it must give up."""
        for group_id in self._state.consumer:
            for member in self._group(group_id).members.values():
                self._sessions.heard_of(group_id, member, reaction)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._sessions.reconciled(group_id, member, reaction)

    # --- Replicated state ---

    def replay(self, key: Message, value: Message | None) -> bool:
        """Apply a record of a consumer group; False: it is not one."""
        group_id = records.group_id_of(key)
        if group_id is None:
            return False
        group = self._state.consumer.get(group_id)
        if isinstance(key, ConsumerGroupMetadataKey) and value is None:
            self._state.consumer.pop(group_id, None)
            return True
        if group is None:
            if value is None:
                return True  # a tombstone of an unknown group
            group = cast("Group", ConsumerGroup(group_id))
        cast("ConsumerGroup", group).apply(key, value)
        # After the record was applied: one that cannot be applied creates no group.
        self._state.consumer[group_id] = group
        return True

    def validate(self) -> None:
        """Assert the invariants between events."""
        for group_id in self._state.consumer:
            group = self._group(group_id)
            assert group.group_id == group_id
            group.validate()

    def _group(self, group_id: str) -> ConsumerGroup:
        return cast("ConsumerGroup", self._state.consumer[group_id])
