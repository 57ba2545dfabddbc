"""What to do with a micro-batch, decided from what the table holds (pure).

The rules:

1. The table is the only truth. Every commit of ours brings files and a note in one snapshot or
   transaction, and is conditional: it is refused when anything was committed since the table was
   read from which it was decided. What is in no note is not in the table.
2. A driver takes the table before its first batch, by a commit without files that raises the
   epoch. Whoever took it earlier finds a newer epoch in the note, or is refused by rule 1. A table
   that is rolled back has no owner: its driver stops, and the next one goes on from what is there.
3. Offsets of a partition come in order, without gaps, each once. A batch all of which is held is
   skipped; one that is held in part is trimmed to what is left; one that leaves a gap stops.
4. Whose offsets they are counts: cluster, topic id, leader epoch, and other pipelines that write
   to the same table. What does not fit stops, with the reason and what to do.

From these follows what a checkpoint is worth: nothing has to be in it. A deleted one is replaced
by `resume_positions`; one that was set back brings batches that are skipped or trimmed. Where it
is ahead of the table, the source begins where the table ends (`run.table_offsets`).

Nothing here reads a table; `commit_steps` says in which order things are done, `port` by whom.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.core.types import TopicPartition
from penstock.spark.offsets import NO_EPOCH, PartitionPosition, StreamOffset
from penstock.spark.tables import commit_stops
from penstock.spark.tables.commit_note import (
    LOSSES_MAX,
    UNKNOWN_FIELDS_MAX,
    BatchRanges,
    CommitCounts,
    CommitNote,
    HeldPartition,
    LostRange,
    NoteKind,
    PartitionRange,
)
from penstock.spark.tables.commit_stops import Stop
from penstock.spark.tables.empty_columns import empty_after

PIPELINES_MAX: Final = 100
"""Pipelines that have a note in one table; their newest notes are kept for ever."""
NOBODY: Final = "nobody"
"""The owner of a table that was rolled back, until a driver takes it: no driver has this name."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table says of our commits."""

    notes: Mapping[str, CommitNote] = field(default_factory=dict)
    """The newest of each pipeline; one that was forgotten has a note that holds nothing."""
    version: int = -1
    """What was read: the version of a Delta table, the snapshot of an Iceberg table."""

    @property
    def live(self) -> dict[str, CommitNote]:
        """The notes of pipelines that were not forgotten."""
        return {name: one for name, one in self.notes.items() if one.kind is not NoteKind.FORGET}

    def epoch_of(self, pipeline: str) -> int:
        """The number of the driver that owns the table for this pipeline; 0 for nobody."""
        note = self.notes.get(pipeline)
        return 0 if note is None else note.epoch

    def positions_of(self, pipeline: str) -> dict[TopicPartition, int]:
        """The next offset of each partition that the pipeline has begun."""
        note = self.notes.get(pipeline)
        return {} if note is None else {at: one.end_offset for at, one in note.held.items()}


@dataclass(frozen=True, slots=True)
class Driver:
    """Who commits."""

    pipeline: str
    run: str
    """A name that no other driver has."""
    epoch: int
    """Its number, from the note by which it took the table."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A micro-batch that a driver wants to commit."""

    driver: Driver
    ranges: BatchRanges
    counts: CommitCounts = field(default_factory=CommitCounts)
    allows_gaps: bool = False
    """The user said that records which are gone from the topic are no reason to stop."""
    lost: tuple[LostRange, ...] = ()
    """Offsets within the ranges that were gone when a task came to read them."""
    at_ms: int = 0
    """When it is offered: the time of its losses."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit with this note, on condition that the table is still as it was read."""

    note: CommitNote
    after: TableState


@dataclass(frozen=True, slots=True)
class Skip:
    """Everything is there already; the files of the batch, if any, are not used."""


@dataclass(frozen=True, slots=True)
class Trim:
    """A part is there already: write the batch again with these offsets only, and offer that."""

    left: BatchRanges


Decision = Commit | Skip | Trim | Stop


# --- Taking the table ---


def take_over(
    state: TableState, pipeline: str, run: str, starting: BatchRanges | None = None
) -> Commit | Stop:
    """The commit by which a driver becomes the owner.

    `starting` has the offsets, as empty ranges, from which partitions are read that the table does
    not know yet: with them in the note a pipeline begins only once.
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
    """Where a pipeline begins that the table does not know yet, as empty ranges; None: it does.

    A pipeline whose first offsets are another one's stops here: no batch of it would ever fit, and
    a table that was not taken does not know of it.
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
    """Where a pipeline without a checkpoint goes on; None when it never began."""
    note = state.notes.get(pipeline)
    if note is None or not note.held:
        return None
    positions = {
        at: PartitionPosition(one.end_offset, one.leader_epoch) for at, one in note.held.items()
    }
    return StreamOffset(positions, note.topic_ids, note.cluster_id, is_initial=True)


# --- Forgetting ---


def forget(state: TableState, pipeline: str) -> Commit:
    """The commit after which the table holds nothing of a pipeline's; its rows stay.

    The number of its drivers goes on, so that one which still runs finds out.
    """
    note = state.live[pipeline]
    forgotten = CommitNote(pipeline, NoteKind.FORGET, NOBODY, note.epoch + 1, note.sequence + 1)
    return Commit(forgotten, after=state)


