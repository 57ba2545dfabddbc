"""`Histogram`: counts of latencies in fixed memory, with an error below 1 % (pure).

Latencies are whole microseconds. Each latency up to 255 has its own slot. Above that, every power
of two is divided into 128 slots, so a slot is never wider than 1/128 of its latencies. There are at
most `SLOTS_MAX` slots for any input; a latency above `VALUE_US_MAX` counts as `VALUE_US_MAX`.

Two histograms of different clients or rounds are merged by adding their slots. The result equals
the histogram of one observer of both. Percentiles must never be averaged; so histograms are merged
instead.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

_EXACT: Final = 256
_PARTS: Final = 128
_PARTS_BITS: Final = 8
_VALUE_BITS_MAX: Final = 36

VALUE_US_MAX: Final = 2**_VALUE_BITS_MAX - 1
"""Nineteen hours: no request waits longer."""
SLOTS_MAX: Final = _EXACT + (_VALUE_BITS_MAX - _PARTS_BITS) * _PARTS


class Slot(NamedTuple):
    """The number of latencies from `low_us` to `high_us`, both included."""

    low_us: int
    high_us: int
    times: int


@dataclass(slots=True)
class Histogram:
    """Counts by latency."""

    counts: dict[int, int] = field(default_factory=dict)
    """Counts by slot number."""
    count: int = 0
    sum_us: int = 0
    min_us: int = VALUE_US_MAX
    max_us: int = 0

    def record(self, value_us: int, times: int = 1) -> None:
        """Add a latency `times` times; below zero (a clock was set) counts as zero."""
        value = min(max(value_us, 0), VALUE_US_MAX)
        number = slot_of(value)
        self.counts[number] = self.counts.get(number, 0) + times
        self.count += times
        self.sum_us += value * times
        self.min_us = min(self.min_us, value)
        self.max_us = max(self.max_us, value)

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another histogram."""
        for number, count in other.counts.items():
            self.counts[number] = self.counts.get(number, 0) + count
        self.count += other.count
        self.sum_us += other.sum_us
        self.min_us = min(self.min_us, other.min_us)
        self.max_us = max(self.max_us, other.max_us)

    @property
    def mean_us(self) -> float:
        """Return the mean; 0 without latencies."""
        return self.sum_us / self.count if self.count else 0.0

    def percentile(self, percent: float) -> int:
        """Return the latency that `percent` did not exceed, in microseconds; 0 without latencies.

        It is never below the true one and less than 1 % above it; 100 is the exact maximum.
        """
        assert 0 <= percent <= 100
        wanted = max(1, ceil(self.count * percent / 100))
        seen = 0
        for slot in self.slots():
            seen += slot.times
            if seen >= wanted:
                return min(slot.high_us, self.max_us)
        return 0

    def slots(self) -> Iterator[Slot]:
        """Return the slots with counts, from low to high."""
        for number in sorted(self.counts):
            low, high = bounds_of(number)
            yield Slot(low, high, self.counts[number])

    def document(self) -> dict[str, object]:
        """Return the document for JSON, with everything that `from_document` needs."""
        return {
            "unit": "microseconds",
            "count": self.count,
            "sum": self.sum_us,
            "min": self.min_us if self.count else 0,
            "max": self.max_us,
            "slots": [[slot.low_us, slot.high_us, slot.times] for slot in self.slots()],
        }


def merged(histograms: "Iterator[Histogram] | list[Histogram]") -> Histogram:
    """Return one histogram of all."""
    total = Histogram()
    for one in histograms:
        total.merge(one)
    return total


def from_document(document: Mapping[str, object]) -> Histogram:
    """Return the histogram of a JSON document."""
    slots = document["slots"]
    assert isinstance(slots, list)
    numbers = {name: int(str(document[name])) for name in ("count", "sum", "min", "max")}
    return Histogram(
        {slot_of(int(low)): int(count) for low, _, count in slots},
        numbers["count"],
        numbers["sum"],
        numbers["min"] if numbers["count"] else VALUE_US_MAX,
        numbers["max"],
    )


def slot_of(value_us: int) -> int:
    """Return the number of the slot for this latency."""
    if value_us < _EXACT:
        return value_us
    shift = value_us.bit_length() - _PARTS_BITS
    return _EXACT + (shift - 1) * _PARTS + (value_us >> shift) - _PARTS


def bounds_of(number: int) -> tuple[int, int]:
    """Return the lowest and the highest latency of a slot."""
    if number < _EXACT:
        return number, number
    shift = (number - _EXACT) // _PARTS + 1
    low = ((number - _EXACT) % _PARTS + _PARTS) << shift
    return low, low + (1 << shift) - 1
