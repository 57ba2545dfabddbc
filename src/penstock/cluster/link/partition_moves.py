"""`PartitionMoves`: carries out requests that move replicas to other brokers.

Any broker writes them: each write compares the broker's registration, the state of the partition,
and the registration and the disk of a leader that leads in a new epoch. So no request is forwarded,
and two changes of one state cannot both be stored. Each outcome is known when `move` returns; after
a lost answer a move that the store has is recognised.

It ends when the moves have begun. The controller completes them (`link.controlling`).
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from penstock.cluster.elections import ChangedState, Members, state_writes
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.cluster.link.change_values import ChangeBase, Decision, Result
from penstock.cluster.moves.requested_moves import (
    Drafts,
    MoveOutcome,
    Place,
    ReplicaMove,
    move_outcomes,
)
from penstock.cluster.unhurried import unhurried
from penstock.core.errors import NoReassignmentError
from penstock.core.setting_text import is_true

UNCLEAN: Final = "unclean.leader.election.enable"


class Changing(Protocol):
    """Carries out changes of the metadata: `MetadataService`."""

    @property
    def topic_defaults(self) -> Mapping[str, str]:
        """The defaults of topic settings."""
        ...

    async def carry_out(
        self, action: str, decide: Callable[[ChangeBase], Awaitable[Decision[Result]]]
    ) -> Result:
        """Decide on the newest image and write, until the writes are certainly in the store."""
        ...


class PartitionMoves:
    """Reassignments in one cluster."""

    def __init__(self, metadata: Changing) -> None:
        self._metadata = metadata

    async def move(
        self, moves: Sequence[ReplicaMove], *, may_change_factor: bool
    ) -> list[MoveOutcome]:
        """Begin, replace or cancel reassignments; return the outcome of each, in order."""
        cancelled: set[Place] = set()

        async def decide(base: ChangeBase) -> Decision[list[MoveOutcome]]:
            drafts = Drafts(base.image, Members.of(base.image), {})
            outcomes = await unhurried(
                move_outcomes(
                    drafts, moves, self._is_unclean_allowed, may_change_factor=may_change_factor
                )
            )
            for number, one in enumerate(moves):
                is_gone = isinstance(outcomes[number], NoReassignmentError)
                if is_gone and (one.topic, one.partition) in cancelled:
                    # An earlier attempt has cancelled it, and its answer was lost.
                    outcomes[number] = None
            cancelled.update(
                (one.topic, one.partition) for one in moves if _is_drafted(one, drafts)
            )
            changed = _changed(base, drafts)
            writes = state_writes(base.keys, base.image, changed, base.guards)
            return Decision(writes if drafts.states else None, lambda: outcomes)

        return await self._metadata.carry_out("move replicas", decide)

    def _is_unclean_allowed(self, topic: TopicImage) -> bool:
        default = self._metadata.topic_defaults.get(UNCLEAN)
        return is_true(topic.settings.get(UNCLEAN, default))


def _is_drafted(move: ReplicaMove, drafts: Drafts) -> bool:
    return move.target is None and (move.topic, move.partition) in drafts.states


def _changed(base: ChangeBase, drafts: Drafts) -> Iterator[ChangedState]:
    for (name, index), after in drafts.states.items():
        topic = _topic(base.image, name)
        yield ChangedState(base.keys.partition(topic.id, index), topic.partitions[index], after)


def _topic(image: MetadataImage, name: str) -> TopicImage:
    topic = image.topic(name)
    assert topic is not None, "decided on this image"
    return topic
