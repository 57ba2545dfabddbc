"""The workloads of a connector: each function runs one query and returns rows per second.

Guarantees: both connectors get the same records, the same session and the same plan except for the
format's name and its options. The written rows are counted afterwards, and lost rows are an error.
A read to `noop` writes no rows; `check_rows` reads each topic once before.
"""

import dataclasses
import json
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.contestants import Contestant
from benchmarks.variants import Values
from tests.spark.streams import running
from tests.spark.topics import new_producer

PARTITIONS = 4
BATCH_BYTES = "16384"
"""The Java producer's default, and so the batch size of most topics."""
DISTINCT_RECORDS = 20_000
STREAM_SECONDS_MAX = 900
FLOOR_ROWS_PER_SECOND = 1_000
FLOOR_BATCHES = 25
FLOOR_BATCHES_LEFT_OUT = 10
"""The first micro-batches compile their plans."""
FLOOR_SECONDS_MAX = 120.0

SCHEMA = "id bigint, user string, event string, amount double, note string"
BEST_CONNECTOR_OPTIONS = {"kafka.max.poll.records": "10000"}
"""The fastest setting of Spark's own connector; its default of 500 is a quarter slower."""


class MissingError(RuntimeError):
    """The rows of the output differ from the records of the topic."""


@dataclasses.dataclass(frozen=True)
class Format:
    """A connector: its name, and its fastest options."""

    name: str
    read_options: dict[str, str] = dataclasses.field(default_factory=dict)


KAFKA = Format("kafka", BEST_CONNECTOR_OPTIONS)
PENSTOCK = Format("penstock")
FORMATS = (KAFKA, PENSTOCK)


def json_record(number: int) -> bytes:
    """Return about 200 bytes of a typical shop event."""
    event = {
        "id": number,
        "user": f"user-{number * 7919 % 100_000:06d}",
        "event": ("view", "click", "cart", "purchase")[number % 4],
        "amount": round(number * 0.37 % 500, 2),
        "note": f"{number * 2654435761 % 2**32:08x} " * 14,
    }
    return json.dumps(event, separators=(",", ":")).encode()


def fill(contestant: Contestant, records: int) -> str:
    """Create a topic with this number of records, spread evenly; return its name."""
    return fill_with(
        contestant, [json_record(number) for number in range(DISTINCT_RECORDS)], records
    )


def fill_with(
    contestant: Contestant, values: Sequence[bytes], records: int, *, compression: str = "none"
) -> str:
    """Create a topic with this number of records that repeat these values; return its name."""
    topic = contestant.topics.create(partitions=PARTITIONS)
    settings = {
        "batch.size": BATCH_BYTES,
        "queue.buffering.max.messages": "500000",
        "compression.type": compression,
    }
    producer = new_producer(contestant.broker.bootstrap, settings)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], partition=number % PARTITIONS)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()
    held = contestant.topics.records(topic, PARTITIONS)
    if held != records:
        raise MissingError(f"{records} produced, {held} in the topic")
    return topic


@dataclasses.dataclass(frozen=True)
class Bench:
    """A session, a broker with its filled topic, and the folder of the queries."""

    spark: SparkSession
    contestant: Contestant
    topic: str
    records: int
    folder: Path

    def options(self, kind: Format, topic: str | None = None) -> dict[str, str]:
        """Return the options with which a connector reads the topic."""
        return {
            "kafka.bootstrap.servers": self.contestant.broker.bootstrap,
            "subscribe": topic or self.topic,
            "startingOffsets": "earliest",
            **kind.read_options,
        }

    def batch(self, kind: Format) -> DataFrame:
        """The whole topic."""
        return self.spark.read.format(kind.name).options(**self.options(kind)).load()

    def stream(self, kind: Format, topic: str | None = None) -> DataFrame:
        """The topic as a stream."""
        return self.spark.readStream.format(kind.name).options(**self.options(kind, topic)).load()

    @contextmanager
    def new_folder(self, name: str) -> Iterator[Path]:
        """A folder for one query."""
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        yield place
        shutil.rmtree(place, ignore_errors=True)


def parsed(frame: DataFrame) -> DataFrame:
    """The JSON of the value as columns."""
    text = f.col("value").cast("string")
    return frame.select("offset", f.from_json(text, SCHEMA).alias("event")).select(
        "offset", "event.*"
    )


def _rate(rows: int, begun: float) -> Values:
    return {"rows_per_s": rows / (time.perf_counter() - begun)}


def check_rows(bench: Bench, kind: Format) -> None:
    """Read the topic once and count the rows: the measured reads do not count them."""
    found = bench.batch(kind).selectExpr("count(value) as rows", "sum(length(value)) as bytes")
    rows = found.collect()[0]["rows"]
    if rows != bench.records:
        raise MissingError(f"{kind.name}: {bench.records} in the topic, {rows} rows")


def batch_to_noop(bench: Bench, kind: Format) -> Values:
    """Read everything and drop it; return the broker's CPU time, too."""
    broker = bench.contestant.broker
    before = broker.usage().cpu_seconds
    begun = time.perf_counter()
    bench.batch(kind).write.format("noop").mode("overwrite").save()
    values = _rate(bench.records, begun)
    return {**values, "broker_cpu_s": broker.usage().cpu_seconds - before}


def batch_json_to_noop(bench: Bench, kind: Format) -> Values:
    """Read, parse the JSON, drop it."""
    begun = time.perf_counter()
    parsed(bench.batch(kind)).write.format("noop").mode("overwrite").save()
    return _rate(bench.records, begun)


