"""Where reading starts and ends, and that nothing is read twice or left out."""

from itertools import islice

import pytest

from penstock.client.cluster import Cluster
from penstock.client.records.positions import parse_start
from penstock.client.records.topic_reader import TopicReader
from penstock.core.errors import BrokerAnswerError, UnknownTopicOrPartitionError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import fetch
from penstock.records.builder import build_batch
from penstock.records.control import Marker, build_marker
from penstock.records.record import Record
from tests.client.fake_broker import FakeCluster

AT = TopicPartition("orders", 0)


def fill(fake: FakeCluster, at: TopicPartition, count: int, per_batch: int = 3) -> None:
    """Records whose value is their offset and whose time is 1000 ms later each."""
    start = fake.end_offset(at)
    for base in range(start, start + count, per_batch):
        numbers = range(base, min(base + per_batch, start + count))
        records = [Record(value=b"%d" % n, timestamp_ms=1_000 * n) for n in numbers]
        fake.logs[at].append(bytes(build_batch(records, base_offset=base)))


def read(cluster: Cluster, start: str) -> list[int]:
    reader = TopicReader(cluster, cluster.partitions_of("orders"), parse_start(start))
    records = list(reader.records())
    assert all(record.value == b"%d" % record.offset for record in records)
    return [record.offset for record in records]


@pytest.mark.parametrize(
    ("start", "offsets"),
    [
        ("earliest", range(10)),
        ("latest", range(0)),
        ("4", range(4, 10)),
        ("99", range(0)),
        ("-3", range(7, 10)),
        ("-99", range(10)),
        ("@6000", range(6, 10)),
        ("@99000", range(0)),
    ],
)
def test_every_start(fake: FakeCluster, cluster: Cluster, start: str, offsets: range) -> None:
    fake.add_topic("orders")
    fill(fake, AT, 10)
    assert read(cluster, start) == list(offsets)


def test_a_log_that_does_not_begin_at_zero(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, AT, 12)
    del fake.logs[AT][:2]
    fake.log_starts[AT] = 6
    assert read(cluster, "0") == list(range(6, 12))
    assert read(cluster, "-99") == list(range(6, 12))


def test_it_ends_where_the_end_was(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, AT, 4)
    reader = TopicReader(cluster, [AT], parse_start("earliest"))
    fill(fake, AT, 6)
    assert [record.offset for record in reader.records()] == [0, 1, 2, 3]


def test_follow_goes_on(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, AT, 3)
    records = TopicReader(cluster, [AT], parse_start("latest"), follow=True).records()
    fill(fake, AT, 2)
    assert [record.offset for record in islice(records, 2)] == [3, 4]
    fill(fake, AT, 1)
    assert next(records).offset == 5


def test_control_batches_are_passed_over(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, AT, 3)
    marker = build_marker(
        Marker(is_commit=True, coordinator_epoch=0),
        producer_id=1,
        producer_epoch=0,
        timestamp_ms=0,
        base_offset=3,
    )
    fake.logs[AT].append(bytes(marker))
    assert read(cluster, "earliest") == [0, 1, 2]


def test_a_lost_answer_loses_no_record(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, AT, 20)
    fake.fail_next(fetch.FetchRequest, "lost")
    fake.fail_next(fetch.FetchRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert read(cluster, "earliest") == list(range(20))


def test_all_partitions_of_all_leaders(fake: FakeCluster, cluster: Cluster) -> None:
    fake.broker_ids = (1, 2)
    fake.add_topic("orders", partitions=3)
    for index in range(3):
        fill(fake, TopicPartition("orders", index), 5 * (index + 1))
    reader = TopicReader(cluster, cluster.partitions_of("orders"), parse_start("earliest"))
    seen: dict[int, list[int]] = {}
    for record in reader.records():
        seen.setdefault(record.partition, []).append(record.offset)
    assert seen == {0: list(range(5)), 1: list(range(10)), 2: list(range(15))}


def test_an_offset_that_vanished_is_an_error(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fill(fake, AT, 3)
    fake.fail_next(fetch.FetchRequest, ErrorCode.OFFSET_OUT_OF_RANGE)
    with pytest.raises(BrokerAnswerError, match="orders-0 at offset 0"):
        read(cluster, "earliest")


def test_a_partition_that_is_not_there(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders", partitions=2)
    assert cluster.partitions_of("orders", [1]) == [TopicPartition("orders", 1)]
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 2; it has 0 to 1"):
        cluster.partitions_of("orders", [2])
