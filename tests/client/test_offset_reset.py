"""The plan of a reset, as a function of the group's and the topics' state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.groups import offset_reset
from penstock.client.groups.offset_reset import Bounds, Change, Scenario, plan
from penstock.core.errors import InvalidRequestError
from penstock.core.types import TopicPartition

AT = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3))


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    first = draw(st.integers(0, 50))
    end = draw(st.integers(first, 100))
    committed = draw(st.none() | st.integers(0, 150))
    at_time = draw(st.just(offset_reset.NO_OFFSET) | st.integers(first, end))
    return Bounds(first, end, committed, at_time)


KNOWN = st.dictionaries(PLACES, bounds(), min_size=1)
SCENARIOS = st.one_of(
    st.sampled_from(
        [
            Scenario(offset_reset.TO_EARLIEST),
            Scenario(offset_reset.TO_LATEST),
            Scenario(offset_reset.TO_CURRENT),
            Scenario(offset_reset.TO_TIMESTAMP, 1_000),
        ]
    ),
    st.builds(Scenario, st.just(offset_reset.TO_OFFSET), st.integers(0, 200)),
)


def one(scenario: Scenario, known: Bounds) -> Change:
    (change,) = plan(scenario, {AT: known})
    return change


@given(SCENARIOS, KNOWN)
def test_a_plan_covers_every_partition_and_stays_inside_of_its_log(
    scenario: Scenario, known: dict[TopicPartition, Bounds]
) -> None:
    changes = plan(scenario, known)
    assert [change.at for change in changes] == sorted(known)
    for change in changes:
        found = known[change.at]
        assert found.first_offset <= change.offset <= found.end_offset
        assert change.committed == found.committed


@given(st.integers(-200, 200), st.dictionaries(PLACES, bounds(), min_size=1))
def test_a_shift_is_exact_inside_of_the_log_and_says_so_otherwise(
    by: int, known: dict[TopicPartition, Bounds]
) -> None:
    scenario = Scenario(offset_reset.SHIFT_BY, by)
    if any(found.committed is None for found in known.values()):
        with pytest.raises(InvalidRequestError, match="committed nothing"):
            plan(scenario, known)
        return
    for change in plan(scenario, known):
        found = known[change.at]
        assert found.committed is not None
        wanted = found.committed + by
        is_inside = found.first_offset <= wanted <= found.end_offset
        assert (change.offset == wanted) == is_inside
        assert bool(change.remark) != is_inside


@given(KNOWN)
def test_a_plan_that_was_carried_out_changes_nothing_the_second_time(
    known: dict[TopicPartition, Bounds],
) -> None:
    scenario = Scenario(offset_reset.TO_CURRENT)
    first = plan(scenario, known)
    after = {change.at: known[change.at]._replace(committed=change.offset) for change in first}
    again = plan(scenario, after)
    assert [change.offset for change in again] == [change.offset for change in first]
    assert not any(change.remark for change in again)


@given(KNOWN, st.data())
def test_the_offsets_of_a_file_are_taken(
    known: dict[TopicPartition, Bounds], data: st.DataObject
) -> None:
    offsets = {
        at: data.draw(st.integers(found.first_offset, found.end_offset))
        for at, found in known.items()
    }
    changes = plan(Scenario(offset_reset.FROM_FILE, offsets=offsets), known)
    assert {change.at: change.offset for change in changes} == offsets


def test_both_ends() -> None:
    known = Bounds(first_offset=10, end_offset=50, committed=20)
    assert one(Scenario(offset_reset.TO_EARLIEST), known) == Change(AT, 20, 10)
    assert one(Scenario(offset_reset.TO_LATEST), known) == Change(AT, 20, 50)


def test_an_offset_outside_of_the_log_is_moved_to_its_nearest_end() -> None:
    known = Bounds(first_offset=10, end_offset=50)
    below = one(Scenario(offset_reset.TO_OFFSET, 3), known)
    assert (below.offset, below.remark) == (10, "3 is before the first record that is kept")
    above = one(Scenario(offset_reset.TO_OFFSET, 51), known)
    assert (above.offset, above.remark) == (50, "51 is after the end")
    assert one(Scenario(offset_reset.TO_OFFSET, 50), known) == Change(AT, None, 50)


def test_a_time_after_the_last_record_means_the_end() -> None:
    change = one(Scenario(offset_reset.TO_TIMESTAMP, 9), Bounds(0, 50))
    assert change.offset == 50
    assert "no record is that young" in change.remark
    assert one(Scenario(offset_reset.TO_TIMESTAMP, 9), Bounds(0, 50, None, 7)).offset == 7


def test_to_current_where_nothing_is_committed_is_the_end() -> None:
    change = one(Scenario(offset_reset.TO_CURRENT), Bounds(0, 50))
    assert (change.offset, change.remark) == (50, "nothing is committed: the end")


def test_a_shift_that_one_partition_cannot_do_makes_no_plan_at_all() -> None:
    known = {AT: Bounds(0, 9, 5), OTHER: Bounds(0, 9)}
    with pytest.raises(InvalidRequestError, match=r"orders-1 cannot be shifted.*--to-earliest"):
        plan(Scenario(offset_reset.SHIFT_BY, 1), known)
