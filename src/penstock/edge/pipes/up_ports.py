"""The ports of up pipes: the parent's cluster as a producer sees it, and the topics of this broker.

`edge.pipes.kafka_upstream` is an `Upstream` over Kafka's protocol; `node.pipes.site_logs` fills
`Sites`. `FileNote` of `node.pipes` fills `Note`.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol
from uuid import UUID

from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.ports import CommittedOffset, DiskRoom
from penstock.edge.pipes.site_batches import Outgoing, SiteRead
from penstock.edge.pipes.up_pipe import SiteLog


class SiteFencedError(PenstockError):
    """Another broker sends with the name of this site."""


class PartitionRefusedError(PenstockError):
    """The parent rejects the records of one partition permanently."""

    def __init__(self, at: TopicPartition, code: str, message: str) -> None:
        super().__init__(f"{at}: {code}" + (f": {message}" if message else ""))
        self.at = at
        self.code = code


class Upstream(Protocol):
    """The cluster that records are sent to. Calls raise `PenstockError`."""

    async def partition_counts(self, names: Collection[str]) -> Mapping[str, int]:
        """Return the partitions of these topics; missing topics are absent."""
        ...

    async def create(self, name: str, partition_count: int) -> None:
        """Create a topic; one that exists already is no error."""
        ...

    async def begin(self) -> None:
        """Become the only sender of this site: abort the transaction of the one before."""
        ...

    async def positions(self) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of this site."""
        ...

    async def transact(self, parts: Mapping[TopicPartition, Outgoing]) -> None:
        """Append the batches and commit the positions after them, all or nothing.

        After an error the outcome is unknown until `begin` and `positions`.
        """
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class SiteTopic(NamedTuple):
    """A topic of this broker."""

    topic_id: UUID
    partition_count: int
    is_compacted: bool


class Sites(Protocol):
    """The topics of this broker. Calls raise `PenstockError`."""

    def topics(self) -> Mapping[str, SiteTopic]:
        """Return all topics that clients write: neither mirrors nor internal topics."""
        ...

    def log(self, at: TopicPartition) -> SiteLog | None:
        """Return the ends of a log; None if it is not served."""
        ...

    async def read(self, at: TopicPartition, offset: int, bytes_max: int) -> SiteRead:
        """Read stored batches from an offset up to the last stable offset."""
        ...

    async def batch_at(self, at: TopicPartition, offset: int) -> BatchMark | None:
        """Return the first batch that ends at or after the offset."""
        ...

    async def drop_oldest(self, partitions: Collection[TopicPartition]) -> bool:
        """Delete the oldest segment of the largest of these logs; False if there is none."""
        ...

    def room(self) -> DiskRoom:
        """Return the free space of the disk, as it was last measured."""
        ...


class Note(Protocol):
    """A small text that survives a restart."""

    async def load(self) -> str:
        """Return the stored text; empty if there is none."""
        ...

    async def save(self, text: str) -> None:
        """Replace the stored text, durably."""
        ...
