"""The effects of a transaction shard.

Plain values. `node` carries them out and reports the result to the shard; how is NOT known here.
"""

from dataclasses import dataclass

from penstock.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class NextProducerId:
    """Allocate an unused producer id; the result is the id."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """End a transaction in its partitions; the result is None when all have their marker.

    A partition that no longer exists counts as done. Markers may be written again after a crash;
    the partitions ignore repeated ones.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int
