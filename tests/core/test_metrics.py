"""Counters count, gauges are asked, names do not clash."""

import pytest

from penstock.core.limits import METRIC_FAMILY_ROWS_MAX
from penstock.core.metrics import Family, Registry, Row


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


def test_a_family_has_a_value_for_each_set_of_labels() -> None:
    registry = Registry()
    rows = [Row(("a", "0"), 3), Row(('say "hi"\\', "1"), 4)]
    registry.family("lag_records", Family("Lag.", ("group", "partition"), lambda: rows))
    assert registry.snapshot() == {
        'lag_records{group="a",partition="0"}': 3,
        'lag_records{group="say \\"hi\\"\\\\",partition="1"}': 4,
    }


def test_a_family_is_bounded() -> None:
    registry = Registry()
    many = (Row((str(number),), 1) for number in range(METRIC_FAMILY_ROWS_MAX + 5))
    registry.family("lag_records", Family("Lag.", ("group",), lambda: many))
    assert len(registry.snapshot()) == METRIC_FAMILY_ROWS_MAX


def test_a_counter_for_each_value_of_a_label() -> None:
    registry = Registry()
    made = registry.counters("refused_total", "Refused.", "reason", ("idle", "slow"))
    made["slow"].value += 3
    assert registry.snapshot() == {
        'refused_total{reason="idle"}': 0,
        'refused_total{reason="slow"}': 3,
    }
