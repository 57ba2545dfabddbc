"""Spark's own connector, `format("kafka")`, reads topics in batch: the same from both brokers."""

import json
from datetime import datetime, timedelta

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import NewTopic
from tests.spark.rows import Source, batch_frame, batch_rows, places, values
from tests.spark.topics import (
    SECONDS_MAX,
    Record,
    delete_records_before,
    new_producer,
    produce,
    send,
)

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - Spark's rows have no zone; the session's is UTC
FIRST_MS = 1_700_000_000_000

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int, headers array<struct<key:string,value:binary>>"
)


def kafka(broker: RunningBroker, topic: str, **options: str) -> Source:
    return Source("kafka", broker.bootstrap, {"subscribe": topic, **options})


def numbered(count: int, partition: int = 0, first: int = 0) -> list[Record]:
    """Records whose value is their number and whose timestamp goes up a second each."""
    return [
        Record(b"%d" % number, b"k%d" % number, partition, FIRST_MS + number * 1_000)
        for number in range(first, first + count)
    ]


def test_every_column(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(broker, partitions=2)
    headers = (("a", b"1"), ("a", None), ("", b""))
    records = [
        Record(b"value", b"key", 1, FIRST_MS + 7, headers),
        Record(None, None, 1, FIRST_MS + 8),
        Record(b"", b"", 0, FIRST_MS + 9),
    ]
    produce(broker.bootstrap, topic, records)
    frame = batch_frame(spark, kafka(broker, topic))
    assert frame.schema.simpleString() == spark.createDataFrame([], SCHEMA).schema.simpleString()
    empty = {"topic": topic, "timestampType": 0, "headers": None}
    when = EPOCH + timedelta(milliseconds=FIRST_MS)
    milliseconds = timedelta(milliseconds=1)
    assert batch_rows(spark, kafka(broker, topic)) == [
        {
            **empty,
            "key": b"",
            "value": b"",
            "partition": 0,
            "offset": 0,
            "timestamp": when + 9 * milliseconds,
        },
        {
            **empty,
            "key": b"key",
            "value": b"value",
            "partition": 1,
            "offset": 0,
            "timestamp": when + 7 * milliseconds,
            "headers": [
                {"key": "a", "value": b"1"},
                {"key": "a", "value": None},
                {"key": "", "value": b""},
            ],
        },
        {
            **empty,
            "key": None,
            "value": None,
            "partition": 1,
            "offset": 1,
            "timestamp": when + 8 * milliseconds,
        },
    ]


def test_the_brokers_timestamps(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker, config={"message.timestamp.type": "LogAppendTime"})
    produce(broker.bootstrap, topic, numbered(3))
    rows = batch_rows(spark, kafka(broker, topic))
    assert [row["timestampType"] for row in rows] == [1, 1, 1]
    assert all(row["timestamp"] > EPOCH + timedelta(milliseconds=FIRST_MS + 10**9) for row in rows)


def test_topics_by_pattern(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic) -> None:
    first, second, third = (new_topic(broker) for _ in range(3))
    for topic in (first, second, third):
        produce(broker.bootstrap, topic, numbered(2))
    pattern = Source("kafka", broker.bootstrap, {"subscribePattern": f"({first}|{third})"})
    rows = batch_rows(spark, pattern)
    assert {row["topic"] for row in rows} == {first, third}
    assert len(rows) == 4


def test_assigned_partitions(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker, partitions=3)
    for partition in range(3):
        produce(broker.bootstrap, topic, numbered(2, partition))
    assigned = Source("kafka", broker.bootstrap, {"assign": json.dumps({topic: [0, 2]})})
    assert places(batch_rows(spark, assigned)) == [(0, 0), (0, 1), (2, 0), (2, 1)]


def test_ranges_of_offsets(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(broker, partitions=3)
    for partition in range(3):
        produce(broker.bootstrap, topic, numbered(5, partition))
    starting = json.dumps({topic: {"0": 3, "1": -2, "2": 1}})
    ending = json.dumps({topic: {"0": -1, "1": 2, "2": 1}})
    source = kafka(broker, topic, startingOffsets=starting, endingOffsets=ending)
    assert places(batch_rows(spark, source)) == [(0, 3), (0, 4), (1, 0), (1, 1)]


def test_ranges_of_time(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(broker, partitions=2)
    for partition in range(2):
        produce(broker.bootstrap, topic, numbered(10, partition), codec="lz4")
    # Between two records; exactly a record's; behind the last.
    starting = json.dumps({topic: {"0": FIRST_MS + 3_500, "1": FIRST_MS + 8_000}})
    ending = json.dumps({topic: {"0": FIRST_MS + 6_000, "1": FIRST_MS + 99_000}})
    by_partition = kafka(
        broker, topic, startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending
    )
    assert places(batch_rows(spark, by_partition)) == [(0, 4), (0, 5), (1, 8), (1, 9)]
    for_all = kafka(broker, topic, startingTimestamp=str(FIRST_MS + 8_500))
    assert places(batch_rows(spark, for_all)) == [(0, 9), (1, 9)]


def test_a_time_behind_the_last_record(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(3))
    late = str(FIRST_MS + 99_000)
    with pytest.raises(PySparkException, match="No offset matched from request"):
        batch_rows(spark, kafka(broker, topic, startingTimestamp=late))
    lenient = {"startingOffsetsByTimestampStrategy": "latest", "startingTimestamp": late}
    assert batch_rows(spark, kafka(broker, topic, **lenient)) == []


def test_committed_records_only(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker)
    producer = new_producer(broker.bootstrap, {"transactional.id": f"{topic}-writer"})
    producer.init_transactions(SECONDS_MAX)
    for first in (0, 10, 20):
        producer.begin_transaction()
        send(producer, topic, numbered(5, first=first))
        if first == 10:
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.commit_transaction(SECONDS_MAX)
    producer.begin_transaction()
    send(producer, topic, numbered(2, first=30))
    committed = kafka(broker, topic, **{"kafka.isolation.level": "read_committed"})
    kept = [b"%d" % number for number in (*range(5), *range(20, 25))]
    # A marker takes an offset after each transaction.
    assert places(batch_rows(spark, committed)) == [
        (0, offset) for offset in (*range(5), *range(12, 17))
    ]
    assert values(batch_rows(spark, committed)) == kept
    assert len(batch_rows(spark, kafka(broker, topic))) == 17
    producer.abort_transaction(SECONDS_MAX)
    assert values(batch_rows(spark, committed)) == kept


def test_records_that_are_gone(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(10))
    delete_records_before(broker.bootstrap, topic, 0, 4)
    assert places(batch_rows(spark, kafka(broker, topic))) == [(0, n) for n in range(4, 10)]
    from_gone = kafka(broker, topic, startingOffsets=json.dumps({topic: {"0": 2}}))
    with pytest.raises(Py4JJavaError, match=r"Could not read records in offset \[2, 10\)"):
        batch_rows(spark, from_gone)
    lenient = {"failOnDataLoss": "false", **from_gone.options}
    found = batch_rows(spark, Source("kafka", broker.bootstrap, lenient))
    assert places(found) == [(0, n) for n in range(4, 10)]


def test_a_range_is_split_into_tasks(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(1_000), codec="zstd")
    source = kafka(broker, topic, minPartitions="4")
    assert batch_frame(spark, source).rdd.getNumPartitions() == 4
    assert places(batch_rows(spark, source)) == [(0, n) for n in range(1_000)]


def test_offsets_fetched_by_a_consumer_group(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    """The old way, which users can still choose: the driver joins a group to learn partitions."""
    topic = new_topic(broker, partitions=2)
    for partition in range(2):
        produce(broker.bootstrap, topic, numbered(3, partition))
    old = {"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"}
    for name, value in old.items():
        spark.conf.set(name, value)
    try:
        rows = batch_rows(spark, kafka(broker, topic, groupIdPrefix="old-way"))
    finally:
        for name in old:
            spark.conf.unset(name)
    assert places(rows) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
