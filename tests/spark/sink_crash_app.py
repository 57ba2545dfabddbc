"""A streaming query in a process of its own whose driver is killed at a step of the sink.

    python -m tests.spark.sink_crash_app FOLDER BOOTSTRAP SOURCE TARGET CHECKPOINT STEP WHEN

It copies a topic to another one, and kills Spark's JVM, as kill -9 does, when the commit of the
second micro-batch comes to the step (the name of a class in `sink.decisions`), before or after it.
The product has no hook for this: the format `penstock-crashing` is the real one with a driver that
looks at each step first.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from penstock.spark.data_source import PenstockDataSource
from penstock.spark.sink import process as sink_process
from penstock.spark.sink.steps import Step
from penstock.spark.sink.transactions import SinkDriver, TaskResult
from tests.spark.sessions import new_session

CRASH_STEP = "PENSTOCK_TEST_CRASH_STEP"
CRASH_WHEN = "PENSTOCK_TEST_CRASH_WHEN"
CRASH_BATCH = 1


class CrashingDriver(SinkDriver):
    """Kills the JVM that started this process when it comes to the step."""

    batch_id = -1

    def commit(self, results: Sequence[TaskResult], batch_id: int) -> None:
        """Remember which batch it is."""
        self.batch_id = batch_id
        super().commit(results, batch_id)

    def carry_out(self, step: Step) -> Any:  # noqa: ANN401
        """Carry it out, unless the time has come."""
        is_due = self.batch_id == CRASH_BATCH and type(step).__name__ == os.environ[CRASH_STEP]
        if is_due and os.environ[CRASH_WHEN] == "before":
            kill_spark()
        answer = super().carry_out(step)
        if is_due:
            kill_spark()
        return answer


def kill_spark() -> None:
    """Kill the JVM above this worker, and the worker itself."""
    for process in psutil.Process().parents():
        if process.name().startswith("java"):
            process.kill()
            break
    os.kill(os.getpid(), signal.SIGKILL)


class CrashingDataSource(PenstockDataSource):
    """The real source and sink, with a driver that crashes."""

    @classmethod
    def name(cls) -> str:
        return "penstock-crashing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        vars(sink_process)["SinkDriver"] = CrashingDriver
        return super().streamWriter(schema, overwrite)


def main() -> None:
    """Run the query until it is killed; a query that ends is a failure."""
    folder, bootstrap, source, target, checkpoint, step, when = sys.argv[1:]
    os.environ[CRASH_STEP] = step
    os.environ[CRASH_WHEN] = when
    spark = new_session(Path(folder), slots=2)
    spark.dataSource.register(CrashingDataSource)
    frame = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "300")
        .load()
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("penstock-crashing")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
