"""In which order rejects are put into the table again, each once (pure).

Two tables have to change, the rejects' and the rows', and no commit changes both. So a replay
claims rejects, inserts their rows, and releases the claim, and each of the three is one commit with
a number. A replay has a name of its own in both tables, and counts there as if it read a topic:

| rejects' count | rows' count | what a crash left | what is next |
| --- | --- | --- | --- |
| 2n | n | nothing | claim |
| 2n + 1 | n | claimed, not inserted | insert |
| 2n + 1 | n + 1 | inserted, not released | release |

Claimed rejects have the name of the replay instead of the pipeline's. Those that are bad again get
the pipeline's name back before the rest is inserted, so everything that is still claimed at the
insertion is inserted, and may be taken out of the rejects at the release.
"""

from enum import Enum
from typing import Final

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit import (
    Commit,
    Decision,
    Offer,
    TableState,
    not_owner,
    note_after,
)
from penstock.spark.tables.commit_note import BatchRanges, PartitionRange

SUFFIX: Final = ".replay"
COUNTED: Final = TopicPartition("penstock-replays", 0)
"""Replays are counted as offsets of this partition, which is no topic's."""


class ReplayStep(Enum):
    """What is to be done next."""

    CLAIM = "claim"
    INSERT = "insert"
    RELEASE = "release"


def replay_name(pipeline: str) -> str:
    """What a replay of this pipeline is called in notes, and in rejects that it has claimed."""
    return pipeline + SUFFIX


def count_of(state: TableState, name: str) -> int:
    """How many commits of replays a table has."""
    return state.positions_of(name).get(COUNTED, 0)


def next_step(rejects_count: int, rows_count: int) -> ReplayStep:
    """What to do, by what both tables have."""
    if rejects_count == 2 * rows_count:
        return ReplayStep.CLAIM
    if rejects_count == 2 * rows_count + 1:
        return ReplayStep.INSERT
    assert rejects_count == 2 * rows_count - 1, "no other order leaves anything else"
    return ReplayStep.RELEASE


def counted(count: int) -> BatchRanges:
    """The range of the next commit."""
    return BatchRanges((PartitionRange(*COUNTED, count, count + 1),))


def amend(state: TableState, offer: Offer) -> Decision:
    """A rule of `commit_steps` for a commit that counts nothing: the note goes on as it is."""
    note = state.notes.get(offer.driver.pipeline)
    stop = not_owner(note, offer.driver)
    if stop is not None:
        return stop
    assert note is not None, "an owner has a note"
    return Commit(note_after(note, BatchRanges(()), offer.counts), after=state)
