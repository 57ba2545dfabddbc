"""`Heartbeats`: ConsumerGroupHeartbeat, with which KIP-848 members join, stay and leave.

A heartbeat that joins may create a group, take over an empty classic one or upgrade a live one.
No state is changed before everything is decided: a refusal changes nothing. The answer has the
assignment when it changed or when the member sent a full request. It does NOT handle classic
members: `consumer.classic_members` does.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple, cast
from uuid import UUID

from penstock.coordinator.groups.classic.groups import ClassicGroups
from penstock.coordinator.groups.classic.rebalance import join_error, sync_error
from penstock.coordinator.groups.consumer import checks, records
from penstock.coordinator.groups.consumer.change import GroupChange
from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Member,
    same_partitions,
)
from penstock.coordinator.groups.consumer.leaving import Leaving
from penstock.coordinator.groups.consumer.sessions import Sessions
from penstock.coordinator.groups.consumer.upgrade import check_upgrade, upgrade
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.refused import RefusedError
from penstock.coordinator.groups.state.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.shard import Asked, StoredRecord, Ticket
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)


class _Found(NamedTuple):
    """The group of a heartbeat."""

    group: ConsumerGroup
    """The group as it will be after `records`: a scratch copy if there are any."""
    records: list[StoredRecord]
    converted: ClassicGroup | None
    """The classic group that it is converted from."""


class Heartbeats:
    """ConsumerGroupHeartbeat."""

    def __init__(
        self, state: GroupState, classic: ClassicGroups, sessions: Sessions, leaving: Leaving
    ) -> None:
        self._state = state
        self._classic = classic
        self._sessions = sessions
        self._leaving = leaving

    def handle(
        self,
        request: ConsumerGroupHeartbeatRequest,
        asked: Asked,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        """Answer a heartbeat."""
        reaction.make_revocable()
        try:
            checks.check_request(request, asked.api_version, self._state.settings)
            if request.member_epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
                response = self._leave(request, reaction)
            else:
                response = self._heartbeat(request, asked, reaction)
        except RefusedError as refused:
            response = ConsumerGroupHeartbeatResponse(
                error_code=refused.error_code,
                error_message=refused.message,
                member_epoch=0,
                heartbeat_interval_ms=0,
            )
        reaction.reply(ticket, response)

    # --- Joining and going on ---

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, asked: Asked, reaction: Reaction
    ) -> ConsumerGroupHeartbeatResponse:
        is_joining = request.member_epoch == JOIN_EPOCH
        found = self._find(request.group_id, is_joining=is_joining)
        group = found.group
        checks.check_size(group, request.member_id, self._state.settings)
        member_id = request.member_id or self._state.new_id()
        reported = _reported(request)
        change = GroupChange(self._state, group, reaction.now_ms, asked.permissions)
        before = self._member(change, request, member_id, reported)
        after = _described(before, request, asked)
        change.update_member(before, after)
        change.update_target(before, after)
        moved = change.reconcile(after, reported)
        reaction.write_all(found.records)
        reaction.write_all(change.records)
        if found.converted is not None:
            for upgraded in group.members.values():
                self._sessions.heard_of(group.group_id, upgraded, reaction)
            reaction.when_written(partial(self._retire, found.converted))
        elif before is group.members.get(member_id):
            reaction.when_refused(partial(self._sessions.tried, group.group_id, before))
        if moved is not after:
            self._sessions.reconciled(group.group_id, moved, reaction)
        self._sessions.heard_of(group.group_id, moved, reaction)
        is_full = is_joining or _is_full(request)
        shows_assignment = is_full or not same_partitions(before.assigned, moved.assigned)
        return ConsumerGroupHeartbeatResponse(
            member_id=moved.member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self._state.times.of(group.group_id).heartbeat_interval_ms,
            assignment=_assignment(moved) if shows_assignment else None,
        )

    def _find(self, group_id: str, *, is_joining: bool) -> _Found:
        """The group; created for a joining member if it does not exist."""
        group = self._state.consumer.get(group_id)
        if group is not None:
            return _Found(cast("ConsumerGroup", group), [], None)
        if group_id in self._state.share:
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        classic = self._state.classic.get(group_id)
        if not is_joining:
            kind = "Consumer group" if classic is None else "Group"
            what = "not found" if classic is None else "is not a consumer group"
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} {what}.")
        scratch = ConsumerGroup(group_id)
        if classic is None:
            return _Found(scratch, [], None)
        if classic.state is ClassicState.EMPTY:
            return _Found(scratch, classic.tombstones(), classic)
        check_upgrade(classic, self._state.settings)
        made = upgrade(classic, self._state.topics)
        for key, value in made:
            if records.group_id_of(key) is not None:
                scratch.apply(key, value)
        return _Found(scratch, made, classic)

    def _retire(self, classic: ClassicGroup, reaction: Reaction) -> None:
        """Drop the converted classic group: its waiting members rejoin, into the consumer group."""
        again = ErrorCode.REBALANCE_IN_PROGRESS
        for member in classic.members.values():
            if member.join_ticket is not None:
                reaction.reply(member.join_ticket, join_error(member.member_id, again))
                classic.wait_for_join(member, None)
            if member.sync_ticket is not None:
                reaction.reply(member.sync_ticket, sync_error(again))
                member.sync_ticket = None
        self._classic.forget(classic.group_id, reaction)

    def _member(
        self,
        change: GroupChange,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        reported: dict[UUID, tuple[int, ...]] | None,
    ) -> Member:
        """The existing member, or a new one."""
        group = change.group
        epoch = request.member_epoch
        if request.instance_id is None:
            if epoch == JOIN_EPOCH:
                return group.members.get(member_id) or Member(member_id=member_id)
            member = checks.known_member(group, member_id)
            checks.check_epoch(member, epoch, reported)
            return member
        if epoch != JOIN_EPOCH:
            member = checks.known_instance(group, request.instance_id, member_id)
            checks.check_epoch(member, epoch, reported)
            return member
        existing = group.member_of_instance(request.instance_id)
        if existing is None:
            return group.members.get(member_id) or Member(member_id=member_id)
        if not existing.is_classic:
            checks.check_released(existing, member_id)
        return change.replace_static(existing, member_id)

    # --- Leaving ---

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, reaction: Reaction
    ) -> ConsumerGroupHeartbeatResponse:
        found = self._find(request.group_id, is_joining=False)
        group = found.group
        if request.instance_id is None:
            member = checks.known_member(group, request.member_id)
        else:
            member = checks.known_instance(group, request.instance_id, request.member_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            gone = replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation={})
            reaction.write_all([records.current_assignment(group.group_id, gone)])
        else:
            self._leaving.fence(group, [member], reaction)
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )


def _reported(request: ConsumerGroupHeartbeatRequest) -> dict[UUID, tuple[int, ...]] | None:
    if request.topic_partitions is None:
        return None
    return {
        topic.topic_id: topic.partitions
        for topic in request.topic_partitions
        if topic.topic_id is not None
    }


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request has all fields, as after an error."""
    names_topics = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return (
        request.rebalance_timeout_ms != -1 and names_topics and request.topic_partitions is not None
    )


def _described(member: Member, request: ConsumerGroupHeartbeatRequest, asked: Asked) -> Member:
    """The member with the fields of the request; absent fields stay unchanged."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
        subscribed_regex=member.subscribed_regex if regex is None else regex,
        client_id=asked.client_id,
        client_host=asked.client_host,
        classic=None,
    )


def _assignment(member: Member) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            ResponseTopicPartitions(
                topic_id=topic_id, partitions=tuple(sorted(member.assigned[topic_id]))
            )
            for topic_id in sorted(member.assigned)
        )
    )
