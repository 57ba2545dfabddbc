"""A streaming query in a process of its own, for a failover of its brokers: topic to topic.

    python -m tests.spark.failover.failover_app FOLDER BOOTSTRAP SOURCE TARGET CHECKPOINT

It reads committed records only, writes each of them once, and runs until it is killed, or until the
query fails: then it prints the reason and ends with 1. It does NOT run executors as processes of
their own, as `tests.spark.kill_rounds_app` does: the faults of this suite are those of brokers.
"""

import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from tests.spark.sessions import new_session

ROWS_OF_A_BATCH_MAX = 5_000
TRANSFORM = "concat('seen ', cast(value as string))"


def main() -> int:
    """Run the query until it ends."""
    folder, bootstrap, source, target, checkpoint = sys.argv[1:]
    spark = new_session(Path(folder), slots=2)
    frame = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_OF_A_BATCH_MAX)
        .load()
    )
    query = (
        frame.select("key", f.expr(TRANSFORM).alias("value"))
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print(f"the query failed: {error}", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
