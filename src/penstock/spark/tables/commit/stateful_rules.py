"""Decides whether to commit a batch of a stateful function, from note and checkpoint (pure).

The state of such a function is in Spark's checkpoint, and its results are in the table. Neither can
be computed from the other, so both must be of the same batches. Spark writes, for each batch:

    offsets/N    before the batch       the offsets: a repeated batch reads the same ones
    the table    by our commit of N     rows, offsets, checkpoint and N in one note
    commits/N    after the batch        the next batch is N + 1

The table is between both, so a checkpoint fits if the table's last batch is the last one of
`offsets`, or the one before it, and the last one of `commits`, or the one after it. A batch is
committed if it is the next one of the same checkpoint and begins at the end of the held offsets.
Every batch is committed, even an empty one, so the numbers have no gaps. The last batch is skipped
when it is repeated: the same checkpoint, number, ends and number of offsets.

A repeated batch whose definition or function was changed since its commit is refused: its rows and
rejects would be of the former one, and its state of the new one. The note has a fingerprint of both
(`run.stateful.meaning`). Without an unfinished batch a change is allowed. So it is if only the
rejects of a batch are committed, and not its rows: the changed definition applies to rows, rejects
and state of the whole batch, because its rejects replace those of the same offsets in the commit
before that of the rows (`run.reject_commits`). Refusing that would be a dead end if the former
definition cannot commit its rows any more.

All else stops, before anything is committed: a lost checkpoint, another one, an old copy, a table
that was rolled back or dropped. Guesses would double rows or lose them without a sign.

This module reads neither checkpoint nor table.
"""

from dataclasses import dataclass, replace
from typing import Final

from penstock.spark.tables.commit import stops as commit_stops
from penstock.spark.tables.commit.decisions import (
    Commit,
    Decision,
    Offer,
    Skip,
    TableState,
    held_by_others,
    misfit,
    not_owner,
    note_after,
    other_log,
)
from penstock.spark.tables.commit.note import CommitNote, StateNote
from penstock.spark.tables.commit.stops import Stop, StopReason

NO_BATCH: Final = -1
NEW_REMEDY: Final = (
    "Set a new, empty folder as pipeline.checkpoint, then `penstock table run FILE`: it begins at "
    "source.starting_offsets. If the table still has rows of this pipeline, delete them first, or "
    "set another table.name: they would be there twice."
)


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """The batches of a checkpoint of Spark."""

    id: str | None = None
    """The id that Spark gave it; None: there is no checkpoint."""
    planned: int = NO_BATCH
    """The last batch with offsets."""
    committed: int = NO_BATCH
    """The last batch that Spark has finished."""


def checkpoint_stop(
    state: TableState, pipeline: str, found: CheckpointFacts, meaning: str
) -> Stop | None:
    """Return the stop if the checkpoint is not the one whose results are in the table.

    `meaning`: the fingerprint of the current definition and function.
    """
    note = state.notes.get(pipeline)
    held = None if note is None else note.state
    if held is None:
        if note is not None and _has_rows(note):
            return commit_stops.had_no_state(pipeline)
        if found.planned > 0 or found.committed > NO_BATCH:
            problem = (
                f"the checkpoint has batches up to {found.planned}, and the table has none: it was "
                "dropped, rolled back or renamed, or the checkpoint is another pipeline's"
            )
            return commit_stops.other_checkpoint(pipeline, problem, NEW_REMEDY)
        return None
    misplaced = _misplaced(held, found)
    if misplaced is not None:
        return commit_stops.other_checkpoint(pipeline, misplaced)
    if found.committed < held.batch and meaning != held.meaning:
        return commit_stops.changed_batch(pipeline, held.batch)
    return None


def _misplaced(held: StateNote, found: CheckpointFacts) -> str | None:
    if found.id is None or found.planned == NO_BATCH:
        return (
            f"the table has {held.batch + 1} batches of checkpoint {held.checkpoint}, and there is "
            "no checkpoint in this folder: it was deleted, or pipeline.checkpoint was changed"
        )
    if found.id != held.checkpoint:
        return f"the table was written by checkpoint {held.checkpoint}, and this is {found.id}"
    if found.planned < held.batch or found.committed < held.batch - 1:
        return (
            f"the checkpoint is older than the table: it has finished batch {found.committed}, and "
            f"the table has batch {held.batch}. It was restored from an old copy"
        )
    if found.committed > held.batch:
        return (
            f"the checkpoint has finished batch {found.committed}, and the table has only batch "
            f"{held.batch}: the table was rolled back or replaced by an older copy"
        )
    return None


def _has_rows(note: CommitNote) -> bool:
    return any(one.begin_offset < one.end_offset for one in note.held.values())


def decide_stateful(state: TableState, offer: Offer) -> Decision:
    """Decide whether to commit or skip the batch, or to stop; it is never trimmed."""
    come = offer.state
    assert come is not None, "the caller names the batch"
    note = state.notes.get(offer.driver.pipeline)
    stop = not_owner(note, offer.driver)
    if stop is not None:
        return stop
    assert note is not None, "an owner has a note"
    stop = other_log(note, offer.ranges)
    if stop is not None:
        return stop
    held = note.state
    if held is not None and _is_repeated(note, held, offer, come):
        if come.meaning != held.meaning:
            return commit_stops.changed_batch(note.pipeline, held.batch)
        return Skip()
    stop = (
        _misnumbered(note, come)
        or _overlap(note, offer)
        or misfit(note, offer, offer.ranges.ranges)
        or held_by_others(state, note.pipeline, offer.ranges)
    )
    if stop is not None:
        is_gap = stop.reason is StopReason.GAP
        return commit_stops.gap_in_state(note.pipeline, stop) if is_gap else stop
    late_count = come.late_count + (0 if held is None else held.late_count)
    after = note_after(note, offer.ranges, offer.counts)
    return Commit(replace(after, state=come._replace(late_count=late_count)), after=state)


def _is_repeated(note: CommitNote, held: StateNote, offer: Offer, come: StateNote) -> bool:
    """Return whether this is the last committed batch again: Spark did not note that it is done.

    Ends and the number of offsets are enough: the partitions of one batch number of one checkpoint
    begin at the same offsets.
    """
    return (
        (come.checkpoint, come.batch, come.offset_count)
        == (held.checkpoint, held.batch, held.offset_count)
    ) and all(
        one.at in note.held and one.end_offset == note.held[one.at].end_offset
        for one in offer.ranges.ranges
    )


def _misnumbered(note: CommitNote, come: StateNote) -> Stop | None:
    held = note.state
    if held is None and _has_rows(note):
        return commit_stops.had_no_state(note.pipeline)
    if held is not None and held.checkpoint != come.checkpoint:
        problem = f"the table was written by checkpoint {held.checkpoint}, not {come.checkpoint}"
        return commit_stops.other_checkpoint(note.pipeline, problem)
    last = NO_BATCH if held is None else held.batch
    if come.batch != last + 1:
        problem = f"the table has batch {last} of the checkpoint, and this is batch {come.batch}"
        if come.batch == last:
            problem = f"batch {last} has other offsets in the checkpoint than in the table"
        return commit_stops.other_checkpoint(note.pipeline, problem)
    return None


def _overlap(note: CommitNote, offer: Offer) -> Stop | None:
    for one in offer.ranges.ranges:
        known = note.held.get(one.at)
        if known is not None and one.start_offset < known.end_offset:
            problem = f"the table holds {one.at} up to {known.end_offset}, and the batch has {one}"
            return commit_stops.other_checkpoint(note.pipeline, problem)
    return None
