"""The decisions about a micro-batch, one named case each."""

from dataclasses import replace

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.offsets import PartitionPosition
from penstock.spark.tables.commit.decisions import (
    NOBODY,
    PIPELINES_MAX,
    Commit,
    Decision,
    Driver,
    Offer,
    Skip,
    TableState,
    Trim,
    decide,
    newest_note,
    resume_positions,
    starting_ranges,
    take_over,
)
from penstock.spark.tables.commit.note import (
    LOSSES_MAX,
    BatchRanges,
    CommitCounts,
    CommitNote,
    HeldPartition,
    LostRange,
    NoteKind,
    PartitionRange,
    read_note,
    write_note,
)
from penstock.spark.tables.commit.stops import Stop, StopReason

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)
DRIVER = Driver("orders", "run-a", 3)


def ranges(*found: tuple[int, int, int], topic_id: str = "t1", epoch: int = 5) -> BatchRanges:
    """(partition, start, end) each."""
    return BatchRanges(
        tuple(PartitionRange("orders", p, start, end, epoch) for p, start, end in found),
        {"orders": topic_id},
        "c1",
    )


def holding(end_0: int, end_1: int, *, begin: int = 0, pipeline: str = "orders") -> TableState:
    held = {P0: HeldPartition(begin, begin, end_0, 5), P1: HeldPartition(begin, begin, end_1, 5)}
    note = CommitNote(
        pipeline, NoteKind.BATCH, "run-a", 3, 7, held, {"orders": "t1"}, "c1", CommitCounts(9)
    )
    return TableState({pipeline: note}, version=41)


def offer(*found: tuple[int, int, int], topic_id: str = "t1", epoch: int = 5) -> Offer:
    return Offer(DRIVER, ranges(*found, topic_id=topic_id, epoch=epoch), CommitCounts(20, 1))


def reason(decision: Decision) -> StopReason:
    assert isinstance(decision, Stop)
    assert decision.text.endswith(".")
    assert str(decision.error()) == decision.text
    return decision.reason


def test_what_follows_is_committed_with_a_note_that_says_everything() -> None:
    state = holding(100, 80)
    decision = decide(state, offer((0, 100, 110), (1, 80, 80)))
    assert isinstance(decision, Commit)
    assert decision.after is state
    note = decision.note
    assert (note.run, note.epoch, note.sequence, note.kind) == ("run-a", 3, 8, NoteKind.BATCH)
    assert note.ranges() == (PartitionRange("orders", 0, 100, 110, 5),)
    assert note.held[P1] == HeldPartition(0, 80, 80, 5)
    assert note.counts == CommitCounts(20, 1)


def test_what_is_held_is_skipped_also_when_it_was_cut_in_another_way() -> None:
    state = holding(100, 80)
    assert decide(state, offer((0, 0, 100), (1, 0, 80))) == Skip()
    assert decide(state, offer((0, 37, 61), (1, 80, 80))) == Skip()
    assert decide(state, offer()) == Skip()


def test_what_is_held_in_part_is_trimmed_to_the_rest() -> None:
    decision = decide(holding(100, 80), offer((0, 90, 120), (1, 70, 75)))
    assert decision == Trim(ranges((0, 100, 120)))
    decision = decide(holding(100, 80), offer((0, 90, 100), (1, 80, 85)))
    assert decision == Trim(ranges((1, 80, 85)))


def test_a_trimmed_batch_can_be_committed() -> None:
    state = holding(100, 80)
    trimmed = decide(state, offer((0, 90, 120), (1, 70, 75)))
    assert isinstance(trimmed, Trim)
    assert isinstance(decide(state, replace(offer(), ranges=trimmed.left)), Commit)


def test_a_new_partition_begins_where_it_is_first_read() -> None:
    come = BatchRanges((PartitionRange("orders", 2, 30, 30), PartitionRange("orders", 3, 7, 9)))
    decision = decide(holding(100, 80), Offer(DRIVER, come))
    assert isinstance(decision, Commit)
    assert decision.note.held[TopicPartition("orders", 2)] == HeldPartition(30, 30, 30)
    assert decision.note.held[TopicPartition("orders", 3)] == HeldPartition(7, 7, 9)


def test_a_gap_stops_unless_the_user_allows_it() -> None:
    late = offer((0, 105, 110))
    decision = decide(holding(100, 80), late)
    assert reason(decision) is StopReason.GAP
    assert isinstance(decision, Stop)
    assert "orders-0 [100, 105)" in decision.text
    allowed = decide(holding(100, 80), replace(late, allows_gaps=True))
    assert isinstance(allowed, Commit)
    assert allowed.note.held[P0] == HeldPartition(0, 105, 110, 5, lost_count=5)


