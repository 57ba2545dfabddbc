"""A range is read whole, in order and once, or an error says why not."""

import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.calls import FetchBounds
from penstock.client.cluster import Cluster
from penstock.client.records.range_reader import (
    EMPTY_ANSWERS_MAX,
    FetchedBatches,
    RangeGoneError,
    RangeReader,
    TopicRecreatedError,
    whole_batches,
)
from penstock.client.transport.addresses import Address
from penstock.core.errors import (
    BrokerAnswerError,
    MalformedResponseError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import fetch, list_offsets, metadata
from penstock.records.batch import iterate_headers
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.client.conftest import StepClock
from tests.client.fake_broker import FakeCluster
from tests.client.stale_brokers import StaleBrokers

AT = TopicPartition("orders", 0)
FAILURES: Sequence[ErrorCode | str] = (
    "lost",
    "unreachable",
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


def fill(fake: FakeCluster, spans: Sequence[tuple[int, int]]) -> None:
    """A batch for each span of offsets; between them are the gaps that compaction leaves."""
    for first, stop in spans:
        records = [Record(value=b"v" * 20) for _ in range(first, stop)]
        fake.logs[AT].append(bytes(build_batch(records, base_offset=first)))


def spans_of(fetched: FetchedBatches) -> list[tuple[int, int]]:
    found = [(one.base_offset, one.next_offset) for _, one in iterate_headers(fetched.data)]
    assert sum(header.size_bytes for _, header in iterate_headers(fetched.data)) == len(
        fetched.data
    )
    return found


def read(
    cluster: Cluster, from_offset: int, until_offset: int, *, is_read_committed: bool = False
) -> list[tuple[int, int]]:
    reader = RangeReader(
        cluster, AT, from_offset, until_offset, is_read_committed=is_read_committed
    )
    spans = []
    position = from_offset
    for fetched in reader:
        assert position < fetched.next_offset <= until_offset
        position = fetched.next_offset
        spans += spans_of(fetched)
    assert position == until_offset
    return spans


def count_of(fake: FakeCluster, kind: type) -> int:
    return sum(isinstance(request, kind) for request in fake.requests)


def test_whole_batches_of_the_range_come_in_order(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3), (3, 5), (5, 9), (9, 10)])
    assert read(cluster, 0, 10) == [(0, 3), (3, 5), (5, 9), (9, 10)]
    assert read(cluster, 4, 6) == [(3, 5), (5, 9)]
    assert read(cluster, 5, 9) == [(5, 9)]
    assert read(cluster, 7, 7) == []


@given(
    data=st.data(),
    sizes=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)), min_size=1, max_size=12),
    failures=st.lists(st.sampled_from(FAILURES), max_size=6),
)
@settings(max_examples=150, deadline=None)
def test_every_range_with_every_failure(
    data: st.DataObject, sizes: list[tuple[int, int]], failures: list[ErrorCode | str]
) -> None:
    fake, clock = FakeCluster(broker_ids=(1, 2)), StepClock()
    fake.add_topic("orders")
    spans, end = [], 0
    for gap, count in sizes:
        spans.append((end + gap, end + gap + count))
        end += gap + count
    fill(fake, spans)
    until = data.draw(st.integers(0, end))
    start = data.draw(st.integers(0, until))
    cluster = Cluster([Address("b", 9000)], fake.connect, clock=clock, sleep=clock.sleep)
    cluster.all_topics()
    for failure in failures:
        fake.fail_next(fetch.FetchRequest, failure)
    wanted = [(first, stop) for first, stop in spans if stop > start and first < until]
    assert read(cluster, start, until) == (wanted if start < until else [])


