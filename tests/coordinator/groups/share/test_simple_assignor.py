"""The simple assignor: all partitions are read, members have equal parts, few partitions move."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.assignors.simple import (
    ShareMemberSpecification,
    assign_simply,
)

T, U = UUID(int=1), UUID(int=2)

Places = set[tuple[UUID, int]]


def group(
    count: int, subscribed: frozenset[UUID], assigned: dict[str, PartitionSets] | None = None
) -> dict[str, ShareMemberSpecification]:
    return {
        f"m{number:03}": ShareMemberSpecification(
            subscribed, (assigned or {}).get(f"m{number:03}", {})
        )
        for number in range(count)
    }


def partitions(**counts: int) -> dict[UUID, frozenset[int]]:
    ids = {"t": T, "u": U}
    return {ids[name]: frozenset(range(count)) for name, count in counts.items()}


def places(assigned: PartitionSets) -> Places:
    return {(topic_id, number) for topic_id, numbers in assigned.items() for number in numbers}


def test_one_member_has_everything() -> None:
    assert assign_simply(group(1, frozenset({T, U})), partitions(t=2, u=1)) == {
        "m000": {T: frozenset({0, 1}), U: frozenset({0})}
    }


def test_nobody_and_nothing() -> None:
    assert assign_simply({}, {}) == {}
    assert assign_simply(group(2, frozenset()), {}) == {"m000": {}, "m001": {}}
    assert assign_simply(group(1, frozenset({T})), {T: frozenset()}) == {"m000": {}}


def test_more_members_than_partitions_share() -> None:
    found = assign_simply(group(5, frozenset({T})), partitions(t=2))
    assert sorted(len(places(one)) for one in found.values()) == [1, 1, 1, 1, 2]


def test_partitions_stay_where_they_are() -> None:
    before = assign_simply(group(2, frozenset({T})), partitions(t=4))
    same = assign_simply(group(2, frozenset({T}), before), partitions(t=4))
    assert all(same[one] is before[one] for one in before), "the same objects"
    more = assign_simply(group(3, frozenset({T}), before), partitions(t=4))
    moved = sum(len(places(more[one]) - places(before.get(one, {}))) for one in more)
    assert moved == 1, "only the newcomer gets one"


def test_topics_are_balanced_one_by_one_for_different_subscriptions() -> None:
    members = {
        "a": ShareMemberSpecification(frozenset({T}), {}),
        "b": ShareMemberSpecification(frozenset({U}), {}),
        "c": ShareMemberSpecification(frozenset({T, U}), {}),
    }
    found = assign_simply(members, partitions(t=4, u=2))
    assert {one: sorted((t, len(n)) for t, n in got.items()) for one, got in found.items()} == {
        "a": [(T, 2)],
        "b": [(U, 1)],
        "c": [(T, 2), (U, 1)],
    }


@given(
    counts=st.lists(st.tuples(st.integers(1, 14), st.integers(0, 9), st.integers(0, 5)), min_size=1)
)
def test_each_assignment_follows_from_the_one_before(counts: list[tuple[int, int, int]]) -> None:
    before: dict[str, PartitionSets] = {}
    for member_count, t_count, u_count in counts:
        assignable = partitions(t=t_count, u=u_count)
        found = assign_simply(group(member_count, frozenset({T, U}), before), assignable)
        wanted = places(assignable)
        assert set().union(*(places(one) for one in found.values())) == wanted
        sizes = [len(places(one)) for one in found.values()]
        if wanted:
            assert min(sizes) >= 1, "no member without work"
            most = -(-member_count // len(wanted))
            for place in wanted:
                assert sum(place in places(one) for one in found.values()) <= most
            assert max(sizes) <= -(-most * len(wanted) // member_count)
        before = found


@given(
    subscriptions=st.lists(
        st.sampled_from([{T}, {U}, {T, U}, set[UUID]()]), min_size=1, max_size=9
    ),
    t_count=st.integers(0, 6),
    u_count=st.integers(0, 6),
)
def test_members_get_only_what_they_subscribe_to(
    subscriptions: list[set[UUID]], t_count: int, u_count: int
) -> None:
    members = {
        str(number): ShareMemberSpecification(
            frozenset(topics), {T: frozenset({0, 9}), U: frozenset({1})}
        )
        for number, topics in enumerate(subscriptions)
    }
    assignable = partitions(t=t_count, u=u_count)
    found = assign_simply(members, assignable)
    for member_id, got in found.items():
        assert set(got) <= members[member_id].subscribed
        assert places(got) <= places(assignable)
    for topic_id in set().union(*subscriptions):
        read = {place for one in found.values() for place in places(one) if place[0] == topic_id}
        assert read == {(topic_id, number) for number in assignable[topic_id]}
