"""Plan of the moves that take all replicas off a broker (pure).

Each replica of the broker moves to a running broker that is not drained and has no replica of the
partition: first the one with which the replicas are in the most racks, then the one whose disk is
the least full, then the one with the fewest replicas. If the broker was the first replica, the
replica whose broker is the first of the fewest partitions is first now: leaders stay spread.
Partitions whose replicas already leave the broker are not planned again: an interrupted evacuation
goes on where it was.

A partition that no broker can take is reported, and the others move. Free space is counted with all
moves of the plan, although the oldest replicas are deleted before the last ones are copied.
"""

from collections import Counter
from typing import NamedTuple

from penstock.client.operation.cluster_state import ClusterState, PartitionFacts
from penstock.client.operation.replica_moves import (
    FreeSpace,
    ReplicaMove,
    rack_count,
    receivers,
    replaced,
)


class Evacuation(NamedTuple):
    """The plan."""

    moves: tuple[ReplicaMove, ...]
    under_way: tuple[PartitionFacts, ...]
    """Partitions whose replica leaves the broker already."""
    stuck: tuple[PartitionFacts, ...]
    """Partitions that no broker can take."""


def plan_evacuation(state: ClusterState, broker_id: int) -> Evacuation:
    """Return the moves that leave the broker without replicas, the largest partitions first."""
    others = [one for one in receivers(state) if one != broker_id]
    space = FreeSpace(state.brokers)
    counts = Counter(one for facts in state.partitions for one in facts.replicas)
    firsts = Counter(facts.replicas[0] for facts in state.partitions)
    moves: list[ReplicaMove] = []
    under_way: list[PartitionFacts] = []
    stuck: list[PartitionFacts] = []
    # The largest first: the small ones fill the gaps.
    for facts in sorted(state.with_replica(broker_id), key=lambda one: -one.size_bytes):
        if broker_id in facts.removing:
            under_way.append(facts)
            continue
        # The target of a reassignment in progress, which this one replaces.
        kept = tuple(one for one in facts.replicas if one not in facts.removing)
        target = _target(state, others, facts, kept, broker_id, space, counts)
        if target is None:
            stuck.append(facts)
            continue
        if target not in facts.replicas:
            space.add(target, facts.size_bytes)
        counts[target] += 1
        after = replaced(kept, broker_id, target)
        if kept[0] == broker_id:
            after = _spread(after, firsts)
        moves.append(ReplicaMove(facts.at, facts.replicas, after, facts.size_bytes))
    return Evacuation(tuple(moves), tuple(under_way), tuple(stuck))


def _spread(replicas: tuple[int, ...], firsts: Counter[int]) -> tuple[int, ...]:
    """Return the replicas with the broker first that is the first of the fewest partitions."""
    first = min(replicas, key=lambda one: (firsts[one], replicas.index(one)))
    firsts[first] += 1
    order = list(replicas)
    place = order.index(first)
    order[0], order[place] = order[place], order[0]
    return tuple(order)


def _target(
    state: ClusterState,
    others: list[int],
    facts: PartitionFacts,
    kept: tuple[int, ...],
    broker_id: int,
    space: FreeSpace,
    counts: Counter[int],
) -> int | None:
    possible = [
        one
        for one in others
        if one not in kept and (one in facts.replicas or space.fits(one, facts.size_bytes))
    ]
    return min(
        possible,
        key=lambda one: (
            -rack_count(state.brokers, replaced(kept, broker_id, one)),
            round(space.fullness(one), 2),
            counts[one],
            one,
        ),
        default=None,
    )
