"""Counters count, gauges are asked, histograms sort, names do not clash, nothing is unbounded."""

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.limits import METRIC_FAMILY_ROWS_MAX, METRIC_LABEL_CHARACTERS_MAX
from penstock.core.metrics import (
    LEFT_OUT,
    SECONDS_BOUNDS,
    Collected,
    Family,
    Histogram,
    Histograms,
    Registry,
    Row,
    Table,
    TableRow,
)


def collected(registry: Registry, name: str) -> Collected:
    (found,) = [metric for metric in registry.collect() if metric.name == name]
    return found


def test_snapshot_has_counters_and_gauges() -> None:
    registry = Registry()
    registry.counter("requests_total", "Requests.").value += 2
    registry.gauge("connections", "Open connections.", lambda: 5)
    assert registry.snapshot() == {"connections": 5, "requests_total": 2}


def test_the_same_counter_comes_back() -> None:
    registry = Registry()
    assert registry.counter("a_total", "A.") is registry.counter("a_total", "A.")


def test_a_gauge_may_not_take_a_counters_name() -> None:
    registry = Registry()
    registry.counter("a_total", "A.")
    with pytest.raises(AssertionError):
        registry.gauge("a_total", "A.", lambda: 0)


def test_a_column_may_not_take_a_familys_name() -> None:
    registry = Registry()
    registry.family("size_bytes", Family("Size.", ("topic",), list))
    with pytest.raises(AssertionError):
        registry.table(Table((("size_bytes", "Size."),), ("topic",), list))


def test_a_metric_needs_help() -> None:
    with pytest.raises(AssertionError):
        Registry().counter("a_total", "")


def test_a_counter_for_each_value_of_a_label() -> None:
    registry = Registry()
    refused = registry.counters("refused_total", "Refused.", "reason", ("all", "address"))
    refused["address"].value += 3
    assert registry.snapshot()['refused_total{reason="address"}'] == 3
    assert registry.snapshot()['refused_total{reason="all"}'] == 0
    assert collected(registry, "refused_total").kind == "counter"


# --- Families and tables ---


def test_a_family_has_a_value_for_each_set_of_labels() -> None:
    registry = Registry()
    rows = [Row(("a", "0"), 3), Row(('say "hi"\\', "1"), 4)]
    registry.family("lag_records", Family("Lag.", ("group", "partition"), lambda: rows))
    assert registry.snapshot() == {
        'lag_records{group="a",partition="0"}': 3,
        'lag_records{group="say \\"hi\\"\\\\",partition="1"}': 4,
        f'{LEFT_OUT}{{metric="lag_records"}}': 0,
    }


def test_a_name_tells_what_only_grows() -> None:
    registry = Registry()
    registry.gauge("read_bytes_total", "Read.", lambda: 1)
    registry.gauge("connections", "Open.", lambda: 1)
    registry.family("topic_bytes_total", Family("Bytes.", ("topic",), list))
    registry.table(Table((("size_bytes", "Size."), ("seen_total", "Seen.")), ("topic",), list))
    kinds = {metric.name: metric.kind for metric in registry.collect()}
    assert kinds == {
        "read_bytes_total": "counter",
        "connections": "gauge",
        "topic_bytes_total": "counter",
        "size_bytes": "gauge",
        "seen_total": "counter",
        LEFT_OUT: "gauge",
    }


def test_a_table_is_read_once_for_all_its_columns() -> None:
    registry = Registry()
    reads = 0

    def read() -> Iterator[TableRow]:
        nonlocal reads
        reads += 1
        yield TableRow(("orders",), (1, 2))

    columns = (("size_bytes", "Size."), ("seen_total", "Seen."))
    registry.table(Table(columns, ("topic",), read))
    values = registry.snapshot()
    assert reads == 1
    assert values['size_bytes{topic="orders"}'] == 1
    assert values['seen_total{topic="orders"}'] == 2


def many() -> Iterator[Row]:
    """More rows than a metric may have; who asks for all of them waits for ever."""
    number = 0
    while True:
        yield Row((str(number),), number)
        number += 1


