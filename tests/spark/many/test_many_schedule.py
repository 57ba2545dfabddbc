"""The order of topics: fair, with waits after failures, and never a lost one."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.spark.tables.many.schedule import (
    WAIT_SECONDS_MAX,
    WAIT_SECONDS_MIN,
    ManySchedule,
)


def schedule() -> ManySchedule:
    return ManySchedule(Random(7))


def test_an_empty_topic_is_not_opened() -> None:
    one = schedule()
    one.seen({"a": {0: 0, 1: 0}, "b": {0: 0, 1: 5}}, 1.0)
    assert one.next_due(1.0) == "b"
    one.committed("b", 2.0, is_whole=True)
    assert one.next_due(2.0) is None
    one.seen({"a": {0: 1, 1: 0}, "b": {0: 0, 1: 5}}, 3.0)
    assert one.next_due(3.0) == "a"


def test_a_busy_topic_lets_the_others_pass() -> None:
    one = schedule()
    one.seen({"busy": {0: 1_000_000}}, 1.0)
    assert one.next_due(1.0) == "busy"
    one.committed("busy", 2.0, is_whole=False)
    one.seen({"busy": {0: 1_000_000}, "quiet": {0: 1}}, 2.5)
    one.committed("busy", 3.0, is_whole=False)
    assert one.next_due(3.0) == "quiet"


def test_a_new_partition_and_a_shorter_log_are_news() -> None:
    one = schedule()
    one.seen({"a": {0: 9}}, 1.0)
    one.committed("a", 1.0, is_whole=True)
    one.seen({"a": {0: 9, 1: 0}}, 2.0)
    assert one.next_due(2.0) == "a"
    one.committed("a", 2.0, is_whole=True)
    one.seen({"a": {0: 3, 1: 0}}, 3.0)
    assert one.next_due(3.0) == "a"


def test_a_failed_topic_waits_and_the_others_go_on() -> None:
    one = schedule()
    one.seen({"bad": {0: 1}, "good": {0: 1}}, 0.0)
    seconds = one.failed("bad", 0.0, "the store is away", is_lasting=False)
    assert seconds is not None
    assert one.next_due(0.0) == "good"
    one.committed("good", 0.0, is_whole=True)
    assert one.next_due(0.0) is None
    assert one.next_moment() == seconds
    assert one.next_due(seconds) == "bad"
    assert one.problems() == {"bad": "the store is away"}
    one.committed("bad", seconds, is_whole=True)
    assert one.problems() == {}
    assert one.next_moment() is None


def test_a_lasting_failure_ends_its_topic_alone() -> None:
    one = schedule()
    one.seen({"bad": {0: 1}, "good": {0: 1}}, 0.0)
    assert one.failed("bad", 0.0, "another owner", is_lasting=True) is None
    one.seen({"bad": {0: 2}, "good": {0: 2}}, 1e9)
    assert one.next_due(1e9) == "good"
    assert one.next_moment() is None


def test_a_deleted_topic_is_gone_and_begins_anew() -> None:
    one = schedule()
    one.seen({"a": {0: 5}}, 0.0)
    one.failed("a", 0.0, "x", is_lasting=True)
    assert one.seen({}, 1.0) == ["a"]
    assert one.seen({"a": {0: 5}}, 2.0) == []
    assert one.next_due(2.0) == "a"


@given(st.integers(1, 200), st.integers(0, 2**32))
def test_waits_grow_to_a_bound_and_are_random(count: int, seed: int) -> None:
    one = ManySchedule(Random(seed))
    one.seen({"a": {0: 1}}, 0.0)
    found = [one.failed("a", 0.0, "x", is_lasting=False) for _ in range(count)]
    for number, seconds in enumerate(found, 1):
        longest = min(WAIT_SECONDS_MAX, WAIT_SECONDS_MIN * 2.0 ** min(number, 30))
        assert seconds is not None
        assert longest / 2 <= seconds <= longest


class Scheduling(RuleBasedStateMachine):
    """Any history of topics, ends, batches and failures."""

    def __init__(self) -> None:
        super().__init__()
        self.one = ManySchedule(Random(1))
        self.ends: dict[str, dict[int, int]] = {}
        self.held: dict[str, dict[int, int]] = {}
        self.now = 0.0

    @rule(topic=st.sampled_from("abc"), count=st.integers(1, 9))
    def grows(self, topic: str, count: int) -> None:
        old = self.ends.get(topic, {0: 0})
        self.ends[topic] = {0: old[0] + count}
        self.look()

    @rule(topic=st.sampled_from("abc"))
    def goes(self, topic: str) -> None:
        self.ends.pop(topic, None)
        self.held.pop(topic, None)
        self.look()

    @rule(seconds=st.floats(0, 400))
    def waits(self, seconds: float) -> None:
        self.now += seconds
        self.look()

    @rule(is_good=st.booleans(), is_whole=st.booleans())
    def works(self, is_good: bool, is_whole: bool) -> None:
        topic = self.one.next_due(self.now)
        if topic is None:
            return
        if not is_good:
            self.one.failed(topic, self.now, "x", is_lasting=False)
            return
        self.one.committed(topic, self.now, is_whole=is_whole)
        if is_whole:
            self.held[topic] = dict(self.ends[topic])

    def look(self) -> None:
        self.one.seen(self.ends, self.now)

    @invariant()
    def no_topic_with_news_is_forgotten(self) -> None:
        """After the longest wait every topic with news is due; the others are not."""
        behind = {topic for topic, ends in self.ends.items() if self.held.get(topic) != ends}
        due = {topic for topic, state in self.one.topics.items() if state.due_since is not None}
        assert due == behind
        assert (self.one.next_due(self.now + WAIT_SECONDS_MAX) is None) == (not behind)


TestScheduling = Scheduling.TestCase
