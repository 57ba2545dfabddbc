"""Creates the records of a consumer group.

One function for each record that Kafka writes; the caller orders them, and `ConsumerGroup.apply`
applies them.
"""

from collections.abc import Iterable
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.consumer.consumer_member import Member
from penstock.coordinator.shard import StoredRecord
from penstock.protocol.codec import Message
from penstock.protocol.stored import group_records as stored


def group_id_of(key: Message) -> str | None:
    """The group that a record belongs to; None: it is not of a consumer group."""
    if isinstance(
        key,
        stored.ConsumerGroupMetadataKey
        | stored.ConsumerGroupPartitionMetadataKey
        | stored.ConsumerGroupMemberMetadataKey
        | stored.ConsumerGroupTargetAssignmentMetadataKey
        | stored.ConsumerGroupTargetAssignmentMemberKey
        | stored.ConsumerGroupCurrentMemberAssignmentKey
        | stored.ConsumerGroupRegularExpressionKey,
    ):
        return key.group_id
    return None


def target_of(value: stored.ConsumerGroupTargetAssignmentMemberValue) -> PartitionSets:
    """The target assignment in a record."""
    target: dict[UUID, frozenset[int]] = {}
    for topic in value.topic_partitions:
        assert topic.topic_id is not None, "a stored assignment names its topics"
        target[topic.topic_id] = frozenset(topic.partitions)
    return target


# --- Values ---


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    """The epoch of the group."""
    value = stored.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return StoredRecord(stored.ConsumerGroupMetadataKey(group_id=group_id), value)


def target_epoch(group_id: str, epoch: int, computed_ms: int) -> StoredRecord:
    """The epoch of the target assignment, after the targets of all members."""
    value = stored.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=computed_ms
    )
    return StoredRecord(stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def member_metadata(group_id: str, member: Member) -> StoredRecord:
    """The subscription and properties that a member sent."""
    key = stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return StoredRecord(key, member.metadata_value())


def current_assignment(group_id: str, member: Member) -> StoredRecord:
    """The current assignment of a member."""
    key = stored.ConsumerGroupCurrentMemberAssignmentKey(
        group_id=group_id, member_id=member.member_id
    )
    return StoredRecord(key, member.assignment_value())


def member_target(group_id: str, member_id: str, target: PartitionSets) -> StoredRecord:
    """The target assignment of a member."""
    key = stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    value = stored.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=tuple(
            stored.ConsumerGroupTargetAssignmentMemberValueTopicPartition(
                topic_id=topic_id, partitions=tuple(sorted(target[topic_id]))
            )
            for topic_id in sorted(target)
        )
    )
    return StoredRecord(key, value)


def expression(
    group_id: str, pattern: str, topics: frozenset[str], revision: int, resolved_ms: int
) -> StoredRecord:
    """The topics that a regular expression matches."""
    key = stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    value = stored.ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(topics)), version=revision, timestamp=resolved_ms
    )
    return StoredRecord(key, value)


# --- Tombstones ---


def no_expression(group_id: str, pattern: str) -> StoredRecord:
    """No member subscribes to the regular expression any more."""
    key = stored.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern)
    return StoredRecord(key, None)


def no_partition_metadata(group_id: str) -> StoredRecord:
    """Deletes the partition metadata of a Kafka broker before 4.1."""
    return StoredRecord(stored.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def no_member(group_id: str, member_id: str) -> list[StoredRecord]:
    """Delete all records of a member."""
    return [
        _no_current(group_id, member_id),
        _no_target(group_id, member_id),
        _no_metadata(group_id, member_id),
    ]


def group_tombstones(
    group_id: str, member_ids: Iterable[str], expressions: Iterable[str]
) -> list[StoredRecord]:
    """Delete all records of a group."""
    ids = list(member_ids)
    target_key = stored.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return [
        *(_no_current(group_id, member_id) for member_id in ids),
        *(_no_target(group_id, member_id) for member_id in ids),
        StoredRecord(target_key, None),
        *(_no_metadata(group_id, member_id) for member_id in ids),
        *(no_expression(group_id, pattern) for pattern in expressions),
        no_partition_metadata(group_id),
        StoredRecord(stored.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _no_current(group_id: str, member_id: str) -> StoredRecord:
    key = stored.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return StoredRecord(key, None)


def _no_target(group_id: str, member_id: str) -> StoredRecord:
    key = stored.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return StoredRecord(key, None)


def _no_metadata(group_id: str, member_id: str) -> StoredRecord:
    key = stored.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return StoredRecord(key, None)
