"""Decides whether to commit, skip or trim a micro-batch, from the table's notes (pure).

The rules:

1. The table is the only truth. Every commit of ours adds files and a note in one snapshot or
   transaction, and is conditional: it is rejected if the table has changed since it was read for
   the decision. Offsets without a note are not in the table.
2. A driver acquires the table before its first batch, by a commit without files that raises the
   epoch. An earlier owner finds a newer epoch in the note, or is rejected by rule 1. A rolled-back
   table has no owner: its driver stops, and the next driver continues from the restored state.
3. Offsets of a partition are committed in order, without gaps, each once. A batch that is
   completely in the table is skipped. A batch that is partly in the table is trimmed to the rest. A
   batch that would leave a gap stops the pipeline.
4. Offsets are checked by cluster, topic id, leader epoch, and against other pipelines that write to
   the same table. A mismatch stops the pipeline, with the reason and the remedy.

So the checkpoint may be empty. `resume_positions` replaces a deleted checkpoint; batches of an
older checkpoint are skipped or trimmed. If the checkpoint is ahead of the table, the source begins
at the end of the table's offsets (`run.table_offsets`).

This module reads no table; `commit.steps` has the order of the steps, `port` the interface of a
table.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.core.types import TopicPartition
from penstock.spark.offsets import NO_EPOCH, PartitionPosition, StreamOffset
from penstock.spark.tables.commit import stops as commit_stops
from penstock.spark.tables.commit.note import (
    LOSSES_MAX,
    UNKNOWN_FIELDS_MAX,
    BatchRanges,
    CommitCounts,
    CommitNote,
    HeldPartition,
    LostRange,
    NoteKind,
    PartitionRange,
    StateNote,
)
from penstock.spark.tables.commit.stops import Stop
from penstock.spark.tables.values.empty_columns import empty_after

PIPELINES_MAX: Final = 100
"""The maximum number of pipelines with a note in one table; their newest notes are never
deleted."""
NOBODY: Final = "nobody"
"""The owner of a rolled-back table, until a driver acquires it: no driver has this name."""


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of a table: the notes of our commits."""

    notes: Mapping[str, CommitNote] = field(default_factory=dict)
    """The newest note of each pipeline; a forgotten pipeline has a note without offsets."""
    version: int = -1
    """The version that was read: that of a Delta table, the snapshot of an Iceberg table."""

    @property
    def live(self) -> dict[str, CommitNote]:
        """The notes of pipelines that were not forgotten."""
        return {name: one for name, one in self.notes.items() if one.kind is not NoteKind.FORGET}

    def epoch_of(self, pipeline: str) -> int:
        """Return the epoch of the table's owner for this pipeline; 0 without an owner."""
        note = self.notes.get(pipeline)
        return 0 if note is None else note.epoch

    def positions_of(self, pipeline: str) -> dict[TopicPartition, int]:
        """Return the next offset of each partition that the pipeline has begun."""
        note = self.notes.get(pipeline)
        return {} if note is None else {at: one.end_offset for at, one in note.held.items()}


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver that commits."""

    pipeline: str
    run: str
    """The unique name of the driver."""
    epoch: int
    """The epoch in the note with which the driver acquired the table."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A micro-batch that a driver wants to commit."""

    driver: Driver
    ranges: BatchRanges
    counts: CommitCounts = field(default_factory=CommitCounts)
    allows_gaps: bool = False
    """Whether the user accepts deleted records of the topic, so they do not stop the pipeline."""
    lost: tuple[LostRange, ...] = ()
    """Offsets within the ranges that were deleted before a task read them."""
    at_ms: int = 0
    """The time of the offer, and of its losses."""
    state: StateNote | None = None
    """The place of the batch in its checkpoint, for `commit.stateful_rules`."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit with this note, on condition that the table has not changed since it was read."""

    note: CommitNote
    after: TableState


@dataclass(frozen=True, slots=True)
class Skip:
    """The whole batch is already in the table; its files, if any, are not used."""


@dataclass(frozen=True, slots=True)
class Trim:
    """A part is already in the table: write and offer the batch again with only these offsets."""

    left: BatchRanges


Decision = Commit | Skip | Trim | Stop


# --- Acquiring the table ---


