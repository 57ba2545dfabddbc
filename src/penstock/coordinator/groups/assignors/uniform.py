"""The uniform assignor: balance first, then as few moves as possible.

Guarantees, when all members subscribe to the same topics: every partition has exactly one owner;
the sizes of two members differ by at most one; a partition moves only if its owner is gone, has
unsubscribed or has more than its share. Groups with different subscriptions are balanced by
`uniform_heterogeneous`. It does NOT consider racks or load.

The work is proportional to members plus partitions, and done by set operations.
"""

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from penstock.coordinator.groups.assignors.specification import (
    GroupSpecification,
    MemberSpecification,
    PartitionSets,
    is_homogeneous,
)
from penstock.coordinator.groups.assignors.uniform_heterogeneous import assign_heterogeneously


class _Share(NamedTuple):
    """The partitions that a member keeps, and how many more it gets."""

    member_id: str
    kept: PartitionSets
    missing: int


def assign_uniformly(group: GroupSpecification) -> dict[str, PartitionSets]:
    """Spread all partitions evenly over their subscribers."""
    if not group.members:
        return {}
    if not is_homogeneous(group):
        return assign_heterogeneously(group)
    member_ids = sorted(group.members)
    topics = sorted(group.members[member_ids[0]].subscribed)
    free = {topic_id: set(range(group.partition_counts[topic_id])) for topic_id in topics}
    total = sum(map(len, free.values()))
    kept = {member_id: _claim(group.members[member_id], free) for member_id in member_ids}
    shares = [
        _trim(member_id, kept[member_id], quota, free)
        for member_id, quota in _quotas(kept, total).items()
    ]
    unassigned = _in_order(free)
    return {share.member_id: _fill(share, unassigned) for share in shares}


def _claim(member: MemberSpecification, free: dict[UUID, set[int]]) -> PartitionSets:
    """The partitions that the member had and may keep; removes them from `free`."""
    kept: dict[UUID, frozenset[int]] = {}
    is_whole = True
    for topic_id, partitions in member.assigned.items():
        remaining = partitions & free[topic_id] if topic_id in free else frozenset()
        is_whole = is_whole and len(remaining) == len(partitions)
        if remaining:
            kept[topic_id] = remaining
            free[topic_id] -= remaining
    return member.assigned if is_whole else kept


def _quotas(kept: dict[str, PartitionSets], total: int) -> dict[str, int]:
    """Partitions of each member; members with more than the least get the extra ones first."""
    least, extra = divmod(total, len(kept))
    sizes = {
        member_id: sum(map(len, partitions.values())) for member_id, partitions in kept.items()
    }
    by_need = sorted(kept, key=lambda member_id: sizes[member_id] <= least)
    favoured = set(by_need[:extra])
    return {member_id: least + (member_id in favoured) for member_id in kept}


def _trim(member_id: str, kept: PartitionSets, quota: int, free: dict[UUID, set[int]]) -> _Share:
    """Release the partitions above the quota: the highest ones of the last topics."""
    surplus = sum(map(len, kept.values())) - quota
    if surplus <= 0:
        return _Share(member_id, kept, -surplus)
    trimmed = dict(kept)
    for topic_id in sorted(kept, reverse=True):
        if surplus == 0:
            break
        ordered = sorted(kept[topic_id])
        count = min(surplus, len(ordered))
        free[topic_id].update(ordered[-count:])
        surplus -= count
        if count == len(ordered):
            del trimmed[topic_id]
        else:
            trimmed[topic_id] = frozenset(ordered[:-count])
    return _Share(member_id, trimmed, 0)


def _in_order(free: dict[UUID, set[int]]) -> Iterator[tuple[UUID, int]]:
    for topic_id, partitions in free.items():
        for partition in sorted(partitions):
            yield topic_id, partition


def _fill(share: _Share, unassigned: Iterator[tuple[UUID, int]]) -> PartitionSets:
    if share.missing == 0:
        return share.kept
    added: dict[UUID, list[int]] = {}
    for _ in range(share.missing):
        topic_id, partition = next(unassigned)
        added.setdefault(topic_id, []).append(partition)
    filled = dict(share.kept)
    for topic_id, partitions in added.items():
        filled[topic_id] = filled.get(topic_id, frozenset()).union(partitions)
    return filled
