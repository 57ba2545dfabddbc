"""The listener on a real session: lines for a person, and groups where consumers have theirs."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.oracle.running_broker import RunningBroker, free_port
from tests.spark.conftest import NewTopic
from tests.spark.topics import Record, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark import ProgressListener

pytestmark = pytest.mark.spark

SECONDS_MAX = 60.0
NewListener = Callable[..., tuple["ProgressListener", io.StringIO]]


@pytest.fixture
def new_listener(spark: SparkSession) -> Iterator[NewListener]:
    """Make listeners of the session, for one test."""
    from penstock.spark import ProgressListener

    made: list[ProgressListener] = []

    def make(bootstrap: str | None) -> tuple[ProgressListener, io.StringIO]:
        stream = io.StringIO()
        listener = ProgressListener(bootstrap, stream=stream, line_seconds=0, publish_seconds=0)
        spark.streams.addListener(listener)
        made.append(listener)
        return listener, stream

    yield make
    for listener in made:
        spark.streams.removeListener(listener)
        listener.close()


def topic_stream(
    spark: SparkSession, kind: str, bootstrap: str, topic: str, **options: str
) -> DataFrame:
    reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap)
    return (
        reader.option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )


def wait_for(stream: io.StringIO, text: str) -> str:
    """Events come from a thread of Spark's; what was written when this text is there."""
    deadline = time.monotonic() + SECONDS_MAX
    while text not in stream.getvalue():
        assert time.monotonic() < deadline, stream.getvalue()
        time.sleep(0.05)
    return stream.getvalue()


def group_lag(bootstrap: str, group: str) -> dict[str, Any]:
    """What `penstock group lag` shows."""
    command = [sys.executable, "-m", "penstock", "group", "lag", group, "--json"]
    done = subprocess.run(
        [*command, "--bootstrap-server", bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


@pytest.mark.every_spark
@pytest.mark.parametrize("kind", ["penstock", "kafka"])
def test_a_query_is_shown_and_its_lag_is_published(
    kind: str,
    spark: SparkSession,
    broker: RunningBroker,
    new_topic: NewTopic,
    new_listener: NewListener,
    tmp_path: Path,
) -> None:
    topic = new_topic(broker, partitions=2)
    produce(broker.bootstrap, topic, [Record(b"x", partition=0)] * 30)
    produce(broker.bootstrap, topic, [Record(b"x", partition=1)] * 20)
    listener, stream = new_listener(broker.bootstrap)
    name = f"shown {topic}"
    query = (
        topic_stream(spark, kind, broker.bootstrap, topic, maxOffsetsPerTrigger="25")
        .writeStream.format("noop")
        .queryName(name)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    listener.close()  # waits for events that Spark has not reported yet
    lines = stream.getvalue().splitlines()
    assert lines[-1] == f"{name}  stopped after 2 batches, 50 rows"
    assert f"lag {topic} 25  offsets {topic} 0:15 1:10" in lines[0]
    assert f"lag {topic} 0  offsets {topic} 0:30 1:20" in lines[1]
    produce(broker.bootstrap, topic, [Record(b"x", partition=1)] * 5)
    (group,) = group_lag(broker.bootstrap, f"spark-{name}")["groups"]
    rows = [(one["partition"], one["committed"], one["lag"]) for one in group["offsets"]]
    assert rows == [(0, 30, 0), (1, 20, 5)]


def test_a_broker_that_is_away_never_hurts_the_query(
    spark: SparkSession, new_listener: NewListener, tmp_path: Path
) -> None:
    _, stream = new_listener(f"127.0.0.1:{free_port()}")
    query = spark.readStream.format("rate").load().writeStream.format("noop")
    started = query.option("checkpointLocation", str(tmp_path)).queryName("rate").start()
    wait_for(stream, "rows/s")
    started.stop()
    wait_for(stream, "rate  stopped after")
    assert "could not be published" not in stream.getvalue()  # it has nothing to publish


def test_a_topic_is_read_while_the_publishing_broker_is_away(
    spark: SparkSession,
    broker: RunningBroker,
    new_topic: NewTopic,
    new_listener: NewListener,
    tmp_path: Path,
) -> None:
    topic = new_topic(broker)
    produce(broker.bootstrap, topic, [Record(b"x")] * 40)
    listener, stream = new_listener(f"127.0.0.1:{free_port()}")
    query = (
        topic_stream(spark, "kafka", broker.bootstrap, topic, maxOffsetsPerTrigger="10")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wait_for(stream, "stopped after 4 batches, 40 rows")
    wait_for(stream, "could not be published")
    began = time.monotonic()
    listener.close(1.0)
    assert time.monotonic() - began < 10
    assert stream.getvalue().count("could not be published") == 1


def test_a_failure_is_told_in_its_own_words(
    spark: SparkSession, new_listener: NewListener, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    def fail(batch: DataFrame, number: int) -> None:
        raise ValueError("the table is locked")

    _, stream = new_listener(None)
    query = (
        spark.readStream.format("rate")
        .load()
        .writeStream.foreachBatch(fail)
        .queryName("failing")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(StreamingQueryException):
        query.awaitTermination()
    text = wait_for(stream, "failing  failed")
    assert "failed after 0 batches, 0 rows: ValueError: the table is locked\n" in text