def test_a_note_never_claims_offsets_that_the_table_does_not_have() -> None:
    """With `failOnDataLoss=false` a loss left no trace: the note claimed all offsets."""
    lost = (LostRange("orders", 0, 106, 108), LostRange("orders", 1, 0, 500))
    late = replace(offer((0, 105, 110)), allows_gaps=True, lost=lost, at_ms=7)
    decision = decide(holding(100, 80), late)
    assert isinstance(decision, Commit)
    note = decision.note
    assert note.losses == (
        LostRange("orders", 0, 100, 105, 7),
        LostRange("orders", 0, 106, 108, 7),
    )
    assert (note.held[P0].lost_count, note.held[P1].lost_count) == (7, 0)
    assert read_note(write_note(note)) == note
    after = decide(TableState({"orders": note}), offer((0, 110, 120)))
    assert isinstance(after, Commit)
    assert (after.note.losses, after.note.held[P0].lost_count) == (note.losses, 7)


def test_a_note_names_the_newest_losses_and_counts_all() -> None:
    state = holding(100, 80)
    for number in range(LOSSES_MAX + 10):
        begin = 110 + 20 * number
        decision = decide(state, replace(offer((0, begin, begin + 10)), allows_gaps=True))
        assert isinstance(decision, Commit)
        state = TableState({"orders": decision.note})
    note = state.notes["orders"]
    assert len(note.losses) == LOSSES_MAX
    assert note.losses[-1].end_offset == note.held[P0].start_offset
    assert note.held[P0].lost_count == 10 * (LOSSES_MAX + 10)


def test_offsets_before_the_first_one_are_not_taken_for_held() -> None:
    state = holding(100, 100, begin=50)
    assert reason(decide(state, offer((0, 0, 20)))) is StopReason.BEFORE_BEGIN
    assert reason(decide(state, offer((0, 40, 110)))) is StopReason.BEFORE_BEGIN


@pytest.mark.parametrize("driver", [Driver("orders", "run-a", 2), Driver("orders", "run-b", 3)])
def test_a_driver_that_was_replaced_stops_even_when_the_batch_is_there(driver: Driver) -> None:
    decision = decide(holding(100, 80), Offer(driver, ranges((0, 0, 100))))
    assert reason(decision) is StopReason.FENCED


@pytest.mark.parametrize("state", [TableState(), holding(100, 80)])
def test_a_table_that_forgot_the_driver_stops_it(state: TableState) -> None:
    decision = decide(state, Offer(Driver("orders", "run-z", 4), ranges((0, 100, 110))))
    assert reason(decision) is StopReason.WENT_BACK


def test_a_topic_that_was_made_anew_stops() -> None:
    decision = decide(holding(100, 80), offer((0, 0, 10), topic_id="t2"))
    assert reason(decision) is StopReason.RECREATED_TOPIC
    taken = take_over(holding(100, 80), "orders", "run-b", ranges((0, 0, 0), topic_id="t2"))
    assert isinstance(taken, Stop)
    assert taken.reason is StopReason.RECREATED_TOPIC


def test_another_cluster_stops() -> None:
    moved = replace(offer((0, 100, 110)), ranges=replace(ranges((0, 100, 110)), cluster_id="c2"))
    assert reason(decide(holding(100, 80), moved)) is StopReason.OTHER_CLUSTER


def test_ids_that_are_not_known_are_not_compared() -> None:
    come = BatchRanges((PartitionRange("orders", 0, 100, 110),))
    decision = decide(holding(100, 80), Offer(DRIVER, come))
    assert isinstance(decision, Commit)
    assert decision.note.topic_ids == {"orders": "t1"}
    assert decision.note.cluster_id == "c1"


def test_an_older_leader_stops_only_what_is_new() -> None:
    assert reason(decide(holding(100, 80), offer((0, 100, 110), epoch=4))) is StopReason.OLD_LEADER
    assert decide(holding(100, 80), offer((0, 50, 60), epoch=4)) == Skip()


def test_offsets_of_another_pipeline_stop_and_others_do_not() -> None:
    others = holding(100, 100, pipeline="renamed")
    own = holding(0, 0).notes["orders"]
    state = replace(others, notes={**others.notes, "orders": own})
    assert reason(decide(state, offer((0, 0, 10)))) is StopReason.OTHER_PIPELINE
    other_topic = replace(own, held={}, topic_ids={})
    state = replace(others, notes={**others.notes, "orders": other_topic})
    assert isinstance(decide(state, offer((0, 100, 110))), Commit)
    assert isinstance(decide(state, offer((0, 0, 10), topic_id="t2")), Commit)


