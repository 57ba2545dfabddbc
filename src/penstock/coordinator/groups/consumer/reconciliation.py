"""Reconciliation: how a member of a consumer group moves from its assignment to its target.

```
               target is newer, must give up         says it gave up
     STABLE  ─────────────────────────────►  UNREVOKED_PARTITIONS ──┐
       ▲  ▲                                                         │
       │  └──── everything it is to get is free ────────────────────┤
       │                                                            ▼
       └─────── the others released the rest ──────  UNRELEASED_PARTITIONS
```

Guarantees: a partition is given to a member only when no other member has it; a member that must
give up partitions stays in its epoch until it confirms that; any other member moves to the epoch of
the target at once. Pure: a member and a target in, a member out. It does NOT write or count.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from penstock.coordinator.groups.assignors import PartitionSets
from penstock.coordinator.groups.consumer.consumer_member import (
    Member,
    MemberState,
    OwnedPartitions,
)
from penstock.coordinator.groups.refused import RefusedError
from penstock.protocol.error_codes import ErrorCode

ReportedPartitions: TypeAlias = Mapping[UUID, Collection[int]]
"""The partitions that a member reports to read now."""


class Target(NamedTuple):
    """The target of a member, and the limits on it."""

    epoch: int
    partitions: PartitionSets
    subscribed: Collection[UUID]
    """The topics it subscribes to; it may have no partition of others."""
    is_owned: Callable[[UUID, int], bool]
    """Whether any member has a partition, or may still be reading it."""


def reconcile(
    member: Member,
    target: Target,
    reported: ReportedPartitions | None,
    *,
    is_subscription_changed: bool,
) -> Member:
    """The next step of the member; the same object if there is none now."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != target.epoch:
                return _advance(member, member.epoch, target, reported)
            if is_subscription_changed:
                return _drop_unsubscribed(member, target, reported)
            return member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_has(reported, member.pending_revocation):
                if is_subscription_changed:
                    return _drop_unsubscribed(member, target, reported)
                return member
            # A change of subscription may have led here before a newer target existed.
            epoch = min(member.epoch + 1, target.epoch)
            return _advance(member, epoch, target, reported)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, member.epoch, target, reported)
        case MemberState.UNKNOWN:
            if reported is None or any(reported.values()):
                raise RefusedError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _advance(member, target.epoch, target, reported)


def _still_has(reported: ReportedPartitions | None, partitions: OwnedPartitions) -> bool:
    """Whether the member may still read any of them; so also if it reports nothing."""
    if reported is None:
        return True
    return any(
        number in partitions.get(topic_id, ())
        for topic_id, numbers in reported.items()
        for number in numbers
    )


def _drop_unsubscribed(
    member: Member, target: Target, reported: ReportedPartitions | None
) -> Member:
    """Take away topics that the member does not subscribe to any more, before a new target."""
    dropped = [topic_id for topic_id in member.assigned if topic_id not in target.subscribed]
    if not dropped:
        return member
    assigned = dict(member.assigned)
    pending = dict(member.pending_revocation)
    for topic_id in dropped:
        pending[topic_id] = {**pending.get(topic_id, {}), **assigned.pop(topic_id)}
    if _still_has(reported, pending):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            pending_revocation=pending,
        )
    return replace(member, assigned=assigned)


class _Step(NamedTuple):
    """The new state of one topic's partitions."""

    kept: dict[int, int]
    revoked: dict[int, int]
    added: list[int]
    is_waiting: bool
    """Another member still has some of the partitions."""


def _advance(
    member: Member, epoch: int, target: Target, reported: ReportedPartitions | None
) -> Member:
    """Move towards the target as far as possible now."""
    assigned: dict[UUID, Mapping[int, int]] = {}
    revoked: dict[UUID, Mapping[int, int]] = {}
    added: dict[UUID, list[int]] = {}
    is_waiting = False
    for topic_id in {**target.partitions, **member.assigned}:
        step = _step(member, topic_id, target)
        if step.kept:
            assigned[topic_id] = step.kept
        if step.revoked:
            revoked[topic_id] = step.revoked
        if step.added:
            added[topic_id] = step.added
        is_waiting = is_waiting or step.is_waiting
    if revoked and _still_has(reported, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=assigned,
            pending_revocation=revoked,
        )
    for topic_id, numbers in added.items():
        fresh = dict.fromkeys(numbers, target.epoch)
        assigned[topic_id] = {**assigned.get(topic_id, {}), **fresh}
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        epoch=target.epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        pending_revocation={},
    )


def _step(member: Member, topic_id: UUID, target: Target) -> _Step:
    is_subscribed = topic_id in target.subscribed
    wanted = target.partitions.get(topic_id, frozenset()) if is_subscribed else frozenset()
    owned = member.assigned.get(topic_id, {})
    if owned.keys() == wanted:
        return _Step(dict(owned), {}, [], is_waiting=False)
    kept = {number: since for number, since in owned.items() if number in wanted}
    revoked = {number: since for number, since in owned.items() if number not in wanted}
    missing = sorted(wanted - owned.keys())
    # Partitions that it is about to give up are its own: it may keep them.
    own = member.pending_revocation.get(topic_id, {})
    added = [number for number in missing if number in own or not target.is_owned(topic_id, number)]
    return _Step(kept, revoked, added, is_waiting=len(added) < len(missing))
