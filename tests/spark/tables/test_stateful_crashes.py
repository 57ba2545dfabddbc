"""Stateful pipelines that crash between their two commits: rejects are in the table, rows are not.

The batch is repeated, by another definition if the user changed it meanwhile. Its rejects then
replace those of the crashed attempt, so each record is in a total or a bad record, never in both.
"""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark.tables.commit.steps import Rule
from penstock.spark.tables.run.committer import TableCommitter
from penstock.spark.tables.run.stateful.state_driver import RULE
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.state_world import (
    MINUTE,
    VALUE,
    expected_totals,
    rows_in,
    run_once,
    send,
)
from tests.spark.tables.test_stateful_changes import STRICT
from tests.spark.tables.test_stateful_run import COLUMNS, SALES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
LENIENT = {**STRICT, "reject_share_max": 1.0}


class CrashError(Exception):
    """The driver has crashed."""


def crash_before_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TableCommitter.commit

    def commit(self: TableCommitter, *given: Any, rule: Rule | None = None, **rest: Any) -> object:  # noqa: ANN401
        if rule is RULE:
            raise CrashError
        return whole(self, *given, rule=rule, **rest) if rule else whole(self, *given, **rest)

    monkeypatch.setattr(TableCommitter, "commit", commit)


def test_a_corrected_definition_replaces_the_rejects_of_a_crashed_batch(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(world, *SALES, b"not json")
    with monkeypatch.context() as crashed:
        crash_before_rows(crashed)
        with pytest.raises(CrashError):
            run_once(spark, world, value=LENIENT)
    assert world.rejects().num_rows == len(SALES) + 1, "the crash was after their commit"
    run_once(spark, world, value=VALUE)
    assert rows_in(world, *COLUMNS) == expected_totals(SALES, SALES[-1].at - 2 * MINUTE)
    assert world.rejects()["offset"].to_pylist() == [60]
