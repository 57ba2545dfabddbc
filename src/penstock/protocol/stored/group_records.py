"""The records of `__consumer_offsets`, as Apache Kafka 4.3 defines them.

One class for all versions of a record, with Kafka's field names. All times are milliseconds since
1970, all timeouts milliseconds. `codec` has the versions and the one that is written; the group
coordinator, NOT this file, knows the meaning of a record. Records of share groups are in
`share_records`. Records of streams groups are not here: they are ignored in a log that has them.
"""

from typing import Annotated, ClassVar
from uuid import UUID

from penstock.protocol.message import message
from penstock.protocol.stored.fields import In, Int8, Int32, Int64, Tag

# --- Offsets ---


@message()
class OffsetCommitKey:
    """The group and the partition of an offset."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group: str
    topic: str
    partition: Int32


@message()
class OffsetCommitValue:
    """A committed offset."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 4)
    FLEXIBLE_SINCE: ClassVar[int | None] = 4

    offset: Int64
    leader_epoch: Annotated[Int32, In(3)] = -1
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, In(1, 1)] = -1
    """When it expires, set by the client; -1: the broker's retention decides."""
    topic_id: Annotated[UUID | None, Tag(0, first_version=4)] = None


# --- Classic groups ---


@message()
class GroupMetadataKey:
    """The id of a classic group."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group: str


@message()
class GroupMetadataValueMember:
    """A member of a classic group."""

    member_id: str
    group_instance_id: Annotated[str | None, In(3)] = None
    client_id: str
    client_host: str
    rebalance_timeout: Annotated[Int32, In(1)] = -1
    session_timeout: Int32
    subscription: bytes
    assignment: bytes


@message()
class GroupMetadataValue:
    """A generation of a classic group."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 4)
    FLEXIBLE_SINCE: ClassVar[int | None] = 4

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Annotated[Int64, In(2)] = -1
    members: tuple[GroupMetadataValueMember, ...]


# --- Consumer groups (KIP-848) ---


@message()
class ConsumerGroupMetadataKey:
    """The id of a consumer group."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str


@message()
class ConsumerGroupMetadataValue:
    """The epoch of a consumer group."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    epoch: Int32
    metadata_hash: Annotated[Int64, Tag(0)] = 0
    """Hash of all topics that the group subscribes to."""


@message()
class ConsumerGroupPartitionMetadataKey:
    """The id of a consumer group; Kafka 4.1 and later only delete these records."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str


@message()
class ConsumerGroupPartitionMetadataValuePartitionMetadata:
    """The racks of a partition."""

    partition: Int32
    racks: tuple[str, ...]


@message()
class ConsumerGroupPartitionMetadataValueTopicMetadata:
    """A topic that the group subscribes to."""

    topic_id: UUID | None
    topic_name: str
    num_partitions: Int32
    partition_metadata: tuple[ConsumerGroupPartitionMetadataValuePartitionMetadata, ...] = ()


@message()
class ConsumerGroupPartitionMetadataValue:
    """The topics of a group, as Kafka before 4.1 stored them."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    topics: tuple[ConsumerGroupPartitionMetadataValueTopicMetadata, ...]


@message()
class ConsumerGroupMemberMetadataKey:
    """The group and the member."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    member_id: str


@message()
class ConsumerGroupMemberMetadataValueClassicProtocol:
    """A protocol that a classic member supports."""

    name: str
    metadata: bytes


@message()
class ConsumerGroupMemberMetadataValueClassicMemberMetadata:
    """The additional metadata of a member that uses the classic protocol."""

    session_timeout_ms: Int32
    supported_protocols: tuple[ConsumerGroupMemberMetadataValueClassicProtocol, ...]


@message()
class ConsumerGroupMemberMetadataValue:
    """The metadata that a member sent."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: str | None
    classic_member_metadata: Annotated[
        ConsumerGroupMemberMetadataValueClassicMemberMetadata | None, Tag(0)
    ] = None


@message()
class ConsumerGroupTargetAssignmentMetadataKey:
    """The group of a target assignment."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str


@message()
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of the target assignment."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    assignment_epoch: Int32
    assignment_timestamp: Annotated[Int64, Tag(0)] = 0
    """When it was computed."""


@message()
class ConsumerGroupTargetAssignmentMemberKey:
    """The group and the member of a target assignment."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    member_id: str


@message()
class ConsumerGroupTargetAssignmentMemberValueTopicPartition:
    """Partitions of one topic."""

    topic_id: UUID | None
    partitions: tuple[Int32, ...]


@message()
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of a member."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    topic_partitions: tuple[ConsumerGroupTargetAssignmentMemberValueTopicPartition, ...]


@message()
class ConsumerGroupCurrentMemberAssignmentKey:
    """The group and the member of a current assignment."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    member_id: str


@message()
class ConsumerGroupCurrentMemberAssignmentValueTopicPartitions:
    """Partitions of one topic."""

    topic_id: UUID | None
    partitions: tuple[Int32, ...]
    assignment_epochs: Annotated[tuple[Int32, ...] | None, Tag(0)] = ()
    """For each partition the epoch at which the member got it; empty when unknown."""


@message()
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions that a member owns, and the partitions that it must still revoke."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: tuple[ConsumerGroupCurrentMemberAssignmentValueTopicPartitions, ...]
    partitions_pending_revocation: tuple[
        ConsumerGroupCurrentMemberAssignmentValueTopicPartitions, ...
    ]


@message()
class ConsumerGroupRegularExpressionKey:
    """The group and the regular expression."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    regular_expression: str


@message()
class ConsumerGroupRegularExpressionValue:
    """The topics that the expression matches."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    topics: tuple[str, ...]
    version: Int64
    """Version of the cluster's metadata that it was resolved against."""
    timestamp: Int64
