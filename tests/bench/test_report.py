"""The report: one file that needs nothing else, the same bytes for the same result, and true.

The golden page is rewritten with PENSTOCK_REWRITE=1; look at it before you keep it.
"""

import dataclasses
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.charts import distribution, percentiles, round_steps, throughput
from penstock.bench.comparison import Comparison
from penstock.bench.figures_text import counts_between, edges_between, histogram_bars, rows_of
from penstock.bench.histogram import Histogram
from penstock.bench.html_page import page
from penstock.bench.measurement import ClientResult, Measurement, joined
from penstock.bench.pacing import SECOND_NS
from penstock.bench.workload import Workload

GOLDEN = Path(__file__).parent / "golden"
MADE_AT = "2026-01-02 03:04 UTC"


def measurement(bootstrap: str, *, slower: int = 1, notes: bool = False) -> Measurement:
    """Latencies as brokers have them: most are short, few are long."""
    result = ClientResult(
        records=500_000 // slower,
        bytes=50_000_000 // slower,
        requests=5_000,
        end_ns=10 * SECOND_NS,
        cpu_seconds=9.5 if notes else 2.0,
        wall_seconds=10.0,
    )
    for number in range(5_000):
        tail = 40 if number % 1000 == 0 else (6 if number % 50 == 0 else 1)
        result.latency.record((300 + number * 7 % 500) * slower * tail)
    for at_ms in range(0, 10_000, 100):
        result.timeline.add(at_ms, (5_000 + at_ms % 700) // slower)
    return joined(Workload(partitions=4, clients=2), bootstrap, [result], cores=8)


SINGLE = page(measurement("localhost:9092", notes=True), MADE_AT)
PAIR = page(
    Comparison(
        (measurement("here:9092"), measurement("here:9092", slower=2)),
        (measurement("there:9092", slower=2), measurement("there:9092", slower=3)),
    ),
    MADE_AT,
)


@pytest.mark.parametrize(("name", "text"), [("single", SINGLE), ("pair", PAIR)])
def test_the_page_is_as_it_was_looked_at(name: str, text: str) -> None:
    golden = GOLDEN / f"{name}.html"
    if os.environ.get("PENSTOCK_REWRITE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


class _Loads(HTMLParser):
    """Collects everything that a browser would load from elsewhere, and whether tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.asked += [f"{tag} {name}" for name, _ in attrs if name in {"src", "href", "data"}]
        if tag not in {"meta", "line", "path", "rect", "circle"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closed already."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("text", [SINGLE, PAIR])
def test_it_needs_nothing_else(text: str) -> None:
    parser = _Loads()
    parser.feed(text)
    assert parser.asked == []
    assert parser.open == []
    assert "<script" not in text
    assert "http" not in text
    assert "prefers-color-scheme:dark" in text


def test_names_of_brokers_are_text_and_nothing_else() -> None:
    text = page(measurement("<b>&here"), MADE_AT)
    assert "<b>&here" not in text
    assert "&lt;b&gt;&amp;here" in text


def test_the_doubts_are_on_the_page() -> None:
    assert "The load generator was the limit" in SINGLE


def test_bars_are_shares_of_all() -> None:
    histogram = Histogram()
    histogram.record(100, times=1)
    histogram.record(10_000, times=3)
    heights = [
        float(one) for one in re.findall(r'height="([\d.]+)"', distribution([("", histogram)]))
    ]
    assert heights[1] == pytest.approx(3 * heights[0], rel=0.01)


def test_a_curve_ends_where_the_sample_does() -> None:
    few, many = Histogram(), Histogram()
    few.record(100, times=1_000)
    many.record(100, times=1_000_000)
    curves = re.findall(r'<path d="([^"]+)"', percentiles([("", few), ("", many)]))
    ends = [float(re.findall(r"[ML]([\d.]+),", curve)[-1]) for curve in curves]
    assert ends[0] < ends[1]


def test_a_run_without_a_record_still_has_a_chart() -> None:
    assert "<svg" in throughput([[]], "records")


@given(st.floats(1e-6, 1e9))
def test_steps_of_an_axis_are_few_round_and_reach_the_end(high: float) -> None:
    steps = round_steps(high)
    assert steps[0] == 0
    assert steps[-1] >= high * 0.998
    assert 3 <= len(steps) <= 7


def test_edges_enclose_all_latencies() -> None:
    assert edges_between(150, 9_000) == [100, 200, 500, 1000, 2000, 5000, 10_000]
    assert edges_between(0, 0) == [1, 2] or edges_between(0, 0)[0] <= 1


def test_the_terminals_histogram_counts_everything() -> None:
    histogram = Histogram()
    for value in (0, 1, 3, 250, 250, 5_000_000):
        histogram.record(value)
    edges = edges_between(histogram.min_us, histogram.max_us)
    assert sum(counts_between(histogram, edges)) == 6
    lines = ["".join(one) for one in histogram_bars(histogram, 80)]
    assert sum(int(line.split()[-1]) for line in lines) == 6
    assert all(len(line) <= 80 for line in lines)
    assert any("#" in one.bar for one in histogram_bars(histogram, 80, is_plain=True))
    assert histogram_bars(Histogram(), 80) == []


def test_figures_have_units() -> None:
    rows = dict(rows_of(measurement("here")))
    assert rows["throughput"] == "50,000 records/s"
    assert rows["data"] == "5.00 MB/s of values, before compression"
    reading = dataclasses.replace(measurement("here"), workload=Workload(kind="consume"))
    assert dict(rows_of(reading))["data"] == "5.00 MB/s of whole batches, as they are stored"
    assert reading.document()["bytes_are"] == "whole batches, as they are stored"
    assert rows["latency p50"].endswith("µs")
