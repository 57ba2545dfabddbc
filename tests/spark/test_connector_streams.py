"""Spark's own connector reads topics as streams: the same from both brokers."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import NewTopic
from tests.spark.rows import (
    Source,
    StreamFolder,
    places,
    run_available,
    stream_frame,
    streamed_rows,
    values,
)
from tests.spark.streams import running, wait_until
from tests.spark.topics import (
    SECONDS_MAX,
    Record,
    add_partitions,
    create_topic,
    delete_records_before,
    delete_topic,
    new_producer,
    produce,
    send,
)

pytestmark = pytest.mark.spark


def stream(broker: RunningBroker, topic: str, **options: str) -> Source:
    given = {"subscribe": topic, "startingOffsets": "earliest", **options}
    return Source("kafka", broker.bootstrap, given)


def numbered(count: int, partition: int = 0, first: int = 0) -> list[Record]:
    return [Record(b"%d" % number, partition=partition) for number in range(first, first + count)]


@pytest.fixture
def folder(tmp_path: Path) -> StreamFolder:
    return StreamFolder(tmp_path)


def test_available_now_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker, partitions=2)
    for partition in range(2):
        produce(broker.bootstrap, topic, numbered(30, partition))
    source = stream(broker, topic, maxOffsetsPerTrigger="20")
    progress = run_available(spark, source, folder)
    assert [batch["numInputRows"] for batch in progress if batch["numInputRows"]] == [20, 20, 20]
    produce(broker.bootstrap, topic, numbered(5, 1, first=30))
    run_available(spark, source, folder)
    run_available(spark, source, folder)
    expected = [(0, offset) for offset in range(30)] + [(1, offset) for offset in range(35)]
    assert places(streamed_rows(spark, folder)) == expected


def test_records_are_seen_while_the_stream_runs(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    writer = (
        stream_frame(spark, stream(broker, topic, startingOffsets="latest"))
        .writeStream.format("parquet")
        .option("path", folder.output)
        .option("checkpointLocation", folder.checkpoint)
        .trigger(processingTime="0 seconds")
    )
    produce(broker.bootstrap, topic, numbered(3))
    with running(writer) as query:
        # The first micro-batch decides the offset of "latest"; empty ones are reported.
        wait_until(query, lambda: query.lastProgress is not None)
        produce(broker.bootstrap, topic, numbered(4, first=3))
        query.processAllAvailable()
        produce(broker.bootstrap, topic, numbered(2, first=7))
        query.processAllAvailable()
    assert values(streamed_rows(spark, folder)) == [b"%d" % n for n in range(3, 9)]


def test_only_what_is_committed(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    producer = new_producer(broker.bootstrap, {"transactional.id": f"{topic}-writer"})
    producer.init_transactions(SECONDS_MAX)
    source = stream(broker, topic, **{"kafka.isolation.level": "read_committed"})
    producer.begin_transaction()
    send(producer, topic, numbered(4))
    producer.abort_transaction(SECONDS_MAX)
    producer.begin_transaction()
    send(producer, topic, numbered(4, first=4))
    run_available(spark, source, folder)
    assert values(streamed_rows(spark, folder)) == []
    producer.commit_transaction(SECONDS_MAX)
    run_available(spark, source, folder)
    assert values(streamed_rows(spark, folder)) == [b"4", b"5", b"6", b"7"]


def test_partitions_that_are_added_are_read_from_their_start(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(3))
    run_available(spark, stream(broker, topic), folder)
    add_partitions(broker.bootstrap, topic, 3)
    for partition in range(3):
        produce(broker.bootstrap, topic, numbered(2, partition, first=10))
    run_available(spark, stream(broker, topic), folder)
    expected = [(0, n) for n in range(5)] + [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert places(streamed_rows(spark, folder)) == expected


def test_records_that_aged_out_fail_the_stream_or_are_skipped(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(5))
    run_available(spark, stream(broker, topic), folder)
    produce(broker.bootstrap, topic, numbered(10, first=5))
    delete_records_before(broker.bootstrap, topic, 0, 8)
    with pytest.raises(PySparkException, match=r"Could not read records in offset"):
        run_available(spark, stream(broker, topic), folder)
    run_available(spark, stream(broker, topic, failOnDataLoss="false"), folder)
    assert places(streamed_rows(spark, folder)) == [(0, n) for n in (*range(5), *range(8, 15))]


def test_a_topic_that_was_made_again_shorter_fails_the_stream(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(10))
    run_available(spark, stream(broker, topic), folder)
    delete_topic(broker.bootstrap, topic)
    create_topic(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, numbered(3))
    with pytest.raises(PySparkException, match=r"offset was changed from 10 to 3"):
        run_available(spark, stream(broker, topic), folder)
