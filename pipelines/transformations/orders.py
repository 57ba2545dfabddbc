"""Orders from a topic: kept as they came, parsed, set aside when they are bad, and sent on.

    orders (topic) ─ incoming ─┬─ raw_orders
                               └─ parsed_orders ─┬─ orders
                                                 ├─ bad_orders
                                                 └─ clean_orders (topic orders-clean)
    orders (topic) ─ order_totals

Source and sink are `format("penstock")`, for Penstock and Apache Kafka. This file declares inputs
and outputs; `spark-pipelines run` decides when they run.

Tables read views and not one another: Spark 4.2 ignores that a table depends on another one as soon
as both exist (SPARK-57352), and new records would arrive one run late. So each flow reads the topic
and keeps its own position in it.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

BROKERS = spark.conf.get("penstock.bootstrap.servers") or "localhost:9092"
SCHEMA = "id bigint, customer string, amount double"
IS_GOOD = "coalesce(order.id IS NOT NULL AND order.amount > 0, false)"
PLACE = ("topic", "partition", "offset", "timestamp")


@dp.temporary_view
def incoming() -> DataFrame:
    """Every record, with its position in the topic."""
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .select(*PLACE, f.col("value").cast("string"))
    )


@dp.temporary_view
def parsed_orders() -> DataFrame:
    """The fields; null where they cannot be read."""
    rows = spark.readStream.table("incoming")
    return rows.withColumn("order", f.from_json("value", SCHEMA))


@dp.table
def raw_orders() -> DataFrame:
    """Everything as it came."""
    return spark.readStream.table("incoming")


@dp.table
def orders() -> DataFrame:
    """Orders with an id and a positive amount."""
    rows = spark.readStream.table("parsed_orders").where(IS_GOOD)
    return rows.select("order.*", *PLACE)


@dp.table
def bad_orders() -> DataFrame:
    """Everything else, as it came."""
    rows = spark.readStream.table("parsed_orders").where(f"NOT {IS_GOOD}")
    return rows.select(*PLACE, "value")


@dp.materialized_view
def order_totals() -> DataFrame:
    """The total of each customer, from all records of the topic."""
    topic = (
        spark.read.format("penstock")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "orders")
        .load()
    )
    rows = topic.select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("order"))
    good = rows.where(IS_GOOD).select("order.*").groupBy("customer")
    return good.agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))


dp.create_sink(
    "clean_orders", "penstock", {"kafka.bootstrap.servers": BROKERS, "topic": "orders-clean"}
)


@dp.append_flow(target="clean_orders")
def send_clean_orders() -> DataFrame:
    """Good orders to a topic of their own, by customer."""
    rows = spark.readStream.table("parsed_orders").where(IS_GOOD)
    value = f.to_json("order")
    return rows.select(f.col("order.customer").alias("key"), value.alias("value"))
