"""Which of both ways through Spark a pipeline takes, and why (pure).

Rules, the first that applies:

1. Rows pass through Spark SQL when a function of the user is between topic and table.
2. They do when a rule is asked that only Spark can answer (`expectation_sql.is_in_task`), or the
   table has such a constraint.
3. They do when the user says so.
4. Everything else is done inside the task, which is several times faster.

A wish for `in_task` that rule 1 or 2 forbids is an error with the reason: a pipeline that silently
runs several times slower than its definition says would be found by nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.spark.tables.definition import Expectation, PipelineDefinition, RunMode
from penstock.spark.tables.definition_errors import DefinitionError
from penstock.spark.tables.expectation_sql import FUNCTIONS, is_in_task


@dataclass(frozen=True, slots=True)
class Plan:
    """What was chosen."""

    mode: RunMode
    """`IN_TASK` or `DATAFRAME`, never `AUTO`."""
    reasons: tuple[str, ...]
    """For a person; at least one."""


def choose_mode(
    definition: PipelineDefinition,
    *,
    has_transform: bool,
    columns: pa.Schema,
    constraints: Sequence[Expectation] = (),
    held: pa.Schema | None = None,
) -> Plan:
    """The way of this pipeline; `columns` are those of its rows, which rules are asked about.

    `constraints` are the rules of a table that is there, about the columns `held` that it has.
    """
    wanted = definition.pipeline.mode
    needs = _needs_of_spark(definition, has_transform=has_transform, columns=columns)
    if not has_transform:
        # As the table has them: what rows do not have is NULL there.
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
        # Its rules are asked about what the function returns, which nobody knows before it runs.
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
