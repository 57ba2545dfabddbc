"""The range assignor: each topic is cut into ranges, one for each subscriber in turn.

Guarantees: every partition of a subscribed topic has exactly one owner; the sizes of two members'
ranges of one topic differ by at most one; when all members subscribe to the same topics and these
have equally many partitions, a member has the same partition numbers in all of them, so that joins
are local. Static members come first, by instance id: they keep their ranges over a restart.

It is NOT sticky by itself: a member that joins or leaves may shift the ranges of all others.
"""

from uuid import UUID

from penstock.coordinator.groups.assignors.specification import (
    GroupSpecification,
    MemberSpecification,
    PartitionSets,
    is_homogeneous,
)


def assign_ranges(group: GroupSpecification) -> dict[str, PartitionSets]:
    """Give each member its range of each topic it subscribes to."""
    members = sorted(group.members.items(), key=_rank)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id, _ in members}
    subscribers = _subscribers(group, members)
    for topic_id in sorted(subscribers):
        _cut(topic_id, group.partition_counts[topic_id], subscribers[topic_id], assigned)
    return {
        member_id: member.assigned
        if member.assigned == assigned[member_id]
        else assigned[member_id]
        for member_id, member in members
    }


def _rank(entry: tuple[str, MemberSpecification]) -> tuple[bool, str]:
    member_id, member = entry
    is_dynamic = member.instance_id is None
    return is_dynamic, member_id if member.instance_id is None else member.instance_id


def _subscribers(
    group: GroupSpecification, members: list[tuple[str, MemberSpecification]]
) -> dict[UUID, list[str]]:
    """The subscribers of each topic, in the order of the members."""
    if not members:
        return {}
    if is_homogeneous(group):
        everybody = [member_id for member_id, _ in members]
        return dict.fromkeys(members[0][1].subscribed, everybody)
    subscribers: dict[UUID, list[str]] = {}
    for member_id, member in members:
        for topic_id in member.subscribed:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers


def _cut(
    topic_id: UUID,
    partition_count: int,
    subscribers: list[str],
    assigned: dict[str, dict[UUID, frozenset[int]]],
) -> None:
    """Give each subscriber its range; the first ones get one of the remaining partitions each."""
    quota, extra = divmod(partition_count, len(subscribers))
    start = 0
    for position, member_id in enumerate(subscribers):
        end = start + quota + (position < extra)
        if end == start:
            return  # more members than partitions: the others get no partition of this topic
        assigned[member_id][topic_id] = frozenset(range(start, end))
        start = end
