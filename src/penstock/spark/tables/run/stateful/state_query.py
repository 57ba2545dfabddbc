"""Starts the streaming query of a stateful pipeline."""

from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark.errors import SparkQueryError
from penstock.spark.progress.line import reason_of
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.run.dataframe_stage import Transform, transformed
from penstock.spark.tables.run.source import PLAN_OPTION, register
from penstock.spark.tables.run.stateful.records import StatePlan
from penstock.spark.tables.run.stateful.results import Reports
from penstock.spark.tables.run.stateful.state_source import StateSource
from penstock.spark.tables.run.stream_query import PipelineStoppedError


class NotAStreamError(SparkQueryError):
    """The function returned a DataFrame that is not computed from its stream."""


def start_stateful_query(
    spark: SparkSession,
    definition: PipelineDefinition,
    transform: Transform,
    plan: StatePlan,
    plan_path: str,
    reports: Reports,
    on_batch: Callable[[DataFrame, int], None],
    *,
    once: bool,
) -> StreamingQuery:
    """Start the query; Spark calls `on_batch` with the result of each micro-batch."""
    assert definition.state is not None, "the caller has a stateful definition"
    source = (
        spark.readStream.format(register(spark, StateSource))
        .schema(from_arrow_schema(plan.schema))
        .options(**definition.source_options())
        .option(PLAN_OPTION, plan_path)
        .load()
    )
    rows = reports.take_out(source, plan.columns)
    delay = f"{definition.state.delay_ms} milliseconds"
    result = transformed(rows.withWatermark(definition.state.event_time, delay), transform)
    name = definition.pipeline.name
    if not result.isStreaming:
        raise NotAStreamError(
            f"the function of pipeline '{name}' returned a DataFrame that is no stream. Return "
            "one that is computed from its argument."
        )
    writer = (
        result.writeStream.queryName(name)
        .outputMode("append")
        .option("checkpointLocation", definition.pipeline.checkpoint)
        .foreachBatch(on_batch)
    )
    interval = f"{definition.trigger.interval_ms} milliseconds"
    timed = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)
    try:
        return timed.start()
    except (PySparkException, Py4JError) as error:
        raise PipelineStoppedError(
            f"pipeline '{name}' did not start with checkpoint {definition.pipeline.checkpoint}: "
            f"{reason_of(str(error)).rstrip('.')}. Correct the function, or name a folder that "
            "can be written as pipeline.checkpoint. A changed function with the same state may "
            "need a new table, pipeline.name and pipeline.checkpoint."
        ) from error
