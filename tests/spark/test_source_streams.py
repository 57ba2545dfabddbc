"""`format("penstock")` as a stream: the checks of Spark's suite for its Kafka source, and more."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import BrokerNamed, NewTopic
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
    Writer,
    add_partitions,
    create_topic,
    delete_records_before,
    delete_topic,
    new_producer,
    produce,
    send,
)

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000


def stream(broker: RunningBroker, topic: str, **options: str) -> Source:
    what = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": topic}
    starts = {"startingTimestamp", "startingOffsetsByTimestamp"} & options.keys()
    where = {} if starts else {"startingOffsets": "earliest"}
    return Source("penstock", broker.bootstrap, {**what, **where, **options})


def numbered(count: int, partition: int = 0, first: int = 0) -> list[Record]:
    return [
        Record(b"%d" % number, partition=partition, timestamp_ms=DAY_MS + number)
        for number in range(first, first + count)
    ]


def all_of(*counts: int) -> list[tuple[int, int]]:
    return [(partition, n) for partition, count in enumerate(counts) for n in range(count)]


@pytest.fixture(scope="module")
def penstock(broker_named: BrokerNamed) -> RunningBroker:
    return broker_named("penstock")


@pytest.fixture
def folder(tmp_path: Path) -> StreamFolder:
    return StreamFolder(tmp_path)


def to_parquet(frame: DataFrame, folder: StreamFolder) -> DataStreamWriter:
    return (
        frame.writeStream.format("parquet")
        .option("path", folder.output)
        .option("checkpointLocation", folder.checkpoint)
        .trigger(processingTime="0 seconds")
    )


def last_offsets(folder: StreamFolder) -> list[dict[str, object]]:
    """The offset documents of the checkpoint, in the order of the batches."""
    logs = sorted(
        (path for path in Path(folder.checkpoint, "offsets").iterdir() if path.name.isdecimal()),
        key=lambda path: int(path.name),
    )
    return [json.loads(path.read_text().splitlines()[2]) for path in logs]


def forget_last_commit(folder: StreamFolder) -> None:
    """The checkpoint as it was before the last batch was committed."""
    commits = Path(folder.checkpoint, "commits")
    last = max((p for p in commits.iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink()


def test_available_now_goes_on_from_its_checkpoint(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker, partitions=3)
    produce(broker.bootstrap, topic, [*numbered(30), *numbered(30, 1)])
    source = stream(broker, topic, maxOffsetsPerTrigger="20")
    progress = run_available(spark, source, folder)
    assert [batch["numInputRows"] for batch in progress if batch["numInputRows"]] == [20, 20, 20]
    produce(broker.bootstrap, topic, numbered(5, 1, first=30))
    (batch,) = [one for one in run_available(spark, source, folder) if one["numInputRows"]]
    assert batch["numInputRows"] == 5
    batches = len(last_offsets(folder))
    run_available(spark, source, folder)
    assert len(last_offsets(folder)) == batches, "without news there is no batch"
    assert places(streamed_rows(spark, folder)) == all_of(30, 35)
    (reported,) = batch["sources"]
    for name in ("startOffset", "endOffset", "latestOffset"):
        assert json.loads(reported[name])["topics"][topic]["topic_id"]
    latest = json.loads(reported["latestOffset"])
    assert latest["topics"][topic]["partitions"]["1"]["offset"] == 35


def test_a_batch_is_repeated_after_its_commit_is_lost(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker, partitions=2)
    produce(broker.bootstrap, topic, [*numbered(20), *numbered(10, 1)])
    source = stream(broker, topic)
    run_available(spark, source, folder)
    forget_last_commit(folder)
    shutil.rmtree(folder.output)
    produce(broker.bootstrap, topic, numbered(7, 0, first=20))
    progress = run_available(spark, source, folder)
    assert [batch["numInputRows"] for batch in progress] == [30, 7]
    assert places(streamed_rows(spark, folder)) == all_of(27, 10)


def test_a_first_batch_from_the_latest_is_repeated_as_it_was(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(penstock)
    produce(penstock.bootstrap, topic, numbered(10))
    source = stream(penstock, topic, startingOffsets="latest")
    run_available(spark, source, folder)
    forget_last_commit(folder)
    produce(penstock.bootstrap, topic, numbered(5, first=10))
    run_available(spark, source, folder)
    assert places(streamed_rows(spark, folder)) == [(0, n) for n in range(10, 15)]


def test_records_are_seen_while_the_stream_runs(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(3))
    source = stream(broker, topic, startingOffsets="latest")
    writer = Writer(broker.bootstrap)
    with running(to_parquet(stream_frame(spark, source), folder)) as query:
        wait_until(query, lambda: query.lastProgress is not None)
        for first in (3, 8):
            writer.produce(topic, numbered(5, first=first))
            wait_until(query, partial(has_read, query, topic, first + 5))
        add_partitions(broker.bootstrap, topic, 2)
        produce(broker.bootstrap, topic, numbered(4, 1))
        wait_until(query, lambda: end_of(query, topic, 1) == 4)
    assert places(streamed_rows(spark, folder)) == [(0, n) for n in range(3, 13)] + all_of(0, 4)


def has_read(query: StreamingQuery, topic: str, end: int) -> bool:
    return end_of(query, topic) == end


def end_of(query: StreamingQuery, topic: str, partition: int = 0) -> int | None:
    """Where the last batch ended."""
    progress = query.lastProgress
    if progress is None:
        return None
    topics = json.loads(progress["sources"][0]["endOffset"])["topics"]
    place = topics.get(topic, {}).get("partitions", {}).get(str(partition))
    return None if place is None else int(place["offset"])


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("subscribe", "latest"),
        ("assign", "offsets"),
        ("subscribePattern", "time"),
        ("subscribe", "times"),
    ],
)
def test_where_a_stream_starts(
    spark: SparkSession,
    penstock: RunningBroker,
    new_topic: NewTopic,
    folder: StreamFolder,
    kind: str,
    where: str,
) -> None:
    topic = new_topic(penstock, partitions=2)
    produce(penstock.bootstrap, topic, [*numbered(10), *numbered(10, 1)])
    what = {
        "subscribe": topic,
        "subscribePattern": f"{topic}$",
        "assign": f'{{"{topic}":[0,1]}}',
    }[kind]
    at = {
        "latest": {"startingOffsets": "latest"},
        "offsets": {"startingOffsets": f'{{"{topic}":{{"0":-2,"1":8}}}}'},
        "time": {"startingTimestamp": str(DAY_MS + 6)},
        "times": {"startingOffsetsByTimestamp": f'{{"{topic}":{{"0":{DAY_MS + 9},"1":{DAY_MS}}}}}'},
    }[where]
    source = stream(penstock, topic, **{kind: what}, **at)
    run_available(spark, source, folder)
    produce(penstock.bootstrap, topic, numbered(1, 0, first=10))
    run_available(spark, source, folder)
    starts = {"latest": (10, 10), "offsets": (0, 8), "time": (6, 6), "times": (9, 0)}[where]
    expected = [(0, n) for n in range(starts[0], 11)] + [(1, n) for n in range(starts[1], 10)]
    assert places(streamed_rows(spark, folder)) == expected


def test_limits(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(penstock, partitions=2)
    payload = [Record(b"x" * 1000, partition=n % 2) for n in range(200)]
    produce(penstock.bootstrap, topic, payload)
    source = stream(penstock, topic, maxBytesPerTrigger="50k")
    progress = run_available(spark, source, folder)
    counts = [batch["numInputRows"] for batch in progress if batch["numInputRows"]]
    assert sum(counts) == 200
    assert 4 <= len(counts) <= 6, counts
    produce(penstock.bootstrap, topic, [Record(b"y")])
    both = stream(
        penstock, topic, minOffsetsPerTrigger="10", maxTriggerDelay="1h", maxOffsetsPerTrigger="15"
    )
    # Records that are available now are read now, and a minimum does not delay them.
    assert sum(one["numInputRows"] for one in run_available(spark, both, folder)) == 1


def test_a_minimum_holds_batches_back(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(penstock)
    writer = Writer(penstock.bootstrap)
    writer.produce(topic, numbered(3))
    source = stream(penstock, topic, minOffsetsPerTrigger="10", maxTriggerDelay="10m")
    with running(to_parquet(stream_frame(spark, source), folder)) as query:
        wait_until(query, lambda: end_of(query, topic) == 3)
        writer.produce(topic, numbered(6, first=3))
        seen = len(query.recentProgress)
        wait_until(query, lambda: query.status["message"].startswith("Waiting for data"))
        assert len(query.recentProgress) == seen
        writer.produce(topic, numbered(6, first=9))
        wait_until(query, lambda: end_of(query, topic) == 15)


def test_a_recreated_topic(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(10))
    run_available(spark, stream(broker, topic), folder)
    delete_topic(broker.bootstrap, topic)
    create_topic(broker.bootstrap, topic)
    # It has more records than the old one: by offsets alone nothing would look wrong.
    produce(broker.bootstrap, topic, numbered(25, first=100))
    with pytest.raises(PySparkException, match="deleted and created again"):
        run_available(spark, stream(broker, topic), folder)
    lenient = stream(broker, topic, failOnDataLoss="false")
    (batch,) = [one for one in run_available(spark, lenient, folder) if one["numInputRows"]]
    assert batch["numInputRows"] == 25
    assert json.loads(batch["sources"][0]["latestOffset"])["skipped"]["partitions"] == 1
    found = values(streamed_rows(spark, folder))
    assert sorted(found, key=int) == [b"%d" % n for n in (*range(10), *range(100, 125))]


def test_removed_records(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, numbered(10))
    run_available(spark, stream(broker, topic), folder)
    produce(broker.bootstrap, topic, numbered(20, first=10))
    delete_records_before(broker.bootstrap, topic, 0, 18)
    with pytest.raises(PySparkException, match="offsets 10 to 17"):
        run_available(spark, stream(broker, topic), folder)
    run_available(spark, stream(broker, topic, failOnDataLoss="false"), folder)
    assert places(streamed_rows(spark, folder)) == [(0, n) for n in (*range(10), *range(18, 30))]


def test_deleted_topics_of_a_pattern(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    one, two = new_topic(penstock), new_topic(penstock)
    for topic in (one, two):
        produce(penstock.bootstrap, topic, numbered(5))
    pattern = {"subscribePattern": f"^({one}|{two})$", "fetchOffset.retryIntervalMs": "10"}
    run_available(spark, stream(penstock, one, **pattern), folder)
    delete_topic(penstock.bootstrap, two)
    produce(penstock.bootstrap, one, numbered(2, first=5))
    with pytest.raises(PySparkException, match=f"{two}-0 does not exist any more"):
        run_available(spark, stream(penstock, one, **pattern), folder)
    run_available(spark, stream(penstock, one, failOnDataLoss="false", **pattern), folder)
    assert len(streamed_rows(spark, folder)) == 12


def test_another_cluster(
    spark: SparkSession, broker_named: BrokerNamed, new_topic: NewTopic, folder: StreamFolder
) -> None:
    ours, theirs = broker_named("penstock"), broker_named("kafka")
    topic = new_topic(ours)
    create_topic(theirs.bootstrap, topic)
    for broker in (ours, theirs):
        produce(broker.bootstrap, topic, numbered(5))
    run_available(spark, stream(ours, topic), folder)
    with pytest.raises(PySparkException, match="the checkpoint is of cluster"):
        run_available(spark, stream(theirs, topic), folder)
    run_available(spark, stream(theirs, topic, failOnDataLoss="false"), folder)
    assert len(streamed_rows(spark, folder)) == 10


def test_a_query_moves_here_with_its_checkpoint(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker, partitions=2)
    produce(broker.bootstrap, topic, [*numbered(10), *numbered(10, 1)])
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
    run_available(spark, Source("kafka", broker.bootstrap, options), folder)
    produce(broker.bootstrap, topic, numbered(10, 0, first=10))
    run_available(spark, Source("penstock", broker.bootstrap, options), folder)
    assert places(streamed_rows(spark, folder)) == all_of(20, 10)
    assert last_offsets(folder)[-1]["version"] == 1


def test_transactions(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    topic = new_topic(broker)
    committed = stream(broker, topic, **{"kafka.isolation.level": "read_committed"})
    producer = new_producer(broker.bootstrap, {"transactional.id": f"writer-{topic}"})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    send(producer, topic, numbered(5))
    run_available(spark, committed, folder)
    producer.commit_transaction(SECONDS_MAX)
    run_available(spark, committed, folder)
    assert len(streamed_rows(spark, folder)) == 5
    producer.begin_transaction()
    send(producer, topic, numbered(5, first=5))
    producer.abort_transaction(SECONDS_MAX)
    run_available(spark, committed, folder)
    assert places(streamed_rows(spark, folder)) == all_of(5)


def test_the_position_of_a_stream_is_where_sparks_own_would_be(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(penstock, partitions=3)
    produce(penstock.bootstrap, topic, [*numbered(7), *numbered(40, 1)])
    found = {}
    for name in ("kafka", "penstock"):
        folder = StreamFolder(tmp_path / name)
        options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "9"}
        run_available(spark, Source(name, penstock.bootstrap, options), folder)
        found[name] = last_offsets(folder)
    ours = [
        {
            name: {index: place["offset"] for index, place in one["partitions"].items()}
            for name, one in document["topics"].items()  # type: ignore[attr-defined]
        }
        for document in found["penstock"]
    ]
    assert ours == found["kafka"]


def test_two_sources_and_a_watermark(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    one, two = new_topic(penstock), new_topic(penstock)
    writer = Writer(penstock.bootstrap)
    writer.produce(one, numbered(20))
    writer.produce(two, [Record(b"%d" % n, timestamp_ms=DAY_MS + n) for n in range(0, 20, 2)])
    left, right = (
        stream_frame(spark, stream(penstock, topic))
        .selectExpr("CAST(value AS STRING) AS value", "timestamp")
        .withWatermark("timestamp", "10 seconds")
        for topic in (one, two)
    )
    joined = left.alias("l").join(
        right.alias("r"), f.expr("l.value = r.value AND l.timestamp = r.timestamp")
    )
    query = (
        joined.select(f.col("l.value").alias("value"))
        .writeStream.format("parquet")
        .option("path", folder.output)
        .option("checkpointLocation", folder.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    rows = spark.read.parquet(folder.output).collect()
    assert sorted(int(row["value"]) for row in rows) == list(range(0, 20, 2))


def test_an_end_is_refused(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    source = stream(penstock, new_topic(penstock), endingOffsets="latest")
    with pytest.raises(PySparkException, match="a stream has no end"):
        run_available(spark, source, folder)


def test_topics_and_partitions_come_while_it_runs(
    spark: SparkSession, penstock: RunningBroker, new_topic: NewTopic, folder: StreamFolder
) -> None:
    prefix = new_topic(penstock)
    expected = 0
    names = []
    for number in range(4):
        name = f"{prefix}-{number}"
        create_topic(penstock.bootstrap, name)
        names.append(name)
        for topic in names:
            add_partitions(penstock.bootstrap, topic, number + 2)
            produce(penstock.bootstrap, topic, numbered(3, number + 1))
            produce(penstock.bootstrap, topic, numbered(2))
            expected += 5
        source = stream(penstock, prefix, subscribePattern=f"^{prefix}", minPartitions="7")
        run_available(spark, source, folder)
    rows = streamed_rows(spark, folder)
    assert len(rows) == expected
    assert len({(row["topic"], row["partition"], row["offset"]) for row in rows}) == expected
