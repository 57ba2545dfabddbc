"""`Comparison`: two brokers under the same workload, alternating, as ratios with spread (pure).

Rounds alternate (A B A B ...), because the conditions of a machine change within a minute. A ratio
is computed within each round. The median of the ratios is reported, with the lowest and the
highest. When these lie on both sides of 1, the rounds do not agree on the faster broker, and a note
reports it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from penstock.bench.histogram import merged
from penstock.bench.measurement import Measurement

Figure = Callable[[Measurement], float]


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of both brokers; `first` is compared with `second`."""

    name: str
    unit: str
    first: float
    second: float
    ratio: float
    ratio_low: float
    ratio_high: float
    is_more_better: bool

    @property
    def rounds_agree(self) -> bool:
        """Whether the same broker was better in every round."""
        return self.ratio_low > 1 or self.ratio_high < 1

    def document(self) -> dict[str, object]:
        """Return the figure for JSON."""
        return {
            "name": self.name,
            "unit": self.unit,
            "first": round(self.first, 3),
            "second": round(self.second, 3),
            "ratio": round(self.ratio, 4),
            "ratio_low": round(self.ratio_low, 4),
            "ratio_high": round(self.ratio_high, 4),
            "more_is_better": self.is_more_better,
            "rounds_agree": self.rounds_agree,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rounds of both brokers, in their order."""

    first: tuple[Measurement, ...]
    second: tuple[Measurement, ...]

    def __post_init__(self) -> None:
        assert self.first
        assert len(self.first) == len(self.second)

    def lines(self) -> list[Line]:
        """Return every figure that both brokers have in every round."""
        return [
            line
            for name, unit, figure, more in FIGURES
            if (line := self._line(name, unit, figure, is_more_better=more)) is not None
        ] + [
            line
            for name in self.first[0].figures
            if (line := self._line(name, "s", _named(name), is_more_better=False)) is not None
        ]

    def notes(self) -> list[str]:
        """Return the notes of both brokers, each once, with the address of the broker."""
        found: dict[str, None] = {}
        for one in (*self.first, *self.second):
            for text in one.notes:
                found[f"{one.bootstrap}: {text}"] = None
        return list(found)

    def document(self) -> dict[str, object]:
        """Return the comparison for JSON."""
        return {
            "first": [one.document() for one in self.first],
            "second": [one.document() for one in self.second],
            "ratios": [line.document() for line in self.lines()],
        }

    def _line(self, name: str, unit: str, figure: Figure, *, is_more_better: bool) -> Line | None:
        ours = [figure(one) for one in self.first]
        theirs = [figure(one) for one in self.second]
        if not all(ours) or not all(theirs):
            return None
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        return Line(
            name,
            unit,
            median(ours),
            median(theirs),
            median(ratios),
            min(ratios),
            max(ratios),
            is_more_better,
        )


def _named(name: str) -> Figure:
    return lambda one: one.figures.get(name, 0.0)


def _latency(percent: float) -> Figure:
    return lambda one: one.latency.percentile(percent) / 1000


FIGURES: Final[Sequence[tuple[str, str, Figure, bool]]] = (
    ("throughput", "/s", lambda one: one.records_per_second, True),
    ("data", "MB/s", lambda one: one.megabytes_per_second, True),
    ("latency p50", "ms", _latency(50), False),
    ("latency p95", "ms", _latency(95), False),
    ("latency p99", "ms", _latency(99), False),
    ("latency p99.9", "ms", _latency(99.9), False),
    ("latency max", "ms", _latency(100), False),
)
"""Name, unit, getter, and whether a higher value is better."""


def summed(rounds: Sequence[Measurement]) -> Measurement:
    """Return all rounds of one broker as one measurement, for the charts of its latencies."""
    first = rounds[0]
    figures: Mapping[str, float] = {
        name: median(one.figures.get(name, 0.0) for one in rounds) for name in first.figures
    }
    return Measurement(
        first.workload,
        first.bootstrap,
        sum(one.records for one in rounds),
        sum(one.bytes for one in rounds),
        sum(one.requests for one in rounds),
        sum(one.seconds for one in rounds),
        merged([one.latency for one in rounds]),
        first.timeline,
        tuple(share for one in rounds for share in one.busy_shares),
        figures,
        tuple(_each_once(rounds)),
    )


def _each_once(rounds: Sequence[Measurement]) -> Iterator[str]:
    yield from dict.fromkeys(text for one in rounds for text in one.notes)
