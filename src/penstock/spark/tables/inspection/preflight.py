"""`preflight`: reports detectable problems before Spark is started.

Spark needs many seconds to start, and a running pipeline retries an unreachable broker for a
minute. `preflight` reports these errors immediately. A pipeline that passes may still fail later:
no values were read, and nothing was written. `check` examines more, and reports all problems.
"""

from typing import Final

import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.spark.tables.definition.errors import as_written
from penstock.spark.tables.definition.model import PipelineDefinition, SchemaSource
from penstock.spark.tables.definition.partial_updates import require_whole_in_task
from penstock.spark.tables.definition.state_section import require_function
from penstock.spark.tables.formats.arranging import needed_arrangement
from penstock.spark.tables.formats.opening import (
    TableMissingError,
    open_table,
    require_format,
    require_makeable,
)
from penstock.spark.tables.inspection.requirements import (
    require_columns,
    require_fitting,
    table_columns,
)
from penstock.spark.tables.inspection.topics import TopicsLook
from penstock.spark.tables.rules.required_columns import (
    require_event_time,
    require_readable_rules,
    require_written_schema,
    with_others,
)
from penstock.spark.tables.values.columns import with_metadata_columns
from penstock.spark.tables.values.value_parsers import new_parser, plan_parser

ATTEMPTS: Final = 3
"""A new topic may not be known to every broker."""


def preflight(definition: PipelineDefinition, *, has_transform: bool) -> None:
    """Raise the first problem, in the terms of the definition."""
    try:
        require_format(definition.table)
        _require_topics(definition)
        _require_table(definition, _value_columns(definition, has_transform=has_transform))
    except PenstockError as error:
        translated = as_written(error, "")
        if translated is error:
            raise
        raise translated from None


def _require_topics(definition: PipelineDefinition) -> None:
    look = TopicsLook(definition, attempts=ATTEMPTS)
    try:
        look.seen()
    finally:
        look.close()


def _value_columns(definition: PipelineDefinition, *, has_transform: bool) -> pa.Schema | None:
    """Return the columns of the values, if they are known before values are read."""
    value = definition.value
    require_function(definition, has_transform=has_transform)
    require_whole_in_task(definition, has_transform=has_transform, constraints=())
    require_written_schema(definition, has_transform=has_transform)
    # A registry's schema that does not fit an existing table may cause bad records, but does not
    # stop the pipeline.
    if value.schema_source in {SchemaSource.INFERRED, SchemaSource.REGISTRY}:
        return None
    schema = new_parser(plan_parser(value, definition.source.topics)).schema
    if definition.state is not None:
        require_event_time(
            definition.state, with_metadata_columns(schema, definition.table.metadata)
        )
    return schema if schema.names and not has_transform else None


def _require_table(definition: PipelineDefinition, values: pa.Schema | None) -> None:
    settings = definition.table
    columns = None if values is None else table_columns(definition, values)
    asked = None if values is None else with_metadata_columns(values, settings.metadata)
    try:
        table = open_table(settings, settings.name)
    except TableMissingError:
        require_makeable(settings)
        require_readable_rules(definition, asked)
        if columns is not None:
            require_columns(definition, columns)
        return
    try:
        needed_arrangement(settings, definition.pipeline.name, table, table.load())  # or raises
        held = table.schema()
        require_readable_rules(definition, None if asked is None else with_others(asked, held))
        if columns is not None:
            grown = require_fitting(table, settings.name, columns).schema
            require_columns(definition, columns, grown)
    finally:
        table.close()
