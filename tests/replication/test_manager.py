"""Append, commit and read: nothing is seen or acknowledged before it is on the disk."""

from functools import partial

import pytest

from penstock.core.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    OffsetOutOfRangeError,
    PenstockError,
    StorageError,
    TooManyWaitersError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.read_result import PartitionRead
from penstock.replication.waits import CommitWait, FetchWait
from penstock.storage.log.log_settings import FlushMode
from tests.replication.replicas import RULES, Node
from tests.storage.logs import batch, headers, producer_batch

SECOND_MS = 1_000


class Produce:
    """A produce request that waits."""

    def __init__(self, node: Node, *targets: tuple[HostedPartition, int], timeout_ms: int) -> None:
        self.answers = 0
        self.wait = CommitWait(self._done)
        node.replicas.wait_committed(self.wait, list(targets), timeout_ms)

    def _done(self) -> None:
        self.answers += 1

    @property
    def errors(self) -> dict[TopicPartition, PenstockError]:
        return self.wait.errors


class Fetch:
    """A fetch request that waits."""

    def __init__(
        self, node: Node, *partitions: HostedPartition, bytes_missing: int = 1, timeout_ms: int
    ) -> None:
        self.answers = 0
        wait = FetchWait(bytes_missing, self._done)
        self.is_parked = node.replicas.wait_bytes(wait, partitions, timeout_ms)

    def _done(self) -> None:
        self.answers += 1


@pytest.fixture
def node() -> Node:
    return Node()


def read(
    node: Node,
    offset: int,
    bytes_max: int = 1_000_000,
    *,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    at_least_one: bool = True,
) -> PartitionRead:
    return node.replicas.read(
        node.partition,
        offset,
        bytes_max,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
        at_least_one=at_least_one,
    )


def offsets(found: PartitionRead) -> list[int]:
    return [header.base_offset for header in headers(bytes(found.records))]


# --- Visible when durable ---


def test_an_append_is_seen_when_it_is_on_the_disk(node: Node) -> None:
    node.append(batch(3))
    assert node.appends == 1
    assert offsets(read(node, 0)) == []
    assert read(node, 0).high_watermark == 0
    node.sync()
    found = read(node, 0)
    assert (offsets(found), found.high_watermark, found.log_start_offset) == ([0], 3, 0)


def test_only_what_is_on_the_disk_is_seen(node: Node) -> None:
    node.append(batch(2))
    node.sync()
    node.append(batch(2))
    found = read(node, 0)
    assert (offsets(found), found.high_watermark) == ([0], 2)
    # Between the watermark and the end there is nothing yet, and no error either.
    assert offsets(read(node, 3)) == []
    with pytest.raises(OffsetOutOfRangeError):
        read(node, 5)


def test_in_the_modes_that_sync_later_an_append_is_seen_at_once() -> None:
    node = Node(flush_mode=FlushMode.OS)
    node.append(batch(2))
    assert read(node, 0).high_watermark == 2


# --- Produce ---


def test_a_produce_is_answered_when_it_is_on_the_disk(node: Node) -> None:
    last = node.append(batch(2))
    produce = Produce(node, (node.partition, last), timeout_ms=SECOND_MS)
    node.timer.advance(0.5)
    assert produce.answers == 0
    node.sync()
    assert (produce.answers, produce.errors) == (1, {})
    node.timer.advance(10)
    assert produce.answers == 1


def test_produces_are_answered_in_their_order(node: Node) -> None:
    order: list[int] = []
    for number in range(3):
        last = node.append(batch())
        wait = CommitWait(partial(order.append, number))
        node.replicas.wait_committed(wait, [(node.partition, last)], SECOND_MS)
    node.sync()
    assert order == [0, 1, 2]


def test_a_produce_waits_for_all_its_partitions(node: Node) -> None:
    other = node.add("other")
    targets = [(node.partition, node.append(batch())), (other, node.append(batch(), other))]
    produce = Produce(node, *targets, timeout_ms=SECOND_MS)
    for flusher in node.logs.flushers:
        flusher.sync_now()
    node.replicas.on_durable([other.log])
    assert produce.answers == 0
    node.replicas.on_durable([node.partition.log])
    assert produce.answers == 1


def test_a_produce_that_takes_too_long_is_told_so(node: Node) -> None:
    produce = Produce(node, (node.partition, node.append(batch())), timeout_ms=SECOND_MS)
    node.timer.advance(0.99)
    assert produce.answers == 0
    node.timer.advance(0.02)
    assert produce.answers == 1
    assert list(produce.errors) == [node.partition.name]
    # The records are in the log all the same.
    node.sync()
    assert read(node, 0).high_watermark == 1
    assert produce.answers == 1


