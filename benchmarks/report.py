"""Samples into a table: medians, spread, ratios and verdicts. Pure, apart from printing.

A verdict is about the medians. Where the rounds do not agree with it (some met the bound and some
missed it) it is marked `~`: a difference of that size is within this machine's noise.
"""

import dataclasses
import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.targets import TARGETS, Bound, Target
from benchmarks.variants import Values, Variant

BEGIN_MARK = "<!-- results: begin -->"
END_MARK = "<!-- results: end -->"


@dataclasses.dataclass(frozen=True)
class Sample:
    """One run of one workload on one variant."""

    workload: str
    variant: Variant
    round_number: int
    values: Values
    others_busy: float
    """Share of the machine that processes outside the comparison used meanwhile."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """The median of the rounds, and the extremes."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.low)}..{_short(self.high)})"


@dataclasses.dataclass(frozen=True)
class Line:
    """A judged target."""

    target: Target
    kafka: Spread | None
    penstock: Spread | None
    ratio: float | None
    verdict: str


def _short(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _by_round(samples: Sequence[Sample], target: Target, variant: Variant) -> dict[int, float]:
    return {
        sample.round_number: sample.values[target.value]
        for sample in samples
        if sample.workload == target.workload and sample.variant == variant
    }


def _spread(values: dict[int, float]) -> Spread | None:
    if not values:
        return None
    numbers = values.values()
    return Spread(statistics.median(numbers), min(numbers), max(numbers))


def _verdict(bound: Bound | None, value: float | None, rounds: Sequence[float]) -> str:
    if bound is None:
        return ""
    if value is None:
        return "not measured"
    met = bound.holds(value)
    agreed = all(bound.holds(one) == met for one in rounds)
    return ("met" if met else "MISSED") + ("" if agreed else " ~")


def judge(samples: Sequence[Sample], target: Target) -> Line:
    """The line of one target."""
    of_kafka = _by_round(samples, target, target.kafka)
    of_penstock = _by_round(samples, target, target.penstock)
    kafka, penstock = _spread(of_kafka), _spread(of_penstock)
    ratio = None
    if kafka is not None and penstock is not None and kafka.median > 0:
        ratio = penstock.median / kafka.median
    if target.bound is not None and not target.bound.is_ratio:
        judged = penstock.median if penstock else None
        rounds = list(of_penstock.values())
    else:
        judged = ratio
        rounds = [
            of_penstock[one] / of_kafka[one] for one in of_penstock if of_kafka.get(one, 0.0) > 0
        ]
    return Line(target, kafka, penstock, ratio, _verdict(target.bound, judged, rounds))


def judge_all(samples: Sequence[Sample], targets: Sequence[Target] = TARGETS) -> list[Line]:
    """Every target that was measured at all."""
    measured = {sample.workload for sample in samples}
    return [judge(samples, target) for target in targets if target.workload in measured]


HEADINGS = ("medians (lowest..highest)", "unit", "Apache Kafka", "Penstock", "ratio", "target", "")


def row_text(target: Target) -> str:
    """Return the row's text, with the number of partitions where it has one."""
    if target.partitions is None:
        return target.text
    return f"{target.text}, {target.partitions} partition{'' if target.partitions == 1 else 's'}"


def cells(line: Line) -> tuple[str, ...]:
    """The line as text, one string for each heading."""
    return (
        row_text(line.target),
        line.target.unit,
        str(line.kafka) if line.kafka else "-",
        str(line.penstock) if line.penstock else "-",
        f"{line.ratio:.2f} x" if line.ratio is not None else "-",
        str(line.target.bound) if line.target.bound else "",
        line.verdict,
    )


def print_table(
    lines: Sequence[Line], console: Console, headings: Sequence[str] = HEADINGS
) -> None:
    """Print the table on the terminal."""
    table = Table(*headings, title="Side by side", title_justify="left")
    for line in lines:
        style = "red" if line.verdict.startswith("MISSED") else None
        table.add_row(*cells(line), style=style)
    console.print(table)


def noise(samples: Sequence[Sample]) -> str:
    """Return the share of the machine that other processes used."""
    shares = [sample.others_busy for sample in samples if "cpu_s" in sample.values]
    if not shares:
        return "no load was run"
    share = f"{statistics.median(shares):.0%} of the machine, {max(shares):.0%} at most"
    return f"processes outside the comparison used {share}"


def markdown(
    lines: Sequence[Line], notes: Sequence[str], headings: Sequence[str] = HEADINGS
) -> str:
    """The table and its notes for the README."""
    rows = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    rows += ["| " + " | ".join(cells(line)) + " |" for line in lines]
    return "\n".join([*rows, "", *(f"- {note}" for note in notes)])


def put_between_marks(document: str, text: str, name: str = "results") -> str:
    """Return the document with the text between the marks of this name replaced."""
    begin, end = (mark.replace("results", name) for mark in (BEGIN_MARK, END_MARK))
    before, rest = document.split(begin)
    _old, after = rest.split(end)
    return f"{before}{begin}\n\n{text}\n\n{end}{after}"
