"""The records of share groups, as Apache Kafka 4.3 defines them.

`__share_group_state` has the first two: a snapshot of the delivery state of a share-partition, and
the updates since. `__consumer_offsets` has the others, types 10 to 15: members, assignments and the
share-partitions that have state. Kafka's field names; all times are milliseconds since 1970.
`codec` writes them; the coordinators, NOT this file, know the meaning of a record.
"""

from typing import Annotated, ClassVar
from uuid import UUID

from penstock.protocol.message import message
from penstock.protocol.stored.fields import Int8, Int16, Int32, Int64, Tag

# --- Delivery state: `__share_group_state` ---


@message()
class ShareSnapshotKey:
    """The share-partition of a snapshot."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    topic_id: UUID | None
    partition: Int32


@message()
class ShareSnapshotValueStateBatch:
    """Consecutive records with one delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message()
class ShareSnapshotValue:
    """The whole delivery state of a share-partition."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, Tag(0)] = -1
    """Records from the start offset on whose delivery is complete; -1: unknown."""
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: tuple[ShareSnapshotValueStateBatch, ...]


@message()
class ShareUpdateKey:
    """The share-partition of an update."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    topic_id: UUID | None
    partition: Int32


@message()
class ShareUpdateValueStateBatch:
    """Consecutive records with one delivery state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message()
class ShareUpdateValue:
    """The changed part of the delivery state, since the snapshot of the same epoch."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    """-1: unchanged."""
    delivery_complete_count: Annotated[Int32, Tag(0)] = -1
    state_batches: tuple[ShareUpdateValueStateBatch, ...]


# --- Share groups: `__consumer_offsets` ---


@message()
class ShareGroupMemberMetadataKey:
    """The group and the member."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    member_id: str


@message()
class ShareGroupMemberMetadataValue:
    """The metadata that a member sent."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


@message()
class ShareGroupMetadataKey:
    """The id of a share group."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str


@message()
class ShareGroupMetadataValue:
    """The epoch of a share group."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    epoch: Int32
    metadata_hash: Int64
    """Hash of all topics that the group subscribes to."""


@message()
class ShareGroupTargetAssignmentMetadataKey:
    """The group of a target assignment."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str


@message()
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of the target assignment."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, Tag(0)] = 0
    """When it was computed."""


@message()
class ShareGroupTargetAssignmentMemberKey:
    """The group and the member of a target assignment."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    member_id: str


@message()
class ShareGroupTargetAssignmentMemberValueTopicPartition:
    """Partitions of one topic."""

    topic_id: UUID | None
    partitions: tuple[Int32, ...]


@message()
class ShareGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    topic_partitions: tuple[ShareGroupTargetAssignmentMemberValueTopicPartition, ...]


@message()
class ShareGroupCurrentMemberAssignmentKey:
    """The group and the member of a current assignment."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    member_id: str


@message()
class ShareGroupCurrentMemberAssignmentValueTopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID | None
    partitions: tuple[Int32, ...]


@message()
class ShareGroupCurrentMemberAssignmentValue:
    """The partitions that a member has."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: tuple[ShareGroupCurrentMemberAssignmentValueTopicPartitions, ...]


@message()
class ShareGroupStatePartitionMetadataKey:
    """The id of a share group."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str


@message()
class ShareGroupStatePartitionMetadataValueTopicPartitionsInfo:
    """Partitions of one topic."""

    topic_id: UUID | None
    topic_name: str
    partitions: tuple[Int32, ...]


@message()
class ShareGroupStatePartitionMetadataValueTopicInfo:
    """A topic."""

    topic_id: UUID | None
    topic_name: str


@message()
class ShareGroupStatePartitionMetadataValue:
    """The share-partitions of a group that have delivery state, or are about to get or lose it."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    initializing_topics: tuple[ShareGroupStatePartitionMetadataValueTopicPartitionsInfo, ...]
    initialized_topics: tuple[ShareGroupStatePartitionMetadataValueTopicPartitionsInfo, ...]
    deleting_topics: tuple[ShareGroupStatePartitionMetadataValueTopicInfo, ...]
