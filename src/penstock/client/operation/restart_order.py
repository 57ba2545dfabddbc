"""The broker that may be restarted next, so that clients notice little (pure).

A broker may go down if each partition that it is in sync with keeps a leader and keeps
`min.insync.replicas` in-sync replicas on running brokers. Partitions that do not depend on the
broker do not matter for it. The controller is last: each move of its role costs a moment.

It does not know which brokers have been restarted: the caller says so.
"""

from collections.abc import Collection
from typing import NamedTuple

from penstock.client.operation.cluster_state import BrokerMode, ClusterState, PartitionFacts


class Obstacle(NamedTuple):
    """The reason why a broker must not go down now."""

    broker_id: int
    partition: PartitionFacts
    """The first of them."""
    others: int
    """The number of further partitions."""
    left: int
    """In-sync replicas of the partition without the broker."""


class NextRestart(NamedTuple):
    """The decision."""

    broker_id: int | None
    """None: all are restarted, or none may go down."""
    waiting: tuple[int, ...]
    """Brokers that are not restarted yet, without the next one."""
    obstacles: tuple[Obstacle, ...]
    """One for each broker that must not go down now, and that was considered before the next."""
    down: tuple[int, ...]
    """Brokers that are down: first they must be back."""


def next_restart(
    state: ClusterState, restarted: Collection[int] = (), *, accepts_single: bool = False
) -> NextRestart:
    """Return the broker that may go down next.

    `accepts_single`: partitions with a single replica may be unavailable during the restart.
    """
    down = tuple(state.in_mode(BrokerMode.DOWN))
    running = [one.id for one in state.brokers.values() if one.mode is not BrokerMode.DOWN]
    left = sorted(
        (one for one in running if one not in restarted),
        key=lambda one: (one == state.controller_id, one),
    )
    obstacles: list[Obstacle] = []
    for broker_id in left:
        obstacle = _obstacle(state, broker_id, accepts_single=accepts_single)
        if obstacle is None:
            waiting = tuple(one for one in left if one != broker_id)
            return NextRestart(broker_id, waiting, tuple(obstacles), down)
        obstacles.append(obstacle)
    return NextRestart(None, tuple(left), tuple(obstacles), down)


def _obstacle(state: ClusterState, broker_id: int, *, accepts_single: bool) -> Obstacle | None:
    found: list[tuple[PartitionFacts, int]] = []
    for one in state.partitions:
        if broker_id not in one.in_sync or (accepts_single and len(one.replicas) == 1):
            continue
        left = sum(
            other != broker_id and state.brokers[other].mode is not BrokerMode.DOWN
            for other in one.in_sync
            if other in state.brokers
        )
        if left < max(1, one.min_in_sync):
            found.append((one, left))
    if not found:
        return None
    first, left = found[0]
    return Obstacle(broker_id, first, len(found) - 1, left)
