"""`GroupShard`: the state machine behind one partition of the offsets topic.

It sends each request to the part that decides (`offsets`, `classic`, `consumer`, `share`,
`administration`), each timer to the part that set it, and each record to its table. A group has one
protocol at a time: requests of the classic protocol go to `consumer` when the group is one of
KIP-848, and a share group takes no member of another protocol. It does NOT decide anything else.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from penstock.coordinator.groups.administration import GroupAdministration
from penstock.coordinator.groups.classic.groups import ClassicGroups
from penstock.coordinator.groups.classic.rebalance import join_error
from penstock.coordinator.groups.consumer.groups import ConsumerGroups
from penstock.coordinator.groups.group_deletion import GroupDeletion
from penstock.coordinator.groups.offsets.cleanup import OffsetCleanup
from penstock.coordinator.groups.offsets.requests import Offsets
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.share.groups import ShareGroups
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.groups.state.offset_store import OffsetStore
from penstock.coordinator.metadata_view import TopicsView
from penstock.coordinator.ports import GroupTimes
from penstock.coordinator.shard import (
    NOTHING,
    Asked,
    Outcome,
    Producer,
    StoredRecord,
    Ticket,
    TimerKey,
)
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from penstock.protocol.stored.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

LEAVE_MEMBERS_SINCE: Final = 3
"""From this version LeaveGroup has a list of members; before, it had one member id."""


class GroupShard:
    """One state machine for all groups of a partition; see `coordinator.shard.Shard`."""

    def __init__(
        self,
        settings: GroupSettings,
        member_ids: Callable[[], str],
        times: GroupTimes | None = None,
        all_classic_bytes: Callable[[], int] | None = None,
    ) -> None:
        self.state = GroupState(settings, member_ids, OffsetStore(), times, all_classic_bytes)
        self._classic = ClassicGroups(self.state)
        self._consumer = ConsumerGroups(self.state, self._classic)
        self._offsets = Offsets(self.state, self._classic)
        self._cleanup = OffsetCleanup(self.state, self._classic)
        self._share = ShareGroups(self.state)
        self._deletion = GroupDeletion(self.state, self._classic, self._share.upkeep)
        self._administration = GroupAdministration(self.state)

    # --- Events ---

    def handle(self, asked: Asked, ticket: Ticket, now_ms: int) -> Outcome:
        """React to a request."""
        reaction = Reaction(now_ms)
        request = asked.request
        if isinstance(request, OffsetCommitRequest):
            self._offsets.commit(request, asked, ticket, reaction)
        elif isinstance(request, OffsetFetchRequest):
            self._offsets.fetch(request, ticket, reaction)
        elif isinstance(request, TxnOffsetCommitRequest):
            self._offsets.commit_in_transaction(request, asked, ticket, reaction)
        elif isinstance(request, OffsetDeleteRequest):
            self._offsets.delete(request, ticket, reaction)
        elif isinstance(request, ConsumerGroupHeartbeatRequest):
            self._consumer.handle_heartbeat(request, asked, ticket, reaction)
        elif not self._handle_classic(request, asked, ticket, reaction) and not self._share.handle(
            request, asked, ticket, reaction
        ):
            self._handle_administration(request, asked, ticket, reaction)
        return reaction.outcome()

    def _handle_classic(
        self, request: Message, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> bool:
        if isinstance(request, JoinGroupRequest):
            self._join(request, asked, ticket, reaction)
        elif isinstance(request, SyncGroupRequest):
            if request.group_id in self.state.consumer:
                self._consumer.handle_classic_sync(request, ticket, reaction)
            else:
                self._classic.sync(request, ticket, reaction)
        elif isinstance(request, HeartbeatRequest):
            if request.group_id in self.state.consumer:
                self._consumer.handle_classic_heartbeat(request, ticket, reaction)
            else:
                self._classic.heartbeat(request, ticket, reaction)
        elif isinstance(request, LeaveGroupRequest):
            if asked.api_version < LEAVE_MEMBERS_SINCE:
                request = replace(request, members=(MemberIdentity(member_id=request.member_id),))
            if request.group_id in self.state.consumer:
                self._consumer.handle_classic_leave(request, ticket, reaction)
            else:
                self._classic.leave(request, ticket, reaction)
        else:
            return False
        return True

    def _join(
        self, request: JoinGroupRequest, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> None:
        if request.group_id in self.state.consumer:
            self._consumer.handle_classic_join(request, asked, ticket, reaction)
        elif request.group_id in self.state.share:
            reaction.reply(ticket, join_error("", ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        else:
            self._classic.join(request, asked, ticket, reaction)

    def _handle_administration(
        self, request: Message, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> None:
        if isinstance(request, ListGroupsRequest):
            self._administration.list_groups(request, ticket, reaction)
        elif isinstance(request, DescribeGroupsRequest):
            self._administration.describe_groups(request, asked, ticket, reaction)
        elif isinstance(request, DeleteGroupsRequest):
            self._deletion.delete(request, ticket, reaction)
        else:
            assert isinstance(request, ConsumerGroupDescribeRequest), type(request).__name__
            reaction.reply(ticket, self._consumer.describe(request))

    def timer_fired(self, key: TimerKey, now_ms: int) -> Outcome:
        """React to a timer."""
        reaction = Reaction(now_ms)
        known = (
            self._classic.timer_fired(key, reaction)
            or self._cleanup.timer_fired(key, reaction)
            or self._deletion.timer_fired(key, reaction)
            or self._consumer.timer_fired(key, reaction)
            or self._share.timer_fired(key, reaction)
        )
        assert known, f"the timer {key} was never set"
        return reaction.outcome()

    def effect_done(self, effect: object, result: object, now_ms: int) -> Outcome:
        """React to the end of an effect: only share groups have them."""
        reaction = Reaction(now_ms)
        self._share.effect_done(effect, result, reaction, self._deletion.states_deleted)
        return reaction.outcome()

    def topics_changed(self, topics: TopicsView, gone: Collection[str], now_ms: int) -> Outcome:
        """React to created, grown and deleted topics."""
        if topics.revision == self.state.topics.revision:
            return NOTHING
        reaction = Reaction(now_ms)
        self.state.topics = topics
        self._cleanup.topics_gone(gone, reaction)
        self._consumer.topics_changed(reaction)
        self._share.topics_changed(gone, reaction)
        return reaction.outcome()

    def loaded(self, topics: TopicsView, now_ms: int) -> Outcome:
        """Create the live groups from the replayed records and start their timers."""
        reaction = Reaction(now_ms)
        self.state.topics = topics
        self._classic.loaded(reaction)
        self._consumer.loaded(reaction)
        self._share.loaded(reaction)
        self._cleanup.loaded(reaction)
        return reaction.outcome()

    # --- Replicated state ---

    def replay(self, record: StoredRecord, producer: Producer | None, offset: int) -> None:
        """Apply a record."""
        key, value = record
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.state.offsets.replay(key, value, producer, offset)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._classic.replay(key, value)
        else:
            known = self._consumer.replay(key, value) or self._share.replay(key, value)
            assert known, f"a record that no part knows: {key}"

    def replay_marker(self, producer: Producer, *, commits: bool) -> None:
        """Apply the end of a transaction."""
        self.state.offsets.replay_marker(producer, commits=commits)

    def validate(self) -> None:
        """Assert the invariants between events."""
        self.state.offsets.validate()
        self._classic.validate()
        self._consumer.validate()
        self._share.validate()
