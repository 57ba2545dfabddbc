"""Spark's own connector writes topics, in batch and as a stream: the same to both brokers."""

from pathlib import Path

import pytest
from confluent_kafka import Message
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import NewTopic
from tests.spark.rows import Source, stream_frame
from tests.spark.streams import topic_reader
from tests.spark.topics import Record, produce

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]

COLUMNS = (
    "topic string, partition int, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write(frame: DataFrame, broker: RunningBroker, **options: str) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap, "includeHeaders": "true"}
    frame.write.format("kafka").options(**given, **options).save()


def told(message: Message) -> tuple[object, ...]:
    return (message.partition(), message.key(), message.value(), message.headers())


def test_every_column_is_written(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker, partitions=2)
    rows = [
        (topic, 0, b"key", b"value", [("a", b"1"), ("a", None)]),
        (topic, 1, None, None, None),
        (topic, 1, b"", b"", []),
    ]
    write(spark.createDataFrame(rows, COLUMNS).coalesce(1), broker)
    with topic_reader(broker.bootstrap, topic, partitions=2) as reader:
        found = sorted((told(message) for message in reader.wait_for(3)), key=repr)
    assert found == [
        (0, b"key", b"value", [("a", b"1"), ("a", None)]),
        (1, None, None, None),
        (1, b"", b"", None),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_many_records_with_each_codec(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic(broker, partitions=3)
    frame = spark.range(2_000).select(
        f.col("id").cast("string").alias("key"),
        f.repeat(f.col("id").cast("string"), 20).alias("value"),
    )
    write(frame, broker, topic=topic, **{"kafka.compression.type": codec})
    with topic_reader(broker.bootstrap, topic, partitions=3) as reader:
        messages = reader.wait_for(2_000)
    assert sorted(int(message.key() or b"") for message in messages) == list(range(2_000))
    assert all(message.value() == (message.key() or b"") * 20 for message in messages)
    assert {message.partition() for message in messages} == {0, 1, 2}


def test_a_stream_from_topic_to_topic(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(broker, partitions=2), new_topic(broker)
    records = [Record(b"%d" % number, b"k", number % 2) for number in range(100)]
    produce(broker.bootstrap, source, records, codec="zstd")
    given = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    frame = stream_frame(spark, Source("kafka", broker.bootstrap, given))
    query = (
        frame.select("key", f.concat(f.lit("seen "), f.col("value").cast("string")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    with topic_reader(broker.bootstrap, target) as reader:
        found = {message.value() for message in reader.wait_for(100)}
    assert found == {b"seen %d" % number for number in range(100)}


def test_a_topic_that_is_not_there_is_refused(spark: SparkSession, broker: RunningBroker) -> None:
    frame = spark.createDataFrame([("x",)], "value string")
    with pytest.raises(Py4JJavaError, match="Topic nowhere not present in metadata"):
        write(frame, broker, topic="nowhere", **{"kafka.max.block.ms": "2000"})
