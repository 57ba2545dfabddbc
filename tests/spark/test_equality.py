"""`format("penstock")` and Spark's own `format("kafka")` return the same rows.

The set of topics is in `topic_set`: all codecs, compacted, transactional with aborts, empty
partitions, headers, nulls, timestamps of both types, from 1582 on and none at all, records larger
than a fetch. Every topic is read by both connectors from both brokers, in batch and as a stream,
with both isolation levels, and compared row by row.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import BrokerNamed, NewTopic
from tests.spark.rows import (
    Row,
    Source,
    StreamFolder,
    batch_frame,
    batch_rows,
    run_available,
    stream_frame,
    streamed_rows,
)
from tests.spark.topic_set import CALENDAR_FIRST_MS, OPEN_BOUNDS, TopicSet, topic_set
from tests.spark.topics import Record, produce

pytestmark = [pytest.mark.spark, pytest.mark.every_spark]

PREFIX = "equality"
DAY_MS = 86_400_000
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
OFFSETS_PER_TRIGGER = "5000"
"""Less than the set holds: a stream takes several micro-batches."""

TopicsOn = Callable[[RunningBroker], TopicSet]


@pytest.fixture(scope="module")
def topics_on() -> Iterator[TopicsOn]:
    """The set of topics, made at its first use on each broker."""
    made: dict[str, TopicSet] = {}
    with ExitStack() as stack:

        def topics(broker: RunningBroker) -> TopicSet:
            if broker.name not in made:
                made[broker.name] = stack.enter_context(topic_set(broker.bootstrap, PREFIX))
            return made[broker.name]

        yield topics


def everything(format: str, broker: RunningBroker, isolation: str, **more: str) -> Source:  # noqa: A002
    options = {
        "subscribePattern": f"{PREFIX}-.*",
        "startingOffsets": "earliest",
        "kafka.isolation.level": isolation,
        **more,
    }
    return Source(format, broker.bootstrap, options)


def assert_same(found: list[Row], expected: list[Row]) -> None:
    """Row by row; the first that differs is shown, not ten thousand."""
    for ours, theirs in zip(found, expected, strict=False):
        assert ours == theirs
    assert len(found) == len(expected)


def assert_whole(rows: list[Row], topics: TopicSet, isolation: str) -> None:
    """What was produced is there: two readers that both miss records would agree, too."""
    counts = Counter(row["topic"] for row in rows)
    kept = [row["offset"] for row in rows if row["topic"] == topics.compacted]
    assert 0 < counts.pop(topics.compacted) < kept[-1] - kept[0], "nothing was compacted"
    is_committed = isolation == "read_committed"
    expected = topics.committed_counts if is_committed else topics.all_counts
    assert counts == {topic: count for topic, count in expected.items() if count}


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
def test_a_batch_is_equal(
    spark: SparkSession, broker: RunningBroker, topics_on: TopicsOn, isolation: str
) -> None:
    topics = topics_on(broker)
    theirs = batch_rows(spark, everything("kafka", broker, isolation))
    assert_whole(theirs, topics, isolation)
    assert_same(batch_rows(spark, everything("penstock", broker, isolation)), theirs)


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
def test_a_stream_is_equal(
    spark: SparkSession,
    broker: RunningBroker,
    topics_on: TopicsOn,
    isolation: str,
    tmp_path: Path,
) -> None:
    topics = topics_on(broker)
    rows = {}
    for format_name in ("kafka", "penstock"):
        source = everything(
            format_name, broker, isolation, maxOffsetsPerTrigger=OFFSETS_PER_TRIGGER
        )
        folder = StreamFolder(tmp_path / format_name)
        batches = run_available(spark, source, folder)
        assert sum(1 for batch in batches if batch["numInputRows"]) > 1, "one batch tells little"
        rows[format_name] = streamed_rows(spark, folder)
    assert_whole(rows["kafka"], topics, isolation)
    assert_same(rows["penstock"], rows["kafka"])


@pytest.mark.parametrize("headers", ["true", "false"])
def test_the_columns_are_equal(
    spark: SparkSession, broker: RunningBroker, topics_on: TopicsOn, headers: str
) -> None:
    topics_on(broker)
    more = {"includeHeaders": headers}
    ours, theirs = (
        everything(name, broker, "read_committed", **more) for name in ("penstock", "kafka")
    )
    assert batch_frame(spark, ours).schema == batch_frame(spark, theirs).schema
    assert stream_frame(spark, ours).schema == stream_frame(spark, theirs).schema


def test_both_brokers_give_the_same_rows(
    spark: SparkSession, broker_named: BrokerNamed, topics_on: TopicsOn
) -> None:
    """Except for what a broker decides by itself: its timestamps, and what a cleaner keeps."""
    by_broker = []
    for name in ("penstock", "kafka"):
        broker = broker_named(name)
        topics = topics_on(broker)
        own = {topics.compacted, f"{PREFIX}-append-time"}
        rows = batch_rows(spark, everything("kafka", broker, "read_uncommitted"))
        by_broker.append([row for row in rows if row["topic"] not in own])
    assert_same(*by_broker)


def test_times_before_the_calendar_of_now(
    spark: SparkSession, broker: RunningBroker, new_topic: NewTopic
) -> None:
    """Spark's connector takes their date in the Julian calendar for one of now. Here they stay."""
    shifts_days = {
        CALENDAR_FIRST_MS: 0,
        CALENDAR_FIRST_MS - 1: -10,
        -62_000_000_000_000: 2,  # The year 5.
    }
    topic = new_topic(broker, config=OPEN_BOUNDS)
    produce(broker.bootstrap, topic, [Record(b"", timestamp_ms=stamp) for stamp in shifts_days])
    found = {
        name: [
            row.stamp
            for row in batch_frame(spark, Source(name, broker.bootstrap, {"subscribe": topic}))
            .orderBy("offset")
            .select(f.unix_millis("timestamp").alias("stamp"))
            .collect()
        ]
        for name in ("penstock", "kafka")
    }
    assert found["penstock"] == list(shifts_days)
    assert found["kafka"] == [stamp + days * DAY_MS for stamp, days in shifts_days.items()]
