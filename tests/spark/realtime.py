"""The query that tests and measurements run in real-time mode: from topic to topic, unchanged.

Real-time mode needs the output mode `update` and a task slot for each partition. With fewer slots
it waits without an error.
"""

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

BATCH = "5 minutes"


def pass_through(
    spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path
) -> DataStreamWriter:
    """Key and value of every record of `source`, from its beginning, to `target`; not started."""
    writer = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
    )
    # PySpark has the argument, and forgot it among its types.
    return writer.trigger(realTime=BATCH)  # type: ignore[call-overload, no-any-return]
