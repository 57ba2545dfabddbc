"""Plan of a few moves that balance bytes, replicas and leaders among the brokers (pure).

The load of a broker has three parts: bytes of its replicas, their number, and the number of
partitions that it leads as the first replica. A part of a broker is too large if it is more than
`TOLERANCE` above the mean. Each step moves one replica of such a broker to another one, or lets
another replica lead, whichever lowers the imbalance most. Guarantees, which property tests check:

- A plan has at most the requested number of steps. Each step lowers the imbalance, the sum of the
  squared distances to the mean, so the plans end: a state never comes back.
- No step raises the maximum of any part.
- Partitions are as safe as before: those of `replica_moves`, and a partition moves only if all its
  replicas are in sync and none of them moves.
- A plan with fewer steps than requested leaves nothing to do: a second plan is empty, as long as
  the sizes stay and no disk was too full.

Only brokers that run and are not drained are balanced. It knows no rates: partitions with many
clients and few bytes count by their leaders.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from penstock.client.operation.cluster_state import ClusterState, PartitionFacts
from penstock.client.operation.replica_moves import (
    FreeSpace,
    ReplicaMove,
    rack_count,
    receivers,
    replaced,
)
from penstock.core.types import TopicPartition

TOLERANCE: Final = 0.1
"""A part of a load may be this share above the mean: sizes change all the time."""
GAIN_MIN: Final = 1e-6
"""Below this a gain may be an error of rounding."""
PARTS: Final = ("bytes", "replicas", "leaders")

Load = tuple[int, int, int]
"""Bytes, replicas, leaders."""


class BalancePlan(NamedTuple):
    """Moves, and the loads of the brokers before and after them."""

    moves: tuple[ReplicaMove, ...]
    before: Mapping[int, Load]
    after: Mapping[int, Load]


class _Step(NamedTuple):
    gain: float
    place: TopicPartition
    replicas: tuple[int, ...]
    target: int
    moved: Load


class _Loads:
    """The loads of the balanced brokers during the planning."""

    def __init__(self, brokers: list[int]) -> None:
        self.of: dict[int, Load] = dict.fromkeys(brokers, (0, 0, 0))
        self._means: tuple[float, ...] = (0.0, 0.0, 0.0)

    def add(self, broker_id: int, moved: Load, sign: int = 1) -> None:
        first, second, third = self.of[broker_id]
        self.of[broker_id] = (
            first + sign * moved[0],
            second + sign * moved[1],
            third + sign * moved[2],
        )

    def measure(self) -> None:
        """Set the means: moves do not change them."""
        count = len(self.of)
        self._means = tuple(sum(load[part] for load in self.of.values()) / count for part in _ALL)

    @property
    def maxima(self) -> tuple[int, ...]:
        return tuple(max(load[part] for load in self.of.values()) for part in _ALL)

    def excess(self, broker_id: int, part: int) -> float:
        """Return the share of this part above the mean; 0 if no broker has any."""
        mean = self._means[part]
        return self.of[broker_id][part] / mean - 1.0 if mean else 0.0

    def gain(self, source: int, target: int, moved: Load) -> float:
        """Return by how much a move lowers the sum of the squared distances to the mean."""
        gained = 0.0
        for part in _ALL:
            amount = moved[part]
            if amount:
                gap = self.of[source][part] - self.of[target][part]
                gained += 2.0 * amount * (gap - amount) / self._means[part] ** 2
        return gained

    def sources(self) -> list[int]:
        """Return the brokers with a part that is too large, the largest first."""
        largest = {one: max(self.excess(one, part) for part in _ALL) for one in self.of}
        found = [one for one in self.of if largest[one] > TOLERANCE]
        return sorted(found, key=lambda one: (-largest[one], one))


_ALL: Final = range(len(PARTS))


def plan_balance(state: ClusterState, steps_max: int) -> BalancePlan:
    """Return at most `steps_max` moves; none if the cluster is balanced."""
    brokers = receivers(state)
    loads = _Loads(brokers)
    known = {one.at: one for one in state.partitions}
    replicas = {one.at: one.replicas for one in state.partitions}
    on_broker: dict[int, dict[TopicPartition, None]] = {one: {} for one in brokers}
    for facts in state.partitions:
        for place, broker_id in enumerate(facts.replicas):
            if broker_id in loads.of:
                loads.add(broker_id, (facts.size_bytes, 1, int(place == 0)))
                if _may_move(facts):
                    on_broker[broker_id][facts.at] = None
    before = dict(loads.of)
    space = FreeSpace(state.brokers)
    if len(brokers) > 1:
        loads.measure()
        for _ in range(steps_max):
            found = _next_step(state, known, replicas, on_broker, loads, space)
            if found is None:
                break
            source, step = found
            _carry_out(source, step, known, replicas, on_broker, loads, space)
    moves = (
        ReplicaMove(at, facts.replicas, replicas[at], facts.size_bytes)
        for at, facts in known.items()
        if replicas[at] != facts.replicas
    )
    return BalancePlan(tuple(moves), before, dict(loads.of))


def _may_move(facts: PartitionFacts) -> bool:
    return not (facts.is_moving or facts.is_offline or facts.is_under_replicated)


def _next_step(
    state: ClusterState,
    known: Mapping[TopicPartition, PartitionFacts],
    replicas: Mapping[TopicPartition, tuple[int, ...]],
    on_broker: Mapping[int, Mapping[TopicPartition, None]],
    loads: _Loads,
    space: FreeSpace,
) -> tuple[int, _Step] | None:
    """Return the best step of the broker with the largest load that has one."""
    for source in loads.sources():
        maxima = loads.maxima
        best: _Step | None = None
        for at in on_broker[source]:
            facts = known[at]
            for target, after, moved in _options(source, replicas[at], facts, loads):
                gain = loads.gain(source, target, moved)
                if gain <= GAIN_MIN or (best is not None and gain <= best.gain):
                    continue
                if not _is_relief(loads, source, moved):
                    continue
                if _raises_maximum(loads, target, moved, maxima):
                    continue
                if moved[1] and not (
                    space.fits(target, facts.size_bytes)
                    and rack_count(state.brokers, after) >= rack_count(state.brokers, replicas[at])
                ):
                    continue
                best = _Step(gain, at, after, target, moved)
        if best is not None:
            return source, best
    return None


def _options(
    source: int, replicas: tuple[int, ...], facts: PartitionFacts, loads: _Loads
) -> Iterator[tuple[int, tuple[int, ...], Load]]:
    """Yield the ways to take a replica, or only its leadership, from the source."""
    leads = replicas[0] == source
    for target in loads.of:
        if target not in replicas:
            yield target, replaced(replicas, source, target), (facts.size_bytes, 1, int(leads))
        elif leads and target != source:
            place = replicas.index(target)
            order = list(replicas)
            order[0], order[place] = target, source
            yield target, tuple(order), (0, 0, 1)


def _is_relief(loads: _Loads, source: int, moved: Load) -> bool:
    """Return whether a part that is too large becomes smaller."""
    return any(moved[part] and loads.excess(source, part) > TOLERANCE for part in _ALL)


def _raises_maximum(loads: _Loads, target: int, moved: Load, maxima: tuple[int, ...]) -> bool:
    return any(loads.of[target][part] + moved[part] > maxima[part] for part in _ALL)


def _carry_out(
    source: int,
    step: _Step,
    known: Mapping[TopicPartition, PartitionFacts],
    replicas: dict[TopicPartition, tuple[int, ...]],
    on_broker: Mapping[int, dict[TopicPartition, None]],
    loads: _Loads,
    space: FreeSpace,
) -> None:
    loads.add(source, step.moved, -1)
    loads.add(step.target, step.moved)
    replicas[step.place] = step.replicas
    if step.moved[1]:
        del on_broker[source][step.place]
        on_broker[step.target][step.place] = None
        if step.target not in known[step.place].replicas:
            space.add(step.target, known[step.place].size_bytes)