def test_a_pipeline_does_not_begin_with_what_another_one_has_committed() -> None:
    state = holding(100, 80, pipeline="renamed")
    first = resume_positions(holding(99, 80), "orders")
    assert first is not None
    stop = starting_ranges(state, "orders", first)
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.OTHER_PIPELINE
    assert "orders-0 [99, 100)" in stop.text
    assert "orders-1" not in stop.text


def test_a_pipeline_begins_where_another_one_ends_and_in_another_log() -> None:
    state = holding(100, 80, pipeline="renamed")
    first = resume_positions(holding(100, 80), "orders")
    assert first is not None
    assert starting_ranges(state, "orders", first) == ranges((0, 100, 100), (1, 80, 80))
    early = {at: PartitionPosition(0) for at in first.positions}
    for other in ({"topic_ids": {"orders": "t2"}}, {"cluster_id": "c2"}):
        elsewhere = replace(first, positions=early, **other)
        assert isinstance(starting_ranges(state, "orders", elsewhere), BatchRanges)
    assert starting_ranges(state, "renamed", replace(first, positions=early)) is None


def test_taking_raises_the_epoch_and_keeps_what_is_held() -> None:
    state = holding(100, 80)
    taken = take_over(state, "orders", "run-b", ranges((0, 0, 0), (2, 9, 9)))
    assert isinstance(taken, Commit)
    note = taken.note
    assert (note.run, note.epoch, note.sequence, note.kind) == ("run-b", 4, 8, NoteKind.TAKE)
    assert note.ranges() == ()
    assert {at.partition: one.end_offset for at, one in note.held.items()} == {0: 100, 1: 80, 2: 9}


def test_the_number_of_pipelines_is_bounded() -> None:
    note = CommitNote("x", NoteKind.TAKE, "r", 1, 1)
    state = TableState({f"p{n}": replace(note, pipeline=f"p{n}") for n in range(PIPELINES_MAX)})
    refused = take_over(state, "one more", "r")
    assert isinstance(refused, Stop)
    assert refused.reason is StopReason.TOO_MANY_PIPELINES
    assert isinstance(take_over(state, "p7", "r"), Commit)


def test_without_a_checkpoint_the_table_says_where_to_go_on() -> None:
    found = resume_positions(holding(100, 80), "orders")
    assert found is not None
    assert found.positions == {P0: PartitionPosition(100, 5), P1: PartitionPosition(80, 5)}
    assert (found.topic_ids, found.cluster_id, found.is_initial) == ({"orders": "t1"}, "c1", True)
    assert resume_positions(holding(1, 1), "another") is None


def test_the_newest_note_is_the_kept_one_when_history_was_cut() -> None:
    kept = holding(100, 80).notes["orders"]
    older = replace(holding(50, 50).notes["orders"], sequence=5)
    assert newest_note(None, kept, is_whole=False) == kept
    assert newest_note(kept, kept, is_whole=True) == kept
    assert newest_note(older, None, is_whole=True) == older
    assert newest_note(kept, older, is_whole=True) == kept
    assert newest_note(None, None, is_whole=True) is None


def test_after_a_rollback_history_holds_and_the_numbers_do_not_go_back() -> None:
    kept = holding(100, 80).notes["orders"]
    older = replace(holding(50, 50).notes["orders"], sequence=5, epoch=2, run="run-0")
    found = newest_note(older, kept, is_whole=True)
    assert found is not None
    assert found.held == older.held
    assert (found.epoch, found.sequence, found.run) == (kept.epoch, kept.sequence, NOBODY)
    emptied = newest_note(None, kept, is_whole=True)
    assert emptied is not None
    assert (emptied.held, emptied.epoch, emptied.run) == ({}, kept.epoch, NOBODY)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_rolled_back_table_stops_who_took_it_and_nobody_else(is_empty: bool) -> None:
    kept = holding(100, 80).notes["orders"]
    older = None if is_empty else replace(holding(50, 50).notes["orders"], sequence=5)
    found = newest_note(older, kept, is_whole=True)
    assert found is not None
    back = TableState({"orders": found}, 9)
    driver = Driver("orders", kept.run, kept.epoch)
    decision = decide(back, Offer(driver, ranges((0, 100, 110))))
    assert isinstance(decision, Stop)
    assert decision.reason is StopReason.WENT_BACK
    assert "reads the missing records" in decision.text
    taken = take_over(back, "orders", "run-next")
    assert isinstance(taken, Commit)
    assert (taken.note.run, taken.note.epoch) == ("run-next", kept.epoch + 1)
