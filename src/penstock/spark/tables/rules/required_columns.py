"""Checks the columns of a definition: of its key, rules and function (no IO).

Errors are raised before anything runs, with the existing columns. Rules that only Spark can parse
are not checked here: Spark reports them at the start of the pipeline.
"""

import pyarrow as pa

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import (
    STATE_REPORT,
    PipelineDefinition,
    SchemaSource,
    StateSettings,
    WriteMode,
)
from penstock.spark.tables.rules.rule_problems import rule_problem


def require_written_schema(definition: PipelineDefinition, *, has_transform: bool) -> None:
    """Raise if the schema is inferred: a function needs known columns before the table exists."""
    if has_transform and definition.value.schema_source is SchemaSource.INFERRED:
        raise DefinitionError(
            "",
            "value.schema",
            "an inferred schema is pinned by the table, whose columns are those of the function.",
            "Write the columns of the values as value.schema.",
        )


def require_event_time(state: StateSettings, columns: pa.Schema) -> None:
    """Raise `DefinitionError` if the event time is not a column with a point in time.

    The name of the reports, which are in a column beside it, is reserved.
    """
    taken = next((name for name in columns.names if name.lower() == STATE_REPORT), None)
    if taken is not None:
        raise DefinitionError(
            "",
            "value.schema",
            f"the column '{taken}' has the name of a column that a stateful pipeline needs.",
            "Rename it.",
        )
    if state.event_time in columns.names:
        kind = columns.field(state.event_time).type
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            return
        problem = f"the column '{state.event_time}' is {kind}, and not a timestamp."
    else:
        problem = f"there is no column '{state.event_time}': {', '.join(columns.names)[:500]}."
    raise DefinitionError(
        "",
        "state.event_time",
        problem,
        'Name a column of the type timestamp. For the time of the record write "_kafka_timestamp", '
        'and metadata = "flat" in [table].',
    )


def require_key_columns(definition: PipelineDefinition, columns: pa.Schema) -> None:
    """Raise `DefinitionError` if rows lack a key column: each row would be a reject."""
    if definition.table.mode is not WriteMode.UPSERT:
        return
    for name in definition.table.key:
        if name not in columns.names:
            raise DefinitionError(
                f"pipeline {definition.pipeline.name}",
                "table.key",
                f"rows have no column '{name}'.",
                f"Their columns are {_listed(columns)}.",
            )


def require_readable_rules(definition: PipelineDefinition, columns: pa.Schema | None) -> None:
    """Raise `DefinitionError` if a rule cannot be evaluated; columns of None are a function's."""
    for number, rule in enumerate(definition.expectations):
        problem = rule_problem(rule.sql, columns)
        if problem is not None:
            raise DefinitionError(
                "",
                f"expectations[{number}].sql",
                f"the rule {rule.sql!r} of '{rule.name}' cannot be evaluated: {problem}.",
                "Write a condition over the columns, such as amount > 0.",
            )


def with_others(asked: pa.Schema, held: pa.Schema) -> pa.Schema:
    """Return the columns that rules may use, including table columns that values now lack."""
    return pa.schema([*asked, *(one for one in held if one.name not in asked.names)])


def _listed(columns: pa.Schema) -> str:
    return ", ".join(columns.names)[:500]
