"""The ports of replication: connections to leaders, the metadata, the storage of replicas.

`node` connects them: `LeaderConnections` to the inter-broker listeners, `PartitionMetadata` to the
metadata service, `ReplicaStorage` to the storage service.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.cluster.changes import Change
from penstock.cluster.image import MetadataImage
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.storage.log.partition_log import PartitionLog


class LeaderConnection(Protocol):
    """A connection to one leader. A failed call ends it."""

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Fetch as a follower; raises `ClientError`."""
        ...

    async def close(self) -> None:
        """Close the connection; a call under way raises `ClientError`."""
        ...


class LeaderConnections(Protocol):
    """Opens connections to other brokers."""

    async def open(self, broker_id: int) -> LeaderConnection:
        """Connect to a registered broker; raises `ClientError`."""
        ...


class PartitionMetadata(Protocol):
    """The metadata of the cluster, as replication uses it."""

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        ...

    @property
    def broker_epoch(self) -> int:
        """The registration of this broker; 0 for none."""
        ...

    def subscribe(
        self, subscriber: Callable[[MetadataImage, MetadataImage, tuple[Change, ...]], None]
    ) -> Callable[[], None]:
        """Call `subscriber` for each new image; the returned function unsubscribes."""
        ...

    async def write_partitions(self, writes: Sequence[PartitionWrite]) -> list[bool]:
        """Write changes of partitions; return for each whether it has landed."""
        ...


class ReplicaStorage(Protocol):
    """The storage of replicas."""

    async def truncate_log(self, topic_partition: TopicPartition, offset: int) -> None:
        """Remove all records of a log starting at the offset, durably."""
        ...

    async def restart_log(self, topic_partition: TopicPartition, offset: int) -> None:
        """Remove all records of a log, durably; it begins anew at the offset."""
        ...

    async def advance_starts(
        self, starts: Sequence[tuple[PartitionLog, int]]
    ) -> list[PenstockError | None]:
        """Hide the records below the given offsets, durably; one outcome for each log."""
        ...
