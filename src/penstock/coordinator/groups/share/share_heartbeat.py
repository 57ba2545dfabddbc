"""`ShareHeartbeats`: ShareGroupHeartbeat, with which members of share groups join, stay and leave.

No state is changed before everything is decided: a refusal changes nothing. The answer has the
assignment when it changed or when the member sent a full request. Checks have Kafka's codes and
words, in Kafka's order. It does NOT wait for the share coordinator: a member gets new partitions in
the heartbeat after their state was created.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.refused import RefusedError
from penstock.coordinator.groups.share.change import ShareGroupChange
from penstock.coordinator.groups.share.share_group import ShareGroup
from penstock.coordinator.groups.share.share_member import JOIN_EPOCH, LEAVE_EPOCH, ShareMember
from penstock.coordinator.groups.share.share_sessions import MemberSessions
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.shard import Asked, Ticket
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

Initialize = Callable[[ShareGroupChange, Reaction], None]
"""Creates the delivery state of partitions that need it; called last, before the records leave."""


class ShareHeartbeats:
    """ShareGroupHeartbeat."""

    def __init__(self, state: GroupState, sessions: MemberSessions, initialize: Initialize) -> None:
        self._state = state
        self._sessions = sessions
        self._initialize = initialize

    def handle(
        self, request: ShareGroupHeartbeatRequest, asked: Asked, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Answer a heartbeat."""
        reaction.make_revocable()
        try:
            check_request(request)
            if request.member_epoch == LEAVE_EPOCH:
                response = self._leave(request, reaction)
            else:
                response = self._heartbeat(request, asked, reaction)
        except RefusedError as refused:
            response = ShareGroupHeartbeatResponse(
                error_code=refused.error_code,
                error_message=refused.message,
                member_epoch=0,
                heartbeat_interval_ms=0,
            )
        reaction.reply(ticket, response)

    def _heartbeat(
        self, request: ShareGroupHeartbeatRequest, asked: Asked, reaction: Reaction
    ) -> ShareGroupHeartbeatResponse:
        is_joining = request.member_epoch == JOIN_EPOCH
        group = self._find(request.group_id, is_joining=is_joining)
        self._check_size(group, request.member_id)
        before = _member(group, request)
        names = request.subscribed_topic_names
        after = replace(
            before,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            subscribed_names=before.subscribed_names if names is None else frozenset(names),
            client_id=asked.client_id,
            client_host=asked.client_host,
        )
        change = ShareGroupChange(self._state, group, reaction.now_ms)
        change.update_member(before, after)
        change.update_target(after)
        moved = change.reconcile(after)
        self._initialize(change, reaction)
        reaction.write_all(change.records)
        group_id, member_id = group.group_id, moved.member_id
        if member_id in group.members:
            # The member did its part, also if the log refuses the records.
            reaction.when_refused(partial(self._sessions.heard_of, group_id, member_id))
        self._sessions.heard_of(group_id, member_id, reaction)
        is_full = is_joining or names is not None
        return ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self._state.times.of_share(group_id).heartbeat_interval_ms,
            assignment=_assignment(moved) if is_full or before.assigned != moved.assigned else None,
        )

    def _leave(
        self, request: ShareGroupHeartbeatRequest, reaction: Reaction
    ) -> ShareGroupHeartbeatResponse:
        group = self._find(request.group_id, is_joining=False, is_leaving=True)
        self.fence(group, known_member(group, request.member_id), reaction)
        return ShareGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )

    def fence(self, group: ShareGroup, member: ShareMember, reaction: Reaction) -> None:
        """Remove a member and begin a new epoch; the others notice in their next heartbeats."""
        change = ShareGroupChange(self._state, group, reaction.now_ms)
        change.remove_member(member)
        reaction.write_all(change.records)
        ended = partial(self._sessions.ended, group.group_id, member.member_id)
        reaction.when_written(ended)

    def _find(self, group_id: str, *, is_joining: bool, is_leaving: bool = False) -> ShareGroup:
        """The group; created for a joining member if it does not exist."""
        found = self._state.find(group_id)
        if found is not None and group_id not in self._state.share:
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."
            )
        if found is not None:
            return cast("ShareGroup", found)
        if not is_joining:
            kind = "Group" if is_leaving else "Share group"
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        return ShareGroup(group_id)

    def _check_size(self, group: ShareGroup, member_id: str) -> None:
        limit = self._state.settings.share_group_members_max
        if len(group.members) >= limit and member_id not in group.members:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {limit} members.",
            )


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Refuse a heartbeat that is invalid for any group."""
    for value, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise _invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def known_member(group: ShareGroup, member_id: str) -> ShareMember:
    """The member of this id."""
    member = group.members.get(member_id)
    if member is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    return member


def _member(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """The existing member in its epoch, or a new one. A member that joins again stays as it is."""
    if request.member_epoch == JOIN_EPOCH and request.member_id not in group.members:
        return ShareMember(member_id=request.member_id)
    member = known_member(group, request.member_id)
    received = request.member_epoch
    if received > member.epoch:
        raise _fenced(
            f"The share group member has a greater member epoch ({received}) than the one known "
            f"by the group coordinator ({member.epoch})."
        )
    if received not in (JOIN_EPOCH, member.epoch, member.previous_epoch):
        raise _fenced(
            f"The share group member has a smaller member epoch ({received}) than the one known "
            f"by the group coordinator ({member.epoch}), and it does not match the previous "
            f"member epoch ({member.previous_epoch})."
        )
    return member


def _assignment(member: ShareMember) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(member.assigned[topic_id])))
            for topic_id in sorted(member.assigned)
        )
    )


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)


def _fenced(message: str) -> RefusedError:
    return RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"{message} The member must abandon all its partitions and rejoin.",
    )
