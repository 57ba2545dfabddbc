"""Prepares a pipeline before its first batch: topics, schema, mode and tables.

All errors of a definition are raised here, before a record is read: a missing topic, an unreadable
schema, a rule about a missing column, a table that cannot hold the rows.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.spark.offsets import StreamOffset
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.options import Mode, SourceOptions
from penstock.spark.source.task_reader import TaskSettings, read_range
from penstock.spark.tables.definition.errors import DefinitionError, SchemaError
from penstock.spark.tables.definition.model import (
    Expectation,
    PipelineDefinition,
    RunMode,
    SchemaSource,
    StateSettings,
)
from penstock.spark.tables.definition.source_reading import read_resolved_options
from penstock.spark.tables.definition.state_section import require_function
from penstock.spark.tables.formats.arranging import needed_arrangement
from penstock.spark.tables.formats.opening import TableMissingError, make_table, open_table
from penstock.spark.tables.formats.port import Table
from penstock.spark.tables.formats.rejects import REJECTS
from penstock.spark.tables.rules.planner import Plan, choose_mode
from penstock.spark.tables.rules.required_columns import (
    require_event_time,
    require_key_columns,
    require_readable_rules,
    require_written_schema,
    with_others,
)
from penstock.spark.tables.rules.watermarks import require_one_watermark
from penstock.spark.tables.run.dataframe_stage import (
    Transform,
    arrow_schema,
    table_columns,
    transformed,
)
from penstock.spark.tables.run.plans import Plans, derived_names, require_change, value_columns
from penstock.spark.tables.run.spark_rules import require_rules
from penstock.spark.tables.values.columns import VALUE, table_schema, with_metadata_columns
from penstock.spark.tables.values.json.inference import SAMPLE_VALUES_MAX, infer_schema
from penstock.spark.tables.values.registered_values import MisfitError, TableColumns
from penstock.spark.tables.values.schema_changes import all_nullable
from penstock.spark.tables.values.value_parsers import ParserPlan, new_parser, plan_parser
from penstock.spark.task_jobs import is_connect

LOGGER: Final = logging.getLogger(__name__)
SAMPLE_OFFSETS_MAX: Final = 1_000
"""The number of offsets of each partition for the inference of a schema."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The topics of a pipeline."""

    options: SourceOptions
    cluster: Cluster
    lookups: Lookups
    first: StreamOffset
    """The start of reading in the definition."""
    is_shared: bool = False
    """Whether several pipelines use the cluster, and their caller closes it."""

    def close(self) -> None:
        """Close the cluster, if this pipeline alone uses it."""
        if not self.is_shared:
            self.cluster.close()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A pipeline that is ready to begin."""

    mode: Plan
    plans: Plans
    rows: Table
    rejects: Table


def open_reading(definition: PipelineDefinition, shared: Cluster | None = None) -> Reading:
    """Find the topics, in an open cluster if there is one; the caller closes the result."""
    options = read_resolved_options(definition.source_options(), Mode.STREAM)
    cluster = open_cluster(options.client) if shared is None else shared
    try:
        lookups = Lookups(cluster, options)
        first = lookups.first_position()
        return Reading(options, cluster, lookups, first, is_shared=shared is not None)
    except BaseException:
        if shared is None:
            cluster.close()
        raise


def prepare(
    spark: SparkSession,
    definition: PipelineDefinition,
    transform: Transform | None,
    reading: Reading,
) -> Prepared:
    """Read the schema, choose the mode, create missing tables."""
    settings = definition.table
    require_function(definition, has_transform=transform is not None)
    require_written_schema(definition, has_transform=transform is not None)
    held = _held_columns(definition)
    parser = _parser_plan(definition, reading, held)
    if parser.registry is None:
        value_schema = new_parser(parser).schema
    else:
        value_schema = _registered_columns(parser, held if transform is None else None)
    whole = table_schema(value_schema, settings.metadata)
    asked = with_metadata_columns(value_schema, settings.metadata)
    constraints, columns = _constraints(definition)
    mode = choose_mode(
        definition,
        has_transform=transform is not None,
        columns=asked,
        constraints=constraints,
        held=columns,
    )
    if mode.mode is RunMode.DATAFRAME and is_connect(spark):
        raise _needs_classic(definition, mode)
    # A registry may have no schema yet: then the first values add the columns.
    is_known = len(value_schema) > 0
    may_be_asked = asked if held is None else with_others(asked, held.columns)
    if transform is None and is_known:
        require_key_columns(definition, asked)
        require_readable_rules(definition, may_be_asked)
    if mode.mode is RunMode.DATAFRAME and (is_known or transform is not None):
        staged = may_be_asked if transform is None else asked
        rules = (*constraints, *definition.expectations)
        result = _result_schema(spark, definition, transform, staged, rules, columns)
        whole = whole if transform is None else result
        require_key_columns(definition, whole)
    rows = make_table(settings, settings.name, whole)
    rejects = make_table(settings, settings.dlq_name, REJECTS)
    if transform is None:
        may_widen = rows.may_widen
        known = value_columns(definition, rows.schema())
        value_schema = require_change(known, value_schema, may_widen=may_widen).schema
    plans = Plans(
        definition,
        parser,
        value_schema,
        rows,
        rejects,
        is_staged=mode.mode is RunMode.DATAFRAME,
        has_transform=transform is not None,
    )
    plans.change_for(whole)  # raises now, and not in the first batch
    return Prepared(mode, plans, rows, rejects)


def _needs_classic(definition: PipelineDefinition, mode: Plan) -> DefinitionError:
    return DefinitionError(
        f"pipeline {definition.pipeline.name}",
        "pipeline.mode",
        f"it needs the mode dataframe ({'; '.join(mode.reasons)}), which does not run over Spark "
        "Connect: rules are evaluated in a copy of the session, with its settings fixed, and Spark "
        "Connect has no copy of a DataFrame's session.",
        "Run it with a driver of its own, such as --master local[*] or spark://host:7077, or let "
        "tasks do all the work: no function, and rules that a task can evaluate.",
    )


def _held_columns(definition: PipelineDefinition) -> TableColumns | None:
    """Return the columns of values in the table; None without a table."""
    try:
        table = open_table(definition.table, definition.table.name)
    except TableMissingError:
        return None
    try:
        columns = value_columns(definition, table.schema())
        return TableColumns(columns, table.may_widen, derived_names(table))
    finally:
        table.close()


def _constraints(
    definition: PipelineDefinition,
) -> tuple[tuple[Expectation, ...], pa.Schema | None]:
    """Return the rules of the table's owner, and their columns; None without a table.

    Raises if the pipeline may not change the partitions or the order of the table.
    """
    settings = definition.table
    try:
        table = open_table(settings, settings.name)
    except TableMissingError:
        return (), None
    try:
        needed_arrangement(settings, definition.pipeline.name, table, table.load())
        return table.constraints(), table.schema()
    finally:
        table.close()


def _registered_columns(parser: ParserPlan, held: TableColumns | None) -> pa.Schema:
    """Return the columns of a registry's newest schema, with those of the table.

    If that schema does not fit, its values are rejects, as in a running pipeline: an error at the
    start would stop the values of all other schemas.
    """
    try:
        newest = all_nullable(new_parser(parser).schema)  # the next schema may lack a column
    except SchemaError as error:
        if held is None:
            raise
        LOGGER.warning("Values of the registry's newest schema are bad records: %s", error)
        return held.columns
    if held is None:
        return newest
    try:
        return held.with_columns(newest)
    except MisfitError as error:
        LOGGER.warning("Values of the registry's newest schema are bad records: %s", error)
        return held.columns


def _parser_plan(
    definition: PipelineDefinition, reading: Reading, held: TableColumns | None
) -> ParserPlan:
    pinned = None
    if definition.value.schema_source is SchemaSource.INFERRED:
        # An inferred schema is pinned in the table.
        pinned = (
            held.columns
            if held is not None
            else infer_schema(_sample(reading), f"topic {_topic_names(definition)}")
        )
    return plan_parser(definition.value, definition.source.topics, pinned)


def _topic_names(definition: PipelineDefinition) -> str:
    return ", ".join(definition.source.topics) or str(definition.source.pattern)


def _sample(reading: Reading) -> Iterator[bytes | None]:
    """Return values from the beginning of each partition."""
    latest = reading.lookups.latest()
    earliest = reading.lookups.earliest(latest.positions)
    settings = TaskSettings.of(reading.options)
    found = (
        value
        for at, position in sorted(latest.positions.items())
        for batch in read_range(
            reading.cluster,
            ReadTask(
                OffsetRange(
                    at,
                    earliest[at],
                    min(position.offset, earliest[at] + SAMPLE_OFFSETS_MAX),
                ),
                latest.topic_ids.get(at.topic),
                position.leader_epoch,
            ),
            settings,
        )
        for value in batch.column("value").to_pylist()
    )
    return islice(found, SAMPLE_VALUES_MAX)


def _empty_stream(spark: SparkSession, state: StateSettings, columns: pa.Schema) -> DataFrame:
    """Return a stream with these columns and a watermark, to see what the function returns."""
    kinds = from_arrow_schema(all_nullable(columns))
    nothing = [lit(None).cast(one.dataType).alias(one.name) for one in kinds]
    stream = spark.readStream.format("rate").load().select(*nothing)
    return stream.withWatermark(state.event_time, f"{state.delay_ms} milliseconds")


def _result_schema(
    spark: SparkSession,
    definition: PipelineDefinition,
    transform: Transform | None,
    columns: pa.Schema,
    rules: Sequence[Expectation],
    held: pa.Schema | None,
) -> pa.Schema:
    """Return the schema of the user's function for such rows; rules apply to its columns."""
    if definition.state is not None:
        require_event_time(definition.state, columns)
        result = transformed(_empty_stream(spark, definition.state, columns), transform)
        require_one_watermark(result, definition.pipeline.name)
    else:
        given = from_arrow_schema(pa.schema([*columns, VALUE]))
        result = transformed(spark.createDataFrame([], given), transform)
    require_rules(result, rules, definition.pipeline.name, held)
    return arrow_schema(result.select(*table_columns(result, definition, rules)))