def test_the_next_answer_is_asked_for_before_this_one_is_worked_on(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.add_topic("orders")
    fill(fake, [(number, number + 1) for number in range(10)])  # the fake gives two at a time
    asked = []
    for _ in RangeReader(cluster, AT, 0, 10, is_read_committed=False):
        asked.append(count_of(fake, fetch.FetchRequest))
        assert sum(one.answers_waiting for one in fake.opened) <= 1
    assert asked == [2, 3, 4, 5, 5]


def test_who_stops_early_leaves_nothing_behind(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(number, number + 1) for number in range(10)])
    batches = iter(RangeReader(cluster, AT, 0, 10, is_read_committed=False))
    next(batches)
    assert sum(one.answers_waiting for one in fake.opened) == 1
    del batches
    assert sum(one.answers_waiting for one in fake.opened) == 0


def test_topics_are_asked_for_by_their_id(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    read(cluster, 0, 3)
    (request,) = (one for one in fake.requests if isinstance(one, fetch.FetchRequest))
    assert request.topics[0].topic_id == fake.topic_ids["orders"]
    assert request.topics[0].partitions[0].current_leader_epoch == 0


def test_a_broker_without_topic_ids(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    del fake.topic_ids["orders"]
    assert read(cluster, 0, 3) == [(0, 3)]


def test_the_last_fetch_asks_for_little_more_than_is_left(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.add_topic("orders")
    fill(fake, [(number * 500, number * 500 + 500) for number in range(40)])
    large = FetchBounds(bytes_max=1_000_000, partition_bytes_max=1_000_000)
    reader = RangeReader(cluster, AT, 0, 20_000, is_read_committed=False, bounds=large)
    per_offset = [len(fetched.data) / 1_000 for fetched in reader].pop()
    asked = [
        request.topics[0].partitions[0].partition_max_bytes
        for request in fake.requests
        if isinstance(request, fetch.FetchRequest)
    ]
    assert asked[0] == 1_000_000
    assert 1.2 * per_offset * 10_000 < asked[10] < 1.3 * per_offset * 10_000
    assert asked[-1] == 65_536


def test_control_of_what_readers_of_committed_records_need(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3), (3, 6), (6, 9)])
    fake.stable_offsets[AT] = 6
    fake.log_starts[AT] = 0
    fake.aborted[AT] = [(7, 3)]
    (fetched,) = RangeReader(cluster, AT, 0, 6, is_read_committed=True)
    assert fetched.aborted == ((7, 3),)
    assert (fetched.end_offset, fetched.log_start_offset, fetched.next_offset) == (6, 0, 6)
    fetched, *_ = RangeReader(cluster, AT, 0, 9, is_read_committed=False)
    assert fetched.aborted == ()
    assert fetched.end_offset == 9


def test_a_leader_that_moved_is_found(clock: StepClock) -> None:
    fake = FakeCluster(broker_ids=(1, 2))
    cluster = Cluster([Address("b", 9000)], fake.connect, clock=clock, sleep=clock.sleep)
    fake.add_topic("orders")
    fill(fake, [(number, number + 1) for number in range(8)])
    spans = []
    for fetched in RangeReader(cluster, AT, 0, 8, is_read_committed=False):
        spans += spans_of(fetched)
        fake.leaders[AT] = 3 - fake.leaders[AT]
        fake.leader_epochs[AT] = fake.leader_epochs.get(AT, 0) + 1
    assert spans == [(number, number + 1) for number in range(8)]


def test_a_leader_that_knows_less_than_the_plan_is_not_believed(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    """The broker still thinks that epoch 4 is the newest; the plan was made in epoch 5."""
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    fake.leader_epochs[AT] = 4
    reader = RangeReader(cluster, AT, 0, 3, is_read_committed=False, leader_epoch=5)
    with pytest.raises(BrokerAnswerError, match="UNKNOWN_LEADER_EPOCH"):
        list(reader)
    assert 8 < clock.seconds <= 10
    fake.leader_epochs[AT] = 6
    again = RangeReader(cluster, AT, 0, 3, is_read_committed=False, leader_epoch=5)
    assert [spans_of(fetched) for fetched in again] == [[(0, 3)]]


def test_offsets_before_the_log_are_gone(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(5, 8)])
    fake.log_starts[AT] = 5
    with pytest.raises(RangeGoneError, match="offset 2 cannot be read, the log has 5 to 8") as told:
        list(RangeReader(cluster, AT, 2, 8, is_read_committed=False))
    error = told.value
    assert (error.at, error.wanted_offset) == (AT, 2)
    assert (error.log_start_offset, error.end_offset) == (5, 8)


def test_retention_that_passes_the_reader(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(number, number + 1) for number in range(10)])
    batches = iter(RangeReader(cluster, AT, 0, 10, is_read_committed=False))
    assert spans_of(next(batches)) == [(0, 1), (1, 2)]
    fake.log_starts[AT] = 7
    assert spans_of(next(batches)) == [(2, 3), (3, 4)]  # was under way before
    with pytest.raises(RangeGoneError) as told:
        next(batches)
    assert (told.value.wanted_offset, told.value.log_start_offset) == (4, 7)


