"""The ports of pipes: the parent's cluster, and the mirrors on this broker.

`edge.pipes.kafka_parent` is a `Parent` over Kafka's protocol; `node.pipes.mirror_logs` fills
`Mirrors`. Both have few methods, so tests replace them by plain classes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.client.transport.addresses import Address
from penstock.core.types import TopicPartition
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.down_pipe import EpochEnd, OwnLog, ParentLog
from penstock.edge.pipes.pipe_health import Room
from penstock.protocol.error_codes import ErrorCode


class ParentPartition(NamedTuple):
    """The leader of a partition in the parent's cluster."""

    leader: Address | None
    """None: it has no leader now."""
    leader_epoch: int


class ParentTopic(NamedTuple):
    """A topic of the parent."""

    name: str
    topic_id: UUID | None
    partitions: tuple[ParentPartition, ...]


class Fetched(NamedTuple):
    """The answer to a fetch of one partition."""

    code: ErrorCode
    high_watermark: int
    start_offset: int
    has_diverged: bool
    records: memoryview


class FetchAt(NamedTuple):
    """The position of a fetch of one partition."""

    topic_id: UUID
    leader_epoch: int
    offset: int
    last_epoch: int


class FetchLimits(NamedTuple):
    """The bounds of one fetch."""

    wait_ms: int
    bytes_max: int


class CommittedOffset(NamedTuple):
    """A committed offset of a group."""

    offset: int
    leader_epoch: int
    metadata: str


Committed = Mapping[TopicPartition, CommittedOffset]


class Parent(Protocol):
    """The cluster that topics are copied from. Calls raise `PenstockError`."""

    async def topics(self, names: Collection[str] | None) -> Mapping[str, ParentTopic]:
        """Return these topics, or all but the internal ones."""
        ...

    async def settings(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the settings that these topics override."""
        ...

    async def log_ends(
        self, asked: Mapping[TopicPartition, tuple[UUID, int, int]]
    ) -> Mapping[TopicPartition, ParentLog]:
        """Return the ends of logs; asked are topic id, leader epoch, and the epoch to find."""
        ...

    async def fetch(
        self, leader: Address, places: Mapping[TopicPartition, FetchAt], limits: FetchLimits
    ) -> Mapping[TopicPartition, Fetched]:
        """Fetch from one leader; partitions without news may be absent."""
        ...

    async def batch_at(
        self, leader: Address, at: TopicPartition, place: FetchAt
    ) -> BatchMark | None:
        """Return the first batch that ends at or after the place."""
        ...

    async def groups(self) -> Collection[str]:
        """Return the names of all groups."""
        ...

    async def committed(self, group: str) -> Committed:
        """Return the committed offsets of a group."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class MirrorTopic(NamedTuple):
    """A topic of this broker that has the name of a parent's topic."""

    topic_id: UUID
    partition_count: int
    pipe: str
    """The pipe that writes it; empty: clients do."""
    is_restoring: bool
    is_compacted: bool


class DiskRoom(NamedTuple):
    """The disk of the mirrors."""

    room: Room
    left_bytes: int
    """Until new data is refused."""


class Mirrors(Protocol):
    """The mirrors of this broker. Calls raise `PenstockError`."""

    def topic(self, name: str) -> MirrorTopic | None:
        """Return a topic of this broker; None if it does not exist."""
        ...

    def names(self, pipe: str) -> Collection[str]:
        """Return the mirrors of a pipe."""
        ...

    async def create(self, topic: ParentTopic, settings: Mapping[str, str], pipe: str) -> None:
        """Create a mirror with the parent's topic id and settings."""
        ...

    async def grow(self, name: str, partition_count: int) -> None:
        """Add partitions to a mirror."""
        ...

    async def raise_epochs(self, name: str, epochs: Sequence[int]) -> None:
        """Raise the leader epochs of a mirror to at least these, in one write."""
        ...

    async def restored(self, name: str) -> None:
        """Note that a restored mirror agrees with its parent."""
        ...

    def log(self, at: TopicPartition) -> OwnLog | None:
        """Return the ends of a log; None if it is not served."""
        ...

    def epoch_end(self, at: TopicPartition, epoch: int) -> EpochEnd:
        """Return where an epoch ends in the own log."""
        ...

    async def batch_at(self, at: TopicPartition, offset: int) -> BatchMark | None:
        """Return the first batch that ends at or after the offset."""
        ...

    async def append(self, at: TopicPartition, records: memoryview, parent_start: int) -> None:
        """Append whole batches of the parent as they are."""
        ...

    async def refresh(self, pipe: str, at: TopicPartition, offset: int) -> None:
        """Replace the topic of a partition by a snapshot that ends at the offset or later."""
        ...

    async def cut(self, at: TopicPartition, offset: int, *, is_restart: bool) -> None:
        """Remove all records starting at the offset, or all; durably."""
        ...

    def room(self) -> DiskRoom:
        """Return the free space of the disk, as it was last measured."""
        ...

    async def committed(self, group: str) -> Committed:
        """Return the committed offsets of a group on this broker."""
        ...

    async def commit(self, group: str, offsets: Committed) -> bool:
        """Commit offsets as a client that is not a member; False if the group has members."""
        ...
