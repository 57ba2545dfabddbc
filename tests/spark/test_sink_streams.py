"""`df.writeStream.format("penstock")`: each row once in the output, on both brokers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import BrokerNamed, NewTopic
from tests.spark.streams import topic_reader
from tests.spark.topics import Record, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
COUNT = 600
BATCH_COUNT = 300
"""Rows of a micro-batch: as many of each partition."""
STREAM_SECONDS_MAX = 300
APP_SECONDS_MAX = 300


class Copy:
    """A query that copies a topic to another one; each start continues from its checkpoint."""

    def __init__(
        self, spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, folder: Path
    ) -> None:
        self.spark = spark
        self.broker = broker
        self.source = new_topic(broker, partitions=3)
        self.target = new_topic(broker, partitions=2)
        self.checkpoint = folder / "checkpoint"
        self.produced = 0

    def produce(self, count: int = COUNT) -> None:
        numbers = range(self.produced, self.produced + count)
        records = [Record(b"%06d" % number, b"%d" % number, number % 3) for number in numbers]
        produce(self.broker.bootstrap, self.source, records)
        self.produced += count

    def frame(self) -> DataFrame:
        return (
            self.spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", self.broker.bootstrap)
            .option("subscribe", self.source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(BATCH_COUNT))
            .load()
            .select("key", "value")
        )

    def run(self, frame: DataFrame | None = None, mode: str = "append", **options: str) -> None:
        """All there is now, in micro-batches."""
        query = (
            (frame or self.frame())
            .writeStream.format("penstock")
            .option("kafka.bootstrap.servers", self.broker.bootstrap)
            .option("topic", self.target)
            .option("checkpointLocation", str(self.checkpoint))
            .options(**options)
            .outputMode(mode)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STREAM_SECONDS_MAX)

    def set_back(self) -> None:
        """The checkpoint as it was before the last commit."""
        commits = self.checkpoint / "commits"
        last = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def crash(self, step: str, when: str, folder: Path) -> None:
        """Run it in a process of its own that is killed at a step of the second batch."""
        command = [sys.executable, "-m", "tests.spark.sink_crash_app"]
        topics = [self.broker.bootstrap, self.source, self.target]
        ended = subprocess.run(
            [*command, str(folder), *topics, str(self.checkpoint), step, when],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            timeout=APP_SECONDS_MAX,
            check=False,
        )
        assert ended.returncode != 0, ended.stderr.decode()[-4000:]
        commits = {one.name for one in (self.checkpoint / "commits").iterdir()}
        assert "0" in commits, ended.stderr.decode()[-4000:]
        assert "1" not in commits

    def values(self, isolation: str = "read_committed") -> list[int]:
        """What a reader of committed records gets, by librdkafka."""
        with topic_reader(
            self.broker.bootstrap, self.target, partitions=2, isolation=isolation
        ) as reader:
            while reader.poll(2.0) is not None:
                pass
            return sorted(int(one.value() or b"") for one in reader.messages)


@pytest.fixture
def copy(spark: SparkSession, broker: RunningBroker, new_topic: NewTopic, tmp_path: Path) -> Copy:
    return Copy(spark, broker, new_topic, tmp_path)


@pytest.mark.every_spark
def test_each_row_once_over_restarts(copy: Copy) -> None:
    copy.produce()
    copy.run()
    assert copy.values() == list(range(COUNT))
    copy.run()  # nothing is new
    copy.produce()
    copy.run()
    assert copy.values() == list(range(2 * COUNT))
    assert copy.values("read_uncommitted") == list(range(2 * COUNT))


@pytest.mark.every_spark
def test_a_checkpoint_before_the_last_commit_repeats_nothing(copy: Copy) -> None:
    copy.produce()
    copy.run()
    for _ in range(2):
        copy.set_back()
        copy.run()
    assert copy.values() == list(range(COUNT))
    assert copy.values("read_uncommitted") == list(range(COUNT))
    copy.produce()
    copy.run()
    assert copy.values() == list(range(2 * COUNT))


def test_without_the_guard_there_are_duplicates(copy: Copy) -> None:
    """The same with less of a guarantee: the tests above can fail."""
    copy.produce()
    copy.run(deliveryGuarantee="at-least-once")
    copy.set_back()
    copy.run(deliveryGuarantee="at-least-once")
    values = copy.values()
    assert set(values) == set(range(COUNT))
    assert len(values) > COUNT


@pytest.mark.parametrize(
    ("step", "when"),
    [
        ("WriteDecision", "before"),
        ("WriteDecision", "after"),
        ("CommitAll", "after"),
        ("WriteDone", "after"),
    ],
)
def test_a_driver_killed_in_the_middle_of_a_commit(
    copy: Copy, step: str, when: str, tmp_path: Path
) -> None:
    copy.produce()
    copy.crash(step, when, tmp_path / "app")
    visible = copy.values()
    assert visible == list(range(BATCH_COUNT if step == "WriteDecision" else 2 * BATCH_COUNT))
    copy.run()
    assert copy.values() == list(range(COUNT))
    copy.produce()
    copy.run()
    assert copy.values() == list(range(2 * COUNT))


def test_a_batch_that_failed_is_written_anew(copy: Copy) -> None:
    """A task fails after others wrote; nothing of theirs is seen."""
    copy.produce()
    number = f.col("value").cast("string").cast("int")
    failing = copy.frame().withColumn(
        "value", f.when(number == 399, f.raise_error(f.lit("row 399"))).otherwise(f.col("value"))
    )
    with pytest.raises(StreamingQueryException, match="row 399"):
        copy.run(failing)
    assert copy.values() == list(range(BATCH_COUNT))
    copy.run()
    assert copy.values() == list(range(COUNT))


def test_stateful_operators_go_on_after_a_replay(copy: Copy) -> None:
    """A replay that writes nothing still asks for every row, so that state is kept."""

    def counts() -> DataFrame:
        digit = f.substring(f.col("value").cast("string"), -1, 1)
        counted = copy.frame().groupBy(digit.alias("key")).count()
        return counted.select("key", f.col("count").cast("string").alias("value"))

    copy.produce()
    copy.run(counts(), "complete")
    first = copy.values()
    copy.set_back()
    copy.run(counts(), "complete")
    assert copy.values() == first
    copy.produce()
    copy.run(counts(), "complete")
    # Each of four batches writes the count of each of ten digits.
    assert copy.values() == sorted(10 * [30, 60, 90, 120])


def test_a_timeout_that_brokers_do_not_allow_is_told(
    spark: SparkSession, broker_named: BrokerNamed, new_topic: NewTopic, tmp_path: Path
) -> None:
    copy = Copy(spark, broker_named("penstock"), new_topic, tmp_path)
    copy.produce(1)
    with pytest.raises(StreamingQueryException, match=r"transaction\.max\.timeout\.ms"):
        copy.run(None, "append", **{"kafka.transaction.timeout.ms": "86400000"})
    assert copy.values() == []
