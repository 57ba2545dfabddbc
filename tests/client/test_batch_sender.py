"""Batches reach their partitions once and in order, whatever fails under way."""

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.cluster import Cluster
from penstock.client.records import batch_sender
from penstock.client.records.batch_sender import BatchRefusedError, BatchSender
from penstock.client.transport.addresses import Address
from penstock.core.errors import AnswerLostError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from penstock.records.batch import read_header
from penstock.records.builder import build_batch, read_records
from penstock.records.record import Record
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster

PRODUCER_ID = 7
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Leader:
    """Appends as a broker does for an idempotent producer, and fails as the test sets it."""

    def __init__(self, fake: FakeCluster) -> None:
        self.fake = fake
        self.values: dict[TopicPartition, list[bytes | None]] = {}
        self.next_sequence: dict[TopicPartition, int] = {}
        self.remembered: dict[TopicPartition, list[int]] = {}
        self.codes: list[ErrorCode] = []
        """What the next batches meet, one each; NONE lets one pass."""
        fake.handlers[ProduceRequest] = self.produce

    def produce(self, broker_id: int, request: object, code: ErrorCode) -> ProduceResponse:
        assert isinstance(request, ProduceRequest)
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=tuple(
                        PartitionProduceResponse(
                            index=part.index,
                            base_offset=0,
                            error_code=code
                            or self.append(
                                broker_id,
                                TopicPartition(topic.name, part.index),
                                bytes(part.records or b""),
                            ),
                        )
                        for part in topic.partition_data
                    ),
                )
                for topic in request.topic_data
            )
        )

    def append(self, broker_id: int, at: TopicPartition, data: bytes) -> ErrorCode:
        if self.fake.leaders[at] != broker_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        if code:
            return code
        header = read_header(data)
        if header.has_producer:
            if header.base_sequence in self.remembered.get(at, [])[-5:]:
                return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            if header.base_sequence != self.next_sequence.get(at, 0):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            self.next_sequence[at] = header.base_sequence + header.record_count
            self.remembered.setdefault(at, []).append(header.base_sequence)
        self.values.setdefault(at, []).extend(one.value for one in read_records(data))
        return ErrorCode.NONE


class Numbered:
    """Makes batches with a producer's numbers."""

    def __init__(self) -> None:
        self.sequences: dict[TopicPartition, int] = {}

    def batch(self, at: TopicPartition, value: bytes) -> bytearray:
        sequence = self.sequences.get(at, 0)
        self.sequences[at] = sequence + 1
        record = Record(offset=0, timestamp_ms=0, key=None, value=value, headers=())
        return build_batch(
            [record], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence
        )


def new_cluster(fake: FakeCluster, clock: StepClock) -> Cluster:
    return Cluster(
        [Address("bootstrap", 9000)],
        fake.connect,
        timeout_seconds=10.0,
        clock=clock,
        sleep=clock.sleep,
    )


def new_sender(
    fake: FakeCluster, *, acks: int = -1, clock: StepClock | None = None
) -> tuple[BatchSender, Leader]:
    clock = clock or StepClock()
    leader = Leader(fake)
    return BatchSender(new_cluster(fake, clock), acks=acks, sleep=clock.sleep), leader


def produce_requests(fake: FakeCluster) -> list[ProduceRequest]:
    return [one for one in fake.requests if isinstance(one, ProduceRequest)]


@pytest.fixture
def orders() -> FakeCluster:
    fake = FakeCluster((1, 2))
    fake.add_topic("orders", 2)
    return fake


def test_partitions_of_one_leader_share_a_request() -> None:
    fake = FakeCluster((1,))
    fake.add_topic("orders", 2)
    sender, leader = new_sender(fake)
    numbered = Numbered()
    for at in (P0, P1, P0):
        sender.send(at, numbered.batch(at, b"x"))
    sender.flush()
    # A request holds one batch of a partition, so the second one of P0 takes another.
    assert [len(one.topic_data[0].partition_data) for one in produce_requests(fake)] == [2, 1]
    assert leader.values == {P0: [b"x", b"x"], P1: [b"x"]}
    assert sender.partitions == {P0, P1}


def test_not_more_than_five_requests_are_under_way(
    orders: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "REQUEST_BYTES_WANTED", 1)
    sender, _ = new_sender(orders)
    numbered = Numbered()
    most = 0
    for _ in range(20):
        sender.send(P0, numbered.batch(P0, b"x"))
        most = max(most, sum(one.answers_waiting for one in orders.opened))
    assert most == batch_sender.REQUESTS_IN_FLIGHT_MAX
    sender.flush()
    assert sum(one.answers_waiting for one in orders.opened) == 0


def test_bytes_under_way_are_bounded(orders: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sender, "REQUEST_BYTES_WANTED", 1)
    monkeypatch.setattr(batch_sender, "UNANSWERED_BYTES_MAX", 300)
    sender, _ = new_sender(orders)
    numbered = Numbered()
    for _ in range(4):
        sender.send(P0, numbered.batch(P0, b"x" * 100))
        assert sum(one.answers_waiting for one in orders.opened) == 1


def test_a_request_does_not_grow_without_bound(
    orders: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "REQUEST_BYTES_MAX", 100)
    fake = FakeCluster((1,))
    fake.add_topic("orders", 2)
    sender, leader = new_sender(fake)
    numbered = Numbered()
    for at in (P0, P1):
        sender.send(at, numbered.batch(at, b"x" * 90))
    sender.flush()
    assert len(produce_requests(fake)) == 2
    assert set(leader.values) == {P0, P1}


events = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 1)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("lost"), st.just(0)),
        st.tuples(st.just("unreachable"), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, 1)),
        st.tuples(st.just("retriable"), st.integers(0, 2)),
    ),
    max_size=40,
)
FAILURES_MAX = 12
"""In one run: 14 in a row use up the time of the sender, which then gives up."""


@settings(deadline=None, max_examples=150)
@given(events=events, wanted_bytes=st.sampled_from([1, 200, 100_000]))
def test_each_batch_is_stored_once_and_in_order(
    events: list[tuple[str, int]], wanted_bytes: int
) -> None:
    fake = FakeCluster((1, 2))
    fake.add_topic("orders", 2)
    sender, leader = new_sender(fake)
    numbered = Numbered()
    given_values: dict[TopicPartition, list[bytes]] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_sender, "REQUEST_BYTES_WANTED", wanted_bytes)
        failures = 0
        for number, (kind, which) in enumerate(events):
            at = (P0, P1)[which % 2]
            failures += kind in ("lost", "unreachable", "retriable")
            if kind == "send":
                value = b"%d" % number
                given_values.setdefault(at, []).append(value)
                sender.send(at, numbered.batch(at, value))
            elif kind == "flush":
                sender.flush()
            elif kind == "move":
                fake.leaders[at] = 3 - fake.leaders[at]
            elif failures > FAILURES_MAX:
                continue
            elif kind == "retriable":
                leader.codes += [ErrorCode.NONE] * which + [ErrorCode.NOT_ENOUGH_REPLICAS]
            else:
                fake.fail_next(ProduceRequest, kind)
        sender.flush()
    assert leader.values == given_values


def test_acks_one_sends_again_what_has_no_answer(orders: FakeCluster) -> None:
    sender, leader = new_sender(orders, acks=1)
    record = Record(offset=0, timestamp_ms=0, key=None, value=b"x", headers=())
    orders.fail_next(ProduceRequest, "lost")
    sender.send(P0, build_batch([record]))
    sender.flush()
    assert leader.values[P0] == [b"x", b"x"]  # at least once


def test_acks_zero_waits_for_nothing(orders: FakeCluster) -> None:
    sender, leader = new_sender(orders, acks=0)
    record = Record(offset=0, timestamp_ms=0, key=None, value=b"x", headers=())
    sender.send(P0, build_batch([record]))
    sender.flush()
    assert leader.values[P0] == [b"x"]


def test_a_refused_batch_is_told_with_its_partition_and_size(orders: FakeCluster) -> None:
    sender, leader = new_sender(orders)
    leader.codes = [ErrorCode.MESSAGE_TOO_LARGE]
    data = Numbered().batch(P1, b"x" * 50)
    sender.send(P1, data)
    with pytest.raises(BatchRefusedError, match=r"MESSAGE_TOO_LARGE .*orders-1") as caught:
        sender.flush()
    assert caught.value.batch_bytes == len(data)


def test_a_gap_that_no_failure_explains_is_told(orders: FakeCluster) -> None:
    sender, leader = new_sender(orders)
    leader.codes = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    sender.send(P0, Numbered().batch(P0, b"x"))
    with pytest.raises(BatchRefusedError, match="OUT_OF_ORDER"):
        sender.flush()


def test_it_gives_up_when_there_is_no_progress(orders: FakeCluster) -> None:
    clock = StepClock()
    sender, _ = new_sender(orders, clock=clock)
    orders.fail_next(ProduceRequest, "lost", times=1_000)
    sender.send(P0, Numbered().batch(P0, b"x"))
    with pytest.raises(AnswerLostError):
        sender.flush()
    assert 5 < clock.monotonic() <= 10
    sender.abandon()


def test_a_topic_that_is_not_there_is_told(orders: FakeCluster) -> None:
    sender, _ = new_sender(orders)
    sender.send(TopicPartition("gone", 0), Numbered().batch(P0, b"x"))
    with pytest.raises(UnknownTopicOrPartitionError, match="gone"):
        sender.flush()


def test_what_is_under_way_can_be_abandoned(
    orders: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "REQUEST_BYTES_WANTED", 1)
    sender, _ = new_sender(orders)
    sender.send(P0, Numbered().batch(P0, b"x"))
    assert sum(one.answers_waiting for one in orders.opened) == 1
    sender.abandon()
    assert sum(one.answers_waiting for one in orders.opened) == 0
    sender.flush()


def test_partitions_join_a_transaction_before_they_are_written(orders: FakeCluster) -> None:
    clock = StepClock()
    leader = Leader(orders)
    joined: list[set[TopicPartition]] = []

    def join(partitions: Collection[TopicPartition]) -> None:
        assert not any(at in leader.values for at in partitions)
        joined.append(set(partitions))

    sender = BatchSender(
        new_cluster(orders, clock), transactional_id="t", join=join, sleep=clock.sleep
    )
    numbered = Numbered()
    for at in (P0, P0, P1):
        sender.send(at, numbered.batch(at, b"x"))
        sender.flush()
    assert joined == [{P0}, {P1}]
    assert {one.transactional_id for one in produce_requests(orders)} == {"t"}
