"""What an assignor is given and what it answers.

Values only. Assignments are shared between old and new: nobody changes one in place. An assignor
does NOT see topic names, leaders or how far a member has come: only who may have what.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

PartitionSets: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic; a topic without partitions is not in it."""


class MemberSpecification(NamedTuple):
    """One member, as the assignors see it."""

    subscribed: frozenset[UUID]
    """Topics it subscribes to and that exist."""
    assigned: PartitionSets
    """What it was last meant to have."""
    instance_id: str | None = None
    """The id of a static member."""


class GroupSpecification(NamedTuple):
    """All members and the topics they subscribe to."""

    members: Mapping[str, MemberSpecification]
    partition_counts: Mapping[UUID, int]
    """For every topic that a member subscribes to."""


Assignor: TypeAlias = Callable[[GroupSpecification], dict[str, PartitionSets]]
"""Says for each member what it is to have; one whose partitions stay gets the same object."""


def is_homogeneous(group: GroupSpecification) -> bool:
    """Whether all members subscribe to the same topics."""
    subscriptions = iter(group.members.values())
    first = next(subscriptions, None)
    if first is None:
        return True
    topics = first.subscribed
    return all(
        member.subscribed is topics or member.subscribed == topics for member in subscriptions
    )
