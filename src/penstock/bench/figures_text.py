"""Formats figures for reports, and the histogram for a terminal (pure)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.bench.histogram import Histogram
from penstock.bench.measurement import PERCENTILES, WHAT_BYTES_ARE, Measurement
from penstock.bench.workload import CONSUME, GROUPS, LOOKUP, NO_KEYS, Workload
from penstock.core.quantities import size_text

EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_STEPS: Final = (1, 2, 5)
_ROWS_MAX: Final = 16


def latency_text(value_us: float) -> str:
    """Return a latency with three significant digits, in its unit."""
    if value_us < 1000:
        return f"{value_us:.0f} µs"
    if value_us < 1_000_000:
        return f"{_three(value_us / 1000)} ms"
    return f"{_three(value_us / 1e6)} s"


def edge_text(value_us: int) -> str:
    """Return the text of a round latency, such as an edge of a histogram."""
    for unit, size in (("s", 1_000_000), ("ms", 1000)):
        if value_us >= size:
            return f"{value_us / size:g} {unit}"
    return f"{value_us} µs"


def rate_text(rate: float) -> str:
    """Return the text of a rate per second."""
    return f"{rate:,.0f}" if rate >= 100 else _three(rate)


def _three(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def unit_of(workload: Workload) -> str:
    """Return the unit of the counted items."""
    return {GROUPS: "commits", LOOKUP: "lookups"}.get(workload.kind, "records")


def workload_text(workload: Workload) -> str:
    """Return a workload in one line."""
    length = f"{workload.duration_seconds:g} s" if workload.count is None else f"{workload.count:,}"
    if workload.kind == GROUPS:
        groups = f"{workload.clients} group{'' if workload.clients == 1 else 's'}"
        parts = [f"{groups} of {workload.members} members"]
    else:
        parts = [
            f"batches of {workload.batch_records} records of {size_text(workload.size_bytes)}",
            f"{workload.clients} client{'' if workload.clients == 1 else 's'}",
        ]
        if workload.kind not in {CONSUME, LOOKUP}:
            parts.append("acks " + ("all" if workload.acks == -1 else str(workload.acks)))
        if workload.compression != "none":
            parts.append(workload.compression)
        if workload.keys != NO_KEYS:
            parts.append(f"{workload.keys} over {workload.key_count:,} keys")
    parts.append(f"{workload.partitions} partition{'' if workload.partitions == 1 else 's'}")
    parts.append("as fast as possible" if workload.rate is None else f"{workload.rate:,.0f}/s")
    parts.append(f"{length} after {workload.warmup_seconds:g} s of warm-up")
    return ", ".join(parts)


def rows_of(measured: Measurement) -> list[tuple[str, str]]:
    """Return name and value of each figure."""
    rows = [
        (unit_of(measured.workload), f"{measured.records:,} in {measured.seconds:.1f} s"),
        ("throughput", f"{rate_text(measured.records_per_second)} {unit_of(measured.workload)}/s"),
    ]
    if measured.bytes:
        what = WHAT_BYTES_ARE[measured.workload.kind]
        rows.append(("data", f"{rate_text(measured.megabytes_per_second)} MB/s of {what}"))
    if measured.latency.count:
        rows.append(("latency mean", latency_text(measured.latency.mean_us)))
        rows += [
            (f"latency p{percent:g}", latency_text(measured.latency.percentile(percent)))
            for percent in PERCENTILES
        ]
        rows.append(("latency max", latency_text(measured.latency.max_us)))
    rows += [(name, latency_text(value * 1e6)) for name, value in measured.figures.items()]
    busiest = max(measured.busy_shares, default=0.0)
    rows.append(("busiest client", f"{busiest:.0%} of a core"))
    return rows


def edges_between(low_us: int, high_us: int) -> list[int]:
    """Return round numbers (1, 2, 5, 10 ...) that enclose these latencies."""
    edges: list[int] = []
    scale = 1
    while True:
        for step in _STEPS:
            edges.append(step * scale)
            if step * scale > high_us:
                while len(edges) > 2 and edges[1] <= low_us:
                    edges.pop(0)
                return edges
        scale *= 10


def counts_between(histogram: Histogram, edges: Sequence[int]) -> list[int]:
    """Return the number of latencies between neighbouring edges; a slot counts at its begin."""
    counts = [0] * (len(edges) - 1)
    number = 0
    for slot in histogram.slots():
        while number < len(counts) - 1 and slot.low_us >= edges[number + 1]:
            number += 1
        counts[number] += slot.times
    return counts


class Bar(NamedTuple):
    """One line of a histogram, padded so that all lines align."""

    label: str
    bar: str
    share: str


def histogram_bars(histogram: Histogram, width: int, *, is_plain: bool = False) -> list[Bar]:
    """Return a histogram as text, one line for each range of latencies."""
    if not histogram.count:
        return []
    edges = edges_between(histogram.min_us, histogram.max_us)
    counts = counts_between(histogram, edges)
    if len(counts) > _ROWS_MAX:
        # Latencies can span a microsecond to minutes: the lowest ranges are joined into the first
        # line.
        counts = [sum(counts[: -_ROWS_MAX + 1]), *counts[-_ROWS_MAX + 1 :]]
        edges = [edges[0], *edges[-_ROWS_MAX:]]
    labels = [f"{edge_text(low)} - {edge_text(high)}" for low, high in pairwise(edges)]
    label_width = max(map(len, labels))
    bar_width = max(10, width - label_width - 22)
    most = max(counts)
    bars = []
    for label, count in zip(labels, counts, strict=True):
        bar = _bar(count / most * bar_width, is_plain=is_plain)
        share = count / histogram.count
        percent = "<0.01 %" if 0 < share < 0.0001 else f"{share:.2%}".replace("%", " %")
        share_text = f" {percent:>8} {count:>9,}"
        bars.append(Bar(f"{label:>{label_width}}  ", f"{bar:<{bar_width}}", share_text))
    return bars


def _bar(length: float, *, is_plain: bool) -> str:
    if is_plain:
        return "#" * (round(length) or (1 if length else 0))
    whole, part = int(length), int((length - int(length)) * 8)
    bar = EIGHTHS[-1] * whole + (EIGHTHS[part] if part else "")
    return bar or (EIGHTHS[1] if length else "")
