"""`Timeline`: records over time, within a fixed memory (pure).

Time is divided into slots of equal width. When a record is too late for the last slot, the width
doubles and neighbours are joined. So a run of any length has at most `SLOTS_MAX` slots. Timelines
of clients that started together are merged at the larger width.
"""

from dataclasses import dataclass, field
from typing import Final

SLOTS_MAX: Final = 240
FIRST_WIDTH_MS: Final = 100
"""Short runs need several slots too."""


@dataclass(slots=True)
class Timeline:
    """Records by time since the measured part began."""

    width_ms: int = FIRST_WIDTH_MS
    counts: list[int] = field(default_factory=list)

    def add(self, at_ms: int, records: int) -> None:
        """Count records that were completed `at_ms` after the beginning."""
        at = max(at_ms, 0)
        while at // self.width_ms >= SLOTS_MAX:
            self._widen()
        number = at // self.width_ms
        if number >= len(self.counts):
            self.counts.extend([0] * (number + 1 - len(self.counts)))
        self.counts[number] += records

    def merge(self, other: "Timeline") -> None:
        """Add the records of another client."""
        theirs = Timeline(other.width_ms, list(other.counts))
        while self.width_ms < theirs.width_ms:
            self._widen()
        while theirs.width_ms < self.width_ms:
            theirs._widen()
        longer = max(len(self.counts), len(theirs.counts))
        self.counts.extend([0] * (longer - len(self.counts)))
        for number, count in enumerate(theirs.counts):
            self.counts[number] += count

    def rates(self) -> list[tuple[float, float]]:
        """Return the middle of each slot in seconds, and its records per second."""
        seconds = self.width_ms / 1000
        return [((n + 0.5) * seconds, count / seconds) for n, count in enumerate(self.counts)]

    def document(self) -> dict[str, object]:
        """Return the timeline for JSON."""
        return {"slot_milliseconds": self.width_ms, "records": list(self.counts)}

    def _widen(self) -> None:
        self.width_ms *= 2
        counts = self.counts
        self.counts = [sum(counts[n : n + 2]) for n in range(0, len(counts), 2)]
