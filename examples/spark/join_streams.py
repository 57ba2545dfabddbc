"""Two topics joined while they grow: which views of an advert were followed by a click.

In a checkout of the repository, with a broker on localhost:9092 (`penstock serve`):

pip install '.[spark]'
python examples/spark/join_streams.py
"""

import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.builder.appName("join-streams").getOrCreate()
brokers = "localhost:9092"
folder = tempfile.mkdtemp()  # in real life a place that lasts


def write(topic: str, rows: list[tuple[int, str]]) -> None:
    """Records of an advert's number and the time at which it was seen or clicked."""
    frame = spark.createDataFrame(rows, "ad LONG, time STRING")
    (
        frame.select(
            f.col("ad").cast("string").alias("key"),
            f.to_json(f.struct("ad", f.to_timestamp("time").alias("time"))).alias("value"),
        )
        .write.format("penstock")
        .mode("append")
        .option("kafka.bootstrap.servers", brokers)
        .option("topic", topic)
        .save()
    )


def read(topic: str, time: str) -> DataFrame:
    """The stream of a topic; records may be five minutes late."""
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(
            f.from_json(f.col("value").cast("string"), "ad LONG, time TIMESTAMP").alias("event")
        )
        .select("event.ad", f.col("event.time").alias(time))
        .withWatermark(time, "5 minutes")
    )


# Advert 1 is clicked at once, 2 too late, 3 never; the last ones move the watermarks on.
day = "2026-05-04"
write(
    "ad-views", [(1, f"{day} 9:00"), (2, f"{day} 9:01"), (3, f"{day} 9:02"), (99, f"{day} 11:00")]
)
write("ad-clicks", [(1, f"{day} 9:03"), (2, f"{day} 9:40"), (98, f"{day} 11:00")])

views = read("ad-views", "viewed")
clicks = read("ad-clicks", "clicked").withColumnRenamed("ad", "clicked_ad")
# The bound in time is what lets Spark forget: a view is kept for ten minutes and the lateness.
joined = views.join(
    clicks,
    f.expr("ad = clicked_ad AND clicked BETWEEN viewed AND viewed + INTERVAL 10 MINUTES"),
    "leftOuter",
).select("ad", "viewed", "clicked")
query = (
    joined.writeStream.format("memory")  # a table to look at; a sink of your own in real life
    .queryName("ad_results")
    .outputMode("append")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# Advert 99 is not there yet: a click for it may still come.
table = spark.table("ad_results")
table.orderBy("ad").show()
