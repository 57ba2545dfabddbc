"""Placement: the brokers of the replicas of new partitions. Pure.

Guarantees: the result depends only on the arguments; the replicas of a partition are different
brokers, in different racks while there are enough; the first replicas of a topic, which lead, are
one broker after the other, beginning at a place that is drawn from the topic's id. Among equal
racks, the broker with the fewest replicas of the topic is next, then the one with the lowest id.
Brokers that do not run get the last replicas, and only if the others are too few.

It places replicas of one topic: it knows neither the size of logs nor other topics.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

Racks = Mapping[int, str | None]
"""The rack of each broker that may get replicas, by broker id."""


def placed(
    racks: Racks,
    topic_id: UUID,
    numbers: range,
    factor: int,
    existing: Iterable[Sequence[int]] = (),
    absent: Sequence[int] = (),
) -> tuple[tuple[int, ...], ...]:
    """Return the replicas of the partitions with these numbers.

    `existing` are the replicas of the partitions that the topic has, `absent` the brokers that do
    not run. A broker without a rack is a rack of its own, as if it were the only one there.
    """
    missing = factor - len(racks)
    if missing > 0:
        assert missing <= len(absent), f"{factor} replicas on {len(racks)} brokers, {absent}"
        present = placed(racks, topic_id, numbers, len(racks), existing)
        return tuple(
            replicas + tuple(absent[(number + place) % len(absent)] for place in range(missing))
            for number, replicas in zip(numbers, present, strict=True)
        )
    assert factor >= 1
    leaders = _in_turn(racks)
    start = topic_id.int % len(leaders)
    counts = Counter(broker_id for replicas in existing for broker_id in replicas)
    if factor == 1:
        return tuple((leaders[(start + number) % len(leaders)],) for number in numbers)
    found = []
    for number in numbers:
        replicas = _replicas(racks, leaders[(start + number) % len(leaders)], factor, counts)
        counts.update(replicas)
        found.append(replicas)
    return tuple(found)


def _in_turn(racks: Racks) -> list[int]:
    """Return the brokers with one rack after the other, so that following leaders are far apart."""
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(_rack(racks, broker_id), []).append(broker_id)
    rows = list(by_rack.values())
    longest = max(map(len, rows))
    return [row[place] for place in range(longest) for row in rows if place < len(row)]


def _rack(racks: Racks, broker_id: int) -> str:
    rack = racks[broker_id]
    # A space before: no rack of the settings is equal.
    return f" {broker_id}" if rack is None else rack


def _replicas(racks: Racks, leader: int, factor: int, counts: Mapping[int, int]) -> tuple[int, ...]:
    chosen = [leader]
    in_rack = Counter({_rack(racks, leader): 1})
    while len(chosen) < factor:
        best = min(
            (one for one in racks if one not in chosen),
            key=lambda one: (in_rack[_rack(racks, one)], counts.get(one, 0), one),
        )
        chosen.append(best)
        in_rack[_rack(racks, best)] += 1
    return tuple(chosen)
