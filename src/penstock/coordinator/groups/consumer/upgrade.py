"""Turning a live classic group into a consumer group, and back (KIP-848's migration).

`upgrade` and `downgrade` return the records that convert a group to the other kind. Assignments
survive both ways: no partition changes hands by the conversion itself. They do NOT change the live
groups; `consumer.heartbeat` and `consumer.leaving` do, when everything is decided.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.consumer import records
from penstock.coordinator.groups.consumer.consumer_group import ConsumerGroup
from penstock.coordinator.groups.consumer.consumer_member import Member, owned_since
from penstock.coordinator.groups.consumer.topics import metadata_hash
from penstock.coordinator.groups.embedded_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    to_ids,
    version_of,
)
from penstock.coordinator.groups.refused import RefusedError
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.state.classic_group import ClassicGroup, ClassicState
from penstock.coordinator.groups.state.classic_member import ClassicMember
from penstock.coordinator.groups.state.subscriptions import CONSUMER_PROTOCOL_TYPE
from penstock.coordinator.metadata_view import TopicsView
from penstock.coordinator.shard import StoredRecord
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.join_group import JoinGroupRequestProtocol
from penstock.protocol.stored.group_records import (
    ConsumerGroupMemberMetadataValueClassicMemberMetadata,
    ConsumerGroupMemberMetadataValueClassicProtocol,
    GroupMetadataKey,
)

_UPGRADE_POLICIES: Final = frozenset({"upgrade", "bidirectional"})
_DOWNGRADE_POLICIES: Final = frozenset({"downgrade", "bidirectional"})


# --- Classic to consumer ---


def check_upgrade(group: ClassicGroup, settings: GroupSettings) -> None:
    """Refuse to turn a classic group into a consumer group if that is not possible."""
    reason = None
    if settings.consumer_migration_policy not in _UPGRADE_POLICIES:
        reason = "online upgrade is disabled"
    elif not group.uses_consumer_protocol:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > settings.consumer_group_members_max:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise RefusedError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}.",
        )


def upgrade(group: ClassicGroup, topics: TopicsView) -> list[StoredRecord]:
    """The records that delete the classic group and create the consumer group from it."""
    try:
        return _upgrade(group, topics)
    except RefusedError as error:
        raise RefusedError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group.group_id} to consumer group because "
            f"{error.message}.",
        ) from error


def _upgrade(group: ClassicGroup, topics: TopicsView) -> list[StoredRecord]:
    epoch = group.generation_id
    taken: dict[UUID, set[int]] = {}
    members = [
        (member, _free(_partitions_of(member, topics), taken)) for member in group.members.values()
    ]
    upgraded = [
        (_upgraded(group, member, partitions, epoch), partitions) for member, partitions in members
    ]
    group_id = group.group_id
    names = {name for member, _ in upgraded for name in member.subscribed_names}
    return [
        *group.tombstones(),
        *(records.member_metadata(group_id, member) for member, _ in upgraded),
        records.group_epoch(group_id, epoch, metadata_hash(names, topics)),
        *(
            records.member_target(group_id, member.member_id, partitions)
            for member, partitions in upgraded
        ),
        records.target_epoch(group_id, epoch, 0),
        *(records.current_assignment(group_id, member) for member, _ in upgraded),
    ]


def _partitions_of(member: ClassicMember, topics: TopicsView) -> PartitionSets:
    """The member's partitions; none if it never fetched an assignment."""
    if not member.assignment:
        return {}
    assignment = decode_assignment(member.assignment)
    if assignment.user_data:
        raise RefusedError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            "an unsupported custom assignor is in use. Please refer to the documentation or "
            "switch to a default assignor before re-attempting the upgrade",
        )
    return to_ids(assignment, topics)


def _free(partitions: PartitionSets, taken: dict[UUID, set[int]]) -> PartitionSets:
    """The partitions that no earlier member has: the leader may have assigned one twice."""
    free = {}
    for topic_id, numbers in partitions.items():
        others = taken.setdefault(topic_id, set())
        if numbers - others:
            free[topic_id] = numbers - others
        others |= numbers
    return free


