"""The lag of a pipeline in seconds, from the ends that it has seen (pure: time is an argument).

The lag of a partition is the age of its oldest record that is not in the table. Reading that record
only for its timestamp would cost a fetch of each partition every few seconds. So the ends of the
partitions are remembered with the times when they were seen first: the oldest end after the table's
position has the age. It is exact up to the interval of the looks. A backlog from before the start
counts from the timestamp of the newest record in the table, if it has one.

At most `PARTITIONS_MAX` partitions have a history of at most `SEEN_MAX` ends. If it is full, every
second end is forgotten except the oldest: the age of a long backlog is coarse, never too small.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.core.types import TopicPartition

SEEN_MAX: Final = 64
PARTITIONS_MAX: Final = 10_000


class Place(NamedTuple):
    """A partition: the next offset that is not in the table, and its end."""

    held: int
    end: int

    @property
    def lag(self) -> int:
        """The number of offsets that are not in the table."""
        return max(0, self.end - self.held)


class _Seen(NamedTuple):
    end: int
    at_ms: int
    """The time since which records before this end, and after the last one, are there."""


class LagTimes:
    """The ends that were seen of each partition. One thread at a time uses it."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, list[_Seen]] = {}

    def looked(
        self, places: Mapping[TopicPartition, Place], now_ms: int, newest_ms: int | None = None
    ) -> None:
        """Record the ends of now; `newest_ms` is the timestamp of the table's newest record."""
        for gone in [at for at in self._seen if at not in places]:
            del self._seen[gone]
        for at, place in places.items():
            seen = self._seen.get(at)
            if seen is None:
                if len(self._seen) >= PARTITIONS_MAX:
                    continue
                seen = self._seen[at] = []
                since_ms = now_ms if newest_ms is None else min(now_ms, newest_ms)
            else:
                since_ms = now_ms
            _drop_held(seen, place.held)
            if place.lag and (not seen or seen[-1].end < place.end):
                if len(seen) >= SEEN_MAX:
                    seen[1:] = _thinned(seen[1:])
                seen.append(_Seen(place.end, since_ms))

    def seconds(self, at: TopicPartition, held: int, now_ms: int) -> float:
        """Return the age of the oldest missing record; 0 without one."""
        seen = self._seen.get(at, ())
        oldest = next((one.at_ms for one in seen if one.end > held), None)
        return 0.0 if oldest is None else max(0.0, (now_ms - oldest) / 1000)


def _drop_held(seen: list[_Seen], held: int) -> None:
    count = 0
    while count < len(seen) and seen[count].end <= held:
        count += 1
    del seen[:count]


def _thinned(seen: list[_Seen]) -> list[_Seen]:
    """Merge neighbours into the later end with the earlier time: never too young."""
    last = len(seen) - 1
    return [
        _Seen(seen[min(number + 1, last)].end, seen[number].at_ms)
        for number in range(0, len(seen), 2)
    ]
