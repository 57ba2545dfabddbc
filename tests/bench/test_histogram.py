"""The histogram against a plain sorted list: bounds of error, of memory, and merging."""

import json
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.histogram import (
    SLOTS_MAX,
    VALUE_US_MAX,
    Histogram,
    bounds_of,
    from_document,
    merged,
    slot_of,
)

LATENCIES = st.lists(st.integers(0, VALUE_US_MAX), min_size=1, max_size=200)
ERROR_MAX = 1 / 128


def histogram_of(values: list[int]) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


@given(st.integers(0, VALUE_US_MAX))
def test_a_slot_holds_its_value_and_is_narrow(value: int) -> None:
    low, high = bounds_of(slot_of(value))
    assert low <= value <= high
    assert high - low <= value * ERROR_MAX


@given(st.integers(0, SLOTS_MAX - 2))
def test_slots_follow_each_other_without_a_gap(number: int) -> None:
    assert bounds_of(number)[1] + 1 == bounds_of(number + 1)[0]
    assert slot_of(bounds_of(number)[0]) == slot_of(bounds_of(number)[1]) == number


@given(LATENCIES, st.sampled_from([0.0, 50.0, 90.0, 99.0, 99.9, 100.0]))
def test_a_percentile_is_never_below_the_true_one_and_hardly_above(
    values: list[int], percent: float
) -> None:
    true = sorted(values)[max(1, ceil(len(values) * percent / 100)) - 1]
    found = histogram_of(values).percentile(percent)
    assert true <= found <= true * (1 + ERROR_MAX)


@given(LATENCIES, LATENCIES)
def test_merging_is_as_if_one_had_seen_both(first: list[int], second: list[int]) -> None:
    assert merged([histogram_of(first), histogram_of(second)]) == histogram_of(first + second)


@given(LATENCIES)
def test_a_document_brings_it_back(values: list[int]) -> None:
    made = histogram_of(values)
    assert from_document(json.loads(json.dumps(made.document()))) == made


def test_an_empty_one_has_no_latency() -> None:
    empty = Histogram()
    assert (empty.percentile(99), empty.mean_us, list(empty.slots())) == (0, 0.0, [])
    assert from_document(empty.document()) == empty


def test_what_is_too_long_or_negative_counts_at_the_ends() -> None:
    made = histogram_of([-5, 2**60])
    assert (made.min_us, made.max_us, made.count) == (0, VALUE_US_MAX, 2)


def test_memory_is_bounded_whatever_is_recorded() -> None:
    made = Histogram()
    for number in range(SLOTS_MAX):
        low, high = bounds_of(number)
        made.record(low)
        made.record(high)
    assert len(made.counts) == SLOTS_MAX
    made.record(VALUE_US_MAX * 2, times=3)
    assert len(made.counts) == SLOTS_MAX
    assert made.max_us == VALUE_US_MAX


@pytest.mark.parametrize("percent", [50.0, 99.0])
def test_times_count_as_often(percent: float) -> None:
    made = Histogram()
    made.record(10, times=98)
    made.record(1000, times=2)
    assert made.percentile(percent) == (10 if percent == 50 else 1000)