def _upgraded(
    group: ClassicGroup, member: ClassicMember, partitions: PartitionSets, epoch: int
) -> Member:
    name = group.protocol_name
    if name is None or group.protocol_counts.get(name, 0) < len(group.members):
        name = group.select_protocol()
    subscription = decode_subscription(member.metadata_of(name))
    return Member(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_names=frozenset(subscription.topics),
        classic=classic_metadata(member.session_timeout_ms, member.protocols),
        epoch=epoch,
        previous_epoch=epoch,
        assigned=owned_since(partitions, epoch),
    )


def classic_metadata(
    session_timeout_ms: int, protocols: Collection[JoinGroupRequestProtocol]
) -> ConsumerGroupMemberMetadataValueClassicMemberMetadata:
    """The stored data of a classic member in a consumer group."""
    return ConsumerGroupMemberMetadataValueClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=tuple(
            ConsumerGroupMemberMetadataValueClassicProtocol(
                name=protocol.name, metadata=bytes(protocol.metadata)
            )
            for protocol in protocols
        ),
    )


# --- Consumer to classic ---


def can_downgrade(group: ConsumerGroup, leaving: list[Member], settings: GroupSettings) -> bool:
    """Whether only classic members remain when these have left, and may be a classic group."""
    remaining = len(group.members) - len(leaving)
    return (
        group.are_all_classic_except(leaving)
        and 0 < remaining <= settings.classic_group_members_max
        and settings.consumer_migration_policy in _DOWNGRADE_POLICIES
    )


def can_downgrade_by_replacement(
    group: ConsumerGroup, replaced: Member, settings: GroupSettings
) -> bool:
    """Whether a classic member that takes over this instance is the last that was missing."""
    return (
        not replaced.is_classic
        and group.classic_count == len(group.members) - 1
        and len(group.members) <= settings.classic_group_members_max
        and settings.consumer_migration_policy in _DOWNGRADE_POLICIES
    )


def downgrade(
    group: ConsumerGroup,
    staying: list[Member],
    replaced: dict[str, str],
    topics: TopicsView,
    now_ms: int,
) -> ClassicGroup:
    """The classic group of the members that stay, stable.

    `replaced` maps a new member id to the id whose target it takes over: every member gets its
    target then, because no rebalance follows. When a member left, one does: until then each is
    stored with the partitions it still reads, so that an upgrade in between assigns none of them to
    another.
    """
    classic = ClassicGroup(group.group_id, now_ms)
    classic.state = ClassicState.STABLE
    classic.generation_id = group.epoch
    for member in staying:
        assert member.classic is not None, "a downgraded group has classic members only"
        classic.add(
            ClassicMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.classic.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=tuple(
                    JoinGroupRequestProtocol(name=protocol.name, metadata=protocol.metadata)
                    for protocol in member.classic.supported_protocols
                ),
            )
        )
    classic.protocol_name = classic.select_protocol()
    classic.learn_topics()
    held = {member.member_id: _held(member) for member in staying}
    for classic_member in classic.members.values():
        member_id = replaced.get(classic_member.member_id, classic_member.member_id)
        version = version_of(classic_member.metadata_of(classic.protocol_name))
        partitions = group.targets.get(member_id, {}) if replaced else held[member_id]
        classic_member.assignment = encode_assignment(partitions, topics, version)
    return classic


def _held(member: Member) -> PartitionSets:
    """Partitions that a member may be reading: assigned, or not given up yet."""
    held: dict[UUID, frozenset[int]] = {}
    for owned in (member.assigned, member.pending_revocation):
        for topic_id, numbers in owned.items():
            held[topic_id] = held.get(topic_id, frozenset()) | numbers.keys()
    return held


def downgrade_records(
    group: ConsumerGroup, member_ids: Collection[str], classic: ClassicGroup
) -> list[StoredRecord]:
    """Delete the consumer group, whose members are `member_ids` by now, and write the classic."""
    assignments = {member.member_id: member.assignment for member in classic.members.values()}
    key = GroupMetadataKey(group=group.group_id)
    return [
        *records.group_tombstones(group.group_id, member_ids, group.expressions),
        StoredRecord(key, classic.stored_value(assignments)),
    ]
