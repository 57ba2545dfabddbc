"""`LeaderElections`: elections that a client requests, of first replicas and unclean ones.

Any broker writes them: each write compares the broker's registration, the state of the partition,
and the registration and the disk of the new leader, as those of a controller do. So no request is
forwarded, and two elections of one state cannot both be stored.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol

from penstock.cluster.elections import ChangedState, state_writes
from penstock.cluster.image import PartitionImage
from penstock.cluster.link.change_values import ChangeBase, Decision, Result
from penstock.cluster.link.election_outcomes import (
    ElectionOutcome,
    Place,
    decide_elections,
)


class Changing(Protocol):
    """Carries out changes of the metadata: `MetadataService`."""

    async def carry_out(
        self, action: str, decide: Callable[[ChangeBase], Awaitable[Decision[Result]]]
    ) -> Result:
        """Decide on the newest image and write, until the writes are certainly in the store."""
        ...


class LeaderElections:
    """Elections in one cluster."""

    def __init__(self, metadata: Changing) -> None:
        self._metadata = metadata

    async def elect(
        self, places: Sequence[Place], *, is_unclean: bool
    ) -> dict[Place, ElectionOutcome]:
        """Elect leaders of these partitions; return the outcome of each."""
        tried: set[Place] = set()

        async def decide(base: ChangeBase) -> Decision[dict[Place, ElectionOutcome]]:
            outcomes, changed = decide_elections(base.image, places, is_unclean=is_unclean)
            for place in tried:
                # An earlier attempt has elected it, and its answer was lost.
                if outcomes[place] is ElectionOutcome.NOT_NEEDED:
                    outcomes[place] = ElectionOutcome.ELECTED
            tried.update(changed)
            writes = state_writes(base.keys, base.image, _states(base, changed), base.guards)
            return Decision(writes if changed else None, lambda: outcomes)

        return await self._metadata.carry_out("elect leaders", decide)


def _states(base: ChangeBase, changed: dict[Place, PartitionImage]) -> Iterator[ChangedState]:
    for (name, index), after in changed.items():
        topic = base.image.topics[name]
        yield ChangedState(base.keys.partition(topic.id, index), topic.partitions[index], after)