def stream_json_to_parquet(bench: Bench, kind: Format) -> Values:
    """One AvailableNow run over everything, parsed, into Parquet files."""
    with bench.new_folder(f"parquet-{kind.name}") as place:
        writer = (
            parsed(bench.stream(kind))
            .writeStream.format("parquet")
            .option("path", str(place / "rows"))
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
        )
        begun = time.perf_counter()
        with running(writer) as query:
            if not query.awaitTermination(STREAM_SECONDS_MAX):
                raise MissingError(f"the query ran over {STREAM_SECONDS_MAX} s: {query.status}")
        values = _rate(bench.records, begun)
        rows = bench.spark.read.parquet(str(place / "rows")).count()
    if rows != bench.records:
        raise MissingError(f"{kind.name}: {bench.records} in the topic, {rows} in Parquet")
    return values


def make_rows(bench: Bench, rows: int) -> Path:
    """Rows for the sinks, as uncompressed Parquet files that cost little to read."""
    place = bench.folder / "rows-to-write"
    frame = bench.batch(KAFKA).select(f.col("offset").cast("string").alias("key"), "value")
    writer = frame.limit(rows).repartition(PARTITIONS).write
    writer.option("compression", "none").parquet(str(place))
    return place


def stream_to_topic(
    bench: Bench, kind: Format, source: Path, rows: int, options: dict[str, str]
) -> Values:
    """One AvailableNow run from files to a new topic."""
    topics = bench.contestant.topics
    topic = topics.create(partitions=PARTITIONS)
    with bench.new_folder(f"sink-{kind.name}") as place:
        writer = (
            bench.spark.readStream.schema("key string, value binary")
            .parquet(str(source))
            .writeStream.format(kind.name)
            .option("kafka.bootstrap.servers", bench.contestant.broker.bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(place / "checkpoint"))
            .options(**options)
            .trigger(availableNow=True)
        )
        begun = time.perf_counter()
        with running(writer) as query:
            if not query.awaitTermination(STREAM_SECONDS_MAX):
                raise MissingError(f"the query ran over {STREAM_SECONDS_MAX} s: {query.status}")
        values = _rate(rows, begun)
    held = topics.records(topic, PARTITIONS)
    # Transaction markers have offsets, too: allow a few more offsets than rows.
    if not rows <= held < rows * 1.01:
        raise MissingError(f"{kind.name}: {rows} rows written, {held} in the topic")
    topics.delete(topic)
    return values


def batch_to_topic(bench: Bench, kind: Format, source: Path, rows: int) -> Values:
    """One batch write from files to a new topic."""
    topics = bench.contestant.topics
    topic = topics.create(partitions=PARTITIONS)
    frame = bench.spark.read.parquet(str(source))
    address = bench.contestant.broker.bootstrap
    begun = time.perf_counter()
    options = {"kafka.bootstrap.servers": address, "topic": topic}
    frame.write.format(kind.name).options(**options).mode("append").save()
    values = _rate(rows, begun)
    held = topics.records(topic, PARTITIONS)
    if not rows <= held < rows * 1.01:
        raise MissingError(f"{kind.name}: {rows} rows written, {held} in the topic")
    topics.delete(topic)
    return values


def _full_batches(query: StreamingQuery) -> list[dict[str, float]]:
    """Return the times of the parts of each micro-batch with rows, in milliseconds."""
    found = [dict(progress) for progress in query.recentProgress]
    return [batch["durationMs"] for batch in found if batch["numInputRows"]]


def floor_of(frame: DataFrame, checkpoint: Path) -> Values:
    """Return the times of almost empty micro-batches: medians of their parts."""
    writer = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="0 seconds")
    )
    wanted = FLOOR_BATCHES + FLOOR_BATCHES_LEFT_OUT
    deadline = time.monotonic() + FLOOR_SECONDS_MAX
    with running(writer) as query:
        while len(full := _full_batches(query)) < wanted:
            if time.monotonic() > deadline or query.awaitTermination(1):
                raise MissingError(f"{len(full)} of {wanted} micro-batches, {query.status}")
    counted = full[FLOOR_BATCHES_LEFT_OUT:]
    parts = {name for durations in counted for name in durations}
    return {
        f"{name}_ms": statistics.median(float(durations.get(name, 0)) for durations in counted)
        for name in sorted(parts)
    }


def micro_batch_floor(bench: Bench, kind: Format | None) -> Values:
    """Return the floor of a connector at a low rate; without a connector, of Spark's `rate`."""
    with bench.new_folder("floor") as place:
        if kind is None:
            rate = bench.spark.readStream.format("rate")
            frame = rate.option("rowsPerSecond", FLOOR_ROWS_PER_SECOND).load()
            return floor_of(frame, place / "checkpoint")
        topic = bench.contestant.topics.create(partitions=PARTITIONS)
        with trickle(bench.contestant.broker.bootstrap, topic):
            values = floor_of(bench.stream(kind, topic), place / "checkpoint")
        bench.contestant.topics.delete(topic)
        return values


@contextmanager
def trickle(bootstrap: str, topic: str) -> Iterator[None]:
    """Produce a thousand records a second while the block runs."""
    ended = threading.Event()
    producer = new_producer(bootstrap)

    def send() -> None:
        number = 0
        pause_seconds = 0.02
        while not ended.wait(pause_seconds):
            for _ in range(round(FLOOR_ROWS_PER_SECOND * pause_seconds)):
                producer.produce(topic, json_record(number), partition=number % PARTITIONS)
                number += 1
            producer.poll(0)

    sender = threading.Thread(target=send, name="trickle")
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()
        producer.flush()
