"""A topic of changes (CDC) into a table of the latest state, here in SQLite.

In a checkout of the repository, with a broker on localhost:9092 (`penstock serve`):

pip install '.[spark]'
python examples/spark/latest_state.py
"""

import json
import sqlite3
import tempfile
from contextlib import closing

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.builder.appName("latest-state").getOrCreate()
brokers = "localhost:9092"
folder = tempfile.mkdtemp()  # in real life a place that lasts
database = f"{folder}/customers.db"

# What a tool such as Debezium writes: the key of the row, what was done (c, u, d), the row after.
changes = [
    ("c", 1, {"name": "Ada", "city": "London"}),
    ("c", 2, {"name": "Bob", "city": "Paris"}),
    ("u", 1, {"name": "Ada", "city": "Turin"}),
    ("c", 3, {"name": "Eve", "city": "Oslo"}),
    ("d", 2, None),
    ("u", 3, {"name": "Eve", "city": "Bergen"}),
]
(
    spark.createDataFrame(
        [(str(key), json.dumps({"op": op, "after": after})) for op, key, after in changes],
        "key STRING, value STRING",
    )
    .coalesce(1)  # one writer: changes of one key stay in their order
    .write.format("penstock")
    .mode("append")
    .option("kafka.bootstrap.servers", brokers)
    .option("topic", "customer-changes")
    .save()
)


def upsert(batch: DataFrame, batch_id: int) -> None:
    """Write the last change of each key; a change that is older than the row does nothing.

    All changes of a key are in one partition, so the last change has the highest offset. Spark may
    repeat a batch after a crash; the second time changes nothing.
    """
    last = batch.groupBy("id").agg(f.max_by(f.struct("offset", "change"), "offset").alias("last"))
    rows = last.select("id", "last.offset", "last.change.op", "last.change.after.*").collect()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, "
            "is_deleted INTEGER, change_offset INTEGER)"
        )
        connection.executemany(
            "INSERT INTO customers VALUES (?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
            "name = excluded.name, city = excluded.city, is_deleted = excluded.is_deleted, "
            "change_offset = excluded.change_offset "
            "WHERE excluded.change_offset > customers.change_offset",
            [(row.id, row.name, row.city, row.op == "d", row.offset) for row in rows],
        )


query = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", brokers)
    .option("subscribe", "customer-changes")
    .option("startingOffsets", "earliest")
    .load()
    .select(
        f.col("key").cast("string").cast("long").alias("id"),
        "offset",
        f.from_json(
            f.col("value").cast("string"), "op STRING, after STRUCT<name STRING, city STRING>"
        ).alias("change"),
    )
    .writeStream.foreachBatch(upsert)
    .queryName("latest-customers")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

with closing(sqlite3.connect(database)) as connection:
    customers = connection.execute(
        "SELECT id, name, city FROM customers WHERE NOT is_deleted ORDER BY id"
    ).fetchall()
for customer in customers:
    print(*customer)
