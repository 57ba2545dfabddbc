"""Each record once with acks=all; ambiguity reported without it; partitions by key and in turns."""

import pytest

from penstock.client.cluster import Cluster
from penstock.client.records.partitioner import partition_of_key
from penstock.client.records.topic_writer import TopicWriter
from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import init_producer_id, produce
from penstock.records.batch import read_header
from penstock.records.builder import read_records
from tests.client.fake_broker import FakeCluster

AT = TopicPartition("orders", 0)


def values(fake: FakeCluster, at: TopicPartition = AT) -> list[bytes | None]:
    return [record.value for batch in fake.logs[at] for record in read_records(batch)]


def test_records_arrive_with_everything(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    writer = TopicWriter(cluster, "orders", codec=4)
    writer.append(b"k", b"v", (("h", b"1"),))
    writer.append(None, None)
    writer.flush()
    first, second = read_records(fake.logs[AT][0])
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"),))
    assert first.timestamp_ms == cluster.clock.now_ms()
    assert (second.key, second.value) == (None, None)
    assert writer.records_sent == 2
    assert read_header(fake.logs[AT][0]).codec == 4


@pytest.mark.parametrize("failure", ["lost", "unreachable", ErrorCode.REQUEST_TIMED_OUT])
def test_acks_all_sends_again_and_once(
    fake: FakeCluster, cluster: Cluster, failure: ErrorCode | str
) -> None:
    fake.add_topic("orders")
    writer = TopicWriter(cluster, "orders")
    for number in range(3):
        fake.fail_next(produce.ProduceRequest, failure)
        writer.append(None, b"%d" % number)
        writer.flush()
    assert values(fake) == [b"0", b"1", b"2"]
    assert writer.records_sent == 3
    assert [read_header(batch).base_sequence for batch in fake.logs[AT]] == [0, 1, 2]


@pytest.mark.parametrize("acks", [1, 0])
def test_without_a_producer_id_there_are_no_sequences(
    fake: FakeCluster, cluster: Cluster, acks: int
) -> None:
    fake.add_topic("orders")
    writer = TopicWriter(cluster, "orders", acks=acks)
    writer.append(None, b"a")
    writer.flush()
    assert values(fake) == [b"a"]
    assert read_header(fake.logs[AT][0]).producer_id == -1
    assert not any(isinstance(r, init_producer_id.InitProducerIdRequest) for r in fake.requests)
    assert writer.records_sent == 1


def test_acks_one_does_not_send_twice_after_a_lost_answer(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.add_topic("orders")
    writer = TopicWriter(cluster, "orders", acks=1)
    fake.fail_next(produce.ProduceRequest, "lost")
    writer.append(None, b"a")
    with pytest.raises(AnswerLostError):
        writer.flush()
    assert values(fake) == [b"a"]
    assert writer.records_sent == 0


def test_what_was_acknowledged_is_not_sent_again(fake: FakeCluster, cluster: Cluster) -> None:
    """One partition of a request fails, the other succeeds: only the one is repeated."""
    fake.add_topic("orders", partitions=2)
    writer = TopicWriter(cluster, "orders", acks=1)
    keys = {partition_of_key(key, 2): key for key in (b"a", b"b", b"c", b"d")}
    fake.leaders[TopicPartition("orders", 1)] = 2
    fake.broker_ids = (1, 2)
    for key in keys.values():
        writer.append(key, b"v")
    fake.fail_next(produce.ProduceRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    writer.flush()
    assert values(fake, TopicPartition("orders", 0)) == [b"v"]
    assert values(fake, TopicPartition("orders", 1)) == [b"v"]
    assert writer.records_sent == 2


def test_keys_go_where_their_hash_says(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders", partitions=3)
    writer = TopicWriter(cluster, "orders")
    for number in range(20):
        writer.append(b"key-%d" % number, b"key-%d" % number)
    writer.flush()
    for index in range(3):
        for value in values(fake, TopicPartition("orders", index)):
            assert value is not None
            assert partition_of_key(value, 3) == index


def test_records_without_a_key_take_turns_by_batch(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders", partitions=2)
    writer = TopicWriter(cluster, "orders")
    for _ in range(4):
        writer.append(None, b"x")
        writer.append(None, b"y")
        writer.flush()
    assert len(fake.logs[TopicPartition("orders", 0)]) == 2
    assert len(fake.logs[TopicPartition("orders", 1)]) == 2


def test_a_full_batch_is_sent_without_a_flush(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    writer = TopicWriter(cluster, "orders", batch_bytes_max=200)
    for _ in range(10):
        writer.append(None, b"x" * 50)
    assert len(fake.logs[AT]) == 3
    writer.flush()
    assert writer.records_sent == 10


def test_a_refused_batch_is_an_error_with_its_place(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    writer = TopicWriter(cluster, "orders")
    fake.fail_next(produce.ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE)
    writer.append(None, b"x")
    with pytest.raises(BrokerAnswerError, match=r"MESSAGE_TOO_LARGE \(10\): orders-0"):
        writer.flush()
    assert writer.records_sent == 0


def test_a_partition_that_is_not_there(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders", partitions=2)
    with pytest.raises(UnknownTopicOrPartitionError, match="0 to 1"):
        TopicWriter(cluster, "orders", partition=2)


def test_the_given_partition_wins_over_the_key(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders", partitions=2)
    writer = TopicWriter(cluster, "orders", partition=1)
    for key in (b"a", b"b", b"c"):
        writer.append(key, b"v")
    writer.flush()
    assert len(values(fake, TopicPartition("orders", 1))) == 3


def test_a_record_does_not_take_a_batch_past_the_limit(fake: FakeCluster, cluster: Cluster) -> None:
    """Two lines of 600 KB were one batch of 1.2 MB, which the broker refused."""
    fake.add_topic("orders")
    writer = TopicWriter(cluster, "orders")
    for size in (500_000, 600_000, 600_000, 10):
        writer.append(None, b"x" * size)
    writer.flush()
    sizes = [len(batch) for batch in fake.logs[AT]]
    assert len(sizes) == 4
    assert max(sizes) < 1_048_588
    assert writer.records_sent == 4


def test_a_lower_limit_of_the_topic_is_kept(fake: FakeCluster, cluster: Cluster) -> None:
    fake.add_topic("orders")
    fake.topic_settings["max.message.bytes"] = "1000"
    writer = TopicWriter(cluster, "orders")
    writer.learn_limit()
    for _ in range(100):
        writer.append(b"k", b"x" * 100, (("h", b"y" * 20),))
    writer.flush()
    assert max(len(batch) for batch in fake.logs[AT]) <= 1000
    assert writer.records_sent == 100


def test_a_record_above_the_limit_is_refused_before_it_is_sent(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.add_topic("orders")
    fake.topic_settings["max.message.bytes"] = "1000"
    writer = TopicWriter(cluster, "orders")
    writer.learn_limit()
    writer.append(None, b"small")
    with pytest.raises(
        RecordTooLargeError, match=r"of 2,0\d\d bytes .* topic orders \(1,000\)"
    ) as at:
        writer.append(None, b"x" * 2_000)
    assert "penstock topic configure orders max.message.bytes=1048576" in at.value.hint
    writer.flush()
    assert values(fake) == [b"small"]
    compressed = TopicWriter(cluster, "orders", codec=1)
    compressed.learn_limit()
    compressed.append(None, b"x" * 2_000)  # it may fit: the broker decides
    compressed.flush()
    assert compressed.records_sent == 1


@pytest.mark.parametrize("limit", ["1000", None])
def test_a_refusal_has_size_limit_and_remedy(
    fake: FakeCluster, cluster: Cluster, limit: str | None
) -> None:
    """MESSAGE_TOO_LARGE named the partition and nothing else."""
    fake.add_topic("orders")
    if limit is not None:
        fake.topic_settings["max.message.bytes"] = limit
    fake.fail_next(produce.ProduceRequest, ErrorCode.MESSAGE_TOO_LARGE)
    writer = TopicWriter(cluster, "orders")
    writer.append(None, b"x" * 2_000)
    with pytest.raises(BrokerAnswerError) as caught:
        writer.flush()
    shown = "1,000" if limit else "unknown"
    assert str(caught.value).startswith("MESSAGE_TOO_LARGE (10): orders-0: a batch of 2,0")
    assert str(caught.value).endswith(
        f"bytes (1 record) is too large; max.message.bytes of the topic is {shown}."
    )
    assert "penstock topic configure orders max.message.bytes=1048576" in caught.value.hint


def test_a_topic_that_the_broker_creates_is_known_as_new(
    fake: FakeCluster, cluster: Cluster
) -> None:
    fake.auto_create = True
    assert TopicWriter(cluster, "orders").is_new_topic
    assert not TopicWriter(cluster, "orders").is_new_topic
