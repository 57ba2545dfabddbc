"""Decisions about requests that move replicas. Pure.

Errors have Kafka's wording and Kafka's order: for a request with two faults a client gets the same
error. A partition that a request names twice gets one change after the other.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from penstock.cluster.controller import known_brokers
from penstock.cluster.elections import Members
from penstock.cluster.image import MetadataImage, PartitionImage, TopicImage
from penstock.cluster.moves.reassignment import is_moving, requested, target_of
from penstock.cluster.topic_rules import check_replicas
from penstock.core.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentError,
    PenstockError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from penstock.core.limits import TOPIC_NAME_CHARACTERS_MAX

MOVES_PER_REQUEST_MAX: Final = 10_000
"""Partitions in one request, as in Kafka."""

Place = tuple[str, int]
"""Name of a topic and number of a partition."""
IsUncleanAllowed = Callable[[TopicImage], bool]
MoveOutcome = PenstockError | None
"""The error of one move; None if it is stored, or nothing changes."""


class ReplicaMove(NamedTuple):
    """The requested replicas of a partition."""

    topic: str
    partition: int
    target: tuple[int, ...] | None
    """None cancels the reassignment that is running."""


class Drafts(NamedTuple):
    """The changed states of one request, decided on one image."""

    image: MetadataImage
    members: Members
    states: dict[Place, PartitionImage]


def move_outcomes(
    drafts: Drafts,
    moves: Sequence[ReplicaMove],
    is_unclean_allowed: IsUncleanAllowed,
    *,
    may_change_factor: bool,
) -> Iterator[MoveOutcome]:
    """Yield the outcome of each move, and add the changed states to `drafts`.

    `may_change_factor`: whether a partition may get more or fewer replicas.
    """
    if len(moves) > MOVES_PER_REQUEST_MAX:
        too_many = PolicyViolationError(
            f"{len(moves)} partitions in one request, at most {MOVES_PER_REQUEST_MAX}."
        )
        yield from (too_many for _ in moves)
        return
    known = known_brokers(drafts.image)
    for move in moves:
        try:
            _decide(drafts, move, known, is_unclean_allowed, may_change_factor=may_change_factor)
            yield None
        except PenstockError as error:
            yield error


def _decide(
    drafts: Drafts,
    move: ReplicaMove,
    known: frozenset[int],
    is_unclean_allowed: IsUncleanAllowed,
    *,
    may_change_factor: bool,
) -> None:
    topic = drafts.image.topic(move.topic)
    if topic is None:
        # Bounded, because it is repeated for each partition.
        shown = move.topic[:TOPIC_NAME_CHARACTERS_MAX]
        raise UnknownTopicOrPartitionError(f"Unable to find a topic named {shown}.")
    stored = drafts.image.partition(move.topic, move.partition)
    if stored is None:
        raise UnknownTopicOrPartitionError(
            f"Unable to find partition {move.topic}:{move.partition}."
        )
    place = (move.topic, move.partition)
    before = drafts.states.get(place, stored)
    if move.target is None:
        if not is_moving(before):
            raise NoReassignmentError("No partition reassignment is in progress.")
    else:
        check_replicas(move.target, None, known)
        if not may_change_factor:
            _check_factor(before, move.target)
    after = requested(
        before, move.target, drafts.members, is_unclean_allowed=lambda: is_unclean_allowed(topic)
    )
    if after is None:
        raise InvalidReplicaAssignmentError(
            f"Unable to revert partition assignment for {move.topic}:{move.partition} because it "
            "would require an unclean leader election."
        )
    if after != before:
        drafts.states[place] = after


def _check_factor(state: PartitionImage, target: tuple[int, ...]) -> None:
    count = len(target_of(state))
    if count != len(target):
        raise InvalidReplicationFactorError(
            f"The replication factor is changed from {count} to {len(target)}"
        )
