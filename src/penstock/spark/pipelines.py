"""Pipelines written in Python: decorators that create the same definition as a TOML file.

```python
@pipeline(
    name="orders",
    bootstrap_servers="127.0.0.1:9092",
    checkpoint="/var/lib/penstock/orders",
    source={"topics": ["orders"]},
    table={"format": "delta", "name": "shop.orders", "catalog": {"warehouse": "/warehouse"}},
    value={"format": "json", "schema": "id bigint, amount double"},
)
@expect_or_quarantine("positive_amount", "amount > 0")
def orders(rows: DataFrame) -> DataFrame:
    return rows.where("id IS NOT NULL")
```

Guarantees: the keys are those of the file's sections and are read by the same reader, so errors
have the same texts, and are raised when the module is loaded. Expectations keep the order in which
they are written, and apply to the rows that the function returns. A function needs Spark, so the
pipeline runs in DataFrame mode; `in_task` is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.many_tables import has_many_tables
from penstock.spark.tables.definition.model import Action, PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"
Function = TypeVar("Function", bound=Callable[..., Any])

_EXPECTATIONS = "__penstock_expectations__"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A definition, and the function that transforms its rows."""

    definition: PipelineDefinition
    transform: Transform

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Call the function itself, for tests."""
        return self.transform(rows)


def pipeline(
    *,
    name: str,
    bootstrap_servers: str,
    checkpoint: str,
    source: Mapping[str, Any],
    table: Mapping[str, Any],
    value: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
    maintenance: Mapping[str, Any] | None = None,
    mode: str = "dataframe",
    operation: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
) -> Callable[[Transform], Pipeline]:
    """Create a pipeline from a function; each mapping has the keys of the file's section.

    `operation` has the further keys of the section `pipeline`, such as `metrics_port`. With `state`
    the function gets a stream with a watermark, and its result is appended exactly once.
    """

    def decorate(transform: Transform) -> Pipeline:
        where = f"pipeline {transform.__module__}.{transform.__qualname__}"
        if mode == "in_task":
            raise DefinitionError(
                where,
                "pipeline.mode",
                "a function needs Spark, and in_task passes by it.",
                "Leave mode out, or write the pipeline as a file, without a function.",
            )
        # Python applies the decorator nearest to the function first.
        expectations = reversed(getattr(transform, _EXPECTATIONS, ()))
        document: dict[str, object] = {
            "pipeline": {
                **(operation or {}),
                "name": name,
                "bootstrap_servers": bootstrap_servers,
                "checkpoint": checkpoint,
                "mode": mode,
            },
            "source": source,
            "table": table,
            "value": value or {},
            "expectations": list(expectations),
            "trigger": trigger or {},
            "maintenance": maintenance or {},
            **({} if state is None else {"state": state}),
        }
        definition = read_definition(document, where)
        if has_many_tables(definition):
            raise DefinitionError(
                where,
                "table.name",
                "a function writes one table.",
                "Write the name without placeholders, or the pipeline as a file.",
            )
        return Pipeline(definition, transform)

    return decorate


def expect(name: str, sql: str) -> Callable[[Function], Function]:
    """Count rows that break the rule, and write them."""
    return _expectation(name, sql, Action.WARN)


def expect_or_drop(name: str, sql: str) -> Callable[[Function], Function]:
    """Count rows that break the rule, and do not write them."""
    return _expectation(name, sql, Action.DROP)


def expect_or_quarantine(name: str, sql: str) -> Callable[[Function], Function]:
    """Write the records of rows that break the rule to the table of bad records."""
    return _expectation(name, sql, Action.QUARANTINE)


def expect_or_fail(name: str, sql: str) -> Callable[[Function], Function]:
    """Stop at the first batch with a row that breaks the rule."""
    return _expectation(name, sql, Action.FAIL)


def _expectation(name: str, sql: str, action: Action) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        if isinstance(function, Pipeline):
            raise DefinitionError(
                f"pipeline {function.definition.pipeline.name}",
                "expectations",
                f"'{name}' stands above @pipeline.",
                "Write it below, nearer to the function.",
            )
        rule = {"name": name, "sql": sql, "action": action.value}
        setattr(function, _EXPECTATIONS, (*getattr(function, _EXPECTATIONS, ()), rule))
        return function

    return decorate
