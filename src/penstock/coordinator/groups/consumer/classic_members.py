"""`ClassicMembersOfConsumerGroups`: members that speak the classic protocol, in consumer groups.

A classic member's JoinGroup is a heartbeat, its generation an epoch, its SyncGroup fetches the
partitions it may have now. It must rejoin when the group has a new epoch, when it must give up
partitions, and when partitions it waits for are free. Checks, codes and their order are Kafka's. It
does NOT serve classic groups; a JoinGroup to a consumer group without members turns it into one.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from penstock.coordinator.groups.classic.groups import ClassicGroups
from penstock.coordinator.groups.classic.join import KNOWN_MEMBER_ID_SINCE
from penstock.coordinator.groups.classic.rebalance import join_error, sync_error
from penstock.coordinator.groups.consumer import checks
from penstock.coordinator.groups.consumer.change import GroupChange
from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.consumer.consumer_member import Member, MemberState
from penstock.coordinator.groups.consumer.leaving import Leaving
from penstock.coordinator.groups.consumer.sessions import Sessions
from penstock.coordinator.groups.consumer.upgrade import (
    can_downgrade_by_replacement,
    classic_metadata,
)
from penstock.coordinator.groups.embedded_protocol import (
    decode_subscription,
    encode_assignment,
    to_ids,
    version_of,
)
from penstock.coordinator.groups.reaction import Reaction
from penstock.coordinator.groups.refused import RefusedError
from penstock.coordinator.groups.state.group_state import GroupState
from penstock.coordinator.groups.state.subscriptions import CONSUMER_PROTOCOL_TYPE
from penstock.coordinator.shard import Asked, Ticket
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_UNKNOWN_MEMBER_ID: Final = ""


class ClassicMembersOfConsumerGroups:
    """JoinGroup, SyncGroup, Heartbeat and LeaveGroup for consumer groups."""

    def __init__(
        self, state: GroupState, classic: ClassicGroups, sessions: Sessions, leaving: Leaving
    ) -> None:
        self._state = state
        self._classic = classic
        self._sessions = sessions
        self._leaving = leaving

    # --- JoinGroup ---

    def join(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        asked: Asked,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        """Add a classic member, or let it continue in the group's epoch."""
        reaction.make_revocable()
        if not group.members:
            self._become_classic_when_empty(group, request, asked, ticket, reaction)
            return
        try:
            self._check_join(group, request)
            if (
                request.member_id == _UNKNOWN_MEMBER_ID
                and request.group_instance_id is None
                and asked.api_version >= KNOWN_MEMBER_ID_SINCE
            ):
                required = ErrorCode.MEMBER_ID_REQUIRED
                reaction.reply(ticket, join_error(self._state.new_id(), required))
                return
            response = self._join(group, request, asked, reaction)
        except RefusedError as refused:
            response = join_error(request.member_id, refused.error_code)
        reaction.reply(ticket, response)

    def _become_classic_when_empty(
        self,
        group: ConsumerGroup,
        request: JoinGroupRequest,
        asked: Asked,
        ticket: Ticket,
        reaction: Reaction,
    ) -> None:
        """Convert an empty group to a classic one, if the JoinGroup is accepted."""
        self._classic.join(request, asked, ticket, reaction)
        if group.group_id in self._state.classic:
            reaction.write_all(group.tombstones())

    def _check_join(self, group: ConsumerGroup, request: JoinGroupRequest) -> None:
        settings = self._state.settings
        timeout_ms = request.session_timeout_ms
        if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            raise RefusedError(
                ErrorCode.INVALID_SESSION_TIMEOUT, f"{timeout_ms} ms is not within the limits."
            )
        checks.check_size(group, request.member_id, settings)
        names = {protocol.name for protocol in request.protocols}
        if not group.supports_classic(request.protocol_type, names):
            raise RefusedError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"Member {request.member_id}'s protocols are not supported.",
            )

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, asked: Asked, reaction: Reaction
    ) -> JoinGroupResponse:
        member_id = request.member_id or self._state.new_id()
        change = GroupChange(self._state, group, reaction.now_ms, asked.permissions)
        replaced = group.member_of_instance(request.group_instance_id)
        becomes_classic = replaced is not None and can_downgrade_by_replacement(
            group, replaced, self._state.settings
        )
        before = self._member(change, request, member_id)
        subscription = decode_subscription(bytes(request.protocols[0].metadata))
        after = _described(before, request, subscription, asked)
        owned = to_ids(subscription, self._state.topics)
        change.update_member(before, after)
        if becomes_classic and replaced is not None:
            if not change.is_subscription_changed:
                after = change.reconcile(after, owned)
            reaction.write_all(change.records)
            others = (m for m in group.members.values() if m.member_id != replaced.member_id)
            self._leaving.become_classic(
                group,
                [*others, after],
                {member_id: replaced.member_id},
                reaction,
                must_rebalance=change.is_subscription_changed,
            )
        else:
            change.update_target(before, after)
            after = change.reconcile(after, owned)
            reaction.write_all(change.records)
            reaction.when_written(partial(self._sessions.joined, group.group_id, after))
            if before is group.members.get(member_id):
                reaction.when_refused(partial(self._sessions.tried, group.group_id, before))
        return JoinGroupResponse(
            member_id=after.member_id,
            generation_id=after.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            leader="",
            members=(),
        )

    def _member(self, change: GroupChange, request: JoinGroupRequest, member_id: str) -> Member:
        group = change.group
        instance_id = request.group_instance_id
        if instance_id is None:
            return group.members.get(member_id) or Member(member_id=member_id)
        if request.member_id != _UNKNOWN_MEMBER_ID:
            return checks.known_instance(group, instance_id, member_id)
        existing = group.member_of_instance(instance_id)
        if existing is None:
            return Member(member_id=member_id)
        return change.replace_static(existing, member_id)

    # --- SyncGroup ---

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Answer with the partitions that the member may have now."""
        try:
            member = _classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            _check_protocol(member, request)
            self._check_rebalance(group, member, reaction)
        except RefusedError as refused:
            reaction.reply(ticket, sync_error(refused.error_code))
            return
        assert member.classic is not None
        version = version_of(member.classic.supported_protocols[0].metadata)
        partitions = {topic_id: frozenset(numbers) for topic_id, numbers in member.assigned.items()}
        self._sessions.synced(group.group_id, member, reaction)
        reaction.reply(
            ticket,
            SyncGroupResponse(
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=encode_assignment(partitions, self._state.topics, version),
            ),
        )

    def _check_rebalance(self, group: ConsumerGroup, member: Member, reaction: Reaction) -> None:
        """A member of an older epoch rejoins first, unless it still has to give up partitions."""
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if group.epoch > member.epoch and not is_revoking:
            self._sessions.must_rejoin(group.group_id, member, reaction)
            raise RefusedError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"A new rebalance is triggered in group {group.group_id} and member "
                f"{member.member_id} should rejoin to catch up.",
            )

    # --- Heartbeat ---

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Prolong the session; the answer says whether the member must rejoin."""
        error = ErrorCode.NONE
        try:
            member = _classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
        except RefusedError as refused:
            reaction.reply(ticket, HeartbeatResponse(error_code=refused.error_code))
            return
        self._sessions.heard_of(group.group_id, member, reaction)
        is_free = member.state is MemberState.UNRELEASED_PARTITIONS and (
            not group.is_waiting_for_others(member)
        )
        is_revoking = member.state is MemberState.UNREVOKED_PARTITIONS
        if member.epoch < group.epoch or is_revoking or is_free:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            self._sessions.must_rejoin(group.group_id, member, reaction)
        reaction.reply(ticket, HeartbeatResponse(error_code=error))

    # --- LeaveGroup ---

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, ticket: Ticket, reaction: Reaction
    ) -> None:
        """Remove members, each with its own result, in one new epoch."""
        reaction.make_revocable()
        leaving: dict[str, Member] = {}
        responses = []
        for identity in request.members:
            error = ErrorCode.NONE
            try:
                member = _leaving_member(group, identity)
                leaving[member.member_id] = member
            except RefusedError as refused:
                error = refused.error_code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        self._leaving.fence(group, list(leaving.values()), reaction)
        reaction.reply(ticket, LeaveGroupResponse(members=tuple(responses)))


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    if identity.group_instance_id is None:
        return checks.known_member(group, identity.member_id)
    if identity.member_id == _UNKNOWN_MEMBER_ID:
        # An administrator removes an instance without knowing its member id.
        member = group.member_of_instance(identity.group_instance_id)
        if member is not None:
            return member
    return checks.known_instance(group, identity.group_instance_id, identity.member_id)


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    if instance_id is None:
        member = checks.known_member(group, member_id)
    else:
        member = checks.known_instance(group, instance_id, member_id)
    if not member.is_classic:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
        )
    return member


def _check_generation(member: Member, generation_id: int) -> None:
    if member.epoch != generation_id:
        raise RefusedError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch "
            f"{member.epoch} of member {member.member_id}.",
        )


def _check_protocol(member: Member, request: SyncGroupRequest) -> None:
    assert member.classic is not None
    name = member.classic.supported_protocols[0].name
    if request.protocol_type not in {None, CONSUMER_PROTOCOL_TYPE}:
        raise RefusedError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol type {request.protocol_type} is not that of the group.",
        )
    if request.protocol_name not in {None, name}:
        raise RefusedError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"The protocol name {request.protocol_name} is not the one returned by JoinGroup.",
        )


def _described(
    member: Member,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    asked: Asked,
) -> Member:
    """The member as its JoinGroup describes it; classic members have no regular expressions."""
    timeout_ms = request.rebalance_timeout_ms
    instance_id = request.group_instance_id
    return replace(
        member,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        subscribed_names=frozenset(subscription.topics),
        subscribed_regex="",
        client_id=asked.client_id,
        client_host=asked.client_host,
        classic=classic_metadata(request.session_timeout_ms, request.protocols),
    )
