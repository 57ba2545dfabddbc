"""Columns that a definition names have to be there: those of the key, and those of rules (no IO).

Told before anything runs, with the columns that there are. Of a rule that only Spark can read
nothing is said here: Spark tells, when the pipeline starts.
"""

import pyarrow as pa

from penstock.spark.tables.definition import PipelineDefinition, WriteMode
from penstock.spark.tables.definition_errors import DefinitionError
from penstock.spark.tables.expectation_sql import missing_column


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


def require_rule_columns(definition: PipelineDefinition, columns: pa.Schema) -> None:
    """`DefinitionError` when a rule is about a column that neither values nor the table have."""
    for rule in definition.expectations:
        name = missing_column(rule.sql, columns)
        if name is not None:
            raise DefinitionError(
                f"pipeline {definition.pipeline.name}",
                f"expectations.{rule.name}",
                f"there is no column '{name}', which {rule.sql!r} is about.",
                f"Correct the rule. The columns are {_listed(columns)}.",
            )


def _listed(columns: pa.Schema) -> str:
    return ", ".join(columns.names)[:500]