def test_the_alarm_is_set_for_the_earliest(node: Node) -> None:
    late = Produce(node, (node.partition, node.append(batch())), timeout_ms=5 * SECOND_MS)
    early = Produce(node, (node.partition, node.append(batch())), timeout_ms=SECOND_MS)
    node.timer.advance(1.01)
    assert (early.answers, late.answers) == (1, 0)
    node.timer.advance(4.0)
    assert late.answers == 1


def test_a_repeated_batch_is_not_appended_and_waits_for_the_first(node: Node) -> None:
    last = node.append(producer_batch(0, 2))
    again = node.append(producer_batch(0, 2))
    assert (again, node.partition.log.end_offset, node.appends) == (last, 2, 1)
    produce = Produce(node, (node.partition, again), timeout_ms=SECOND_MS)
    assert produce.answers == 0
    node.sync()
    assert produce.answers == 1


def test_a_dead_disk_fails_what_waits(node: Node) -> None:
    other = node.add("other")
    produce = Produce(node, (node.partition, node.append(batch())), timeout_ms=SECOND_MS)
    elsewhere = Produce(node, (other, node.append(batch(), other)), timeout_ms=SECOND_MS)
    fetch = Fetch(node, node.partition, timeout_ms=SECOND_MS)
    error = StorageError("dead")
    node.replicas.on_failure([node.partition.log], error)
    assert (produce.answers, produce.errors) == (1, {node.partition.name: error})
    assert fetch.answers == 1
    assert elsewhere.answers == 0


def test_the_table_of_waiting_requests_is_bounded(node: Node) -> None:
    node.replicas.waits.parked_max = 2
    targets = [(node.partition, node.append(batch())) for _ in range(3)]
    waiting = [Produce(node, target, timeout_ms=SECOND_MS) for target in targets[:2]]
    with pytest.raises(TooManyWaitersError):
        Produce(node, targets[2], timeout_ms=SECOND_MS)
    with pytest.raises(TooManyWaitersError):
        Fetch(node, node.partition, timeout_ms=SECOND_MS)
    node.sync()
    assert [produce.answers for produce in waiting] == [1, 1]


# --- Fetch ---


def test_a_fetch_is_woken_by_what_is_on_the_disk(node: Node) -> None:
    fetch = Fetch(node, node.partition, timeout_ms=SECOND_MS)
    node.append(batch())
    assert fetch.answers == 0
    node.sync()
    assert fetch.answers == 1
    node.append(batch())
    node.sync()
    assert fetch.answers == 1


def test_a_fetch_waits_for_enough_bytes_over_its_partitions(node: Node) -> None:
    other = node.add("other")
    size = len(batch().buffer)
    fetch = Fetch(node, node.partition, other, bytes_missing=2 * size, timeout_ms=SECOND_MS)
    node.append(batch())
    node.sync()
    assert fetch.answers == 0
    node.append(batch(), other)
    node.sync()
    assert fetch.answers == 1


def test_what_was_appended_during_a_sync_wakes_a_fetch_when_it_is_on_the_disk(node: Node) -> None:
    (flusher,) = node.logs.flushers
    node.append(batch())
    under_way = flusher.begin_round()
    assert under_way is not None
    flusher.execute(under_way)
    node.append(batch())
    flusher.complete_round(under_way)
    node.replicas.on_durable([node.partition.log])
    assert read(node, 0).high_watermark == 1
    # It has read the first batch, and waits for the second one, which is not seen yet.
    fetch = Fetch(node, node.partition, timeout_ms=SECOND_MS)
    node.sync()
    assert fetch.answers == 1


def test_bytes_count_once(node: Node) -> None:
    size = len(batch().buffer)
    for _ in range(2):
        node.append(batch())
    node.sync()
    fetch = Fetch(node, node.partition, bytes_missing=2 * size, timeout_ms=SECOND_MS)
    node.append(batch())
    node.sync()
    assert fetch.answers == 0
    node.append(batch())
    node.sync()
    assert fetch.answers == 1


def test_repetitions_do_not_count_as_new_bytes(node: Node) -> None:
    node.append(producer_batch(0))
    node.sync()
    fetch = Fetch(node, node.partition, timeout_ms=SECOND_MS)
    node.append(producer_batch(0))
    node.sync()
    assert fetch.answers == 0


def test_a_fetch_ends_with_its_time(node: Node) -> None:
    fetch = Fetch(node, node.partition, timeout_ms=500)
    node.timer.advance(0.51)
    assert fetch.answers == 1


def test_who_stops_answers_fetches_and_lets_none_wait(node: Node) -> None:
    fetch = Fetch(node, node.partition, timeout_ms=SECOND_MS)
    produce = Produce(node, (node.partition, node.append(batch())), timeout_ms=SECOND_MS)
    node.replicas.stop_waiting()
    assert (fetch.answers, produce.answers) == (1, 0)
    assert not Fetch(node, node.partition, timeout_ms=SECOND_MS).is_parked
    node.sync()
    assert produce.answers == 1


