"""Which batch of a stateful function is committed: any checkpoint against any table, and the note.

The model at the end has crashes at every place, copies of checkpoints and rollbacks of the table:
the table never has a batch twice or leaves one out, and without the number of the batch it does.
"""

import random
from dataclasses import dataclass, field, replace
from typing import Final

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.decisions import (
    Commit,
    Decision,
    Driver,
    Offer,
    Skip,
    TableState,
    decide,
    newest_note,
    note_after,
    take_over,
)
from penstock.spark.tables.commit.note import (
    BatchRanges,
    CommitCounts,
    CommitNote,
    HeldPartition,
    NoteKind,
    PartitionRange,
    StateNote,
    read_note,
    write_note,
)
from penstock.spark.tables.commit.stateful_rules import (
    CheckpointFacts,
    checkpoint_stop,
    decide_stateful,
)
from penstock.spark.tables.commit.stops import Stop, StopReason

AT: Final = TopicPartition("sales", 0)
DRIVER: Final = Driver("totals", "run", 1)
MEANING: Final = "same"
PLACE: Final = StateNote("one", 7, 10, 5_000, 2, MEANING)


def note_of(state: StateNote | None = PLACE, end: int = 100) -> CommitNote:
    held = {AT: HeldPartition(0, end, end)}
    return CommitNote("totals", NoteKind.BATCH, "run", 1, 9, held, state=state)


def table_of(state: StateNote | None = PLACE, end: int = 100) -> TableState:
    return TableState({"totals": note_of(state, end)})


def offer_of(place: StateNote, *span: int, meaning: str = MEANING) -> Offer:
    ranges = (PartitionRange(*AT, *span),) if span else ()
    return Offer(DRIVER, BatchRanges(ranges), state=place._replace(meaning=meaning))


def reason_of(decision: Decision) -> StopReason:
    assert isinstance(decision, Stop)
    return decision.reason


def test_a_note_keeps_the_place_in_the_checkpoint() -> None:
    note = note_of()
    assert read_note(write_note(note)) == note
    assert '"state":["one",7,10,5000,2,"same"]' in write_note(note)
    assert read_note(write_note(note_of(None))).state is None
    with pytest.raises(SparkQueryError, match="other parts"):
        read_note(write_note(note).replace('"one",', ""))


def test_the_next_batch_is_committed_and_counts_late_records() -> None:
    decision = decide_stateful(table_of(), offer_of(StateNote("one", 8, 5, 6_000, 3), 100, 105))
    assert isinstance(decision, Commit)
    assert decision.note.state == StateNote("one", 8, 5, 6_000, 5, MEANING)
    assert decision.note.held[AT] == HeldPartition(0, 100, 105)
    empty = decide_stateful(table_of(), offer_of(StateNote("one", 8, 0, 6_000)))
    assert isinstance(empty, Commit), "a batch without records has the rows of closed windows"


def test_the_last_batch_again_is_skipped() -> None:
    assert decide_stateful(table_of(), offer_of(PLACE, 90, 100)) == Skip()
    nothing = StateNote("one", 7, 0, 5_000, meaning=MEANING)
    assert decide_stateful(table_of(nothing), offer_of(nothing)) == Skip()
    taken = take_over(table_of(), "totals", "run", None)
    assert isinstance(taken, Commit)  # by a new driver, whose note has no ranges of the batch
    again = replace(offer_of(PLACE, 90, 100), driver=Driver("totals", "run", taken.note.epoch))
    assert decide_stateful(TableState({"totals": taken.note}), again) == Skip()


@pytest.mark.parametrize(
    ("place", "span"),
    [
        (StateNote("two", 8, 5, 0), (100, 105)),  # another checkpoint
        (StateNote("one", 6, 10, 0), (80, 90)),  # an old copy
        (StateNote("one", 9, 5, 0), (100, 105)),  # the table lacks a batch
        (StateNote("one", 7, 12, 0), (90, 102)),  # an old copy that planned the batch anew
        (StateNote("one", 7, 0, 0), ()),
        (StateNote("one", 8, 15, 0), (90, 105)),  # records that the table has
    ],
)
def test_a_batch_of_other_offsets_stops(place: StateNote, span: tuple[int, ...]) -> None:
    decision = decide_stateful(table_of(), offer_of(place, *span))
    assert reason_of(decision) is StopReason.OTHER_CHECKPOINT


