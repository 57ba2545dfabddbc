"""Merging of state batches, against offset by offset, and against Apache Kafka's own results."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.shares.batches import ANY_START, merged
from penstock.coordinator.shares.ports import StateBatch

OFFSET_MAX = 40

batches = st.lists(
    st.builds(
        lambda first, length, state, count: StateBatch(first, first + length, state, count),
        st.integers(0, OFFSET_MAX),
        st.integers(0, 9),
        st.sampled_from((0, 2, 4)),
        st.integers(1, 4),
    ),
    max_size=6,
)


def by_offset(found: "list[StateBatch] | tuple[StateBatch, ...]") -> dict[int, tuple[int, int]]:
    """The strongest state of each offset: count, then state."""
    states: dict[int, tuple[int, int]] = {}
    for batch in found:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            one = (batch.delivery_count, batch.delivery_state)
            states[offset] = max(one, states.get(offset, one))
    return states


def is_smallest(found: tuple[StateBatch, ...]) -> bool:
    """Sorted, without overlaps, and no neighbours that could be one."""
    return all(
        left.last_offset + 1 < right.first_offset
        or (left.last_offset + 1 == right.first_offset and left[2:] != right[2:])
        for left, right in pairwise(found)
    )


@given(batches, batches, st.integers(ANY_START, OFFSET_MAX))
def test_each_offset_has_its_strongest_state(
    current: list[StateBatch], changes: list[StateBatch], start: int
) -> None:
    before = merged((), current)
    after = merged(before, changes, start)
    wanted = by_offset([*current, *changes])
    assert by_offset(after) == {at: one for at, one in wanted.items() if at >= start}
    assert is_smallest(before)
    assert is_smallest(after)


@given(batches, batches, batches)
def test_the_order_of_changes_does_not_count(
    first: list[StateBatch], second: list[StateBatch], third: list[StateBatch]
) -> None:
    assert merged(merged(merged((), first), second), third) == merged(
        merged(merged((), third), first), second
    )


KAFKAS = [
    # current, changes, start offset, and the result of Kafka 4.3.1's PersisterStateBatchCombiner
    ("0-10 0/1", "5-6 2/1", -1, "0-4 0/1, 5-6 2/1, 7-10 0/1"),
    ("0-10 0/2", "5-15 2/1", -1, "0-10 0/2, 11-15 2/1"),
    ("0-10 0/1, 20-30 0/1", "11-19 0/1", -1, "0-30 0/1"),
    ("0-10 0/1", "0-20 2/2", 5, "5-20 2/2"),
    ("0-10 0/1, 11-20 2/1", "", 11, "11-20 2/1"),
    ("0-10 2/1", "0-10 4/1", -1, "0-10 4/1"),
    ("0-10 4/1", "0-10 2/1", -1, "0-10 4/1"),
    ("0-10 0/1", "", 20, ""),
    ("", "3-5 0/1, 4-9 0/3, 1-2 0/1", 2, "2-3 0/1, 4-9 0/3"),
]


def parsed(text: str) -> list[StateBatch]:
    found = []
    for one in text.split(", ") if text else []:
        offsets, delivery = one.split(" ")
        first, last = map(int, offsets.split("-"))
        state, count = map(int, delivery.split("/"))
        found.append(StateBatch(first, last, state, count))
    return found


@pytest.mark.parametrize(("current", "changes", "start", "wanted"), KAFKAS)
def test_kafkas_results(current: str, changes: str, start: int, wanted: str) -> None:
    assert list(merged(parsed(current), parsed(changes), start)) == parsed(wanted)