def take_over(
    state: TableState, pipeline: str, run: str, starting: BatchRanges | None = None
) -> Commit | Stop:
    """Return the commit that makes a driver the owner.

    `starting` has the start offsets, as empty ranges, of partitions that are new to the table: with
    them in the note a pipeline begins only once.
    """
    note = state.notes.get(pipeline)
    if pipeline not in state.live and len(state.live) >= PIPELINES_MAX:
        return commit_stops.too_many_pipelines(pipeline, PIPELINES_MAX, sorted(state.live))
    if note is None:
        note = CommitNote(pipeline, NoteKind.TAKE, run, 0, 0)
    ranges = starting or BatchRanges(())
    stop = other_log(note, ranges)
    if stop is not None:
        return stop
    new = [one for one in ranges.ranges if one.at not in note.held]
    assert all(one.is_empty for one in new), "a driver takes the table before it has read anything"
    taken = note_after(note, replace(ranges, ranges=tuple(new)), CommitCounts())
    return Commit(replace(taken, kind=NoteKind.TAKE, run=run, epoch=note.epoch + 1), after=state)


def starting_ranges(
    state: TableState, pipeline: str, first: StreamOffset
) -> BatchRanges | Stop | None:
    """Return the start of a pipeline as empty ranges; None if its note has offsets already.

    A pipeline stops here if another pipeline has committed its first offsets: no batch of it would
    ever fit, and a table that was not acquired has no note of it.
    """
    note = state.notes.get(pipeline)
    if note is not None and note.held:
        return None
    ranges = tuple(
        PartitionRange(*at, one.offset, one.offset, one.leader_epoch)
        for at, one in sorted(first.positions.items())
    )
    starting = BatchRanges(ranges, first.topic_ids, first.cluster_id)
    firsts = [one._replace(end_offset=one.start_offset + 1) for one in ranges]
    return held_by_others(state, pipeline, replace(starting, ranges=tuple(firsts))) or starting


def resume_positions(state: TableState, pipeline: str) -> StreamOffset | None:
    """Return the positions of a pipeline without a checkpoint; None if it never began."""
    note = state.notes.get(pipeline)
    if note is None or not note.held:
        return None
    positions = {
        at: PartitionPosition(one.end_offset, one.leader_epoch) for at, one in note.held.items()
    }
    return StreamOffset(positions, note.topic_ids, note.cluster_id, is_initial=True)


# --- Forgetting ---


def forget(state: TableState, pipeline: str) -> Commit:
    """Return the commit that makes the table forget a pipeline; its rows stay.

    The commit raises the epoch, so that a driver that still runs is fenced.
    """
    note = state.live[pipeline]
    forgotten = CommitNote(pipeline, NoteKind.FORGET, NOBODY, note.epoch + 1, note.sequence + 1)
    return Commit(forgotten, after=state)


def absorb(state: TableState, pipeline: str, backfill: str) -> Commit | None:
    """Return the commit that adds the offsets of a finished backfill to its pipeline.

    None if this is impossible: in some partition the backfill ends before the pipeline begins, or
    both remember deleted keys. The owner of the pipeline stays the owner.
    """
    note, other = state.live.get(pipeline), state.live.get(backfill)
    if note is None or other is None or not other.held:
        return None
    if note.deleted_keys is not None and other.deleted_keys is not None:
        return None  # a commit reads the keys of all notes, as long as both are there
    held = dict(note.held)
    for at, one in other.held.items():
        known = held.get(at)
        if known is None or one.end_offset != known.begin_offset:
            return None
        lost_count = known.lost_count + one.lost_count
        held[at] = known._replace(begin_offset=one.begin_offset, lost_count=lost_count)
    grown = note_after(replace(note, held=held), BatchRanges(()), CommitCounts())
    losses = sorted([*note.losses, *other.losses], key=lambda one: one.at_ms)
    deleted_keys = note.deleted_keys or other.deleted_keys
    kept = replace(grown, losses=tuple(losses[-LOSSES_MAX:]), deleted_keys=deleted_keys)
    return Commit(kept, after=state)


# --- A micro-batch ---


