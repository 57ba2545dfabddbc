"""Rows of a task reach the topics that they name, against a Penstock in memory."""

import uuid
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pytest

from penstock.client.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.records.range_reader import RangeReader
from penstock.client.transactions.producer_transactions import VERSION_0, ProducerTransactions
from penstock.client.transport.blocking import connect
from penstock.core.errors import UnknownTopicOrPartitionError
from penstock.core.settings.tree import settings_of
from penstock.records.batch import read_header
from penstock.spark.decode.columns import BatchDecoder
from penstock.spark.errors import OptionError
from penstock.spark.sink import row_writer
from penstock.spark.sink.options import ColumnError, SinkColumns, SinkOptions, read_sink_options
from penstock.spark.sink.process import KEPT_MAX, Kept
from penstock.spark.sink.row_writer import RowWriter
from penstock.testing import Broker
from tests.client.conftest import StepClock

COLUMNS = SinkColumns(value=1, key=None, headers=None, partition=None, topic=0)
VALUE_ONLY = SinkColumns(value=0, key=None, headers=None, partition=None, topic=None)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = settings_of(
        {"listener.port": 0, "node.storage": "memory", "topic_defaults.auto_create": False}
    )
    with Broker(settings) as broker:
        yield broker.bootstrap_server


def options_of(bootstrap: str, **options: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": bootstrap, **options}
    return read_sink_options(given, is_stream=False)


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with open_cluster(options_of(bootstrap).client) as opened:
        yield opened


def new_topic(cluster: Cluster, partitions: int = 1, configs: dict[str, str] | None = None) -> str:
    name = f"rows-{uuid.uuid4()}"
    cluster.create_topic(NewTopic(name, partitions, configs=configs or {}))
    return name


def batch(topics: list[str | None], values: list[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(topics, pa.string()), pa.array(values)], ["topic", "value"])


def values_in(cluster: Cluster, topic: str, *, is_read_committed: bool = True) -> list[bytes]:
    values: list[bytes] = []
    for at in cluster.partitions_of(topic):
        start = cluster.find_offsets({at: EARLIEST_TIMESTAMP})[at]
        latest = {at: LATEST_TIMESTAMP}
        end = cluster.look_up_offsets(latest, is_read_committed=is_read_committed)[at].offset
        decoder = BatchDecoder(
            at.topic,
            at.partition,
            start,
            end,
            include_headers=False,
            is_read_committed=is_read_committed,
        )
        reader = RangeReader(cluster, at, start, end, is_read_committed=is_read_committed)
        for fetched in reader:
            for rows in decoder.feed(fetched.data, fetched.aborted):
                values += rows["value"].to_pylist()
        for rows in decoder.finish():
            values += rows["value"].to_pylist()
    return sorted(values)


def test_rows_go_to_the_topics_that_they_name(cluster: Cluster, bootstrap: str) -> None:
    first, second = new_topic(cluster, 2), new_topic(cluster)
    writer = RowWriter(cluster, options_of(bootstrap), COLUMNS, first_partition=0)
    writer.write(batch([first, second, first], ["a", "b", "c"]))
    writer.write(batch([first], ["d"]))
    writer.finish()
    assert writer.row_count == 4
    assert values_in(cluster, first) == [b"a", b"c", b"d"]
    assert values_in(cluster, second) == [b"b"]


def test_a_row_without_a_topic_is_told(cluster: Cluster, bootstrap: str) -> None:
    writer = RowWriter(cluster, options_of(bootstrap), COLUMNS, first_partition=0)
    with pytest.raises(ColumnError, match="the column `topic` is null"):
        writer.write(batch([None], ["a"]))


def test_a_topic_that_is_not_there_is_told(bootstrap: str) -> None:
    clock = StepClock()
    options = options_of(bootstrap)
    connect_to = partial(connect, timeout_seconds=10)
    with Cluster(options.client.bootstrap, connect_to, clock=clock, sleep=clock.sleep) as cluster:
        writer = RowWriter(cluster, options, COLUMNS, first_partition=0)
        with pytest.raises(UnknownTopicOrPartitionError, match="penstock topic create nowhere"):
            writer.write(batch(["nowhere"], ["a"]))


def test_too_many_topics_are_told(
    cluster: Cluster, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writer, "TOPICS_PER_TASK_MAX", 1)
    first, second = new_topic(cluster), new_topic(cluster)
    writer = RowWriter(cluster, options_of(bootstrap), COLUMNS, first_partition=0)
    with pytest.raises(ColumnError, match="more than 1 topics"):
        writer.write(batch([first, second], ["a", "b"]))


def test_a_batch_that_is_too_large_names_the_option(cluster: Cluster, bootstrap: str) -> None:
    topic = new_topic(cluster, configs={"max.message.bytes": "1000"})
    options = options_of(bootstrap, topic=topic)
    writer = RowWriter(cluster, options, VALUE_ONLY, first_partition=0)
    writer.write(pa.record_batch([pa.array(["x" * 2_000])], ["value"]))
    with pytest.raises(OptionError, match=r"max\.message\.bytes") as caught:
        writer.finish()
    assert caught.value.option == "kafka.batch.size"
    writer.abandon()


def test_what_all_topics_hold_is_bounded(
    cluster: Cluster, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_writer, "BUFFERED_BYTES_MAX", 10_000)
    topics = [new_topic(cluster) for _ in range(3)]
    writer = RowWriter(cluster, options_of(bootstrap), COLUMNS, first_partition=0)
    for number in range(20):
        writer.write(batch([topics[number % 3]], ["x" * 3_000]))
        held = sum(one.buffered_bytes for one in writer._encoders.values())
        assert held <= 10_000
    writer.finish()
    assert sum(len(values_in(cluster, topic)) for topic in topics) == 20


def test_a_producer_is_idempotent_unless_it_is_asked_for_less(
    cluster: Cluster, bootstrap: str
) -> None:
    for acks, is_numbered in (("all", True), ("1", False)):
        topic = new_topic(cluster)
        options = options_of(bootstrap, topic=topic, **{"kafka.acks": acks})
        writer = RowWriter(cluster, options, VALUE_ONLY, first_partition=0)
        writer.write(pa.record_batch([pa.array(["x"])], ["value"]))
        writer.finish()
        (at,) = cluster.partitions_of(topic)
        (fetched,) = RangeReader(cluster, at, 0, 1, is_read_committed=False)
        assert read_header(bytes(fetched.data)).has_producer is is_numbered


def test_a_transaction_of_version_zero_joins_its_partitions(
    cluster: Cluster, bootstrap: str
) -> None:
    topic = new_topic(cluster, 3)
    transactions = ProducerTransactions(cluster)
    transaction = transactions.begin(f"id-{uuid.uuid4()}", 60_000)._replace(version=VERSION_0)
    writer = RowWriter(
        cluster,
        options_of(bootstrap, topic=topic),
        VALUE_ONLY,
        first_partition=1,
        transaction=transaction,
        transactions=transactions,
    )
    writer.write(pa.record_batch([pa.array(["x", "y"])], ["value"]))
    writer.finish()
    assert values_in(cluster, topic) == []
    transactions.end(transaction, commits=True)
    while not values_in(cluster, topic):
        pass  # the marker follows the answer
    assert values_in(cluster, topic) == [b"x", b"y"]


def test_a_process_keeps_what_it_used_last() -> None:
    forgotten: list[int] = []
    kept: Kept[int, int] = Kept(forgotten.append)
    for number in range(KEPT_MAX + 2):
        assert kept.get(number, partial(int, number * 10)) == number * 10
    assert forgotten == [0, 10]
    assert kept.get(KEPT_MAX, lambda: -1) == KEPT_MAX * 10
    kept.clear()
    assert len(forgotten) == KEPT_MAX + 2
