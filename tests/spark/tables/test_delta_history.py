"""The notes in the log of a Delta table, from entries written by hand."""

from dataclasses import replace

import pytest

from penstock.core.types import TopicPartition
from penstock.spark.tables.commit.decisions import NOBODY
from penstock.spark.tables.commit.note import CommitNote, HeldPartition, NoteKind
from penstock.spark.tables.formats.delta.history import (
    HistoryError,
    LogEntry,
    TimeSpan,
    must_read_on,
    notes_of,
    restore_to_find,
)

P0 = TopicPartition("orders", 0)


def note(sequence: int, *, pipeline: str = "orders", epoch: int = 1) -> CommitNote:
    held = {P0: HeldPartition(0, sequence * 10 - 10, sequence * 10)}
    return CommitNote(pipeline, NoteKind.BATCH, "run", epoch, sequence, held)


def entries(*notes: CommitNote | int | None) -> list[LogEntry]:
    """From version 0 on; a number is a RESTORE to that version. Given back newest first."""
    found = [
        LogEntry(version, restored_version=one) if isinstance(one, int) else LogEntry(version, one)
        for version, one in enumerate(notes)
    ]
    return found[::-1]


def test_the_newest_of_each_pipeline_holds() -> None:
    other = note(1, pipeline="backfill")
    found = notes_of(entries(None, note(1), other, note(2), None), {}, -1)
    assert found == {"orders": note(2), "backfill": other}


def test_the_copy_holds_for_what_has_no_newer_entry() -> None:
    kept = {"orders": note(4), "idle": note(1, pipeline="idle")}
    log = entries(*[None] * 6, note(5))
    assert notes_of(log[:1], kept, 5) == {"orders": note(5), "idle": kept["idle"]}
    assert notes_of([], kept, 6) == kept


def test_after_a_restore_what_it_went_back_to_holds() -> None:
    found = notes_of(entries(None, note(1), note(2), note(3, epoch=2), 2, None), {}, -1)
    assert found == {"orders": replace(note(2), run=NOBODY, sequence=3, epoch=2)}
    found = notes_of(entries(None, note(1), 0), {}, -1)
    assert found == {"orders": replace(note(1), run=NOBODY, held={}, kind=NoteKind.TAKE)}


def test_a_restore_that_was_itself_restored_does_not_count() -> None:
    found = notes_of(entries(None, note(1), note(2), 1, 2), {}, -1)
    assert found == {"orders": note(2)}


def test_a_restore_to_before_the_copy_needs_older_entries() -> None:
    log = entries(None, note(1), note(2), note(3), 1)
    kept = {"orders": note(3)}
    assert must_read_on(log[:1], 3)
    assert not must_read_on(log[:1], 1)
    assert notes_of(log, kept, 3) == {"orders": replace(note(1), run=NOBODY, sequence=3)}
    with pytest.raises(HistoryError, match="another table"):
        notes_of(log[:2], kept, 3)


def test_a_log_that_was_cut_behind_the_copy_is_told() -> None:
    log = entries(*[None] * 9, note(7), None)
    kept = {"orders": note(4), "idle": note(1, pipeline="idle")}
    with pytest.raises(HistoryError, match="cleaned"):
        notes_of(log[:2], kept, 5)
    assert notes_of(log[:2], {"orders": note(4)}, 5) == {"orders": note(7)}


def test_a_restore_by_time_is_found_only_when_a_note_depends_on_it() -> None:
    by_time = LogEntry(2, restored_to=TimeSpan(0, 0, "a time"))
    older = [by_time, *entries(None, note(1))]
    assert restore_to_find(older, {}) == by_time
    assert restore_to_find([LogEntry(3), *older], {}) == by_time
    assert restore_to_find([LogEntry(3, note(2)), *older], {}) is None
    assert restore_to_find([LogEntry(3, note(2)), *older], {"idle": note(1)}) == by_time
    assert restore_to_find([LogEntry(3, restored_version=1), *older], {}) is None
    assert restore_to_find([LogEntry(3, restored_version=2), *older], {}) == by_time
    assert restore_to_find([replace(by_time, restored_version=1), *older[1:]], {}) is None
