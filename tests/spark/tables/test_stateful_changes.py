"""Stateful pipelines whose definition is corrected: each record is in a total or a bad record."""

from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.inspection.status import table_status
from penstock.spark.tables.operation.failures import failure_of
from penstock.spark.tables.rules.watermarks import SecondWatermarkError
from penstock.spark.tables.run.dataframe_stage import RowRefusedError
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.state_world import (
    MINUTE,
    STATE,
    VALUE,
    Sale,
    definition_of,
    expected_totals,
    rows_in,
    run_once,
    send,
    totals,
)
from tests.spark.tables.test_stateful_run import COLUMNS, SALES, unfinish

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
STRICT = {**VALUE, "schema": f"{VALUE['schema']}, note string NOT NULL"}
"""A schema that the sales do not fit; the state of the totals is the same with it."""
CLOSED = SALES[-1].at - 2 * MINUTE


def test_a_breaker_opens_before_the_commit_of_its_batch(spark: SparkSession, world: World) -> None:
    send(world, *SALES, b"not json")
    with pytest.raises(CircuitOpenError, match="Nothing of the last batch was committed") as opened:
        run_once(spark, world, value={**STRICT, "reject_window_records": 10})
    assert "missing_value 60, malformed 1" in str(opened.value)
    assert world.rejects().num_rows == 0
    [status] = table_status(definition_of(world)).pipelines
    assert status.state is None
    run_once(spark, world)
    assert rows_in(world, *COLUMNS) == expected_totals(SALES, CLOSED)
    assert world.rejects()["offset"].to_pylist() == [60], "no record is in a total and a reject"


def test_a_run_that_ends_is_judged_by_few_records(spark: SparkSession, world: World) -> None:
    send(world, *SALES[:12])
    for _ in range(2):
        with pytest.raises(CircuitOpenError, match=r"100\.0% of the last 12.*repeats the batch"):
            run_once(spark, world, value=STRICT)
        assert world.rejects().num_rows == 0, "state cannot be corrected after the commit"
    run_once(spark, world)
    send(world, b"bad", b"bad", SALES[12])
    run_once(spark, world)
    assert world.rejects().num_rows == 2, "three records prove nothing"
    send(world, b"bad")
    with pytest.raises(CircuitOpenError, match=r"100\.0% of the last 1 records.*continues after"):
        run_once(spark, world)
    assert world.rejects().num_rows == 3
    run_once(spark, world)


def test_a_changed_definition_is_refused_until_the_batch_is_finished(
    spark: SparkSession, world: World
) -> None:
    lenient = {"reject_share_max": 1.0, "reject_window_records": 10}
    send(world, *SALES)
    run_once(spark, world, value={**STRICT, **lenient})
    assert world.rejects().num_rows == len(SALES)
    unfinish(world)

    def doubled(rows: DataFrame) -> DataFrame:
        return totals(rows.withColumn("amount", f.col("amount") * 2))

    for function, value in ((totals, VALUE), (doubled, STRICT)):
        with pytest.raises(CommitStoppedError, match="the function were changed") as changed:
            run_once(spark, world, function, value=value)
        assert changed.value.reason is StopReason.CHANGED_BATCH
        assert not failure_of(changed.value).may_pass
    # A repeated batch does not count for the breaker, whose limits are no part of the meaning.
    seen = run_once(spark, world, value={**STRICT, "reject_window_records": 10})
    assert seen.batches[0].was_skipped
    later = [Sale(1_000 + one.second, one.shop, one.amount) for one in SALES]
    send(world, *later)
    run_once(spark, world)
    expected = expected_totals(later, CLOSED + timedelta(seconds=1_000))
    assert rows_in(world, *COLUMNS) == expected, "without an unfinished batch a change is allowed"
    assert world.rejects().num_rows == len(SALES)


def test_a_result_that_cannot_be_written_stops_before_the_commit(
    spark: SparkSession, world: World
) -> None:
    def beyond(rows: DataFrame) -> DataFrame:
        far = f.when(f.col("amount") == 7, f.expr("timestamp_micros(253402300800000000)"))
        return rows.withColumn("until", f.coalesce(far, "at"))

    send(world, *(Sale(number, "a", number) for number in range(10)))
    with pytest.raises(RowRefusedError, match=r"column 'until' holds .*Correct the func") as error:
        run_once(spark, world, beyond)
    assert failure_of(error.value).word == "data"
    assert world.rejects().num_rows == 0
    drop = [{"name": "near", "sql": "amount <> 7", "action": "drop"}]
    run_once(spark, world, beyond, expectations=drop)
    assert rows_in(world, "amount") == [(n,) for n in range(10) if n != 7]


def test_a_watermark_of_the_function_is_refused_at_the_start(
    spark: SparkSession, world: World
) -> None:
    send(world, *SALES)
    with pytest.raises(SecondWatermarkError, match="Remove the call from the function"):
        run_once(spark, world, lambda rows: totals(rows.withWatermark("at", STATE["delay"])))
    assert not (world.folder / "checkpoint").exists()