def test_a_stop_answers_what_will_not_be_committed_any_more(node: Node) -> None:
    """No deadline comes after it, and a request without an answer would keep the broker."""
    produce = Produce(node, (node.partition, node.append(batch())), timeout_ms=SECOND_MS)
    node.replicas.stop()
    assert isinstance(produce.wait.errors[node.partition.name], NotLeaderError)
    node.timer.advance(2.0)
    node.sync()
    assert produce.answers == 1


# --- Reading ---


def test_limits(node: Node) -> None:
    for _ in range(3):
        node.append(batch())
    node.sync()
    size = len(batch().buffer)
    assert offsets(read(node, 0, 2 * size)) == [0, 1]
    assert offsets(read(node, 0, 0)) == [0]
    assert offsets(read(node, 0, -5)) == [0]
    assert offsets(read(node, 0, 0, at_least_one=False)) == []
    assert offsets(read(node, 0, size - 1, at_least_one=False)) == []


def test_a_read_names_the_leader_it_means(node: Node) -> None:
    node.partition.state.leader_epoch = 3
    assert read(node, 0, leader_epoch=3).high_watermark == 0
    with pytest.raises(FencedLeaderEpochError):
        read(node, 0, leader_epoch=2)
    with pytest.raises(UnknownLeaderEpochError):
        read(node, 0, leader_epoch=4)


def test_histories_are_compared(node: Node) -> None:
    node.append(batch(2))
    node.partition.state.leader_epoch = 2
    node.append(batch(3))
    node.sync()
    assert read(node, 2, last_fetched_epoch=0).diverging_epoch is None
    assert read(node, 4, last_fetched_epoch=2).diverging_epoch is None
    assert read(node, 4, last_fetched_epoch=0).diverging_epoch == (0, 2)
    assert read(node, 2, last_fetched_epoch=1).diverging_epoch == (0, 2)
    assert read(node, 9, last_fetched_epoch=2).diverging_epoch == (2, 5)
    with pytest.raises(OffsetOutOfRangeError):
        read(node, 2, last_fetched_epoch=3)


def test_the_current_epoch_ends_where_the_log_does(node: Node) -> None:
    assert node.partition.end_offset_for_epoch(0) == (0, 0)
    node.append(batch(2))
    node.partition.state.leader_epoch = 1
    assert node.partition.end_offset_for_epoch(1) == (1, 2)
    assert node.partition.end_offset_for_epoch(0) == (0, 2)
    assert node.partition.end_offset_for_epoch(2) == (-1, -1)


def test_a_log_that_is_not_served_says_why(node: Node) -> None:
    node.partition.log.problem = StorageError("damaged")
    with pytest.raises(StorageError, match="damaged"):
        read(node, 0)
    with pytest.raises(StorageError, match="damaged"):
        node.append(batch())


# --- Which partitions are here ---


def test_partitions_come_and_go(node: Node) -> None:
    name = node.partition.name
    other = node.add("other")
    assert len(node.replicas) == 2
    assert set(node.replicas) == {node.partition, other}
    assert name in node.replicas
    produce = Produce(node, (node.partition, node.append(batch())), timeout_ms=SECOND_MS)
    fetch = Fetch(node, node.partition, timeout_ms=SECOND_MS)
    node.replicas.drop(name)
    assert name not in node.replicas
    assert fetch.answers == 1
    assert isinstance(produce.errors[name], UnknownTopicOrPartitionError)
    with pytest.raises(UnknownTopicOrPartitionError):
        node.replicas.partition(name)
    node.replicas.drop(name)


def test_a_partition_that_cannot_be_served_says_why(node: Node) -> None:
    name = node.partition.name
    node.replicas.drop(name)
    node.replicas.refuse(name, StorageError("no room"))
    assert not node.replicas.is_served(name)
    with pytest.raises(StorageError, match="no room"):
        node.replicas.partition(name)
    node.replicas.host(node.partition.log, node.partition.topic_id, 0, RULES)
    assert node.replicas.partition(name).name == name
    assert node.replicas.is_served(name)
    node.partition.log.problem = StorageError("damaged")
    assert not node.replicas.is_served(name)


def test_news_of_a_log_that_was_replaced_is_ignored(node: Node) -> None:
    old = node.partition.log
    name = node.partition.name
    node.append(batch())
    node.replicas.drop(name)
    node.logs.delete_logs([name])
    new = node.add(name.topic)
    node.append(batch(), new)
    produce = Produce(node, (new, 0), timeout_ms=SECOND_MS)
    node.replicas.on_durable([old])
    node.replicas.on_failure([old], StorageError("old"))
    assert produce.answers == 0
    assert new.state.high_watermark == 0
