"""A topic into Parquet files, each record once, however often the program is stopped and started.

In a checkout of the repository, with a broker on localhost:9092 (`penstock serve`):

pip install '.[spark]'
python examples/spark/stream_to_parquet.py
"""

import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.spark import ProgressListener

spark = SparkSession.builder.appName("stream-to-parquet").getOrCreate()
brokers = "localhost:9092"
folder = tempfile.mkdtemp()  # in real life a place that lasts

# One live line for the query, and its lag in `penstock group lag spark-events-to-parquet`.
listener = ProgressListener(bootstrap_servers=brokers)
spark.streams.addListener(listener)


def write_events(first: int, count: int) -> None:
    """Stands for the programs that write events all the time."""
    events = spark.range(first, first + count).select(
        f.to_json(f.struct("id", (f.col("id") % 3).alias("kind"))).alias("value")
    )
    (
        events.write.format("penstock")
        .mode("append")
        .option("kafka.bootstrap.servers", brokers)
        .option("topic", "events")
        .save()
    )


def run_query() -> None:
    """Read what is new since the last time, and write it."""
    events = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")  # for the first start; later the checkpoint knows
        .option("maxOffsetsPerTrigger", 100_000)  # bounds a batch, and so a file
        .load()
    )
    parsed = events.select(
        f.from_json(f.col("value").cast("string"), "id LONG, kind LONG").alias("event"),
        "timestamp",
    ).select("event.*", "timestamp")
    query = (
        parsed.writeStream.format("parquet")
        .queryName("events-to-parquet")
        .option("path", f"{folder}/events")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)  # up to the end as of now; leave it out and it never ends
        .start()
    )
    query.awaitTermination()


write_events(0, 1_000)
run_query()
write_events(1_000, 500)
run_query()  # goes on where it left off

table = spark.read.parquet(f"{folder}/events")
table.groupBy("kind").count().orderBy("kind").show()
listener.close()
spark.streams.removeListener(listener)