def decide(state: TableState, offer: Offer) -> Decision:
    """Decide whether to commit, skip or trim the batch, or to stop."""
    note = state.notes.get(offer.driver.pipeline)
    stop = not_owner(note, offer.driver)
    if stop is not None:
        return stop
    assert note is not None, "an owner has a note"
    if note.state is not None:
        return commit_stops.has_state(note.pipeline)
    stop = other_log(note, offer.ranges)
    if stop is not None:
        return stop
    left = {one.at: _left_of(one, note.held.get(one.at)) for one in offer.ranges.ranges}
    kept = tuple(one for one in left.values() if not one.is_empty or one.at not in note.held)
    left_ranges = replace(offer.ranges, ranges=kept)
    stop = misfit(note, offer, kept) or held_by_others(state, note.pipeline, left_ranges)
    if stop is not None:
        return stop
    if not kept:
        return Skip()
    if any(left[one.at] != one for one in offer.ranges.ranges if not one.is_empty):
        return Trim(left_ranges)
    lost = [missing for one in kept for missing in _missing(note.held.get(one.at), one, offer)]
    return Commit(note_after(note, left_ranges, offer.counts, lost), after=state)


def not_owner(note: CommitNote | None, driver: Driver) -> Stop | None:
    """Return the stop if this driver no longer owns the table for this pipeline."""
    if note is not None and note.kind is NoteKind.FORGET:
        return commit_stops.forgotten(driver.pipeline)
    if note is not None and note.run == NOBODY:
        return commit_stops.rolled_back(driver.pipeline)
    if note is None or note.epoch < driver.epoch:
        return commit_stops.went_back(driver.pipeline, driver.epoch, note.epoch if note else 0)
    if note.epoch > driver.epoch or note.run != driver.run:
        return commit_stops.fenced(driver.pipeline, driver.epoch, note.epoch, note.run)
    return None


def other_log(note: CommitNote, ranges: BatchRanges) -> Stop | None:
    """Return the stop if the ranges are of another cluster, or of a recreated topic."""
    if _differ(note.cluster_id, ranges.cluster_id):
        assert note.cluster_id is not None
        assert ranges.cluster_id is not None
        return commit_stops.other_cluster(note.pipeline, note.cluster_id, ranges.cluster_id)
    for topic, topic_id in ranges.topic_ids.items():
        held_id = note.topic_ids.get(topic)
        if held_id is not None and held_id != topic_id:
            return commit_stops.recreated_topic(note.pipeline, topic, held_id, topic_id)
    return None


def _left_of(come: PartitionRange, held: HeldPartition | None) -> PartitionRange:
    """Return the uncommitted part of a range, including offsets before the first committed one."""
    if held is None or come.start_offset < held.begin_offset:
        return come
    start = max(come.start_offset, min(held.end_offset, come.end_offset))
    return come._replace(start_offset=start)


def misfit(note: CommitNote, offer: Offer, left: Sequence[PartitionRange]) -> Stop | None:
    """Return the stop if the remaining ranges cannot follow the committed ones."""
    known = [(one, note.held[one.at]) for one in left if one.at in note.held]
    early = [(one, held) for one, held in known if one.start_offset < held.begin_offset]
    if early:
        ranges, begins = [one for one, _ in early], [held.begin_offset for _, held in early]
        return commit_stops.before_begin(note.pipeline, ranges, begins)
    late = [(one, held) for one, held in known if one.start_offset > held.end_offset]
    if late and not offer.allows_gaps:
        ranges, ends = [one for one, _ in late], [held.end_offset for _, held in late]
        return commit_stops.gap(note.pipeline, ranges, ends)
    older = [one for one, held in known if NO_EPOCH < one.leader_epoch < held.leader_epoch]
    if older:
        return commit_stops.old_leader(note.pipeline, older)
    return None


def held_by_others(state: TableState, pipeline: str, ranges: BatchRanges) -> Stop | None:
    """Return the stop if another pipeline has written any of these offsets to the same table."""
    for name, other in state.notes.items():
        if name == pipeline or _differ(other.cluster_id, ranges.cluster_id):
            continue
        shared = [one for one in ranges.ranges if _overlaps(one, other, ranges)]
        if shared:
            return commit_stops.other_pipeline(pipeline, name, shared)
    return None


