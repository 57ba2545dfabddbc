"""The reads of a queue subscription: parts of batches, gaps, expired records, the end."""

from collections.abc import Coroutine, Sequence
from typing import cast

import pytest

from penstock.edge.push import limits
from penstock.edge.push.ports import PushBroker
from penstock.edge.push.queue_ports import AcquiredRead, Fetched, Share, Stored
from penstock.edge.push.queues.queue_reads import QueueReads
from penstock.edge.push.reactions import OpenedTopic, Settled
from penstock.edge.push.record_runs import LogRead, Run, RunCache, record_run
from penstock.edge.push.session import PushSession
from penstock.protocol.push.data import decode_data
from penstock.protocol.push.payloads import Refusal, SubscribeRequest
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.edge.push.push_scene import subscribe_frame
from tests.edge.push.test_queue_session import queue_topic

VERSION = (b"t", 0, 0)


class Group:
    """A share group with one member, which the test answers for."""

    topic: OpenedTopic = queue_topic()

    def __init__(self) -> None:
        self.fetches: list[tuple[int, int, Fetched]] = []
        self.skipped: list[tuple[int, int, int]] = []
        self.has_left = False

    def fetch(self, records_max: int, bytes_max: int, done: Fetched) -> None:
        """Keep the fetch."""
        self.fetches.append((records_max, bytes_max, done))

    def acknowledge(self, settled: Sequence[Settled], done: Stored) -> None:
        """Store at once."""
        done(settled, True)

    def skip(self, partition: int, first: int, last: int) -> None:
        """Keep the gap."""
        self.skipped.append((partition, first, last))

    def leave(self) -> None:
        """Keep that it left."""
        self.has_left = True


class Stage:
    """The connection, and the parts that sessions share."""

    def __init__(self, credit: int = 5) -> None:
        self.broker = cast("PushBroker", None)
        self.queue_cache = RunCache()
        self.now = 0.0
        self.turns = 0
        self.reason = ""
        self.session = PushSession(0.0, needs_credentials=False)
        request = SubscribeRequest(topic="t", mode="queue", credit=credit)
        self.session.receive(subscribe_frame(1, request), 0.0)
        self.session.opened(1, queue_topic(), 0.0)
        self.group = Group()
        self.reads = QueueReads(self, self.session, self, 1, "t", self.group)

    def seconds(self) -> float:
        """Return the time."""
        return self.now

    def lost(self, reason: str, code: str) -> None:
        """Keep the reason."""
        self.reason = f"{reason} {code}"

    def turn_soon(self) -> None:
        """Count."""
        self.turns += 1

    def start(self, work: Coroutine[object, object, None]) -> None:
        """Fail: no work of these tests is slow."""
        work.close()
        raise AssertionError("slow work")

    def settled(self, number: int, settled: Sequence[Settled], *, is_stored: bool) -> None:
        """Pass it on."""
        self.session.queue_settled(number, settled, self.now, is_stored=is_stored)

    def answer(self, *reads: AcquiredRead) -> None:
        """Answer the only fetch under way."""
        ((_, _, done),) = self.group.fetches
        self.group.fetches.clear()
        done(reads)

    def taken(self) -> list[tuple[int, int]]:
        """Return offset and delivery count of the records to write."""
        found = self.reads.take(limits.TURN_BYTES, self.now)
        self.session.deliver_queued(1, found, self.now)
        data = [decode_data(b"\0\1" + one.tail) for one in found]
        assert [one.offset for one in found] == [one.offset for one in data]
        return [(one.offset, one.delivery_count) for one in data]


def batch(base: int, count: int, shares: Sequence[Share]) -> AcquiredRead:
    """Return a batch of which offsets are acquired."""
    records = bytes(build_batch([Record(None, b"v", (), 0)] * count, base_offset=base))
    return AcquiredRead(LogRead(0, base, records, (), VERSION), shares)


def test_only_acquired_records_are_delivered_with_their_counts() -> None:
    stage = Stage()
    stage.reads.pull()
    stage.answer(batch(10, 8, [Share(11, 12, 1), Share(15, 15, 3)]))
    assert stage.turns == 1
    assert stage.taken() == [(11, 1), (12, 1), (15, 3)]
    assert stage.group.skipped == []


def test_offsets_without_a_record_are_acknowledged_as_gaps() -> None:
    stage = Stage()
    stage.reads.pull()
    first = bytes(build_batch([Record(None, b"v", (), 0)], base_offset=3))
    last = bytes(build_batch([Record(None, b"v", (), 0)], base_offset=6))
    read = LogRead(0, 3, first + last, (), VERSION)
    stage.answer(AcquiredRead(read, [Share(2, 8, 1)]))
    assert stage.taken() == [(3, 1), (6, 1)]
    assert stage.group.skipped == [(0, 2, 2), (0, 4, 5), (0, 7, 8)]


def test_one_fetch_at_a_time_and_only_for_free_credit() -> None:
    stage = Stage(credit=2)
    stage.reads.pull()
    stage.reads.pull()
    assert [one[0] for one in stage.group.fetches] == [2]
    stage.answer(batch(0, 2, [Share(0, 1, 1)]))
    stage.reads.pull()
    assert not stage.group.fetches, "records wait to be written"
    assert len(stage.taken()) == 2
    stage.reads.pull()
    assert not stage.group.fetches, "no credit"


def test_records_whose_lock_expired_are_not_written() -> None:
    stage = Stage()
    stage.reads.pull()
    stage.answer(batch(0, 2, [Share(0, 1, 1)]))
    stage.now = 30.0
    assert stage.taken() == []
    stage.reads.pull()
    assert len(stage.group.fetches) == 1


def test_a_batch_is_unfolded_once_for_all_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, unfolded = Stage(credit=1), 0

    def counted(read: LogRead) -> Run:
        nonlocal unfolded
        unfolded += 1
        return record_run(read)

    monkeypatch.setattr("penstock.edge.push.queues.queue_reads.record_run", counted)
    for offset in range(3):
        stage.reads.pull()
        stage.answer(batch(0, 3, [Share(offset, offset, 1)]))
        assert stage.taken() == [(offset, 1)]
        stage.reads.acknowledge(stage.session.subscriptions[1].settle_all())  # type: ignore[attr-defined]
    assert unfolded == 1


def test_the_end_leaves_the_group_and_a_refusal_ends_the_session() -> None:
    stage = Stage()
    stage.reads.pull()
    ((_, _, done),) = stage.group.fetches
    done(Refusal(error="no", code="TOPIC_AUTHORIZATION_FAILED"))
    assert stage.reason == "no TOPIC_AUTHORIZATION_FAILED"
    stage.reads.end()
    assert stage.group.has_left
    stage.reads.pull()
    assert len(stage.group.fetches) == 1
