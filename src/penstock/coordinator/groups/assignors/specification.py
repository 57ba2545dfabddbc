"""The input and the result of an assignor.

Values only. Old and new assignments share objects: never change one in place. An assignor does NOT
see topic names, leaders or the state of a member: only subscriptions and assignments.
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
    """Its last target assignment."""
    instance_id: str | None = None
    """The id of a static member."""


class GroupSpecification(NamedTuple):
    """All members and the topics they subscribe to."""

    members: Mapping[str, MemberSpecification]
    partition_counts: Mapping[UUID, int]
    """For every topic that a member subscribes to."""


Assignor: TypeAlias = Callable[[GroupSpecification], dict[str, PartitionSets]]
"""Returns the assignment of each member; one whose partitions stay gets the same object."""


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
