"""`build_snapshot`: runs the tasks of a snapshot in Spark, in-task: no record leaves its task."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.core.clock import SystemClock
from penstock.edge.refresh.manifest import Manifest
from penstock.spark.errors import SparkQueryError
from penstock.spark.progress.line import reason_of
from penstock.spark.refresh.partition_build import PartitionTask, run_task
from penstock.spark.refresh.snapshot_build import BuildOptions, build_with
from penstock.spark.session import close_session, is_of_spark, open_session
from penstock.spark.task_jobs import run_tasks


class BuildFailedError(SparkQueryError):
    """Spark failed to build a snapshot; the one before is unchanged."""


def build_snapshot(spark: SparkSession, options: BuildOptions) -> Manifest:
    """Build and publish a snapshot with a Spark session."""

    def run(tasks: Sequence[PartitionTask]) -> list[str]:
        return run_tasks(spark, run_task, tasks)

    return build_with(options, run, SystemClock())


def run_build(
    options: BuildOptions, *, master: str | None, conf: Mapping[str, str], log: Path | None
) -> Manifest:
    """Build a snapshot in a session of its own; errors of Spark are raised in plain words."""
    try:
        spark = open_session(f"penstock refresh {options.topic}", master=master, conf=conf, log=log)
        try:
            return build_snapshot(spark, options)
        finally:
            close_session(spark)
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise BuildFailedError(
            f"the snapshot of {options.topic!r} was not built: {reason_of(str(error))}"
        ) from error
