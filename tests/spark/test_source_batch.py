"""`format("penstock")` in batch: the rows between two positions, and rejected options."""

from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import BrokerNamed, NewTopic
from tests.spark.rows import Source, batch_frame, batch_rows, places, values
from tests.spark.topics import SECONDS_MAX, Record, delete_records_before, new_producer, produce

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000


def source(broker: RunningBroker, topic: str, **options: str) -> Source:
    given = options if {"assign", "subscribePattern"} & options.keys() else {"subscribe": topic}
    return Source("penstock", broker.bootstrap, {**given, **options})


def numbered(count: int, partition: int = 0, first: int = 0) -> list[Record]:
    return [
        Record(b"%d" % number, partition=partition, timestamp_ms=DAY_MS + number)
        for number in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def penstock(broker_named: BrokerNamed) -> RunningBroker:
    return broker_named("penstock")


def test_every_column(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(broker, partitions=2)
    records = [
        Record(b"value", b"key", 1, DAY_MS, (("a", b"1"), ("a", None), ("b", b""))),
        Record(None, None, 1, DAY_MS + 1),
        Record(b"", b"", 1, DAY_MS + 2),
    ]
    produce(broker.bootstrap, topic, records, codec="zstd")
    frame = batch_frame(spark, source(broker, topic))
    assert [(name, kind) for name, kind in frame.dtypes] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second, third = batch_rows(spark, source(broker, topic))
    assert first | {"timestamp": None} == {
        "key": b"key",
        "value": b"value",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": None,
        "timestampType": 0,
        "headers": [
            {"key": "a", "value": b"1"},
            {"key": "a", "value": None},
            {"key": "b", "value": b""},
        ],
    }
    assert first["timestamp"].replace(tzinfo=UTC) == datetime(1970, 1, 2, tzinfo=UTC)
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)
    assert (third["key"], third["value"]) == (b"", b"")
    without = batch_frame(spark, source(broker, topic, includeHeaders="false"))
    assert "headers" not in without.columns


def test_parts_of_topics(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(broker, partitions=2)
    produce(broker.bootstrap, topic, [*numbered(10), *numbered(5, 1)])

    def read(**options: str) -> list[tuple[int, int]]:
        return places(batch_rows(spark, source(broker, topic, **options)))

    everything = [(0, n) for n in range(10)] + [(1, n) for n in range(5)]
    assert read() == everything
    assert read(subscribePattern=f"^{topic}$") == everything
    assert read(assign=f'{{"{topic}":[1]}}') == everything[10:]
    assert read(
        startingOffsets=f'{{"{topic}":{{"0":8,"1":-2}}}}',
        endingOffsets=f'{{"{topic}":{{"0":-1,"1":2}}}}',
    ) == [(0, 8), (0, 9), (1, 0), (1, 1)]
    # The first record at or after the time, until the first at or after the other.
    times = {"startingTimestamp": str(DAY_MS + 3), "endingTimestamp": str(DAY_MS + 7)}
    assert read(**times) == [(0, n) for n in range(3, 7)] + [(1, 3), (1, 4)]
    by_partition = {
        "startingOffsetsByTimestamp": f'{{"{topic}":{{"0":{DAY_MS + 9},"1":{DAY_MS + 4}}}}}'
    }
    assert read(**by_partition) == [(0, 9), (1, 4)]
    with pytest.raises(PySparkException, match="startingOffsetsByTimestampStrategy"):
        read(startingTimestamp=str(DAY_MS + 6))
    late = read(startingTimestamp=str(DAY_MS + 6), startingOffsetsByTimestampStrategy="latest")
    assert late == [(0, n) for n in range(6, 10)]


def test_tasks(spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(penstock, partitions=3)
    produce(penstock.bootstrap, topic, [*numbered(100), *numbered(10, 1)])

    def tasks(**options: str) -> int:
        frame = batch_frame(spark, source(penstock, topic, **options))
        found = frame.groupBy(f.spark_partition_id()).count().collect()
        assert sum(row[1] for row in found) == 110
        return len(found)

    assert tasks() == 2, "an empty partition needs no task"
    assert tasks(minPartitions="2") == 2
    assert tasks(minPartitions="6") == 6
    assert tasks(maxRecordsPerPartition="25") == 5
    assert tasks(maxBytesPerPartition="200") > 5
    assert tasks(**{"kafka.max.partition.fetch.bytes": "100"}) == 2


def test_transactions(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(broker)
    producer = new_producer(broker.bootstrap, {"transactional.id": f"writer-{topic}"})
    producer.init_transactions(SECONDS_MAX)
    for kind in ("commit", "abort", "commit", "abort"):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, kind.encode(), partition=0)
        producer.flush(SECONDS_MAX)
        if kind == "commit":
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)
    committed = source(broker, topic, **{"kafka.isolation.level": "read_committed"})
    assert values(batch_rows(spark, committed)) == [b"commit"] * 6
    assert len(batch_rows(spark, source(broker, topic))) == 12
    # A range of nothing but an aborted transaction and markers ends all the same.
    tail = {
        "startingOffsets": f'{{"{topic}":{{"0":12}}}}',
        "kafka.isolation.level": "read_committed",
    }
    assert batch_rows(spark, source(broker, topic, **tail)) == []


def test_nothing_to_read(spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(penstock, partitions=2)
    assert batch_rows(spark, source(penstock, topic)) == []
    assert batch_rows(spark, source(penstock, topic, subscribePattern="no-such-topic")) == []


def test_a_limit_stops_reading(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(penstock)
    produce(penstock.bootstrap, topic, numbered(1000))
    rows = batch_frame(spark, source(penstock, topic)).limit(3).collect()
    assert len(rows) == 3


def test_lost_records(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(20))
    delete_records_before(broker.bootstrap, topic, 0, 12)
    early = {"startingOffsets": f'{{"{topic}":{{"0":5}}}}'}
    with pytest.raises(PySparkException, match=r"offsets 5 to 11 .* were removed"):
        batch_rows(spark, source(broker, topic, **early))
    lenient = source(broker, topic, failOnDataLoss="false", **early)
    assert places(batch_rows(spark, lenient)) == [(0, n) for n in range(12, 20)]
    assert places(batch_rows(spark, source(broker, topic))) == [(0, n) for n in range(12, 20)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"startingOffset": "earliest"}, "Did you mean 'startingOffsets'"),
        ({"startingOffsets": "latest"}, "a batch cannot start at the latest"),
        ({"kafka.auto.offset.reset": "earliest"}, "Set startingOffsets"),
        ({"subscribe": "no-such-topic"}, "'subscribe': there is no topic 'no-such-topic'"),
        ({"assign": '{"no-such-topic":[0]}'}, "'assign': it cannot be set together with subscribe"),
        ({"kafka.security.protocol": "TLS"}, r"kafka\.security\.protocol"),
    ],
)
def test_what_is_wrong_is_named(
    spark: SparkSession,
    penstock: RunningBroker,
    new_topic: NewTopic,
    options: dict[str, str],
    text: str,
) -> None:
    given = {"subscribe": new_topic(penstock), **options}
    with pytest.raises(PySparkException, match=text):
        batch_rows(spark, Source("penstock", penstock.bootstrap, given))


def test_the_columns_are_fixed(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic
) -> None:
    reader = spark.read.format("penstock").schema("value STRING")
    options = {"kafka.bootstrap.servers": penstock.bootstrap, "subscribe": new_topic(penstock)}
    with pytest.raises(PySparkException, match="Leave schema"):
        reader.options(**options).load().collect()
