"""Chooses the execution mode of a pipeline in Spark, with the reasons (pure).

Rules, the first that applies:

1. Rows pass through Spark SQL if the user has a function between topic and table.
2. They also do if only Spark can evaluate a rule (`rules.sql.is_in_task`), or the table has such a
   constraint.
3. They also do if the user sets this mode.
4. In all other cases tasks do all the work, which is several times faster.

A setting `in_task` that rule 1 or 2 forbids is an error with the reason: otherwise a pipeline would
silently run several times slower than its definition says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import Expectation, PipelineDefinition, RunMode
from penstock.spark.tables.definition.partial_updates import require_whole_in_task
from penstock.spark.tables.rules.sql import FUNCTIONS, is_in_task


@dataclass(frozen=True, slots=True)
class Plan:
    """The chosen mode."""

    mode: RunMode
    """`IN_TASK` or `DATAFRAME`, never `AUTO`."""
    reasons: tuple[str, ...]
    """The reasons for the user; at least one."""


def choose_mode(
    definition: PipelineDefinition,
    *,
    has_transform: bool,
    columns: pa.Schema,
    constraints: Sequence[Expectation] = (),
    held: pa.Schema | None = None,
) -> Plan:
    """Return the mode of this pipeline; `columns` are those of its rows, which rules use.

    `constraints` are the rules of an existing table, about its columns `held`.
    """
    require_whole_in_task(definition, has_transform=has_transform, constraints=constraints)
    wanted = definition.pipeline.mode
    needs = _needs_of_spark(definition, has_transform=has_transform, columns=columns)
    if not has_transform:
        # Use the table's columns: a column that a row lacks is NULL.
        others = [one for one in columns if held is None or one.name not in held.names]
        whole = pa.schema([*(held or ()), *others])
        needs += tuple(
            f"only Spark can evaluate the table's constraint '{rule.name}': {rule.sql}"
            for rule in constraints
            if not is_in_task(rule.sql, whole)
        )
    if needs and wanted is RunMode.IN_TASK:
        raise DefinitionError(
            f"pipeline {definition.pipeline.name}",
            "pipeline.mode",
            f"in_task is not possible: {'; '.join(needs)}.",
            'Write mode = "auto" or "dataframe". In a task rules may use columns, numbers, texts, '
            "comparisons, AND, OR, NOT, BETWEEN, IN, IS NULL, LIKE, +, -, * and "
            f"{', '.join(sorted(FUNCTIONS))}.",
        )
    if needs:
        return Plan(RunMode.DATAFRAME, needs)
    if wanted is RunMode.AUTO:
        return Plan(RunMode.IN_TASK, (_everything_in_task(definition),))
    return Plan(wanted, (f"the definition says {wanted.value}",))


def _needs_of_spark(
    definition: PipelineDefinition, *, has_transform: bool, columns: pa.Schema
) -> tuple[str, ...]:
    if has_transform:
        # The definition's rules apply to the function's rows, whose columns are unknown before it
        # runs.
        return ("rows pass through a function, which needs a DataFrame",)
    return tuple(
        f"only Spark can evaluate expectation '{rule.name}': {rule.sql}"
        for rule in definition.expectations
        if not is_in_task(rule.sql, columns)
    )


def _everything_in_task(definition: PipelineDefinition) -> str:
    rules = len(definition.expectations)
    if not rules:
        return "nothing between topic and table needs Spark SQL"
    return f"a task can evaluate {'the expectation' if rules == 1 else f'all {rules} expectations'}"