def test_offsets_behind_the_log_are_gone(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    with pytest.raises(RangeGoneError, match="offset 7 cannot be read, the log has 0 to 3"):
        list(RangeReader(cluster, AT, 7, 9, is_read_committed=False))


def test_a_broker_that_was_behind_is_asked_again(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    fake.fail_next(fetch.FetchRequest, ErrorCode.OFFSET_OUT_OF_RANGE, times=2)
    fake.fail_next(list_offsets.ListOffsetsRequest, "lost")
    assert read(cluster, 0, 3) == [(0, 3)]


def test_a_log_that_ends_before_the_range_is_waited_for_and_then_gone(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    batches = iter(RangeReader(cluster, AT, 0, 5, is_read_committed=False))
    assert spans_of(next(batches)) == [(0, 3)]
    with pytest.raises(RangeGoneError) as told:
        next(batches)
    assert (told.value.wanted_offset, told.value.end_offset) == (3, 3)
    assert 8 < clock.seconds <= 10


def test_a_new_leader_that_has_to_catch_up(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    batches = iter(RangeReader(cluster, AT, 0, 5, is_read_committed=False))
    assert spans_of(next(batches)) == [(0, 3)]
    fill(fake, [(3, 5)])  # the answer under way did not have it
    assert spans_of(next(batches)) == [(3, 5)]
    assert clock.seconds > 0


def test_a_range_whose_tail_was_compacted_away(fake: FakeCluster, cluster: Cluster) -> None:
    """Offsets 3 to 8 were compacted away, the log goes on at 9: a gap is no loss."""
    fake.add_topic("orders")
    fill(fake, [(0, 3), (9, 12)])
    assert read(cluster, 0, 7) == [(0, 3)]
    assert read(cluster, 4, 7) == []


def test_a_log_that_has_nothing_but_its_end(fake: FakeCluster, cluster: Cluster) -> None:
    """The end moved on and every batch is gone: the broker has nothing, each time."""
    fake.add_topic("orders")
    empty = fetch.PartitionData(
        partition_index=0, high_watermark=20, last_stable_offset=20, log_start_offset=0, records=b""
    )

    def answer(broker_id: int, request: object, code: ErrorCode) -> fetch.FetchResponse:
        topic = fetch.FetchableTopicResponse(topic="orders", partitions=(empty,))
        return fetch.FetchResponse(responses=(topic,))

    fake.handlers[fetch.FetchRequest] = answer
    (fetched,) = RangeReader(cluster, AT, 4, 9, is_read_committed=False)
    assert (bytes(fetched.data), fetched.next_offset) == (b"", 9)
    assert count_of(fake, fetch.FetchRequest) == EMPTY_ANSWERS_MAX


def test_another_topic_of_the_same_name(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    wanted = uuid.UUID(int=99)
    reader = RangeReader(cluster, AT, 0, 3, is_read_committed=False, expected_topic_id=wanted)
    with pytest.raises(TopicRecreatedError, match="deleted and created again") as told:
        list(reader)
    assert (told.value.expected_id, told.value.found_id) == (wanted, fake.topic_ids["orders"])


def test_a_topic_that_is_recreated_while_it_is_read(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, [(number, number + 1) for number in range(10)])
    batches = iter(RangeReader(cluster, AT, 0, 10, is_read_committed=False))
    next(batches)
    cluster.delete_topic("orders")
    fake.add_topic("orders")
    fake.topic_ids["orders"] = uuid.UUID(int=7)
    fill(fake, [(number, number + 1) for number in range(10)])
    next(batches)  # was under way before
    with pytest.raises(TopicRecreatedError):
        next(batches)


def test_a_topic_that_is_deleted_while_it_is_read(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    fake.add_topic("orders")
    fill(fake, [(number, number + 1) for number in range(10)])
    batches = iter(RangeReader(cluster, AT, 0, 10, is_read_committed=False))
    next(batches)
    cluster.delete_topic("orders")
    next(batches)
    with pytest.raises(UnknownTopicOrPartitionError, match="orders"):
        next(batches)
    assert clock.seconds < 4


# --- Brokers that have not caught up ---

OLD_IDS = (None, uuid.UUID(int=77))
"""To a broker that is behind, a new topic is not there yet, or is the one before it."""


def expecting(fake: FakeCluster, clock: StepClock) -> RangeReader:
    cluster = Cluster([Address("b", 9000)], fake.connect, clock=clock, sleep=clock.sleep)
    expected = fake.topic_ids["orders"]
    return RangeReader(cluster, AT, 0, 3, is_read_committed=False, expected_topic_id=expected)


@pytest.mark.parametrize("old_id", OLD_IDS)
def test_a_broker_that_is_behind_for_ever_is_not_believed(
    clock: StepClock, old_id: uuid.UUID | None
) -> None:
    fake = FakeCluster(broker_ids=(1, 2, 3))
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    stale = StaleBrokers(fake, {1}, old_id)
    assert [spans_of(fetched) for fetched in expecting(fake, clock)] == [[(0, 3)]]
    assert stale.asked == [1, 2]


@pytest.mark.parametrize("old_id", OLD_IDS)
def test_a_broker_that_is_behind_for_a_moment_is_asked_again(
    fake: FakeCluster, clock: StepClock, old_id: uuid.UUID | None
) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    StaleBrokers(fake, {1}, old_id, answers=5)
    assert [spans_of(fetched) for fetched in expecting(fake, clock)] == [[(0, 3)]]
    assert 1 < clock.seconds < 2


def test_what_every_broker_says_each_time_is_believed(clock: StepClock) -> None:
    fake = FakeCluster(broker_ids=(1, 2, 3))
    fake.add_topic("orders")
    stale = StaleBrokers(fake, {1, 2, 3})
    with pytest.raises(UnknownTopicOrPartitionError):
        list(expecting(fake, clock))
    assert stale.asked == [1, 2, 3, 1, 2, 3, 1]
    assert 2 < clock.seconds < 3


def test_the_last_answer_is_told(fake: FakeCluster, clock: StepClock) -> None:
    """Deleted, says the broker, and then that there is another one of the same name."""
    fake.add_topic("orders")
    reader = expecting(fake, clock)
    StaleBrokers(fake, {1}, answers=3)
    fake.topic_ids["orders"] = uuid.UUID(int=8)
    with pytest.raises(TopicRecreatedError) as told:
        list(reader)
    assert told.value.found_id == uuid.UUID(int=8)


def test_a_broker_that_is_away_for_longer_than_the_time(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])
    cluster.all_topics()
    fake.fail_next(fetch.FetchRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=100)
    with pytest.raises(BrokerAnswerError, match="NOT_LEADER_OR_FOLLOWER"):
        list(RangeReader(cluster, AT, 0, 3, is_read_committed=False))
    assert 8 < clock.seconds <= 10


def test_a_client_over_its_quota_is_answered_with_nothing(
    fake: FakeCluster, cluster: Cluster, clock: StepClock
) -> None:
    fake.add_topic("orders")
    fill(fake, [(0, 3)])

    def throttle(broker_id: int, request: object, code: ErrorCode) -> fetch.FetchResponse:
        del fake.handlers[fetch.FetchRequest]
        return fetch.FetchResponse(throttle_time_ms=700, responses=())

    fake.handlers[fetch.FetchRequest] = throttle
    assert read(cluster, 0, 3) == [(0, 3)]
    assert clock.seconds > 0


def test_metadata_that_fails_while_the_next_is_started(fake: FakeCluster, cluster: Cluster) -> None:
    """The prefetch cannot be sent; it is made again when it is needed."""
    fake.add_topic("orders")
    fill(fake, [(number, number + 1) for number in range(6)])
    batches = iter(RangeReader(cluster, AT, 0, 6, is_read_committed=False))
    next(batches)
    fake.fail_next(fetch.FetchRequest, "unreachable")
    fake.fail_next(metadata.MetadataRequest, "lost")
    assert [span for fetched in batches for span in spans_of(fetched)] == [
        (number, number + 1) for number in range(2, 6)
    ]


# --- Unusual answers of a broker ---


def batch(first: int, count: int = 1) -> bytes:
    return bytes(build_batch([Record(value=b"x")] * count, base_offset=first))


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    data = batch(4) + batch(5)
    for cut in range(1, len(batch(5))):
        assert whole_batches(memoryview(data[:-cut]), 4, 9) == (len(batch(4)), 5)
    assert whole_batches(memoryview(data), 4, 9) == (len(data), 6)
    assert whole_batches(memoryview(data), 4, 5) == (len(batch(4)), 5)
    assert whole_batches(memoryview(data), 3, 4) == (0, 4)
    assert whole_batches(memoryview(b""), 3, 4) == (0, 3)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (batch(4)[:-1], "no whole batch"),
        (b"\x00" * 5, "no whole batch"),
        (batch(2), "ends before 3"),
        (batch(4)[:16] + b"\x01" + batch(4)[17:], "magic 1"),
        (batch(4) + (5).to_bytes(8) + (48).to_bytes(4) + bytes(60), "48 bytes"),
        (batch(4) + (5).to_bytes(8) + b"\xff\xff\xff\xff" + bytes(60), "-1 bytes"),
    ],
)
def test_hostile_batches(data: bytes, why: str) -> None:
    with pytest.raises(MalformedResponseError, match=why):
        whole_batches(memoryview(data), 4, 9)


@given(st.binary(max_size=300), st.integers(0, 50), st.integers(1, 50))
def test_any_bytes_are_taken_or_refused(data: bytes, start: int, length: int) -> None:
    try:
        size, next_offset = whole_batches(memoryview(data), start, start + length)
    except MalformedResponseError:
        return
    assert 0 <= size <= len(data)
    assert start <= next_offset <= start + length


@pytest.mark.parametrize("partitions", [(), (1,), (0, 0)])
def test_an_answer_for_other_partitions(
    fake: FakeCluster, cluster: Cluster, partitions: tuple[int, ...]
) -> None:
    fake.add_topic("orders")
    topic = fetch.FetchableTopicResponse(
        topic="orders",
        partitions=tuple(
            fetch.PartitionData(partition_index=number, high_watermark=3, records=batch(0, 3))
            for number in partitions
        ),
    )
    fake.handlers[fetch.FetchRequest] = lambda *_: fetch.FetchResponse(responses=(topic,))
    with pytest.raises(MalformedResponseError, match="orders-0"):
        list(RangeReader(cluster, AT, 0, 3, is_read_committed=False))
