"""Moves of replicas as values, and the rules that each plan of moves keeps (pure).

A move replaces the replicas of one partition. The rules: the number of replicas stays; each is on
another broker; the replicas are in as many racks as before, or in more; new replicas are on running
brokers that are not drained and have free space on their disk.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.client.operation.cluster_state import BrokerFacts, BrokerMode, ClusterState
from penstock.core.types import TopicPartition

RESERVE_SHARE: Final = 0.05
"""Of a disk that a plan leaves free: a full disk stops a broker."""


class ReplicaMove(NamedTuple):
    """The new replicas of a partition."""

    at: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]
    size_bytes: int
    """Of one replica."""

    @property
    def added(self) -> tuple[int, ...]:
        """Brokers that get a replica."""
        return tuple(one for one in self.after if one not in self.before)

    @property
    def removed(self) -> tuple[int, ...]:
        """Brokers that lose their replica."""
        return tuple(one for one in self.before if one not in self.after)

    @property
    def copied_bytes(self) -> int:
        """Bytes that are copied between brokers; a new order of the replicas copies none."""
        return self.size_bytes * len(self.added)


def rack_of(broker: BrokerFacts) -> str:
    """Return the rack; a broker without one is a rack of its own, as for new topics."""
    # A space before: no rack of the settings is equal.
    return f" {broker.id}" if broker.rack is None else broker.rack


def rack_count(brokers: Mapping[int, BrokerFacts], replicas: Iterable[int]) -> int:
    """Return the number of different racks; unknown brokers are racks of their own."""
    return len({rack_of(brokers.get(one) or BrokerFacts(id=one)) for one in replicas})


def receivers(state: ClusterState) -> list[int]:
    """Return the brokers that may get replicas, in order."""
    return state.in_mode(BrokerMode.RUNNING)


class FreeSpace:
    """The free space of each disk during the planning."""

    def __init__(self, brokers: Mapping[int, BrokerFacts]) -> None:
        self._brokers = brokers
        self._planned: dict[int, int] = dict.fromkeys(brokers, 0)

    def fits(self, broker_id: int, size_bytes: int) -> bool:
        """Return whether a replica fits; True if the broker does not report its disk."""
        broker = self._brokers[broker_id]
        if broker.free_bytes is None or broker.disk_bytes is None:
            return True
        needed = self._planned[broker_id] + size_bytes + broker.disk_bytes * RESERVE_SHARE
        # A move of nothing does not fill a disk.
        return size_bytes == 0 or needed <= broker.free_bytes

    def fullness(self, broker_id: int) -> float:
        """Return the used share of the disk with the planned replicas; 0 if it is not known."""
        broker = self._brokers[broker_id]
        if broker.free_bytes is None or not broker.disk_bytes:
            return 0.0
        used = broker.disk_bytes - broker.free_bytes + self._planned[broker_id]
        return used / broker.disk_bytes

    def add(self, broker_id: int, size_bytes: int) -> None:
        """Note a planned replica."""
        self._planned[broker_id] += size_bytes


def replaced(replicas: Sequence[int], old: int, new: int) -> tuple[int, ...]:
    """Return the replicas with another broker at the same place."""
    return tuple(new if one == old else one for one in replicas)
