"""Checks of ConsumerGroupHeartbeat, with Kafka's codes and words in Kafka's order.

Each check raises `RefusedError` or returns. They read and do NOT change anything.
"""

from collections.abc import Mapping
from typing import Final
from uuid import UUID

from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    Member,
)
from penstock.coordinator.groups.refused import RefusedError
from penstock.coordinator.groups.settings import GroupSettings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

CLIENT_MEMBER_ID_SINCE: Final = 1
"""Starting at this version the client generates the member id."""


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, settings: GroupSettings
) -> None:
    """Refuse a heartbeat that is invalid for any group."""
    epoch = request.member_epoch
    if (api_version >= CLIENT_MEMBER_ID_SINCE or epoch > 0 or epoch == LEAVE_EPOCH) and (
        not request.member_id.strip()
    ):
        raise _invalid("MemberId can't be empty.")
    for value, name in (
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if value is not None and not value.strip():
            raise _invalid(f"{name} can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in settings.consumer_assignors:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: "
            f"{', '.join(settings.consumer_assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def check_size(group: ConsumerGroup, member_id: str, settings: GroupSettings) -> None:
    """Refuse one more member than the group may have."""
    limit = settings.consumer_group_members_max
    if len(group.members) >= limit and member_id not in group.members:
        raise RefusedError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


def check_epoch(
    member: Member, epoch: int, reported: Mapping[UUID, tuple[int, ...]] | None
) -> None:
    """Fence a member with a wrong epoch. One that lost an answer may send the previous epoch."""
    if epoch in {JOIN_EPOCH, member.epoch}:
        return
    if epoch > member.epoch:
        raise _fenced("greater", epoch, member.epoch)
    if epoch != member.previous_epoch or not _is_within(reported, member):
        raise _fenced("smaller", epoch, member.epoch)


def _is_within(reported: Mapping[UUID, tuple[int, ...]] | None, member: Member) -> bool:
    if reported is None:
        return False
    return all(
        number in member.assigned.get(topic_id, ())
        for topic_id, numbers in reported.items()
        for number in numbers
    )


def known_member(group: ConsumerGroup, member_id: str) -> Member:
    """The member of this id."""
    member = group.members.get(member_id)
    if member is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    return member


def known_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """The static member of this instance, which must have this member id."""
    member = group.member_of_instance(instance_id)
    if member is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise RefusedError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def check_released(member: Member, member_id: str) -> None:
    """Refuse to take over the instance of a member that has not left."""
    if member.epoch != STATIC_LEAVE_EPOCH:
        raise RefusedError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {member.instance_id} cannot join the "
            f"group because the instance id is owned by {member.member_id} member.",
        )


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)


def _fenced(relation: str, received: int, known: int) -> RefusedError:
    return RefusedError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({received}) than the one known "
        f"by the group coordinator ({known}). The member must abandon all its partitions and "
        "rejoin.",
    )
