"""The order of the steps that replay rejects into the table, each once (pure).

Two tables must change, the rejects' and the rows', and no commit changes both. So a replay claims
rejects, inserts their rows, and releases the claim. Each of the three steps is one commit with a
number. A replay has its own name in both tables, and counts its commits there like offsets of a
topic:

| rejects' count | rows' count | what a crash left | what is next |
| --- | --- | --- | --- |
| 2n | n | nothing | claim |
| 2n + 1 | n | claimed, not inserted | insert |
| 2n + 1 | n + 1 | inserted, not released | release |

Claimed rejects have the name of the replay instead of the pipeline's. Rejects that fail again get
the pipeline's name back before the others are inserted. So all rejects that are still claimed at
the insertion are inserted, and may be deleted from the rejects at the release.

No crash leaves other counts. Other counts mean that one of both tables was dropped or rolled back,
and the other was not. Only the user knows the intent, so the mismatch is reported, and the replay
continues after the user confirms.
"""

from dataclasses import replace
from enum import Enum
from typing import Final

from penstock.core.quantities import count_text
from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.decisions import (
    Commit,
    Decision,
    Offer,
    TableState,
    decide,
    not_owner,
    note_after,
)
from penstock.spark.tables.commit.note import BatchRanges, PartitionRange

SUFFIX: Final = ".replay"
COUNTED: Final = TopicPartition("penstock-replays", 0)
"""Replays are counted as offsets of this partition, which belongs to no topic."""


class ReplayStep(Enum):
    """The next step."""

    CLAIM = "claim"
    INSERT = "insert"
    RELEASE = "release"
    ASK = "ask"
    """The counts do not match: one of both tables was dropped or rolled back."""


def replay_name(pipeline: str) -> str:
    """Return the name of this pipeline's replay in notes, and in claimed rejects."""
    return pipeline + SUFFIX


def count_of(state: TableState, name: str) -> int:
    """Return the number of commits of replays in a table."""
    return state.positions_of(name).get(COUNTED, 0)


def next_step(rejects_count: int, rows_count: int) -> ReplayStep:
    """Return the next step, from the counts of both tables."""
    if rejects_count == 2 * rows_count:
        return ReplayStep.CLAIM
    if rejects_count == 2 * rows_count + 1:
        return ReplayStep.INSERT
    if rejects_count == 2 * rows_count - 1:
        return ReplayStep.RELEASE
    return ReplayStep.ASK


def settled(rejects_count: int, rows_count: int) -> tuple[int, int]:
    """Return the next counts of both tables without an unfinished replay; counts never decrease."""
    replays = max(rows_count, (rejects_count + 1) // 2)
    return 2 * replays, replays


def misfit(rejects_count: int, rows_count: int, rejects: str, rows: str) -> str:
    """Return the message about mismatched counts of the tables with these names."""
    counts = (
        f"{rows} has the rows of {count_text(rows_count, 'replay')}, and {rejects} knows of "
        f"{(rejects_count + 1) // 2}"
    )
    if rejects_count < 2 * rows_count:
        return (
            f"{counts}: {rejects} was dropped or rolled back, and {rows} was not. Nothing was put "
            f"in. If {rejects} was dropped, replay once with --anew. If it was rolled back, it may "
            f"have bad records whose rows are in {rows}, and they would be put in twice: undo the "
            f"rollback; or delete those from {rejects}, by topic, partition and offset, and then "
            "replay once with --anew."
        )
    return (
        f"{counts}: {rows} was dropped or rolled back, and {rejects} was not. Nothing was put in. "
        "The rows of later replays are in neither table, unless the pipeline reads them again: "
        f"undo the rollback, or roll {rejects} back to the same moment. If neither can be done, "
        "replay once with --anew, which continues from the current rows, and send the missing "
        "records to the topic again."
    )


def counted(count: int, end: int | None = None) -> BatchRanges:
    """Return the range of the next commit; with an end, of a commit that counts up to it."""
    return BatchRanges((PartitionRange(*COUNTED, count, count + 1 if end is None else end),))


def count_on(state: TableState, offer: Offer) -> Decision:
    """Decide a counted commit (a rule of `commit.steps`); each pipeline's replays count apart."""
    own = offer.driver.pipeline
    notes = {name: note for name, note in state.notes.items() if name == own}
    decision = decide(replace(state, notes=notes), offer)
    return replace(decision, after=state) if isinstance(decision, Commit) else decision


def amend(state: TableState, offer: Offer) -> Decision:
    """Decide an uncounted commit (a rule of `commit.steps`): the note keeps its offsets."""
    note = state.notes.get(offer.driver.pipeline)
    stop = not_owner(note, offer.driver)
    if stop is not None:
        return stop
    assert note is not None, "an owner has a note"
    return Commit(note_after(note, BatchRanges(()), offer.counts), after=state)
