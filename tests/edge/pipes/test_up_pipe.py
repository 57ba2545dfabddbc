"""Decisions of up pipes."""

from uuid import UUID

import pytest

from penstock.core.types import TopicPartition
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.down_pipe import OnGap, Phase
from penstock.edge.pipes.sent_notes import note_text, read_note
from penstock.edge.pipes.up_pipe import (
    Compare,
    Position,
    Rest,
    Send,
    SentMark,
    SiteLog,
    UpPartition,
)
from penstock.edge.pipes.up_status import DiskTrend

TOPIC_ID = UUID(int=7)
AT = TopicPartition("t", 0)
MARK = SentMark(TOPIC_ID, BatchMark(3, 4, 0, 99))
LOG = SiteLog(TOPIC_ID, 0, 10, 10, 1_000)


def new(on_gap: OnGap = OnGap.STOP, *, is_dropping: bool = False) -> UpPartition:
    return UpPartition(on_gap, is_dropping=is_dropping, is_verifying=True)


def test_a_mark_survives_its_text_and_an_operator_has_none() -> None:
    assert SentMark.parse(MARK.text()) == MARK
    for text in ("", "x", "1:zz:1:2:3:4", "2:" + TOPIC_ID.hex + ":1:2:3:4", MARK.text() + ":5"):
        assert SentMark.parse(text) is None
    noted = {AT: Position(5, MARK)}
    assert read_note(note_text(noted)) == noted
    for text in ("", "[]", "{", '{"sent": 5}', '{"sent": {"t": {"x": [1]}}}', "[" * 100_000):
        assert read_note(text) == {}


def test_the_first_contact_sends_from_the_start() -> None:
    one = new()
    assert isinstance(one.resumed(None, LOG._replace(start_offset=3)), Send)
    assert (one.phase, one.position, one.held_from) == (Phase.COPYING, 3, 3)


def test_a_position_is_compared_with_the_log() -> None:
    one = new()
    assert one.resumed(Position(5, MARK), LOG) == Compare(4)
    assert one.phase is Phase.CHECKING
    assert isinstance(one.compared(MARK.batch), Send)
    assert one.position == 5
    one.committed(8)
    assert one.held_from == 8
    one.validate()


@pytest.mark.parametrize("found", [None, MARK.batch._replace(crc=1), BatchMark(4, 4, 0, 99)])
def test_another_batch_stops_the_partition(found: BatchMark | None) -> None:
    one = new()
    one.resumed(Position(5, MARK), LOG)
    assert isinstance(one.compared(found), Rest)
    assert one.phase is Phase.STOPPED
    assert one.problem is not None
    assert "restored or copied" in one.problem.reason
    one.lost()
    assert one.phase is Phase.STOPPED
    one.choose(10)
    assert (one.phase, one.position) == (Phase.COPYING, 10)
    one.validate()


def test_a_shorter_log_stops_the_partition() -> None:
    one = new()
    assert isinstance(one.resumed(Position(11, MARK), LOG), Rest)
    assert one.phase is Phase.STOPPED
    assert isinstance(one.resumed(Position(10, None), LOG), Send)


def test_a_new_topic_of_the_same_name_is_sent_from_its_start() -> None:
    one = new()
    other = LOG._replace(topic_id=UUID(int=8), start_offset=2)
    assert isinstance(one.resumed(Position(500, MARK), other), Send)
    assert (one.is_renewed, one.position) == (True, 2)


def test_a_gap_stops_or_is_counted() -> None:
    later = LOG._replace(start_offset=8)
    one = new()
    assert isinstance(one.resumed(Position(5, MARK), later), Rest)
    assert (one.phase, one.held_from) == (Phase.GAP, 5)
    for one in (new(OnGap.SKIP), new(is_dropping=True)):
        assert isinstance(one.resumed(Position(5, MARK), later), Send)
        assert (one.position, one.gaps, one.gap_records) == (8, 1, 3)
        assert isinstance(one.overtaken(9), Send)
        assert (one.gaps, one.gap_records) == (2, 4)
    # All that was sent is deleted: nothing is missing, and nothing can be compared.
    one = new()
    assert isinstance(
        one.resumed(Position(8, SentMark(TOPIC_ID, BatchMark(7, 7, 0, 1))), later), Send
    )


def test_the_disk_trend_needs_a_falling_free_space() -> None:
    trend = DiskTrend()
    assert trend.seconds_until_full(0, 100) is None
    trend.sample(0, 1_000)
    trend.sample(1, 5)  # too early
    trend.sample(100, 900)
    assert trend.seconds_until_full(100, 900) == 900
    assert trend.seconds_until_full(100, 1_100) is None
    trend.sample(10_000, 800)
    assert trend.seconds_until_full(10_000, 800) is None
    assert trend.may_drop(1)
    assert not trend.may_drop(1.5)
