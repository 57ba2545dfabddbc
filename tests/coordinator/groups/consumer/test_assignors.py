"""The server-side assignors: everything assigned once, evenly, with few moves, and quickly."""

import time
from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.groups.assignors import (
    ASSIGNORS,
    GroupSpecification,
    MemberSpecification,
    PartitionSets,
)

SECONDS_MAX = 2.0
"""For a thousand members; it takes 10 ms on an idle machine, and tests run on busy ones."""


def topic(number: int) -> UUID:
    return UUID(int=number)


def group(
    subscriptions: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
    assigned: dict[str, PartitionSets] | None = None,
) -> GroupSpecification:
    known = assigned or {}
    return GroupSpecification(
        {
            name: MemberSpecification(topics, known.get(name, {}))
            for name, topics in subscriptions.items()
        },
        counts,
    )


def owners(assigned: dict[str, PartitionSets]) -> dict[tuple[UUID, int], str]:
    found: dict[tuple[UUID, int], str] = {}
    for name, partitions in assigned.items():
        for topic_id, numbers in partitions.items():
            assert numbers, "a topic without partitions is not listed"
            for number in numbers:
                assert (topic_id, number) not in found, "assigned twice"
                found[topic_id, number] = name
    return found


def sizes(assigned: dict[str, PartitionSets]) -> list[int]:
    return [sum(map(len, partitions.values())) for partitions in assigned.values()]


counts_of_topics = st.dictionaries(st.integers(1, 6).map(topic), st.integers(1, 9), min_size=1)
names = st.sets(st.sampled_from("abcdefgh"), min_size=1)


@st.composite
def mixed_groups(draw: st.DrawFn) -> GroupSpecification:
    counts = draw(counts_of_topics)
    choice = st.frozensets(st.sampled_from(sorted(counts)))
    return group({name: draw(choice) for name in draw(names)}, counts)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(specification=mixed_groups())
def test_every_partition_goes_to_one_subscriber(
    name: str, specification: GroupSpecification
) -> None:
    assigned = ASSIGNORS[name](specification)
    assert assigned.keys() == specification.members.keys()
    found = owners(assigned)
    for (topic_id, _), member in found.items():
        assert topic_id in specification.members[member].subscribed
    subscribed = {t for member in specification.members.values() for t in member.subscribed}
    everything = {
        (t, number) for t in subscribed for number in range(specification.partition_counts[t])
    }
    assert found.keys() == everything


@pytest.mark.parametrize("name", ASSIGNORS)
@given(specification=mixed_groups())
def test_the_same_group_is_assigned_as_before(name: str, specification: GroupSpecification) -> None:
    first = ASSIGNORS[name](specification)
    members = {
        member_id: member._replace(assigned=first[member_id])
        for member_id, member in specification.members.items()
    }
    again = ASSIGNORS[name](GroupSpecification(members, specification.partition_counts))
    assert all(again[member_id] is first[member_id] for member_id in members), "nothing moves"


@given(counts=counts_of_topics, members=names)
def test_uniform_is_even(counts: dict[UUID, int], members: set[str]) -> None:
    topics = frozenset(counts)
    assigned = ASSIGNORS["uniform"](group(dict.fromkeys(members, topics), counts))
    assert max(sizes(assigned)) - min(sizes(assigned)) <= 1


@given(counts=counts_of_topics, before=names, after=names)
def test_uniform_moves_only_what_it_must(
    counts: dict[UUID, int], before: set[str], after: set[str]
) -> None:
    topics = frozenset(counts)
    first = ASSIGNORS["uniform"](group(dict.fromkeys(before, topics), counts))
    second = ASSIGNORS["uniform"](group(dict.fromkeys(after, topics), counts, first))
    assert max(sizes(second)) - min(sizes(second)) <= 1
    least, extra = divmod(sum(counts.values()), len(after))
    held = Counter({name: sum(map(len, first[name].values())) for name in before & after})
    rich = sum(size > least for size in held.values())
    must_go = sum(max(size - least, 0) for size in held.values()) - min(rich, extra)
    old, new = owners(first), owners(second)
    moved = sum(new[where] != who for where, who in old.items() if who in after)
    assert moved == max(must_go, 0)


@given(specification=mixed_groups())
def test_uniform_leaves_no_better_move_between_two_subscribers(
    specification: GroupSpecification,
) -> None:
    assigned = ASSIGNORS["uniform"](specification)
    loads = {name: sum(map(len, given.values())) for name, given in assigned.items()}
    for (topic_id, _), owner in owners(assigned).items():
        for name, member in specification.members.items():
            if topic_id in member.subscribed:
                assert loads[owner] - loads[name] <= 1


@given(counts=st.integers(1, 9), members=names)
def test_range_gives_the_same_numbers_of_all_topics(counts: int, members: set[str]) -> None:
    topics = frozenset({topic(1), topic(2)})
    subscriptions = dict.fromkeys(members, topics)
    assigned = ASSIGNORS["range"](group(subscriptions, dict.fromkeys(topics, counts)))
    for partitions in assigned.values():
        assert partitions.get(topic(1)) == partitions.get(topic(2))
        numbers = sorted(partitions.get(topic(1), ()))
        assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True


def test_range_keeps_static_members_first() -> None:
    subscribed = frozenset({topic(1)})
    members = {
        "z": MemberSpecification(subscribed, {}, instance_id="1"),
        "a": MemberSpecification(subscribed, {}),
    }
    assigned = ASSIGNORS["range"](GroupSpecification(members, {topic(1): 3}))
    assert assigned == {"z": {topic(1): frozenset({0, 1})}, "a": {topic(1): frozenset({2})}}


def test_a_group_without_members_has_no_assignment() -> None:
    for assign in ASSIGNORS.values():
        assert assign(GroupSpecification({}, {})) == {}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_thousand_members_are_assigned_quickly(name: str) -> None:
    counts = {topic(number): 50 for number in range(1, 101)}
    members = dict.fromkeys((f"m{number:04}" for number in range(1_000)), frozenset(counts))
    began = time.perf_counter()
    assigned = ASSIGNORS[name](group(members, counts))
    assert time.perf_counter() - began < SECONDS_MAX
    assert sum(sizes(assigned)) == 5_000
