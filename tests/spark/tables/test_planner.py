"""The mode of a pipeline: chosen by its definition, or rejected with the reason."""

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import (
    Expectation,
    PipelineDefinition,
    PipelineSettings,
    RunMode,
    SourceSettings,
    TableFormat,
    TableSettings,
)
from penstock.spark.tables.rules.planner import choose_mode

COLUMNS = pa.schema([("id", pa.int64()), ("amount", pa.float64()), ("at", pa.string())])
PLAIN = Expectation("positive", "amount > 0")
SPARK_ONLY = Expectation("recent", "to_date(at) > date'2026-01-01'")


def definition(mode: RunMode, *rules: Expectation) -> PipelineDefinition:
    return PipelineDefinition(
        PipelineSettings("orders", "127.0.0.1:9092", "/checkpoint", mode),
        SourceSettings(("orders",)),
        TableSettings(TableFormat.DELTA, "shop.orders", (("warehouse", "/w"),)),
        expectations=rules,
    )


@pytest.mark.parametrize(
    ("mode", "rules", "has_transform", "chosen", "reason"),
    [
        (RunMode.AUTO, (), False, RunMode.IN_TASK, "nothing between"),
        (RunMode.AUTO, (PLAIN,), False, RunMode.IN_TASK, "the expectation"),
        (RunMode.AUTO, (PLAIN, replace(PLAIN, name="b")), False, RunMode.IN_TASK, "all 2"),
        (RunMode.AUTO, (PLAIN, SPARK_ONLY), False, RunMode.DATAFRAME, "'recent'"),
        (RunMode.AUTO, (PLAIN,), True, RunMode.DATAFRAME, "function"),
        (RunMode.IN_TASK, (PLAIN,), False, RunMode.IN_TASK, "says in_task"),
        (RunMode.DATAFRAME, (), False, RunMode.DATAFRAME, "says dataframe"),
        (RunMode.DATAFRAME, (SPARK_ONLY,), True, RunMode.DATAFRAME, "function"),
    ],
)
def test_the_way_and_why(
    mode: RunMode,
    rules: tuple[Expectation, ...],
    has_transform: bool,
    chosen: RunMode,
    reason: str,
) -> None:
    plan = choose_mode(definition(mode, *rules), has_transform=has_transform, columns=COLUMNS)
    assert plan.mode is chosen
    assert reason in " ".join(plan.reasons)


@pytest.mark.parametrize(("rules", "has_transform"), [((SPARK_ONLY,), False), ((), True)])
def test_a_wish_that_cannot_be_met_is_refused(
    rules: tuple[Expectation, ...], has_transform: bool
) -> None:
    with pytest.raises(DefinitionError, match="in_task is not possible") as caught:
        choose_mode(
            definition(RunMode.IN_TASK, *rules), has_transform=has_transform, columns=COLUMNS
        )
    assert caught.value.key == "pipeline.mode"
    assert "dataframe" in caught.value.remedy


def test_a_rule_about_a_column_that_is_not_there_is_left_to_spark() -> None:
    """A definition from Python may add the column; Spark says so when it does not."""
    plan = choose_mode(
        definition(RunMode.AUTO, Expectation("x", "nowhere > 0")),
        has_transform=False,
        columns=COLUMNS,
    )
    assert plan.mode is RunMode.DATAFRAME
