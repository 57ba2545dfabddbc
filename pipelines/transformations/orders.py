"""Orders from a topic: kept as they came, parsed, set aside when they are bad, and sent on.

    orders (topic) ─ raw_orders ─ orders ──── order_totals
                         │           └─────── clean_orders (topic orders-clean)
                         └─ bad_orders

Source and sink are `format("penstock")`, for Penstock and Apache Kafka. What is read and written is
declared; when it runs is the business of `spark-pipelines run`.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

BROKERS = spark.conf.get("penstock.bootstrap.servers") or "localhost:9092"
SCHEMA = "id bigint, customer string, amount double"


@dp.table
def raw_orders() -> DataFrame:
    """Every record, and where it came from."""
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .select("topic", "partition", "offset", "timestamp", f.col("value").cast("string"))
    )


@dp.temporary_view
def parsed_orders() -> DataFrame:
    """The fields; null where they cannot be read."""
    rows = spark.readStream.table("raw_orders")
    return rows.withColumn("order", f.from_json("value", SCHEMA))


@dp.table
def orders() -> DataFrame:
    """Orders with an id and a positive amount."""
    is_good = "order.id IS NOT NULL AND order.amount > 0"
    rows = spark.readStream.table("parsed_orders").where(is_good)
    return rows.select("order.*", "topic", "partition", "offset", "timestamp")


@dp.table
def bad_orders() -> DataFrame:
    """Everything else, as it came."""
    is_bad = "NOT coalesce(order.id IS NOT NULL AND order.amount > 0, false)"
    rows = spark.readStream.table("parsed_orders").where(is_bad)
    return rows.select("topic", "partition", "offset", "timestamp", "value")


@dp.materialized_view
def order_totals() -> DataFrame:
    """What each customer has ordered."""
    rows = spark.read.table("orders").groupBy("customer")
    return rows.agg(f.count("*").alias("orders"), f.sum("amount").alias("amount"))


dp.create_sink(
    "clean_orders", "penstock", {"kafka.bootstrap.servers": BROKERS, "topic": "orders-clean"}
)


@dp.append_flow(target="clean_orders")
def send_clean_orders() -> DataFrame:
    """Good orders to a topic of their own, by customer."""
    rows = spark.readStream.table("orders")
    value = f.to_json(f.struct("id", "customer", "amount"))
    return rows.select(f.col("customer").alias("key"), value.alias("value"))
