"""Decisions about elections that a client requests. Pure.

A first replica leads again if it is in sync. An unclean election is for a partition without a
leader: the best replica that there is, even if it may lack acknowledged records.
"""

from collections.abc import Sequence
from enum import Enum, auto

from penstock.cluster.elections import NO_LEADER, Members, reconciled, with_preferred_leader
from penstock.cluster.image import MetadataImage, PartitionImage

Place = tuple[str, int]
"""Name of a topic and number of a partition."""


class ElectionOutcome(Enum):
    """The outcome of one partition."""

    ELECTED = auto()
    NOT_NEEDED = auto()
    """The first replica leads, or any replica for an unclean election."""
    NOT_AVAILABLE = auto()
    """No replica can be elected."""
    UNKNOWN_PARTITION = auto()


def decide_elections(
    image: MetadataImage, places: Sequence[Place], *, is_unclean: bool
) -> tuple[dict[Place, ElectionOutcome], dict[Place, PartitionImage]]:
    """Return the outcomes, and the next states of the partitions with a new leader."""
    members = Members.of(image)
    outcomes: dict[Place, ElectionOutcome] = {}
    changed: dict[Place, PartitionImage] = {}
    for place in places:
        state = image.partition(*place)
        if state is None:
            outcomes[place] = ElectionOutcome.UNKNOWN_PARTITION
            continue
        if state.leader == state.replicas[0] or (is_unclean and state.leader != NO_LEADER):
            outcomes[place] = ElectionOutcome.NOT_NEEDED
            continue
        after = _elected(state, members, is_unclean=is_unclean)
        if after is None:
            outcomes[place] = ElectionOutcome.NOT_AVAILABLE
        else:
            outcomes[place], changed[place] = ElectionOutcome.ELECTED, after
    return outcomes, changed


def _elected(state: PartitionImage, members: Members, *, is_unclean: bool) -> PartitionImage | None:
    if is_unclean:
        after = reconciled(state, members, is_unclean_allowed=True)
        return None if after is None or after.leader == NO_LEADER else after
    return with_preferred_leader(state, members)
