"""Read a topic into a DataFrame, as in a notebook: run it cell by cell, or as a whole.

In a checkout of the repository, with a broker on localhost:9092 (`penstock serve`):

pip install '.[spark]'
python examples/spark/read_topic.py
"""

# %% A session like any other: `format("penstock")` needs no jar and no registration.
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = SparkSession.builder.appName("read-topic").getOrCreate()
brokers = "localhost:9092"

# %% Some orders to look at. Any Kafka client can write them; this is Spark itself.
orders = spark.range(1_000).select(
    f.format_string("customer-%d", f.col("id") % 7).alias("key"),
    f.to_json(f.struct("id", (f.col("id") % 90 + 10).alias("amount"))).alias("value"),
)
(
    orders.write.format("penstock")
    .mode("append")
    .option("kafka.bootstrap.servers", brokers)
    .option("topic", "orders")
    .save()
)

# %% The topic as a table, from its first record to its last one now. Key and value are bytes.
topic = (
    spark.read.format("penstock")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", "orders")
    .load()
)
topic.printSchema()
topic.show(5)

# %% The values are JSON here.
parsed = topic.select(
    f.col("key").cast("string").alias("customer"),
    f.from_json(f.col("value").cast("string"), "id LONG, amount LONG").alias("order"),
    "partition",
    "offset",
    "timestamp",
).select("customer", "order.*", "partition", "offset", "timestamp")

# %% SQL over it.
parsed.createOrReplaceTempView("orders")
totals = spark.sql(
    "SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer"
)
totals.orderBy("customer").show()

# %% Only the last hour: the broker finds the offsets, older records are not read at all.
hour_ago_ms = spark.sql("SELECT unix_millis(now()) - 3600000").first()[0]  # type: ignore[index]
recent = (
    spark.read.format("penstock")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", "orders")
    .option("startingTimestamp", hour_ago_ms)
    .load()
)
print(f"{recent.count()} records in the last hour")

# %% And on to pandas, when the result is small.
frame = totals.toPandas()
print(frame)