def absorb(state: TableState, pipeline: str, backfill: str) -> Commit | None:
    """The commit after which a pipeline holds what its finished backfill has brought.

    None when it cannot: somewhere the backfill ends before the pipeline begins. The owner of the
    pipeline stays the owner.
    """
    note, other = state.live.get(pipeline), state.live.get(backfill)
    if note is None or other is None or not other.held:
        return None
    held = dict(note.held)
    for at, one in other.held.items():
        known = held.get(at)
        if known is None or one.end_offset != known.begin_offset:
            return None
        lost_count = known.lost_count + one.lost_count
        held[at] = known._replace(begin_offset=one.begin_offset, lost_count=lost_count)
    grown = note_after(replace(note, held=held), BatchRanges(()), CommitCounts())
    losses = sorted([*note.losses, *other.losses], key=lambda one: one.at_ms)
    return Commit(replace(grown, losses=tuple(losses[-LOSSES_MAX:])), after=state)


# --- A micro-batch ---


def decide(state: TableState, offer: Offer) -> Decision:
    """What to do with the batch, by what the table holds."""
    note = state.notes.get(offer.driver.pipeline)
    stop = not_owner(note, offer.driver)
    if stop is not None:
        return stop
    assert note is not None, "an owner has a note"
    stop = other_log(note, offer.ranges)
    if stop is not None:
        return stop
    left = {one.at: _left_of(one, note.held.get(one.at)) for one in offer.ranges.ranges}
    kept = tuple(one for one in left.values() if not one.is_empty or one.at not in note.held)
    left_ranges = replace(offer.ranges, ranges=kept)
    stop = _misfit(note, offer, kept) or held_by_others(state, note.pipeline, left_ranges)
    if stop is not None:
        return stop
    if not kept:
        return Skip()
    if any(left[one.at] != one for one in offer.ranges.ranges if not one.is_empty):
        return Trim(left_ranges)
    lost = [missing for one in kept for missing in _missing(note.held.get(one.at), one, offer)]
    return Commit(note_after(note, left_ranges, offer.counts, lost), after=state)


def not_owner(note: CommitNote | None, driver: Driver) -> Stop | None:
    """Whether the table is somebody else's by now, for this pipeline."""
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
    """Whether the ranges are of another cluster, or of a topic that was made anew."""
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
    """What of a range is not held. What lies before the first held offset counts as not held."""
    if held is None or come.start_offset < held.begin_offset:
        return come
    start = max(come.start_offset, min(held.end_offset, come.end_offset))
    return come._replace(start_offset=start)


def _misfit(note: CommitNote, offer: Offer, left: Sequence[PartitionRange]) -> Stop | None:
    """Whether what is left cannot follow what is held."""
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
    """Whether another pipeline has brought any of this to the same table."""
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
    """An id that is not known is not compared."""
    return one is not None and other is not None and one != other


def note_after(
    note: CommitNote,
    ranges: BatchRanges,
    counts: CommitCounts,
    lost: Sequence[LostRange] = (),
) -> CommitNote:
    """The note that follows when these ranges are committed.

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
        newest_ms=max(
            (one for one in (note.newest_ms, counts.newest_ms) if one is not None), default=None
        ),
    )


def noted_counts(counts: CommitCounts) -> CommitCounts:
    """What a note keeps of the counts: the fields that are in the most values."""
    most = sorted(counts.unknown_fields.items(), key=lambda one: (-one[1], one[0]))
    fields = dict(most[:UNKNOWN_FIELDS_MAX])
    looked_at = counts.looked_at if fields else 0
    return replace(
        counts, newest_ms=None, unknown_fields=fields, looked_at=looked_at, empty_columns=None
    )


def _missing(
    known: HeldPartition | None, come: PartitionRange, offer: Offer
) -> Iterator[LostRange]:
    """The offsets that the table does not get, up to the end of a range that is committed."""
    if known is not None and known.end_offset < come.start_offset:
        yield LostRange(*come.at, known.end_offset, come.start_offset, offer.at_ms)
    for one in offer.lost:
        start = max(one.start_offset, come.start_offset)
        end = min(one.end_offset, come.end_offset)
        if one.at == come.at and start < end:
            yield LostRange(*come.at, start, end, offer.at_ms)


# --- What the table says ---


def newest_note(
    in_history: CommitNote | None, kept: CommitNote | None, *, is_whole: bool
) -> CommitNote | None:
    """The note that holds, of the newest one in the table's history and the one kept apart.

    A table keeps a copy of each pipeline's newest note outside its history, because snapshots
    expire. Both are written in one commit, so they differ for two reasons only: the history was
    cut (`is_whole` is false), and the copy holds; or the table was rolled back to an older
    snapshot, and the history holds. Then the epoch and the sequence still do not go back: a driver
    from before would otherwise be taken for its successor. And nobody is the owner any more: who
    took the table goes by what it has brought, which is not there.
    """
    if kept is None:
        return in_history
    if kept.kind is NoteKind.FORGET and in_history is None:
        return kept
    if in_history is None and is_whole:
        return replace(kept, run=NOBODY, held={}, kind=NoteKind.TAKE, counts=CommitCounts())
    if in_history is None or in_history.sequence == kept.sequence:
        return kept
    if in_history.sequence > kept.sequence:
        return in_history
    return replace(in_history, run=NOBODY, epoch=kept.epoch, sequence=kept.sequence)
