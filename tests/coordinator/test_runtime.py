"""The runtime keeps the promises of `coordinator.shard`, whatever the log does meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.driver import RETRY_SECONDS, Phase
from penstock.coordinator.shard import Producer
from penstock.core.errors import (
    BatchTooLargeError,
    CoordinatorError,
    CoordinatorLoadingError,
    CoordinatorNotAvailableError,
    DiskFullError,
    InvalidProducerEpochError,
    LogDirectoryOfflineError,
    NotCoordinatorError,
    PenstockError,
    RequestTimedOutError,
    StoredRecordError,
    TooManyWaitersError,
)
from penstock.protocol.codec import Message
from tests.coordinator.toy_shard import (
    Add,
    Break,
    Delegate,
    Done,
    Join,
    Key,
    MemoryJournal,
    NoTopics,
    Park,
    Read,
    Rig,
    Unpark,
    Value,
)

PRODUCER = Producer(7, 0)


def test_an_answer_leaves_when_its_records_are_committed() -> None:
    rig = Rig()
    answers = rig.ask(Add("a", 5))
    assert rig.shard.totals == {"a": 5}
    assert answers == []
    rig.journal.commit()
    assert answers == [Done(5)]


def test_an_answer_without_records_waits_for_what_it_may_have_seen() -> None:
    rig = Rig()
    rig.ask(Add("a", 5))
    seen = rig.ask(Read("a"))
    assert seen == []
    rig.journal.commit()
    assert seen == [Done(5)]
    assert rig.ask(Read("a")) == [Done(5)]


def test_records_are_seen_by_the_next_event() -> None:
    rig = Rig()
    rig.ask(Add("a", 5))
    answers = rig.ask(Add("a", 5))
    rig.journal.commit(1)
    assert answers == []
    rig.journal.commit(2)
    assert answers == [Done(10)]


def test_a_timer_answers_who_waits() -> None:
    rig = Rig()
    answers = rig.ask(Park("a", 300))
    rig.time.advance(299)
    assert answers == []
    rig.time.advance(11)
    assert answers == [Done(1_000_300)]
    assert rig.runtime.timer_count == 0


def test_a_timer_that_is_set_again_fires_once_and_later() -> None:
    rig = Rig()
    rig.ask(Park("a", 300))
    rig.time.advance(200)
    answers = rig.ask(Park("a", 300))
    rig.time.advance(200)
    assert answers == []
    rig.time.advance(200)
    assert answers == [Done(1_000_500)]


def test_a_timer_that_is_cancelled_does_not_fire() -> None:
    rig = Rig()
    answers = rig.ask(Park("a", 300))
    assert rig.ask(Unpark("a")) == [Done(0)]
    rig.time.advance(1_000)
    assert answers == []


def test_an_effect_begins_when_everything_before_it_is_committed() -> None:
    rig = Rig()
    rig.ask(Add("a", 1))
    answers = rig.ask(Delegate("a"))
    rig.tasks.run()
    assert rig.helper.asked == []
    rig.journal.commit()
    rig.tasks.run()
    assert rig.helper.asked == ["a"]
    rig.journal.commit()
    assert answers == [Done(11)]


def test_an_effect_that_fails_is_told_to_the_shard() -> None:
    rig = Rig()
    rig.helper.result = RequestTimedOutError("too slow")
    answers = rig.ask(Delegate("a"))
    rig.tasks.run()
    assert answers == [Done(-1)]


def test_while_the_log_is_read_requests_are_refused() -> None:
    journal = MemoryJournal()
    before = Rig(journal)
    for amount in (1, 2, 3):
        before.ask(Add("a", amount))
    journal.commit()
    rig = Rig(journal.after_crash())
    for _ in range(3):
        rig.tasks.step()
        (refusal,) = rig.ask(Read("a"))
        assert isinstance(refusal, CoordinatorLoadingError)
    rig.tasks.run()
    assert rig.ask(Read("a")) == [Done(6)]


def test_an_empty_log_is_served_at_once() -> None:
    rig = Rig()
    assert rig.ask(Read("a")) == [Done(0)]
    assert not rig.tasks.running


def test_a_log_that_cannot_be_read_is_tried_again_after_a_while() -> None:
    journal = MemoryJournal()
    Rig(journal).ask(Add("a", 1))
    journal.commit()
    journal.read_error = StoredRecordError("damage")
    rig = Rig(journal)
    rig.tasks.run()
    (refusal,) = rig.ask(Read("a"))
    assert isinstance(refusal, NotCoordinatorError)
    assert not rig.tasks.running
    journal.read_error = None
    rig.time.advance(round(RETRY_SECONDS * 1_000))
    rig.ask(Read("a"))
    rig.tasks.run()
    assert rig.ask(Read("a")) == [Done(1)]


def test_an_append_that_fails_is_told_and_the_log_is_read_again() -> None:
    rig = Rig()
    rig.ask(Add("a", 1))
    rig.journal.commit()
    parked = rig.ask(Park("a", 300))
    rig.journal.append_error = DiskFullError("no room")
    (refusal,) = rig.ask(Add("a", 1))
    assert isinstance(refusal, NotCoordinatorError)
    (told,) = parked
    assert isinstance(told, NotCoordinatorError)
    assert rig.runtime.timer_count == 0
    rig.journal.append_error = None
    rig.tasks.run()
    assert rig.ask(Read("a")) == [Done(1)]


def test_a_batch_that_its_producer_may_not_write_costs_nobody_else_anything() -> None:
    rig = Rig()
    parked = rig.ask(Park("a", 300))
    rig.journal.append_error = InvalidProducerEpochError("a zombie")
    (refusal,) = rig.ask(Add("a", 1, PRODUCER))
    assert isinstance(refusal, InvalidProducerEpochError)
    assert parked == []
    assert rig.ask(Read("a")) == [Done(0)]


@pytest.mark.parametrize(
    ("error", "told"),
    [(DiskFullError("no room"), NotCoordinatorError), (BatchTooLargeError("!"), CoordinatorError)],
)
def test_a_change_that_can_be_taken_back_costs_nobody_else_anything(
    error: PenstockError, told: type[PenstockError]
) -> None:
    rig = Rig()
    parked = rig.ask(Park("a", 300))
    rig.journal.append_error = error
    (refusal,) = rig.ask(Add("a", 1, is_revocable=True))
    assert type(refusal) is told
    assert parked == []
    rig.journal.append_error = None
    rig.time.advance(400)
    assert len(parked) == 1, "its timer lives on"
    assert rig.ask(Read("a")) == [Done(0)]


def test_the_second_half_of_a_reaction_comes_with_the_records() -> None:
    rig = Rig()
    first, second = rig.ask(Join("a")), rig.ask(Join("a"))
    rig.time.advance(400)
    assert (first, second) == ([], []), "what the records led to waits for them"
    rig.journal.commit()
    assert (first, second) == ([Done(2)], [Done(2)])


def test_the_second_half_of_a_reaction_says_what_happens_instead_of_the_first() -> None:
    rig = Rig()
    parked, joined = rig.ask(Park("a", 300)), rig.ask(Join("a"))
    rig.journal.commit()
    rig.journal.append_error = DiskFullError("no room")
    (refusal,) = rig.ask(Join("a"))
    assert isinstance(refusal, NotCoordinatorError), "who asked is told, though nothing answers him"
    assert joined == [Done(-1)]
    assert parked == []
    rig.journal.append_error = None
    assert rig.ask(Read("a")) == [Done(1)], "nothing was loaded anew"
    rig.validate()


def test_a_shard_that_fails_again_and_again_is_not_read_again_and_again() -> None:
    rig = Rig()
    rig.ask(Add("a", 1))
    rig.journal.commit()
    rig.journal.append_error = DiskFullError("no room")
    rig.ask(Add("a", 1))
    rig.tasks.run()
    parked = rig.ask(Park("a", 300))
    rig.ask(Add("a", 1))
    assert rig.tasks.running == [], "nobody reads the log"
    assert [type(answer) for answer in (*parked, *rig.ask(Read("a")))] == [NotCoordinatorError] * 2
    rig.journal.append_error = None
    rig.validate()
    rig.time.advance(round(RETRY_SECONDS * 1_000) + 20)
    rig.tasks.run()
    assert rig.ask(Read("a")) == [Done(1)]
    assert rig.runtime.timer_count == 0


def test_a_shard_that_waits_for_its_next_attempt_can_be_closed() -> None:
    rig = Rig()
    for _ in range(2):
        rig.ask(Break())
        rig.tasks.run()
    assert rig.runtime.timer_count == 1
    rig.runtime.close(0)
    assert rig.runtime.timer_count == 0


def test_too_many_waiting_requests_are_no_reason_to_read_the_log_again() -> None:
    rig = Rig()
    answers = rig.ask(Add("a", 1))
    rig.journal.fail(TooManyWaitersError("100000 requests are waiting already"))
    assert [type(answer) for answer in answers] == [CoordinatorNotAvailableError]
    rig.journal.commit()
    assert rig.ask(Read("a")) == [Done(1)]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (LogDirectoryOfflineError("gone"), NotCoordinatorError),
        (RequestTimedOutError("slow"), CoordinatorNotAvailableError),
    ],
)
def test_what_cannot_be_committed_is_told(error: PenstockError, told: type[PenstockError]) -> None:
    rig = Rig()
    answers = rig.ask(Add("a", 1))
    rig.journal.fail(error)
    assert [type(answer) for answer in answers] == [told]
    (refusal,) = rig.ask(Read("a"))
    assert isinstance(refusal, CoordinatorLoadingError)
    rig.tasks.run()


def test_a_defect_of_the_shard_costs_it_its_life_and_nobody_an_answer() -> None:
    rig = Rig()
    rig.ask(Add("a", 1))
    rig.journal.commit()
    parked, broken = rig.ask(Park("a", 300)), rig.ask(Break())
    for (answer,) in (parked, broken):
        assert isinstance(answer, NotCoordinatorError)
    rig.tasks.run()
    assert rig.ask(Read("a")) == [Done(1)]


def test_an_answer_that_was_appended_before_a_failure_still_comes() -> None:
    rig = Rig()
    answers = rig.ask(Add("a", 1))
    rig.ask(Break())
    rig.journal.commit()
    assert answers == [Done(1)]
    rig.tasks.run()


def test_an_effect_of_a_shard_that_is_gone_is_forgotten() -> None:
    rig = Rig()
    answers = rig.ask(Delegate("a"))
    rig.tasks.step()
    rig.ask(Break())
    rig.tasks.run()
    (answer,) = answers
    assert isinstance(answer, NotCoordinatorError)
    assert rig.shard.totals == {}


def test_records_of_a_transaction_count_when_it_is_committed() -> None:
    rig = Rig()
    rig.ask(Add("a", 5, PRODUCER))
    assert rig.shard.totals == {}
    rig.journal.append_marker(PRODUCER, commits=True)
    rig.runtime.marker_written(0, PRODUCER, commits=True)
    seen = rig.ask(Read("a"))
    assert seen == [], "what a marker did waits for the marker to be committed"
    rig.journal.commit()
    assert seen == [Done(5)]


def test_a_marker_that_comes_while_the_log_is_read_is_not_lost() -> None:
    journal = MemoryJournal()
    Rig(journal).ask(Add("a", 5, PRODUCER))
    journal.commit()
    rig = Rig(journal)
    rig.tasks.step()
    journal.append_marker(PRODUCER, commits=True)
    rig.runtime.marker_written(0, PRODUCER, commits=True)
    rig.tasks.run()
    journal.commit()
    assert rig.ask(Read("a")) == [Done(5)]


def test_shards_hear_of_new_topics() -> None:
    rig = Rig()
    rig.runtime.topics_changed(NoTopics(3), ())
    assert rig.shard.revisions == [0, 3]


def test_a_partition_that_goes_away_tells_who_waits() -> None:
    rig = Rig()
    parked = rig.ask(Park("a", 300))
    rig.runtime.close(0)
    for answers in (parked, rig.ask(Read("a"))):
        (answer,) = answers
        assert isinstance(answer, NotCoordinatorError)
    rig.time.advance(1_000)


def test_a_partition_that_goes_away_while_it_is_read_stays_away() -> None:
    journal = MemoryJournal()
    Rig(journal).ask(Add("a", 1))
    rig = Rig(journal)
    rig.tasks.step()
    driver = rig.runtime.driver(0)
    rig.runtime.close(0)
    rig.tasks.run()
    assert driver is not None
    driver.validate()
    assert rig.runtime.driver(0) is None


def test_when_the_broker_stops_who_waits_is_told() -> None:
    rig = Rig()
    parked = rig.ask(Park("a", 300))
    rig.runtime.stop()
    (answer,) = parked
    assert isinstance(answer, NotCoordinatorError)


class Story:
    """A runtime that lives through commits, failures and crashes."""

    def __init__(self) -> None:
        self.rig = Rig()
        self._waiting: list[tuple[str, list[Message | PenstockError]]] = []

    def add(self, key: str, amount: int) -> None:
        self._waiting.append((key, self.rig.ask(Add(key, amount))))

    def add_in_transaction(self, producer: Producer, amount: int) -> None:
        self.rig.ask(Add("transactional", amount, producer))

    def end(self, producer: Producer, commits: bool) -> None:
        self.rig.journal.append_marker(producer, commits=commits)
        self.rig.runtime.marker_written(0, producer, commits=commits)

    def commit(self, all_but: int) -> None:
        journal = self.rig.journal
        journal.commit(max(journal.committed_offset, journal.end_offset - all_but))

    def crash(self) -> None:
        told = [(key, answer) for key, answers in self._waiting for answer in answers]
        self._waiting.clear()
        self.rig = Rig(self.rig.journal.after_crash())
        self.rig.tasks.run()
        for key, answer in told:
            if isinstance(answer, Done):
                assert self.rig.shard.totals[key] >= answer.total, "what was told is lost"

    def fail(self) -> None:
        self.rig.ask(Break())
        self.rig.tasks.run()

    def refuse(self) -> None:
        self.rig.journal.append_error = DiskFullError("no room")
        self.rig.ask(Add("a", 1))
        self.rig.journal.append_error = None
        self.rig.tasks.run()

    def rest(self) -> None:
        """A shard that failed twice in a second is not read again before that second is over."""
        self.rig.time.advance(1_000)
        self.rig.tasks.run()

    def check(self) -> None:
        self.rig.validate()
        driver = self.rig.runtime.driver(0)
        if driver is None or driver.phase is Phase.FAILED:
            return
        shard = self.rig.shard
        assert (shard.totals, shard.pending) == replayed(self.rig.journal)


PRODUCERS = st.sampled_from([Producer(1, 0), Producer(2, 0)])
STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("ab"), st.integers(1, 9)),
    st.tuples(st.just("add_in_transaction"), PRODUCERS, st.integers(1, 9)),
    st.tuples(st.just("end"), PRODUCERS, st.booleans()),
    st.tuples(st.just("commit"), st.integers(0, 4)),
    st.tuples(st.sampled_from(["crash", "fail", "refuse", "rest"])),
)


@given(st.lists(STEPS, max_size=40))
def test_a_crash_at_any_record_gives_the_state_of_what_is_left(
    steps: list[tuple[object, ...]],
) -> None:
    story = Story()
    for name, *arguments in [*steps, ("rest",), ("crash",)]:
        getattr(story, str(name))(*arguments)
        story.check()


def replayed(
    journal: MemoryJournal,
) -> tuple[dict[str, int], dict[Producer, dict[str, int]]]:
    """What the log says, without any runtime."""
    totals: dict[str, int] = {}
    pending: dict[Producer, dict[str, int]] = {}
    for entry in journal.entries:
        producer = entry.batch.producer
        if entry.batch.commits is not None:
            assert producer is not None
            ended = pending.pop(producer, {})
            totals |= ended if entry.batch.commits else {}
            continue
        for _, record in entry.batch.records:
            assert isinstance(record.key, Key)
            assert isinstance(record.value, Value)
            where = totals if producer is None else pending.setdefault(producer, {})
            where[record.key.key] = record.value.total
    return totals, pending
