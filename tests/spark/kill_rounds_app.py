"""A streaming query in a process of its own, to be killed: topic, transform, topic.

    python -m tests.spark.kill_rounds_app FOLDER BOOTSTRAP SOURCE TARGET CHECKPOINT FORMAT

It runs on two executors that are processes of their own (`local-cluster`) until it is killed, or
until the query fails: then it prints why and ends with 1. The name of its format is `penstock`, or
`penstock-forgetful`, which is the same with one guard taken out (`tests.spark.forgetful`).
"""

import os
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from tests.spark.forgetful import ForgetfulDataSource
from tests.spark.sessions import new_session

EXECUTORS = "local-cluster[2,1,1024]"
"""Two executors with one core and a gigabyte each."""
ROWS_OF_A_BATCH_MAX = 5_000
TRANSFORM = "concat('seen ', cast(value as string))"


def main() -> int:
    """Run the query until it ends."""
    folder, bootstrap, source, target, checkpoint, sink = sys.argv[1:]
    os.environ["SPARK_WORKER_DIR"] = str(Path(folder) / "workers")
    quick = {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    spark = new_session(Path(folder), slots=2, master=EXECUTORS, extra=quick)
    spark.dataSource.register(ForgetfulDataSource)
    frame = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_OF_A_BATCH_MAX)
        .load()
    )
    query = (
        frame.select("key", f.expr(TRANSFORM).alias("value"))
        .writeStream.format(sink)
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
