"""Clicks into visits with `transformWithState`: a visit ends after half an hour without a click.

In a checkout of the repository, with a broker on localhost:9092 (`penstock serve`):

pip install '.[spark]'
python examples/spark/sessionize_clicks.py
"""

import tempfile
from collections.abc import Iterator

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

spark = SparkSession.builder.appName("sessionize-clicks").getOrCreate()
brokers = "localhost:9092"
folder = tempfile.mkdtemp()  # in real life a place that lasts
GAP_MS = 30 * 60 * 1000

# State of this kind lives in RocksDB, which is part of Spark.
spark.conf.set(
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
)

# Some clicks of one morning. The time of each is in its value, as is usual.
clicks = spark.createDataFrame(
    [
        ("ada", "2026-05-04 09:00"),
        ("ada", "2026-05-04 09:10"),
        ("bob", "2026-05-04 09:12"),
        ("ada", "2026-05-04 09:25"),
        ("ada", "2026-05-04 10:30"),
        ("bob", "2026-05-04 10:35"),
        ("eve", "2026-05-04 14:00"),
    ],
    "user STRING, time STRING",
).select(
    f.col("user").alias("key"),
    f.to_json(f.struct("user", f.to_timestamp("time").alias("time"))).alias("value"),
)
(
    clicks.write.format("penstock")
    .mode("append")
    .option("kafka.bootstrap.servers", brokers)
    .option("topic", "clicks")
    .save()
)


class Visits(StatefulProcessor):
    """The open visit of each user is kept as state; a timer closes it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark: the state of this query."""
        self._handle = handle
        self._open = handle.getValueState("open", "begin_ms LONG, end_ms LONG, clicks LONG")

    def handleInputRows(
        self, key: tuple[str], rows: Iterator[Row], timerValues: TimerValues
    ) -> Iterator[Row]:
        """Spark: the new clicks of one user, in any order."""
        visit = self._open.get()
        if visit is not None:
            self._handle.deleteTimer(visit[1] + GAP_MS)
        for at_ms in sorted(row.at_ms for row in rows):
            if visit is not None and at_ms - visit[1] > GAP_MS:
                yield Row(user=key[0], begin_ms=visit[0], end_ms=visit[1], clicks=visit[2])
                visit = None
            begin_ms, end_ms, count = visit or (at_ms, at_ms, 0)
            visit = (min(begin_ms, at_ms), max(end_ms, at_ms), count + 1)
        if visit is not None:
            self._open.update(visit)
            self._handle.registerTimer(visit[1] + GAP_MS)

    def handleExpiredTimer(
        self, key: tuple[str], timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        """Spark: the watermark passed the end of the visit, so nothing more can come."""
        visit = self._open.get()
        if visit is not None:
            self._open.clear()
            yield Row(user=key[0], begin_ms=visit[0], end_ms=visit[1], clicks=visit[2])


stream = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", "clicks")
    .option("startingOffsets", "earliest")
    .load()
    .select(
        f.from_json(f.col("value").cast("string"), "user STRING, time TIMESTAMP").alias("click")
    )
    .select("click.*", f.unix_millis("click.time").alias("at_ms"))
    .withWatermark("time", "10 minutes")  # how late a click may be
)
visits = stream.groupBy("user").transformWithState(
    statefulProcessor=Visits(),
    outputStructType="user STRING, begin_ms LONG, end_ms LONG, clicks LONG",
    outputMode="Append",
    timeMode="EventTime",
)
query = (
    visits.select(
        "user",
        f.timestamp_millis("begin_ms").alias("begin"),
        f.timestamp_millis("end_ms").alias("end"),
        "clicks",
    )
    .writeStream.format("memory")  # a table to look at; a sink of your own in real life
    .queryName("visits")
    .outputMode("append")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# Eve's visit is open still: no later click has moved the watermark past it.
table = spark.table("visits")
table.orderBy("begin").show()
