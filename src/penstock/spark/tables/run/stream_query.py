"""Starts the streaming query of a pipeline, in a session whose driver is this process."""

from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.errors import SparkQueryError
from penstock.spark.progress.line import reason_of
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.run.source import PLAN_OPTION, register


class PipelineStoppedError(SparkQueryError):
    """The query ended by itself, or did not start, for a reason that Spark reports."""


def start_query(
    spark: SparkSession,
    definition: PipelineDefinition,
    plan_path: str,
    on_batch: Callable[[DataFrame, int], None],
) -> StreamingQuery:
    """Start the query; Spark calls `on_batch` for each micro-batch."""
    stream = (
        spark.readStream.format(register(spark))
        .options(**definition.source_options())
        .option(PLAN_OPTION, plan_path)
        .load()
    )
    writer = (
        stream.writeStream.queryName(definition.pipeline.name)
        .option("checkpointLocation", definition.pipeline.checkpoint)
        .foreachBatch(on_batch)
    )
    interval = f"{definition.trigger.interval_ms} milliseconds"
    try:
        return writer.trigger(processingTime=interval).start()
    except (PySparkException, Py4JError) as error:
        raise PipelineStoppedError(
            f"pipeline '{definition.pipeline.name}' did not start with checkpoint "
            f"{definition.pipeline.checkpoint}: {reason_of(str(error)).rstrip('.')}. "
            "Name a folder that can be written as pipeline.checkpoint; a new one is fine, the "
            "table knows where to go on."
        ) from error