def _overlaps(come: PartitionRange, other: CommitNote, ranges: BatchRanges) -> bool:
    held = other.held.get(come.at)
    if held is None or come.is_empty:
        return False
    if _differ(other.topic_ids.get(come.topic), ranges.topic_ids.get(come.topic)):
        return False
    return come.start_offset < held.end_offset and held.begin_offset < come.end_offset


def _differ(one: str | None, other: str | None) -> bool:
    """Return whether two ids differ; an unknown id is not compared."""
    return one is not None and other is not None and one != other


def note_after(
    note: CommitNote,
    ranges: BatchRanges,
    counts: CommitCounts,
    lost: Sequence[LostRange] = (),
) -> CommitNote:
    """Return the note after a commit of these ranges.

    `lost` are offsets before the end of a range that the table does not get.
    """
    held = {at: one._replace(start_offset=one.end_offset) for at, one in note.held.items()}
    for one in ranges.ranges:
        known = held.get(one.at)
        begin = one.start_offset if known is None else known.begin_offset
        missing = (each for each in lost if each.at == one.at)
        lost_count = sum(each.end_offset - each.start_offset for each in missing)
        held[one.at] = HeldPartition(
            begin,
            one.start_offset,
            one.end_offset,
            one.leader_epoch,
            lost_count + (0 if known is None else known.lost_count),
        )
    topics = {at.topic for at in held}
    ids = {**note.topic_ids, **ranges.topic_ids}
    return replace(
        note,
        kind=NoteKind.BATCH,
        sequence=note.sequence + 1,
        held=held,
        topic_ids={topic: ids[topic] for topic in ids if topic in topics},
        cluster_id=note.cluster_id if note.cluster_id is not None else ranges.cluster_id,
        counts=noted_counts(counts),
        losses=(*note.losses, *lost)[-LOSSES_MAX:],
        empty_columns=empty_after(note.empty_columns, counts.empty_columns, counts.rows),
        small_batches=note.small_batches + counts.is_small,
        newest_ms=max(
            (one for one in (note.newest_ms, counts.newest_ms) if one is not None), default=None
        ),
    )


def noted_counts(counts: CommitCounts) -> CommitCounts:
    """Return the counts for a note: the fields that occur in the most values."""
    most = sorted(counts.unknown_fields.items(), key=lambda one: (-one[1], one[0]))
    fields = dict(most[:UNKNOWN_FIELDS_MAX])
    looked_at = counts.looked_at if fields else 0
    return replace(
        counts,
        newest_ms=None,
        unknown_fields=fields,
        looked_at=looked_at,
        empty_columns=None,
        is_small=False,
    )


def _missing(
    known: HeldPartition | None, come: PartitionRange, offer: Offer
) -> Iterator[LostRange]:
    """Return the offsets that the table does not get, up to the end of a committed range."""
    if known is not None and known.end_offset < come.start_offset:
        yield LostRange(*come.at, known.end_offset, come.start_offset, offer.at_ms)
    for one in offer.lost:
        start = max(one.start_offset, come.start_offset)
        end = min(one.end_offset, come.end_offset)
        if one.at == come.at and start < end:
            yield one._replace(start_offset=start, end_offset=end, at_ms=offer.at_ms)


# --- The state of the table ---


def newest_note(
    in_history: CommitNote | None, kept: CommitNote | None, *, is_whole: bool
) -> CommitNote | None:
    """Return the valid note: the newest in the table's history, or the copy outside it.

    A table keeps a copy of each pipeline's newest note outside its history, because snapshots
    expire. Both are written in one commit, so they differ for two reasons only. If the history was
    cut (`is_whole` is false), the copy is valid. If the table was rolled back to an older snapshot,
    the history is valid. Even then the epoch and the sequence do not go back: otherwise an earlier
    driver would be mistaken for its successor. And no driver is the owner any more: the last owner
    relies on its commits, which are gone.
    """
    if kept is None:
        return in_history
    if kept.kind is NoteKind.FORGET and in_history is None:
        return kept
    if in_history is None and is_whole:
        forgotten = replace(kept, held={}, state=None, counts=CommitCounts())
        return replace(forgotten, run=NOBODY, kind=NoteKind.TAKE)
    if in_history is None or in_history.sequence == kept.sequence:
        return kept
    if in_history.sequence > kept.sequence:
        return in_history
    return replace(in_history, run=NOBODY, epoch=kept.epoch, sequence=kept.sequence)
