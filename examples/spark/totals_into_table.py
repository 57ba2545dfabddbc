"""Totals by minute into a Delta table: each total once, when it is final, whatever is killed.

In a checkout of the repository, with a broker on localhost:9092 (`penstock serve`):

pip install '.[spark]'
python examples/spark/totals_into_table.py

With a checkpoint and a warehouse that last, the same file is a pipeline for the command line:

penstock table run examples/spark/totals_into_table.py --conf spark.sql.shuffle.partitions=4
"""

import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.spark.pipelines import expect_or_drop, pipeline
from penstock.spark.tables.run.table_pipeline import TablePipeline

brokers = "localhost:9092"
folder = tempfile.mkdtemp()  # in real life a place that lasts


@pipeline(
    name="sales-by-minute",
    bootstrap_servers=brokers,
    checkpoint=f"{folder}/checkpoint",
    source={"topics": ["minute-sales"]},
    table={
        "format": "delta",
        "name": "shop.sales_by_minute",
        "catalog": {"warehouse": f"file://{folder}/warehouse"},
    },
    value={"format": "json", "schema": "shop string, amount bigint, time timestamp"},
    state={"event_time": "time", "delay": "2 minutes", "late": "reject"},
)
@expect_or_drop("has_sales", "sales > 0")
def totals(rows: DataFrame) -> DataFrame:
    """Return the totals of each shop and minute; Spark emits them when the watermark is after."""
    return (
        rows.groupBy(f.window("time", "1 minute"), "shop")
        .agg(f.sum("amount").alias("amount"), f.count("*").alias("sales"))
        .select(f.col("window.start").alias("minute"), "shop", "amount", "sales")
    )


if __name__ == "__main__":
    spark = SparkSession.builder.appName("totals-into-table").getOrCreate()
    # Ten minutes of sales, one each second, in two shops.
    sales = spark.range(600).select(
        f.format_string("shop-%d", f.col("id") % 2).alias("shop"),
        f.lit(5).alias("amount"),
        f.expr("TIMESTAMP '2026-05-04 09:00:00Z' + id * INTERVAL '1' SECOND").alias("time"),
    )
    (
        sales.select(f.to_json(f.struct("*")).alias("value"))
        .write.format("penstock")
        .mode("append")
        .option("kafka.bootstrap.servers", brokers)
        .option("topic", "minute-sales")
        .save()
    )
    with TablePipeline(totals.definition, transform=totals.transform).start(
        spark, once=True
    ) as running:
        running.await_end()
