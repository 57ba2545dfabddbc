"""Decides whether to add or replace the rejects of a batch, from their table's notes (pure).

The driver commits the table of rejects first, and then the table of rows. In this order a crash in
between cannot lose a record: until the rows are committed, the batch is repeated. In the opposite
order, a record that the first attempt rejects and the second accepts would be in neither table.

So the table may already hold rejects of a repeated batch, from an attempt with an older schema.
Then the rejects of exactly these offsets are replaced. Otherwise the new rejects are added. A batch
without rejects commits nothing there, so the committed offsets have gaps: only their end counts.

Call it after the decision to commit the rows of the batch.
"""

from dataclasses import dataclass

from penstock.spark.tables.commit.decisions import (
    Commit,
    Decision,
    Offer,
    TableState,
    not_owner,
    note_after,
    other_log,
)
from penstock.spark.tables.commit.note import BatchRanges
from penstock.spark.tables.commit.stops import Stop


@dataclass(frozen=True, slots=True)
class RejectPlan:
    """The plan for committing the rejects of a batch."""

    commit: Commit
    replaces: bool
    """Whether an earlier attempt may have committed rejects of these offsets: they are replaced."""


def decide_rejects(state: TableState, offer: Offer) -> RejectPlan | Stop:
    """Decide how the rejects of a batch are committed."""
    pipeline = offer.driver.pipeline
    note = state.notes.get(pipeline)
    stop = not_owner(note, offer.driver)
    if stop is not None:
        return stop
    assert note is not None, "an owner has a note"
    stop = other_log(note, offer.ranges)
    if stop is not None:
        return stop
    return RejectPlan(
        Commit(note_after(note, _ahead(state, offer), offer.counts), after=state),
        is_held(state, offer),
    )


def is_held(state: TableState, offer: Offer) -> bool:
    """Return whether any of these offsets is before the end of the committed ones."""
    ends = state.positions_of(offer.driver.pipeline)
    return any(one.start_offset < ends.get(one.at, 0) for one in offer.ranges.ranges)


def _ahead(state: TableState, offer: Offer) -> BatchRanges:
    """Return the ranges without committed offsets: an end does not move back."""
    ends = state.positions_of(offer.driver.pipeline)
    ranges = [
        one._replace(
            start_offset=max(one.start_offset, ends.get(one.at, 0)),
            end_offset=max(one.end_offset, ends.get(one.at, 0)),
        )
        for one in offer.ranges.ranges
    ]
    return BatchRanges(
        tuple(one for one in ranges if not one.is_empty or one.at not in ends),
        offer.ranges.topic_ids,
        offer.ranges.cluster_id,
    )


def reject_rule(state: TableState, offer: Offer) -> Decision:
    """Decide as a rule of `commit.steps`: it never skips, because that was decided before."""
    plan = decide_rejects(state, offer)
    return plan if isinstance(plan, Stop) else plan.commit
