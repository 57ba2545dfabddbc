"""The simple assignor of share groups: several members may have one partition.

Guarantees, for members with the same subscription: every partition has a member and, if there is a
partition, every member has one; members have equally many partitions, as far as they can be
divided; no partition has more members than needed for that. Members with different subscriptions
are balanced for each topic on its own, as in Kafka. Partitions stay where they are unless the
balance needs a move.

The name and the rules are Kafka's. Which of several equal members gets a partition is NOT: it
follows from the order of the member ids.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.coordinator.groups.assignors.specification import PartitionSets

SIMPLE: str = "simple"

_Place: TypeAlias = tuple[UUID, int]


class ShareMemberSpecification(NamedTuple):
    """One member of a share group, as the assignor sees it."""

    subscribed: frozenset[UUID]
    """Topics it subscribes to and that exist."""
    assigned: PartitionSets
    """Its last target assignment."""


def assign_simply(
    members: Mapping[str, ShareMemberSpecification], assignable: PartitionSets
) -> dict[str, PartitionSets]:
    """Return the assignment of each member; one whose partitions stay gets the same object."""
    shared: dict[str, set[_Place]] = {member_id: set() for member_id in members}
    subscriptions = {member.subscribed for member in members.values()}
    if len(subscriptions) == 1:
        topics = sorted(next(iter(subscriptions)))
        _share_out(sorted(members), _places(topics, assignable), members, shared)
    else:
        for topic_id in sorted(frozenset().union(*subscriptions)):
            readers = sorted(one for one in members if topic_id in members[one].subscribed)
            _share_out(readers, _places([topic_id], assignable), members, shared)
    return {
        member_id: _same_or_new(member.assigned, shared[member_id])
        for member_id, member in members.items()
    }


def _places(topics: Sequence[UUID], assignable: PartitionSets) -> list[_Place]:
    return [
        (topic_id, number) for topic_id in topics for number in sorted(assignable.get(topic_id, ()))
    ]


def _share_out(
    member_ids: list[str],
    places: list[_Place],
    members: Mapping[str, ShareMemberSpecification],
    shared: dict[str, set[_Place]],
) -> None:
    """Give each of these partitions to as many of these members as the balance needs."""
    if not places or not member_ids:
        return
    most = -(-len(member_ids) // len(places))  # members of one partition, rounded up
    quotas = _quotas(most * len(places), len(member_ids))
    counts = dict.fromkeys(places, 0)
    gets: dict[str, set[_Place]] = {}
    for member_id, quota in zip(member_ids, quotas, strict=True):
        kept: set[_Place] = set()
        gets[member_id] = kept
        for topic_id, numbers in sorted(members[member_id].assigned.items()):
            for number in sorted(numbers):
                place = (topic_id, number)
                if len(kept) < quota and counts.get(place, most) < most:
                    kept.add(place)
                    counts[place] += 1
    unfilled = deque(
        (member_id, quota)
        for member_id, quota in zip(member_ids, quotas, strict=True)
        if len(gets[member_id]) < quota
    )
    # Partitions without members come first: each gets one, whatever happens to the others.
    for place in sorted(places, key=counts.__getitem__):
        _fill(place, most - counts[place], unfilled, gets)
    for member_id in member_ids:
        shared[member_id] |= gets[member_id]


def _fill(
    place: _Place, missing: int, unfilled: deque[tuple[str, int]], gets: dict[str, set[_Place]]
) -> None:
    """Give one partition to members that have too few; a member that has it is passed over."""
    for _ in range(len(unfilled)):
        if not missing:
            return
        member_id, quota = unfilled.popleft()
        if place not in gets[member_id]:
            gets[member_id].add(place)
            missing -= 1
        if len(gets[member_id]) < quota:
            unfilled.append((member_id, quota))


def _quotas(total: int, count: int) -> list[int]:
    """Return `total` in `count` parts that differ by at most one."""
    ends = [-(-total * position // count) for position in range(count + 1)]
    return [end - start for start, end in pairwise(ends)]


def _same_or_new(assigned: PartitionSets, places: set[_Place]) -> PartitionSets:
    found: dict[UUID, set[int]] = {}
    for topic_id, number in places:
        found.setdefault(topic_id, set()).add(number)
    fresh = {topic_id: frozenset(numbers) for topic_id, numbers in sorted(found.items())}
    return assigned if fresh == assigned else fresh
