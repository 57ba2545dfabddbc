"""Timelines keep every record, in bounded memory, whatever the length of a run."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.timeline import SLOTS_MAX, Timeline

MOMENTS = st.lists(st.tuples(st.integers(0, 10_000_000), st.integers(1, 1000)), max_size=60)


def timeline_of(moments: list[tuple[int, int]]) -> Timeline:
    made = Timeline()
    for at_ms, records in moments:
        made.add(at_ms, records)
    return made


@given(MOMENTS)
def test_nothing_is_lost_and_memory_is_bounded(moments: list[tuple[int, int]]) -> None:
    made = timeline_of(moments)
    assert sum(made.counts) == sum(records for _, records in moments)
    assert len(made.counts) <= SLOTS_MAX


@given(MOMENTS, MOMENTS)
def test_merging_is_as_if_one_had_seen_both(
    first: list[tuple[int, int]], second: list[tuple[int, int]]
) -> None:
    joined, other = timeline_of(first), timeline_of(second)
    before = list(other.counts)
    joined.merge(other)
    assert joined == timeline_of(first + second)
    assert other.counts == before


def test_rates_are_a_second() -> None:
    made = timeline_of([(0, 10), (50, 10), (150, 5)])
    assert made.rates() == [(0.05, 200.0), (0.15000000000000002, 50.0)]
