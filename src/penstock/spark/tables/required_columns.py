"""What a definition says of columns has to be possible: of a key, rules and a function (no IO).

Told before anything runs, with the columns that there are. Of a rule that only Spark can read
nothing is said here: Spark tells, when the pipeline starts.
"""

import pyarrow as pa

from penstock.spark.tables.definition import PipelineDefinition, SchemaSource, WriteMode
from penstock.spark.tables.definition_errors import DefinitionError
from penstock.spark.tables.rule_problems import rule_problem


def require_written_schema(definition: PipelineDefinition, *, has_transform: bool) -> None:
    """A function needs columns that are known before the table is there."""
    if has_transform and definition.value.schema_source is SchemaSource.INFERRED:
        raise DefinitionError(
            "",
            "value.schema",
            "an inferred schema is pinned by the table, whose columns are those of the function.",
            "Write the columns of the values as value.schema.",
        )


def require_key_columns(definition: PipelineDefinition, columns: pa.Schema) -> None:
    """`DefinitionError` when rows have no such column, so that each would be a reject."""
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
    """`DefinitionError` when nobody can evaluate a rule; columns of None are made by a function."""
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
    """What rules may be about: also columns that the table has and values have no more."""
    return pa.schema([*asked, *(one for one in held if one.name not in asked.names)])


def _listed(columns: pa.Schema) -> str:
    return ", ".join(columns.names)[:500]
