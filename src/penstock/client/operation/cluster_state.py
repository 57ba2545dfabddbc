"""The state of a cluster for its operation: brokers, replicas and their sizes, as values (pure).

It is as accurate as the answers that `state_reading` got: the parts are read one after the other,
so a leader may have moved in between. The brokers check a plan again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.core.types import TopicPartition

NO_LEADER: Final = -1


class BrokerMode(StrEnum):
    """The service of a broker, as clients can see it."""

    RUNNING = "running"
    DRAINED = "drained"
    """It runs, and is asked to lead nothing (`penstock broker drain`)."""
    DOWN = "down"
    """It has replicas, and the cluster does not reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """One broker."""

    id: int
    mode: BrokerMode = BrokerMode.RUNNING
    address: str | None = None
    rack: str | None = None
    disk_bytes: int | None = None
    """Size of the disk; None if the broker does not report it."""
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition."""

    at: TopicPartition
    replicas: tuple[int, ...]
    """Broker ids, the preferred leader first. Old and new ones, while they move."""
    in_sync: tuple[int, ...]
    leader: int
    """Broker id, -1 for none."""
    min_in_sync: int = 1
    size_bytes: int = 0
    """Size of the largest replica; 0 if no broker reports it."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_moving(self) -> bool:
        """Whether a reassignment of its replicas is in progress."""
        return bool(self.adding or self.removing)

    @property
    def is_offline(self) -> bool:
        """Whether no broker leads it."""
        return self.leader == NO_LEADER

    @property
    def is_under_min(self) -> bool:
        """Whether records with acks=all are rejected, because too few replicas are in sync."""
        return len(self.in_sync) < self.min_in_sync

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in sync; new replicas of a reassignment do not count."""
        return not set(self.replicas) - set(self.adding) <= set(self.in_sync)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """All brokers and partitions."""

    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[int, BrokerFacts]
    """By id; also brokers that are down and have replicas."""
    partitions: tuple[PartitionFacts, ...]
    replica_bytes: Mapping[int, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Size of each replica by broker; brokers that do not report sizes are absent."""

    @property
    def offline(self) -> list[PartitionFacts]:
        """Partitions without a leader."""
        return [one for one in self.partitions if one.is_offline]

    @property
    def under_min(self) -> list[PartitionFacts]:
        """Partitions with fewer in-sync replicas than min.insync.replicas."""
        return [one for one in self.partitions if one.is_under_min]

    @property
    def under_replicated(self) -> list[PartitionFacts]:
        """Partitions with a replica that is not in sync."""
        return [one for one in self.partitions if one.is_under_replicated]

    @property
    def moving(self) -> list[PartitionFacts]:
        """Partitions with a reassignment in progress."""
        return [one for one in self.partitions if one.is_moving]

    def in_mode(self, mode: BrokerMode) -> list[int]:
        """Return the ids of the brokers in this mode, in order."""
        return sorted(one.id for one in self.brokers.values() if one.mode is mode)

    def with_replica(self, broker_id: int) -> list[PartitionFacts]:
        """Return the partitions that have a replica on this broker."""
        return [one for one in self.partitions if broker_id in one.replicas]

    def led_by(self, broker_id: int) -> list[PartitionFacts]:
        """Return the partitions that this broker leads."""
        return [one for one in self.partitions if one.leader == broker_id]
