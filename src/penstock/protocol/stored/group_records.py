"""The records of `__consumer_offsets`, as Apache Kafka 4.3 defines them.

One class for all versions of a record, with Kafka's field names. All times are milliseconds since
1970, all timeouts milliseconds. Which versions exist and which one is written is in `codec`; what a
record means is the group coordinator's business, NOT known here. Records of share and streams
groups are not here: a log that has them is read as if they were not there.
"""

from typing import Annotated, ClassVar
from uuid import UUID

from penstock.protocol.message import message
from penstock.protocol.stored.fields import In, Int8, Int32, Int64, Tag

# --- Offsets ---


@message()
class OffsetCommitKey:
    """Which group's offset of which partition."""

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
    """When the client wants it forgotten; -1: the broker's retention decides."""
    topic_id: Annotated[UUID | None, Tag(0, first_version=4)] = None


# --- Classic groups ---


@message()
class GroupMetadataKey:
    """Which classic group."""

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
    """Which consumer group."""

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
    """Of all topics that the group subscribes to."""


@message()
class ConsumerGroupPartitionMetadataKey:
    """Which consumer group; Kafka 4.1 and later only delete these records."""

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
    """The topics of a group, as Kafka before 4.1 kept them."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    topics: tuple[ConsumerGroupPartitionMetadataValueTopicMetadata, ...]


@message()
class ConsumerGroupMemberMetadataKey:
    """Which member of which group."""

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
    """What a member that speaks the classic protocol adds."""

    session_timeout_ms: Int32
    supported_protocols: tuple[ConsumerGroupMemberMetadataValueClassicProtocol, ...]


@message()
class ConsumerGroupMemberMetadataValue:
    """What a member told of itself."""

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
    """Which group's target assignment."""

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
    """Which member's target assignment."""

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
    """What a member shall own."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    topic_partitions: tuple[ConsumerGroupTargetAssignmentMemberValueTopicPartition, ...]


@message()
class ConsumerGroupCurrentMemberAssignmentKey:
    """Which member's current assignment."""

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
    """For each partition the epoch at which the member got it; empty when nobody knows."""


@message()
class ConsumerGroupCurrentMemberAssignmentValue:
    """What a member owns, and what it is still to give up."""

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
    """Which regular expression of which group."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = None

    group_id: str
    regular_expression: str


@message()
class ConsumerGroupRegularExpressionValue:
    """The topics that it stands for."""

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_SINCE: ClassVar[int | None] = 0

    topics: tuple[str, ...]
    version: Int64
    """Of the cluster's metadata that it was resolved against."""
    timestamp: Int64
