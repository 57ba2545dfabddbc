"""Totals by minute with a watermark, written to a topic: each total once, when it is final.

In a checkout of the repository, with a broker on localhost:9092 (`penstock serve`):

pip install '.[spark]'
python examples/spark/windowed_totals.py
"""

import tempfile

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = SparkSession.builder.appName("windowed-totals").getOrCreate()
brokers = "localhost:9092"
folder = tempfile.mkdtemp()  # in real life a place that lasts

# Ten minutes of sales, one each second, in two shops.
sales = spark.range(600).select(
    f.format_string("shop-%d", f.col("id") % 2).alias("shop"),
    f.lit(5).alias("amount"),
    f.expr("TIMESTAMP '2026-05-04 09:00:00' + id * INTERVAL '1' SECOND").alias("time"),
)
(
    sales.select(f.col("shop").alias("key"), f.to_json(f.struct("*")).alias("value"))
    .write.format("penstock")
    .mode("append")
    .option("kafka.bootstrap.servers", brokers)
    .option("topic", "sales")
    .save()
)

totals = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", "sales")
    .option("startingOffsets", "earliest")
    .load()
    .select(
        f.from_json(
            f.col("value").cast("string"), "shop STRING, amount LONG, time TIMESTAMP"
        ).alias("sale")
    )
    .select("sale.*")
    # A sale may be two minutes late. A minute is final, and its state is dropped, when a sale is
    # seen that is two minutes younger than its end.
    .withWatermark("time", "2 minutes")
    .groupBy(f.window("time", "1 minute"), "shop")
    .agg(f.sum("amount").alias("amount"), f.count("*").alias("sales"))
)
query = (
    totals.select(
        f.col("shop").alias("key"),
        f.to_json(f.struct("window.start", "shop", "amount", "sales")).alias("value"),
    )
    # Exactly once is the default for streams: read the totals with isolation.level=read_committed.
    .writeStream.format("penstock")
    .queryName("sales-by-minute")
    .outputMode("append")
    .option("kafka.bootstrap.servers", brokers)
    .option("topic", "sales-by-minute")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

table = (
    spark.read.format("penstock")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", "sales-by-minute")
    .option("kafka.isolation.level", "read_committed")
    .load()
    .select(
        f.from_json(
            f.col("value").cast("string"), "start TIMESTAMP, shop STRING, amount LONG, sales LONG"
        ).alias("total")
    )
    .select("total.*")
)
table.orderBy("start", "shop").show()