def test_a_family_is_bounded_and_says_what_is_left_out() -> None:
    registry = Registry()
    registry.family("lag_records", Family("Lag.", ("group",), many))
    registry.family("small", Family("Small.", ("group",), lambda: [Row(("a",), 1)]))
    table_rows = (TableRow(row.labels, (row.value,)) for row in many())
    registry.table(Table((("wide", "Wide."),), ("topic",), lambda: table_rows))
    histogram = Histogram((1,))
    histograms = (histogram.read(row.labels) for row in many())
    registry.histograms("slow_seconds", Histograms("Slow.", ("api",), lambda: histograms))
    found = {metric.name: metric for metric in registry.collect()}
    for name in ("lag_records", "wide"):
        assert len(found[name].rows) == METRIC_FAMILY_ROWS_MAX
    assert len(found["slow_seconds"].histograms) == METRIC_FAMILY_ROWS_MAX
    assert found[LEFT_OUT].rows == [
        Row(("lag_records",), 1),
        Row(("slow_seconds",), 1),
        Row(("small",), 0),
        Row(("wide",), 1),
    ]


def test_exactly_as_many_rows_as_allowed_are_not_too_many() -> None:
    registry = Registry()
    rows = [Row((str(number),), number) for number in range(METRIC_FAMILY_ROWS_MAX)]
    registry.family("lag_records", Family("Lag.", ("group",), lambda: rows))
    assert not collected(registry, "lag_records").is_cut


def test_a_long_label_is_cut_and_stays_one_of_its_own() -> None:
    registry = Registry()
    names = ["g" * 30_000 + end for end in ("a", "b")]
    rows = [Row((name, "0"), 1) for name in names]
    registry.family("lag_records", Family("Lag.", ("group", "partition"), lambda: rows))
    table = Table((("size_bytes", "Size."),), ("topic",), lambda: [TableRow((names[0],), (1,))])
    registry.table(table)
    labels = [row.labels[0] for row in collected(registry, "lag_records").rows]
    assert len(set(labels)) == 2
    assert {len(label) for label in labels} == {METRIC_LABEL_CHARACTERS_MAX}
    assert collected(registry, "size_bytes").rows[0].labels == (labels[0],)


# --- Histograms ---


def test_a_histogram_adds_up_when_it_is_read() -> None:
    registry = Registry()
    histogram = registry.histogram("wait_seconds", "Wait.", (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    (row,) = collected(registry, "wait_seconds").histograms
    assert row.buckets == ((0.1, 2), (1.0, 3), (math.inf, 4))
    assert row.sum == pytest.approx(7.65)
    values = registry.snapshot()
    assert values["wait_seconds_count"] == 4
    assert values["wait_seconds_sum"] == pytest.approx(7.65)


def test_a_histogram_for_each_set_of_labels() -> None:
    registry = Registry()
    fast, slow = Histogram((1,)), Histogram((1,))
    slow.observe(2)
    rows = lambda: [fast.read(("Fetch",)), slow.read(("Produce",))]  # noqa: E731
    registry.histograms("wait_seconds", Histograms("Wait.", ("api",), rows))
    assert registry.snapshot()['wait_seconds_count{api="Produce"}'] == 1
    assert registry.snapshot()['wait_seconds_count{api="Fetch"}'] == 0


def test_bounds_ascend() -> None:
    with pytest.raises(AssertionError):
        Histogram((1, 1))
    with pytest.raises(AssertionError):
        Histogram((2, 1))


@given(st.lists(st.floats(0, 100, allow_nan=False)))
def test_a_bucket_holds_what_is_not_above_its_bound(values: list[float]) -> None:
    histogram = Histogram(SECONDS_BOUNDS)
    for value in values:
        histogram.observe(value)
    row = histogram.read()
    for bound, count in row.buckets:
        assert count == sum(value <= bound for value in values)
    assert histogram.count == len(values)
    assert row.sum == pytest.approx(sum(values))
