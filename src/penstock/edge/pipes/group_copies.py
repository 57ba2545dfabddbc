"""Which committed offsets of a group are copied from the parent (pure), and their copy.

Offsets mean the same on both sides, because the logs are the same. Guarantees:

- an offset is never beyond the end of the own log;
- an offset never moves back: a group that was moved here keeps its own progress.

The caller commits as a client that is not a member, which the coordinator refuses for a group with
members: offsets are copied only while the group is empty here. A group that one of the two brokers
refuses stops neither the other groups nor the copy of records.
"""

import logging
from collections.abc import Callable

from penstock.core.errors import BrokerAnswerError
from penstock.core.types import TopicPartition
from penstock.edge.pipes.down_pipe import NO_EPOCH
from penstock.edge.pipes.ports import Committed, CommittedOffset, Mirrors, Parent

logger = logging.getLogger(__name__)

EndOf = Callable[[TopicPartition], int | None]
"""Returns the end of the own log; None for partitions that are not mirrored."""


def offsets_to_commit(
    theirs: Committed, ours: Committed, end_of: EndOf
) -> dict[TopicPartition, CommittedOffset]:
    """Return the offsets to commit."""
    wanted: dict[TopicPartition, CommittedOffset] = {}
    for at, one in theirs.items():
        end = end_of(at)
        if end is None:
            continue
        copied = one if one.offset <= end else CommittedOffset(end, NO_EPOCH, one.metadata)
        known = ours.get(at)
        if known is None or copied.offset > known.offset:
            wanted[at] = copied
    return wanted


async def copy_group(group: str, parent: Parent, mirrors: Mirrors, end_of: EndOf) -> bool | None:
    """Copy the offsets of a group; return whether it was refused, None if nothing was to copy."""
    try:
        theirs = await parent.committed(group)
        wanted = offsets_to_commit(theirs, await mirrors.committed(group), end_of)
        return not await mirrors.commit(group, wanted) if wanted else None
    except BrokerAnswerError as error:
        logger.debug("the offsets of group %s are not copied: %s", group, error)
        return True
