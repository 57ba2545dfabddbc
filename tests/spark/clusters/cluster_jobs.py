"""Jobs of a user in one Spark session, in a process of their own, on any master.

    python -m tests.spark.clusters.cluster_jobs < JOBS

JOBS is a JSON object with the fields of `Jobs`. It reads a topic as a batch, writes a batch, copies
the topic exactly once as a stream, and runs the pipelines of the definition files. It prints one
JSON object: the values of the batch read, the batches of the stream, and the seconds of each job.
With a `remote` the session is one of Spark Connect; the server finds `format("penstock")` itself.

With `is_endless`, the stream and the pipelines run beside each other until the process is killed.
"""

import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.spark.tables.definition.file import load_definition
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.sessions import new_session

STREAM_SECONDS_MAX = 800


@dataclass(frozen=True)
class Jobs:
    """The input of the process."""

    folder: str
    bootstrap: str
    source: str
    batch_target: str
    stream_target: str
    master: str = ""
    remote: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    definitions: list[str] = field(default_factory=list)
    is_endless: bool = False

    @property
    def brokers(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}

    def text(self) -> str:
        return json.dumps(asdict(self))


def session_of(jobs: Jobs) -> SparkSession:
    if jobs.remote:
        remote: SparkSession = SparkSession.builder.remote(jobs.remote).getOrCreate()
        return remote
    folder = Path(jobs.folder)
    os.environ["SPARK_WORKER_DIR"] = str(folder / "workers")
    # No jars: executors would fetch them, and these jobs need none.
    extra = {"spark.jars": "", **jobs.settings}
    return new_session(folder, slots=2, master=jobs.master, extra=extra)


def copy(spark: SparkSession, jobs: Jobs) -> DataStreamWriter:
    """The stream from the source to its target, exactly once."""
    stream = spark.readStream.format("penstock").options(**jobs.brokers)
    return (
        stream.option("subscribe", jobs.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "800")
        .load()
        .select("key", "value")
        .writeStream.format("penstock")
        .options(**jobs.brokers)
        .option("topic", jobs.stream_target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", f"{jobs.folder}/copy-checkpoint")
    )


class Watch:
    """Prints the seconds of each job to standard error, and keeps them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._begun = time.monotonic()

    def done(self, job: str) -> None:
        now = time.monotonic()
        self.seconds[job] = round(now - self._begun, 1)
        self._begun = now
        print(f"{job}: {self.seconds[job]} s", file=sys.stderr, flush=True)


def run(jobs: Jobs) -> dict[str, Any]:
    """Run all jobs in turn."""
    watch = Watch()
    spark = session_of(jobs)
    watch.done("session")
    rows = spark.read.format("penstock").options(**jobs.brokers)
    rows_of_source = rows.option("subscribe", jobs.source).load()
    found = sorted(bytes(row.value).decode() for row in rows_of_source.select("value").collect())
    watch.done("batch read")
    written = rows_of_source.select("key", "value").write.format("penstock").mode("append")
    written.options(**jobs.brokers).option("topic", jobs.batch_target).save()
    watch.done("batch write")
    query = copy(spark, jobs).trigger(availableNow=True).start()
    has_ended = query.awaitTermination(STREAM_SECONDS_MAX)
    assert has_ended, f"the stream did not end: {query.status}"
    failure = query.exception()
    assert failure is None, failure
    batches = len(query.recentProgress)
    watch.done("stream")
    for definition in jobs.definitions:
        pipeline = TablePipeline(load_definition(Path(definition)))
        with pipeline.start(spark, once=True) as running:
            running.await_end()
        watch.done(f"table {definition}")
    spark.stop()
    return {"values": found, "batches": batches, "seconds": watch.seconds}


def run_on(jobs: Jobs) -> None:
    """Run the stream and the pipelines until one of them ends, which is a failure."""
    spark = session_of(jobs)
    query = copy(spark, jobs).trigger(processingTime="500 milliseconds").start()
    while query.isActive and not query.recentProgress:
        time.sleep(0.1)  # the processes of one stream after those of the other
    running = [TablePipeline(load_definition(Path(one))).start(spark) for one in jobs.definitions]
    print("all started", flush=True)
    while query.isActive and not any(one.await_end(1) for one in running):
        pass
    print(f"ended: {query.exception()}", flush=True)


def main() -> None:
    jobs = Jobs(**json.load(sys.stdin))
    if jobs.is_endless:
        run_on(jobs)
        sys.exit(1)
    print(json.dumps(run(jobs)))


if __name__ == "__main__":
    main()
