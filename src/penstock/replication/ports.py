"""The ports of replication: connections to leaders, the metadata, the storage of replicas.

`node` connects them: `LeaderConnections` to the inter-broker listeners, `PartitionMetadata` to the
metadata service, `ReplicaStorage` to the storage service, `Timer` to the event loop. `IsrWatch` is
filled here, by `isr_writer`, and so are the two throttles, by `throttles`.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.cluster.changes import Change
from penstock.cluster.image import MetadataImage
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.replication.hosted_partition import HostedPartition
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


class Timer(Protocol):
    """The one timer: call `WaitTable.expire` at a moment of the loop's clock."""

    def now(self) -> float:
        """The loop's monotonic time in seconds."""
        ...

    def set_alarm(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` at `moment`, instead of at the moment set before."""
        ...

    def cancel(self) -> None:
        """Cancel the alarm."""
        ...


class IsrWatch(Protocol):
    """Follows the leader's partitions with several replicas; `replication.isr_writer` is one."""

    def appended(self, partition: HostedPartition) -> None:
        """Records were appended: a follower may be behind now."""
        ...

    def reported(self, partition: HostedPartition, follower: int) -> None:
        """A follower has reported its synced offset."""
        ...


class SendThrottle(Protocol):
    """Limits the bytes that a leader sends to followers; `replication.throttles` has one."""

    def holds_back(self, partition: HostedPartition, follower: int) -> bool:
        """Return whether a follower gets no records of a partition now."""
        ...

    def sent(self, partition: HostedPartition, follower: int, size_bytes: int) -> None:
        """Records of a partition are in an answer to a follower."""
        ...


class CopyThrottle(Protocol):
    """Limits the bytes that a follower copies; `replication.throttles` has one."""

    @property
    def is_copying_throttled(self) -> bool:
        """Whether `held_until` must be asked for a partition."""
        ...

    def held_until(self, name: TopicPartition) -> float | None:
        """Return until when a partition is not copied; None if it is copied now."""
        ...

    def copied(self, name: TopicPartition, size_bytes: int, *, is_behind: bool) -> None:
        """Records of a partition have come; `is_behind`: committed ones are still missing."""
        ...
