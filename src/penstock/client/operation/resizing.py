"""Plan of the moves that give partitions of a topic more or fewer replicas, or other ones (pure).

A new replica is on a running broker that is not drained: first in a rack without a replica of the
partition, then on the broker with the fewest replicas. When replicas are removed, the first one,
which leads, stays, and then replicas of running brokers in different racks. Partitions that have
the wanted replicas already, or get them by a reassignment in progress, are not moved.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from penstock.client.operation.cluster_state import (
    BrokerFacts,
    BrokerMode,
    ClusterState,
    PartitionFacts,
)
from penstock.client.operation.replica_moves import ReplicaMove, rack_of, receivers
from penstock.core.errors import InvalidReplicationFactorError, UnknownTopicOrPartitionError
from penstock.core.quantities import count_text


def chosen_partitions(
    state: ClusterState, topic: str, numbers: Collection[int] | None
) -> list[PartitionFacts]:
    """Return partitions of a topic in order, all of them without `numbers`."""
    found = sorted(
        (one for one in state.partitions if one.at.topic == topic), key=lambda one: one.at.partition
    )
    if not found:
        raise UnknownTopicOrPartitionError(
            f"there is no topic {topic}.", hint="`penstock topic list` lists the topics."
        )
    if numbers is None:
        return found
    unknown = sorted(set(numbers) - {one.at.partition for one in found})
    if unknown:
        raise UnknownTopicOrPartitionError(
            f"{topic} has no partition {unknown[0]}: it has {count_text(len(found), 'partition')}, "
            "numbered from 0."
        )
    return [one for one in found if one.at.partition in numbers]


def plan_factor(
    state: ClusterState, partitions: Sequence[PartitionFacts], factor: int
) -> list[ReplicaMove]:
    """Return the moves after which each partition has this number of replicas."""
    usable = receivers(state)
    counts = Counter(one for facts in state.partitions for one in facts.replicas)
    moves: list[ReplicaMove] = []
    for facts in partitions:
        kept = _target(facts)
        if len(kept) < factor:
            after = _grown(state, kept, usable, factor, counts)
        else:
            after = _shrunk(state, kept, factor)
        counts.update(set(after) - set(facts.replicas))
        if after != kept:
            moves.append(ReplicaMove(facts.at, _origin(facts), after, facts.size_bytes))
    return moves


def plan_replicas(
    partitions: Sequence[PartitionFacts], replicas: tuple[int, ...]
) -> list[ReplicaMove]:
    """Return the moves after which each partition has exactly these replicas."""
    return [
        ReplicaMove(facts.at, _origin(facts), replicas, facts.size_bytes)
        for facts in partitions
        if _target(facts) != replicas
    ]


def under_way(partitions: Sequence[PartitionFacts]) -> list[ReplicaMove]:
    """Return the reassignments in progress."""
    return [
        ReplicaMove(facts.at, _origin(facts), _target(facts), facts.size_bytes)
        for facts in partitions
        if facts.is_moving
    ]


def _target(facts: PartitionFacts) -> tuple[int, ...]:
    return tuple(one for one in facts.replicas if one not in facts.removing)


def _origin(facts: PartitionFacts) -> tuple[int, ...]:
    return tuple(one for one in facts.replicas if one not in facts.adding)


def _grown(
    state: ClusterState,
    kept: tuple[int, ...],
    usable: Sequence[int],
    factor: int,
    counts: Counter[int],
) -> tuple[int, ...]:
    found = list(kept)
    while len(found) < factor:
        racks = Counter(_rack(state, one) for one in found)
        free = [one for one in usable if one not in found]
        if not free:
            raise InvalidReplicationFactorError(
                f"{factor} replicas need {factor} brokers: {count_text(len(found), 'broker')} can "
                "have one.",
                hint="Start another broker, or undrain one. `penstock cluster status` lists them.",
            )
        found.append(min(free, key=lambda one: (racks[_rack(state, one)], counts[one], one)))
    return tuple(found)


def _shrunk(state: ClusterState, kept: tuple[int, ...], factor: int) -> tuple[int, ...]:
    running = set(state.in_mode(BrokerMode.RUNNING)) | set(state.in_mode(BrokerMode.DRAINED))
    found: list[int] = []
    while len(found) < factor:
        racks = {_rack(state, one) for one in found}
        found.append(
            min(
                (one for one in kept if one not in found),
                key=lambda one: (one not in running, _rack(state, one) in racks, kept.index(one)),
            )
        )
    return tuple(one for one in kept if one in found)


def _rack(state: ClusterState, broker_id: int) -> str:
    return rack_of(state.brokers.get(broker_id) or BrokerFacts(id=broker_id))