def test_a_gap_stops() -> None:
    decision = decide_stateful(table_of(), offer_of(StateNote("one", 8, 5, 0), 105, 110))
    assert isinstance(decision, Stop)
    assert decision.reason is StopReason.GAP
    assert "failOnDataLoss" not in decision.text
    assert "compute the table again" in decision.text


def test_rows_with_and_without_state_are_not_mixed() -> None:
    plain = replace(offer_of(PLACE, 100, 105), state=None)
    assert reason_of(decide(table_of(), plain)) is StopReason.HAS_STATE
    first = StateNote("one", 0, 5, 0)
    decision = decide_stateful(table_of(None), offer_of(first, 100, 105))
    assert reason_of(decision) is StopReason.HAS_STATE
    stop = checkpoint_stop(table_of(None), "totals", CheckpointFacts(), MEANING)
    assert stop is not None
    assert stop.reason is StopReason.HAS_STATE


def test_another_driver_stops() -> None:
    newer = TableState({"totals": replace(note_of(), run="other", epoch=2)})
    decision = decide_stateful(newer, offer_of(StateNote("one", 8, 5, 0), 100, 105))
    assert reason_of(decision) is StopReason.FENCED


@pytest.mark.parametrize(
    "found",
    [
        CheckpointFacts("one", 7, 6),  # a crash after the table's commit
        CheckpointFacts("one", 7, 7),
        CheckpointFacts("one", 8, 7),  # a crash before it
    ],
)
def test_a_checkpoint_of_the_same_batches_fits(found: CheckpointFacts) -> None:
    assert checkpoint_stop(table_of(), "totals", found, MEANING) is None


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (CheckpointFacts(), "8 batches of checkpoint one, and there is no checkpoint"),
        (CheckpointFacts("two"), "there is no checkpoint"),
        (CheckpointFacts("two", 7, 7), "by checkpoint one, and this is two"),
        (CheckpointFacts("one", 6, 6), "older than the table.*old copy"),
        (CheckpointFacts("one", 6, 5), "older than the table"),
        (CheckpointFacts("one", 8, 8), "only batch 7: the table was rolled back"),
    ],
)
def test_a_checkpoint_of_other_batches_is_refused(found: CheckpointFacts, problem: str) -> None:
    stop = checkpoint_stop(table_of(), "totals", found, MEANING)
    assert stop is not None
    assert stop.reason is StopReason.OTHER_CHECKPOINT
    with pytest.raises(SparkQueryError, match=f"{problem}.*penstock table run FILE"):
        raise stop.error()


def test_a_changed_definition_cannot_finish_a_batch_of_the_former_one() -> None:
    unfinished, finished = CheckpointFacts("one", 7, 6), CheckpointFacts("one", 7, 7)
    stop = checkpoint_stop(table_of(), "totals", unfinished, "changed")
    assert stop is not None
    assert stop.reason is StopReason.CHANGED_BATCH
    with pytest.raises(SparkQueryError, match=r"batch 7 .*Restore the former .*run FILE --once"):
        raise stop.error()
    assert checkpoint_stop(table_of(), "totals", unfinished, MEANING) is None
    assert checkpoint_stop(table_of(), "totals", finished, "changed") is None
    uncommitted = CheckpointFacts("one", 8, 7)
    assert checkpoint_stop(table_of(), "totals", uncommitted, "changed") is None
    again = decide_stateful(table_of(), offer_of(PLACE, 90, 100, meaning="changed"))
    assert reason_of(again) is StopReason.CHANGED_BATCH
    new = offer_of(StateNote("one", 8, 5, 6_000), 100, 105, meaning="changed")
    decision = decide_stateful(table_of(), new)
    assert isinstance(decision, Commit)
    assert decision.note.state is not None
    assert decision.note.state.meaning == "changed"


