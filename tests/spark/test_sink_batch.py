"""`df.write.format("penstock")`: the same records as Spark's own connector, on both brokers."""

import pytest
from confluent_kafka import Message
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import BrokerNamed, NewTopic
from tests.spark.streams import topic_reader

pytestmark = pytest.mark.spark

COLUMNS = (
    "topic string, partition int, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write(
    frame: DataFrame, broker: RunningBroker, *, connector: str = "penstock", **options: str
) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap}
    frame.write.format(connector).mode("append").options(**given, **options).save()


def told(message: Message) -> tuple[object, ...]:
    return (message.partition(), message.key(), message.value(), message.headers())


@pytest.mark.every_spark
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


def test_both_connectors_write_the_same(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    """Keys go to the same partitions, in the same order."""
    frame = (
        spark.range(3_000)
        .select(
            f.concat(f.lit("key-"), f.col("id") % 500).alias("key"),
            f.repeat(f.col("id").cast("string"), 10).cast("binary").alias("value"),
            f.expr(
                "array(struct('n' AS key, cast(cast(id AS string) AS binary) AS value)) AS headers"
            ),
            f.col("id").alias("ignored"),
        )
        .coalesce(1)
    )
    found = []
    for connector in ("kafka", "penstock"):
        topic = new_topic(broker, partitions=4)
        write(frame, broker, connector=connector, topic=topic)
        with topic_reader(broker.bootstrap, topic, partitions=4) as reader:
            messages = reader.wait_for(3_000)
        found.append([[told(one) for one in messages if one.partition() == n] for n in range(4)])
    assert found[0] == found[1]
    assert all(found[1])


@pytest.mark.parametrize("codec", CODECS)
def test_many_records_with_each_codec(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic(broker, partitions=3)
    frame = spark.range(2_000).select(
        f.col("id").cast("string").alias("key"),
        f.repeat(f.col("id").cast("string"), 20).alias("value"),
    )
    options = {"kafka.compression.type": codec, "kafka.batch.size": "4096"}
    write(frame, broker, topic=topic, **options)
    with topic_reader(broker.bootstrap, topic, partitions=3) as reader:
        messages = reader.wait_for(2_000)
    assert sorted(int(message.key() or b"") for message in messages) == list(range(2_000))
    assert all(message.value() == (message.key() or b"") * 20 for message in messages)
    assert {message.partition() for message in messages} == {0, 1, 2}


def test_rows_go_to_the_topics_that_they_name(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topics = [new_topic(broker) for _ in range(3)]
    rows = [(topics[number % 3], f"{number}") for number in range(300)]
    frame = spark.createDataFrame(rows, "topic string, value string")
    write(frame, broker)
    for place, topic in enumerate(topics):
        with topic_reader(broker.bootstrap, topic) as reader:
            values = [int(message.value() or b"") for message in reader.wait_for(100)]
        assert sorted(values) == list(range(place, 300, 3))


def test_the_option_wins_over_the_column(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker)
    frame = spark.createDataFrame([("other", "x"), (None, "y")], "topic string, value string")
    write(frame, broker, topic=topic)
    with topic_reader(broker.bootstrap, topic) as reader:
        assert sorted(one.value() or b"" for one in reader.wait_for(2)) == [b"x", b"y"]


@pytest.mark.parametrize("acks", ["1", "0"])
def test_less_than_all_acks(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, acks: str
) -> None:
    topic = new_topic(broker)
    frame = spark.range(100).selectExpr("cast(id AS string) AS value")
    write(frame, broker, topic=topic, **{"kafka.acks": acks})
    with topic_reader(broker.bootstrap, topic) as reader:
        assert len(reader.wait_for(100)) == 100


# --- Rejected writes ---


@pytest.fixture
def one_broker(broker_named: BrokerNamed) -> RunningBroker:
    return broker_named("penstock")


def test_a_row_without_a_topic_is_told(spark: SparkSession, one_broker: RunningBroker) -> None:
    frame = spark.createDataFrame([(None, "x")], "topic string, value string")
    with pytest.raises(Exception, match="the column `topic` is null"):
        write(frame, one_broker)


@pytest.mark.parametrize(
    ("columns", "options", "problem"),
    [
        ("key string", {"topic": "t"}, "no column `value`"),
        ("value string", {}, "nothing says where to write"),
        ("value int", {"topic": "t"}, "the column `value` is int"),
        ("value string, key bigint", {"topic": "t"}, "the column `key` is bigint"),
        ("value string, partition bigint", {"topic": "t"}, "the column `partition` is bigint"),
        ("value string, headers string", {"topic": "t"}, "the column `headers` is string"),
        ("value string", {"topic": "t", "kafka.acks": "2"}, "kafka.acks"),
        ("value string", {"topic": "t", "kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ("value string", {"topic": "t", "deliveryGuarantee": "exactly-once"}, "writeStream"),
    ],
)
def test_what_cannot_be_written_is_told(
    spark: SparkSession,
    one_broker: RunningBroker,
    columns: str,
    options: dict[str, str],
    problem: str,
) -> None:
    frame = spark.createDataFrame([], columns)
    with pytest.raises((AnalysisException, PythonException), match=problem):
        write(frame, one_broker, **options)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, one_broker: RunningBroker) -> None:
    frame = spark.createDataFrame([("x",)], "value string")
    writer = frame.write.format("penstock").mode("overwrite")
    options = {"kafka.bootstrap.servers": one_broker.bootstrap, "topic": "t"}
    with pytest.raises(AnalysisException, match="cannot be overwritten"):
        writer.options(**options).save()


def test_a_topic_that_is_not_there_is_told(spark: SparkSession, broker: RunningBroker) -> None:
    frame = spark.createDataFrame([("x",)], "value string")
    with pytest.raises(Exception, match="there is no topic nowhere"):
        write(frame, broker, topic="nowhere")


def test_a_row_that_is_too_large_is_told(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    topic = new_topic(broker, config={"max.message.bytes": "10000"})
    frame = spark.range(1).select(f.lit("x" * 20_000).alias("value"))
    with pytest.raises(Exception, match=r"kafka\.batch\.size"):
        write(frame, broker, topic=topic)
