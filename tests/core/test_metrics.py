"""Counters count, gauges are asked, names do not clash."""

import pytest

from penstock.core.metrics import Registry


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