def test_a_new_table_needs_a_new_checkpoint() -> None:
    for fits in (CheckpointFacts(), CheckpointFacts("one"), CheckpointFacts("one", 0, -1)):
        assert checkpoint_stop(TableState(), "totals", fits, MEANING) is None
        started = TableState({"totals": note_of(None, 0)})
        assert checkpoint_stop(started, "totals", fits, MEANING) is None
    stop = checkpoint_stop(TableState(), "totals", CheckpointFacts("one", 3, 2), MEANING)
    assert stop is not None
    assert "the table has none: it was dropped" in stop.text
    assert "a new, empty folder as pipeline.checkpoint" in stop.text


def test_a_table_that_was_rolled_back_to_nothing_has_no_state() -> None:
    found = newest_note(None, note_of(), is_whole=True)
    assert found is not None
    assert found.state is None


# --- The model ---


@dataclass
class Life:
    """A topic of numbered records, a checkpoint, and a table that has what was committed."""

    planned: list[tuple[int, int]] = field(default_factory=list)
    """The offsets of each batch in the checkpoint."""
    committed: int = -1
    table: TableState = field(default_factory=TableState)
    rows: list[int] = field(default_factory=list)
    """The records whose results are in the table."""

    def facts(self) -> CheckpointFacts:
        return CheckpointFacts("one", len(self.planned) - 1, self.committed)


def run_some(life: Life, dice: random.Random, *, is_guarded: bool) -> None:
    """Start a driver and let it run until it crashes; a refused start changes nothing."""
    if is_guarded and checkpoint_stop(life.table, "totals", life.facts(), MEANING) is not None:
        return
    taken = take_over(life.table, "totals", f"run-{dice.random()}", None)
    assert isinstance(taken, Commit)
    life.table = TableState({"totals": taken.note})
    driver = Driver("totals", taken.note.run, taken.note.epoch)
    while dice.random() < 0.9:
        number = life.committed + 1
        if number == len(life.planned):
            begin = life.planned[-1][1] if life.planned else 0
            life.planned.append((begin, begin + dice.choice([0, 0, 1, 2, 3])))
            if dice.random() < 0.1:
                return
        begin, end = life.planned[number]
        place = StateNote("one", number, end - begin, 0)
        offer = replace(offer_of(place, *((begin, end) if end > begin else ())), driver=driver)
        decision = decide_stateful(life.table, offer) if is_guarded else always(life.table, offer)
        if isinstance(decision, Stop):
            return
        if isinstance(decision, Commit):
            life.table = TableState({"totals": decision.note})
            life.rows.extend(range(begin, end))
        if dice.random() < 0.1:
            return
        life.committed = number


def always(state: TableState, offer: Offer) -> Commit:
    note = note_after(state.notes["totals"], offer.ranges, CommitCounts())
    return Commit(replace(note, state=offer.state), after=state)


def lived(seed: int, *, is_guarded: bool) -> Life:
    dice, life = random.Random(seed), Life()
    copies: list[tuple[list[tuple[int, int]], int]] = []
    states: list[tuple[TableState, list[int]]] = []
    for _ in range(12):
        run_some(life, dice, is_guarded=is_guarded)
        copies.append((list(life.planned), life.committed))
        states.append((life.table, list(life.rows)))
        chance = dice.random()
        if chance < 0.1:
            life.planned, life.committed = [], -1
        elif chance < 0.3:
            planned, life.committed = dice.choice(copies)
            life.planned = list(planned)
        elif chance < 0.4:
            life.table, rows = dice.choice(states)
            life.rows = list(rows)
    return life


def test_no_history_doubles_or_loses_a_record() -> None:
    for seed in range(300):
        life = lived(seed, is_guarded=True)
        assert life.rows == list(range(len(life.rows))), f"seed {seed}"


def test_without_the_guard_records_are_doubled() -> None:
    doubled = sum(
        len(life.rows) != len(set(life.rows))
        for life in (lived(seed, is_guarded=False) for seed in range(100))
    )
    assert doubled > 50
