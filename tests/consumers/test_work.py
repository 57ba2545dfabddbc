"""The state of a consumer against a plain reference, with random events.

Checked after every event: positions, order in lanes, concurrency, attempts, bounds. Checked at the
end: every record is done exactly once, and the position is the end of the log.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.delivery import dead_letters
from penstock.consumers.delivery.deliveries import Acknowledgement, Call
from penstock.consumers.delivery.failure_verdicts import VerdictKind
from penstock.consumers.delivery.partition_work import Entry
from penstock.consumers.delivery.work import Work
from penstock.consumers.handling import ErrorAction
from penstock.consumers.limits import WINDOW_RECORDS_MAX
from penstock.consumers.options import ConsumerOptions, Mode, Order
from penstock.consumers.retry_policy import RetryPolicy
from penstock.core.types import TopicPartition

AT = TopicPartition("t", 0)
ERROR = ValueError("failed")


def record(
    offset: int, key: bytes | None = None, partition: int = 0, size: int = 1
) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 0, key, b"v" * size)


def new_work(**changes: object) -> Work:
    defaults: dict[str, object] = {
        "topic": "t",
        "group": "g",
        "retry": RetryPolicy(attempts=3, backoff="1s", jitter=False, in_place="1s"),
    }
    work = Work(ConsumerOptions(**(defaults | changes)))  # type: ignore[arg-type]
    work.assign([AT])
    return work


def only(calls: list[Call]) -> Call:
    (call,) = calls
    return call


def offsets(calls: Iterable[Call]) -> list[int]:
    return [one.offset for call in calls for one in call.records]


def test_the_position_is_the_lowest_unfinished_offset() -> None:
    work = new_work()
    work.receive([record(5), record(7), record(9)], 0, 0)
    first, second, third = work.start(0)
    work.succeed(third, 0)
    assert work.progress().positions == {AT: 5}
    work.succeed(first, 0)
    assert work.progress().positions == {AT: 7}
    work.succeed(second, 0)
    assert work.progress().positions == {AT: 10}
    assert work.progress().is_empty
    assert work.progress(is_last=True).positions == {AT: 10}


def test_a_revocation_returns_positions_whose_commit_is_under_way() -> None:
    work = new_work()
    work.receive([record(0)], 0, 0)
    work.succeed(only(work.start(0)), 0)
    assert work.progress().positions == {AT: 1}
    assert work.forget([AT]) == {AT: 1}


def test_a_failed_commit_is_repeated() -> None:
    work = new_work()
    work.receive([record(0)], 0, 0)
    positions = work.progress().positions
    assert work.progress().is_empty
    work.uncommitted(positions)
    assert work.progress().positions == positions


def test_records_of_one_key_run_one_after_another() -> None:
    work = new_work()
    work.receive([record(0, b"a"), record(1, b"a"), record(2, b"b")], 0, 0)
    first, other = work.start(0)
    assert offsets([first, other]) == [0, 2]
    work.succeed(other, 0)
    assert work.start(0) == []
    work.succeed(first, 0)
    assert offsets(work.start(0)) == [1]


def test_a_retried_key_holds_its_later_records_and_no_others() -> None:
    work = new_work(concurrency=1)
    work.receive([record(0, b"a"), record(1, b"a"), record(2, b"b")], 0, 0)
    verdict = work.fail(only(work.start(0)), None, 0.5, 0)
    assert verdict is not None
    assert verdict.kind is VerdictKind.RETRY_IN_PLACE
    other = only(work.start(0.5))
    assert offsets([other]) == [2]
    work.succeed(other, 0.5)
    assert work.next_due_seconds() == 1.0
    assert work.start(0.99) == []
    again = only(work.start(1.0))
    assert (again.records[0].offset, again.records[0].attempt) == (0, 2)
    assert work.progress().positions == {AT: 0}


def test_partition_order_runs_one_record_of_a_partition_at_a_time() -> None:
    work = new_work(order=Order.PARTITION)
    work.assign([TopicPartition("t", 1)])
    work.receive([record(0), record(1), record(0, partition=1)], 0, 0)
    assert [(one.partition, one.offset) for call in work.start(0) for one in call.records] == [
        (0, 0),
        (1, 0),
    ]


def test_a_failed_batch_is_repeated_record_by_record() -> None:
    work = new_work(batch=3, concurrency=1)
    work.receive([record(0, b"a"), record(1, b"b"), record(2, b"a"), record(3, b"c")], 0, 0)
    batch = only(work.start(0))
    # In the order of the lanes: a, a, b.
    assert offsets([batch]) == [0, 2, 1]
    work.fail(batch, None, 0.5, 0)
    fresh = only(work.start(0))
    assert offsets([fresh]) == [3]
    work.succeed(fresh, 0)
    seen = []
    for _ in range(3):
        call = only(work.start(1.0))
        assert len(call.entries) == 1
        assert call.attempt == 2
        seen.append(call.records[0].offset)
        work.succeed(call, 1.0)
    assert sorted(seen) == [0, 1, 2]
    assert seen.index(0) < seen.index(2)
    assert work.progress().positions == {AT: 4}


def test_a_record_that_is_written_elsewhere_is_done_when_the_write_is() -> None:
    work = new_work(dead_letter="dlq.t", retry=RetryPolicy(attempts=1))
    work.receive([record(0), record(1)], 0, 0)
    first, second = work.start(0)
    work.succeed(second, 0)
    verdict = work.fail(first, None, 0.5, 0)
    assert verdict is not None
    assert verdict.kind is VerdictKind.DEAD_LETTER
    assert work.progress().positions == {AT: 0}
    assert not work.is_idle()
    work.written(first.entries[0], 0)
    assert work.progress().positions == {AT: 2}
    assert work.is_idle()


def test_a_record_that_cannot_be_written_is_not_done() -> None:
    work = new_work(dead_letter="dlq.t", retry=RetryPolicy(attempts=1))
    work.receive([record(0)], 0, 0)
    call = only(work.start(0))
    work.fail(call, None, 0.5, 0)
    work.not_written(call.entries[0])
    assert work.is_idle()
    assert work.progress().positions == {AT: 0}


def test_a_stop_leaves_the_record_undone_and_starts_nothing() -> None:
    work = new_work(concurrency=1)
    work.receive([record(0), record(1)], 0, 0)
    work.fail(only(work.start(0)), ErrorAction.STOP, 0.5, 0)
    assert work.is_stopping
    assert work.start(100) == []
    assert work.progress().positions == {AT: 0}


def test_a_revoked_partition_returns_its_position_once_and_its_late_results_count_for_nothing() -> (
    None
):
    work = new_work()
    work.receive([record(0), record(1)], 0, 0)
    first, second = work.start(0)
    work.succeed(first, 0)
    work.revoke([AT])
    assert work.is_active([AT])
    assert work.progress().positions == {}  # the revocation itself commits
    assert work.forget([AT]) == {AT: 1}
    assert work.forget([AT]) == {}
    assert work.fail(second, None, 0.5, 0) is None
    assert work.running == 0
    work.assign([AT])
    work.receive([record(1)], 0, 0)
    assert offsets(work.start(0)) == [1]


def test_a_partition_that_is_being_revoked_starts_no_call() -> None:
    work = new_work(concurrency=1)
    work.receive([record(0), record(1)], 0, 0)
    call = only(work.start(0))
    work.revoke([AT])
    work.succeed(call, 0)
    assert work.start(0) == []
    assert work.forget([AT]) == {AT: 1}


def test_records_of_partitions_that_are_not_assigned_are_ignored() -> None:
    work = new_work()
    work.receive([record(0, partition=3)], 0, 0)
    assert work.start(0) == []


def test_a_log_that_begins_again_is_read_again() -> None:
    work = new_work()
    work.receive([record(10), record(11)], 0, 0)
    old, _ = work.start(0)
    work.receive([record(0)], 0, 0)
    assert offsets(work.start(0)) == [0]
    work.succeed(old, 0)
    assert work.progress().positions == {AT: 0}


def test_memory_is_bounded_by_records_and_bytes() -> None:
    work = new_work(concurrency=1)
    limit = work.options.buffered_records_max
    work.receive([record(offset) for offset in range(limit - 1)], 0, 0)
    assert work.paused() == frozenset()
    work.receive([record(limit - 1)], 0, 0)
    assert work.paused() == {AT}
    for _ in range(limit // 2):
        assert work.paused() == {AT}
        work.succeed(only(work.start(0)), 0)
    assert work.paused() == frozenset()
    work.receive([record(limit, size=work.options.buffered_bytes_max)], 0, 0)
    assert work.paused() == {AT}


def test_one_slow_record_bounds_the_distance_of_the_others() -> None:
    work = new_work(concurrency=2)
    work.receive([record(0)], 0, 0)
    slow = only(work.start(0))
    for offset in range(1, WINDOW_RECORDS_MAX):
        assert work.paused() == frozenset()
        work.receive([record(offset)], 0, 0)
        work.succeed(only(work.start(0)), 0)
    assert work.paused() == {AT}
    work.succeed(slow, 0)
    assert work.paused() == frozenset()


def retry_record(work: Work, offset: int, due_ms: int, attempts: int = 2) -> ConsumerRecord:
    topic = work.options.retry_topic
    assert topic is not None
    failed = ConsumerRecord("t", 0, 40 + offset, 3, b"k", b"v", (), attempts)
    written = dead_letters.outgoing(topic, failed, group="g", error=ERROR, now_ms=0, due_ms=due_ms)
    return ConsumerRecord(topic, 0, offset, 9, written.key, written.value, written.headers)


def test_a_retry_is_not_held_longer_than_the_longest_pause() -> None:
    work = new_work(retry=RetryPolicy(attempts=5, backoff="10s..60s"))
    work.assign([TopicPartition("retry.g.t", 0)])
    work.receive([retry_record(work, 0, 10**15)], 0, 0)
    assert work.next_due_seconds() == 60


def test_records_of_the_retry_topic_wait_for_their_time_and_do_not_block_each_other() -> None:
    work = new_work(retry=RetryPolicy(attempts=5, backoff="10s..60s"))
    retries = TopicPartition("retry.g.t", 0)
    work.assign([retries])
    late, early = retry_record(work, 0, 60_000), retry_record(work, 1, 20_000)
    work.receive([late, early], now_seconds=100, now_ms=10_000)
    assert work.start(109.9) == []
    call = only(work.start(110))
    assert (call.records[0].offset, call.records[0].attempt) == (41, 3)
    assert call.records[0].topic == "t"
    assert call.records[0].headers == ()
    work.succeed(call, 110)
    assert work.progress().positions == {retries: 0}
    work.succeed(only(work.start(150)), 150)
    assert work.progress().positions == {retries: 2}


def test_waiting_retries_do_not_stop_the_main_topic() -> None:
    work = new_work(retry=RetryPolicy(attempts=5, backoff="10s..60s"))
    retries = TopicPartition("retry.g.t", 0)
    work.assign([retries])
    limit = work.options.buffered_records_max
    work.receive([retry_record(work, offset, 10**6) for offset in range(limit)], 0, 0)
    assert work.paused() == {retries}
    work.receive([record(0)], 0, 0)
    assert offsets(work.start(0)) == [0]


def queue_work(**changes: object) -> Work:
    return new_work(mode=Mode.QUEUE, **changes)


def delivered(offset: int, count: int = 1) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 0, b"k", b"v", (), count)


def test_a_queue_acknowledges_each_record_by_itself() -> None:
    work = queue_work()
    work.receive([delivered(0), delivered(1), delivered(2), delivered(3, 3)], 0, 0)
    accepted, skipped, released, rejected = work.start(0)
    work.succeed(accepted, 0)
    work.fail(skipped, ErrorAction.SKIP, 0.5, 0)
    work.fail(released, None, 0.5, 0)
    work.fail(rejected, None, 0.5, 0)
    progress = work.progress()
    assert progress.positions == {}
    assert [(one.offset, one.acknowledgement) for one in progress.settled] == [
        (0, Acknowledgement.ACCEPT),
        (1, Acknowledgement.ACCEPT),
        (3, Acknowledgement.REJECT),
    ]
    assert work.start(0.9) == []
    assert work.progress().is_empty  # a release waits for its pause
    work.start(1.0)
    (settled,) = work.progress().settled
    assert (settled.offset, settled.acknowledgement) == (2, Acknowledgement.RELEASE)
    work.receive([delivered(2, 2)], 1, 0)
    assert only(work.start(1)).attempt == 2


def test_a_queue_that_stops_releases_all_records_that_do_not_run() -> None:
    work = queue_work(concurrency=2)
    work.receive([delivered(offset) for offset in range(4)], 0, 0)
    running, failed = work.start(0)
    work.fail(failed, None, 0.5, 0)
    work.stop()
    kinds = {one.offset: one.acknowledgement for one in work.progress().settled}
    assert kinds == dict.fromkeys([1, 2, 3], Acknowledgement.RELEASE)
    assert not work.is_idle()
    work.succeed(running, 0)
    assert work.is_idle()
    assert [one.acknowledgement for one in work.progress().settled] == [Acknowledgement.ACCEPT]


@dataclass
class Model:
    """A plain reference: which records are done, which run, and the attempts of each."""

    work: Work
    chance: random.Random
    now_seconds: float = 0.0
    next_offset: dict[int, int] = field(default_factory=dict)
    keys: dict[tuple[int, int], bytes | None] = field(default_factory=dict)
    done: set[tuple[int, int]] = field(default_factory=set)
    attempts: dict[tuple[int, int], int] = field(default_factory=dict)
    started: list[tuple[int, int]] = field(default_factory=list)
    running: list[Call] = field(default_factory=list)
    writing: list[Entry] = field(default_factory=list)

    def receive(self) -> None:
        partition = self.chance.randrange(2)
        offset = self.next_offset.get(partition, 0) + self.chance.choice([0, 0, 0, 3])
        key = self.chance.choice([None, b"a", b"b"])
        self.next_offset[partition] = offset + 1
        self.keys[partition, offset] = key
        self.work.receive([record(offset, key, partition)], self.now_seconds, 0)

    def start(self) -> None:
        for call in self.work.start(self.now_seconds):
            self.running.append(call)
            assert len(call.entries) <= self.work.options.batch
            for one in call.records:
                at = (one.partition, one.offset)
                assert at not in self.done
                self.attempts[at] = self.attempts.get(at, 0) + 1
                assert self.attempts[at] == one.attempt <= self.work.options.retry.attempts
                if one.attempt == 1:
                    self.started.append(at)
        self.check_lanes()

    def check_lanes(self) -> None:
        """No two running calls have records of one lane; first attempts are in order."""
        lanes: list[set[object]] = [
            {lane for one in call.records if (lane := self.lane(one)) is not None}
            for call in self.running
        ]
        assert sum(map(len, lanes)) == len(set().union(*lanes))
        for lane in set().union(*lanes):
            order = [
                offset
                for partition, offset in self.started
                if self.lane(record(offset, self.keys[partition, offset], partition)) == lane
            ]
            assert order == sorted(order)

    def lane(self, one: ConsumerRecord) -> object:
        if self.work.options.order is Order.PARTITION:
            return one.partition
        return None if one.key is None else (one.partition, one.key)

    def end(self) -> None:
        call = self.running.pop(self.chance.randrange(len(self.running)))
        places = [(one.partition, one.offset) for one in call.records]
        choice = self.chance.random()
        if choice < 0.6:
            self.work.succeed(call, self.now_seconds)
            self.done.update(places)
            return
        action = ErrorAction.SKIP if choice > 0.95 else None
        verdict = self.work.fail(call, action, self.chance.random(), self.now_seconds)
        assert verdict is not None
        assert verdict.kind is not VerdictKind.STOP
        if verdict.kind is VerdictKind.SKIP:
            self.done.update(places)
        elif verdict.kind is not VerdictKind.RETRY_IN_PLACE:
            assert verdict.kind is VerdictKind.DEAD_LETTER
            self.writing += call.entries

    def write(self) -> None:
        entry = self.writing.pop(self.chance.randrange(len(self.writing)))
        self.work.written(entry, self.now_seconds)
        self.done.add((entry.record.partition, entry.record.offset))

    def step(self) -> None:
        self.now_seconds += self.chance.random() / 2
        steps = [self.receive, self.start]
        steps += [self.end] * 2 if self.running else []
        steps += [self.write] if self.writing else []
        self.chance.choice(steps)()
        self.check()

    def check(self) -> None:
        self.work.validate()
        for at, position in self.work.progress().positions.items():
            undone = [
                offset
                for partition, offset in self.keys
                if partition == at.partition and (partition, offset) not in self.done
            ]
            assert position == min(undone, default=self.next_offset[at.partition])

    def finish(self) -> None:
        while set(self.keys) != self.done:
            self.now_seconds += 1
            self.start()
            while self.running:
                self.end()
                self.check()
            while self.writing:
                self.write()
                self.check()


@pytest.mark.parametrize("seed", range(40))
def test_random_events_keep_every_promise(seed: int) -> None:
    chance = random.Random(seed)
    options = ConsumerOptions(
        topic="t",
        group="g",
        dead_letter="dlq.t",
        retry=RetryPolicy(attempts=chance.choice([1, 2, 4]), backoff="100ms..1s"),
        batch=chance.choice([1, 1, 3]),
        concurrency=chance.choice([1, 2, 8]),
        order=chance.choice([Order.KEY, Order.PARTITION]),
    )
    work = Work(options)
    work.assign([AT, TopicPartition("t", 1)])
    model = Model(work, chance)
    for _ in range(250):
        model.step()
    model.finish()
    assert work.is_idle()
    work.progress()
    positions = {at.partition: home.position for at, home in work._partitions.items()}
    assert positions == {partition: model.next_offset.get(partition) for partition in (0, 1)}
    assert work._main.records == work._main.size_bytes == 0
