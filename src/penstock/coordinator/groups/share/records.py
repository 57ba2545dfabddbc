"""Creates the records of a share group.

One function for each record that Kafka writes; the caller orders them, and `ShareGroup.apply`
applies them.
"""

from collections.abc import Iterable
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.share.share_member import ShareMember
from penstock.coordinator.groups.share.state_partitions import StatePartitions
from penstock.coordinator.shard import StoredRecord
from penstock.protocol.codec import Message
from penstock.protocol.stored import share_records as stored


def group_id_of(key: Message) -> str | None:
    """The group that a record belongs to; None: it is not of a share group."""
    if isinstance(
        key,
        stored.ShareGroupMetadataKey
        | stored.ShareGroupMemberMetadataKey
        | stored.ShareGroupTargetAssignmentMetadataKey
        | stored.ShareGroupTargetAssignmentMemberKey
        | stored.ShareGroupCurrentMemberAssignmentKey
        | stored.ShareGroupStatePartitionMetadataKey,
    ):
        return key.group_id
    return None


def target_of(value: stored.ShareGroupTargetAssignmentMemberValue) -> PartitionSets:
    """The target assignment in a record."""
    target: dict[UUID, frozenset[int]] = {}
    for topic in value.topic_partitions:
        assert topic.topic_id is not None, "a stored assignment names its topics"
        target[topic.topic_id] = frozenset(topic.partitions)
    return target


# --- Values ---


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    """The epoch of the group."""
    value = stored.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return StoredRecord(stored.ShareGroupMetadataKey(group_id=group_id), value)


def target_epoch(group_id: str, epoch: int, computed_ms: int) -> StoredRecord:
    """The epoch of the target assignment, after the targets of all members."""
    value = stored.ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=computed_ms
    )
    return StoredRecord(stored.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def member_metadata(group_id: str, member: ShareMember) -> StoredRecord:
    """The subscription and properties that a member sent."""
    key = stored.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return StoredRecord(key, member.metadata_value())


def member_target(group_id: str, member_id: str, target: PartitionSets) -> StoredRecord:
    """The target assignment of a member."""
    value = stored.ShareGroupTargetAssignmentMemberValue(
        topic_partitions=tuple(
            stored.ShareGroupTargetAssignmentMemberValueTopicPartition(
                topic_id=topic_id, partitions=tuple(sorted(target[topic_id]))
            )
            for topic_id in sorted(target)
        )
    )
    key = stored.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return StoredRecord(key, value)


def current_assignment(group_id: str, member: ShareMember) -> StoredRecord:
    """The partitions that a member has."""
    key = stored.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return StoredRecord(key, member.assignment_value())


def state_partitions(group_id: str, partitions: StatePartitions) -> StoredRecord:
    """The partitions with delivery state."""
    key = stored.ShareGroupStatePartitionMetadataKey(group_id=group_id)
    return StoredRecord(key, partitions.to_value())


# --- Tombstones ---


def no_member(group_id: str, member_id: str) -> list[StoredRecord]:
    """Delete everything of a member, in Kafka's order."""
    return [
        _no_current(group_id, member_id),
        _no_target(group_id, member_id),
        _no_metadata(group_id, member_id),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[StoredRecord]:
    """Delete a group with its members, in Kafka's order."""
    members = list(member_ids)
    no_state = stored.ShareGroupStatePartitionMetadataKey(group_id=group_id)
    return [
        *(_no_current(group_id, member_id) for member_id in members),
        *(_no_target(group_id, member_id) for member_id in members),
        StoredRecord(stored.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(_no_metadata(group_id, member_id) for member_id in members),
        StoredRecord(no_state, None),
        StoredRecord(stored.ShareGroupMetadataKey(group_id=group_id), None),
    ]


def _no_current(group_id: str, member_id: str) -> StoredRecord:
    key = stored.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return StoredRecord(key, None)


def _no_target(group_id: str, member_id: str) -> StoredRecord:
    key = stored.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return StoredRecord(key, None)


def _no_metadata(group_id: str, member_id: str) -> StoredRecord:
    key = stored.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return StoredRecord(key, None)
