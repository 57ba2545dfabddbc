"""Stateful functions into tables: totals, sessions, joins, late records, repeated batches.

Each total is compared with one that is computed from the records themselves.
"""

import json
import shutil
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.spark.tables.commit.decisions import Commit, Offer, TableState, note_after
from penstock.spark.tables.commit.note import CommitCounts
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.inspection.status import table_status
from penstock.spark.tables.rules.expectations import ExpectationFailedError
from penstock.spark.tables.run.stateful import running
from penstock.spark.tables.run.stateful.state_driver import StatefulDriver
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.tables.pipeline_world import World
from tests.spark.tables.state_world import (
    MINUTE,
    MORNING,
    Sale,
    definition_of,
    expected_totals,
    rows_in,
    run_once,
    send,
    totals,
    visits,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
COLUMNS = ("minute", "shop", "amount", "sales")
COLUMNS_OF_TOTALS = {
    "format": "json",
    "schema": "minute timestamp, shop string, amount bigint, sales bigint NOT NULL",
}
SALES = [Sale(n * 7, f"shop-{n % 3}", n) for n in range(60)]


def unfinish(world: World) -> None:
    """Let Spark repeat its last batch, as after a crash behind the table's commit."""
    commits = world.folder / "checkpoint" / "commits"
    last = max((one for one in commits.iterdir() if one.name.isdecimal()), key=_number)
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def _number(file: Path) -> int:
    return int(file.name)


@pytest.mark.every_spark
def test_totals_of_closed_windows_and_late_records(spark: SparkSession, world: World) -> None:
    send(world, *SALES[:30], b"not json")
    run_once(spark, world)
    # The newest sale is at 203 s, so the watermark is at 83 s: a sale at 83 s is late.
    in_time = Sale(84, "shop-0", 2)
    send(world, *SALES[30:], Sale(1, "shop-0", 1_000), Sale(83, "shop-0", 1), in_time)
    run_once(spark, world)
    closed = SALES[-1].at - 2 * MINUTE
    expected = expected_totals([*SALES, in_time], closed)
    assert rows_in(world, *COLUMNS) == expected
    rejects = world.rejects()
    found = zip(rejects["offset"].to_pylist(), rejects["error_class"].to_pylist(), strict=True)
    assert sorted(found) == [(30, "malformed"), (61, "late"), (62, "late")]
    [status] = table_status(definition_of(world)).pipelines
    assert status.state is not None
    assert status.state.late_count == 2
    assert status.state.watermark_ms == int(closed.timestamp() * 1_000)
    assert status.lag == 0
    unfinish(world)
    seen = run_once(spark, world)
    assert seen.batches[0].was_skipped
    assert rows_in(world, *COLUMNS) == expected
    assert world.rejects().num_rows == 3


def test_a_record_of_the_far_future_is_rejected_and_closes_no_window(
    spark: SparkSession, world: World
) -> None:
    poison = json.dumps({"at": "9999-12-31T23:59:59Z", "shop": "shop-0", "amount": 1}).encode()
    send(world, *SALES[:30], poison)
    run_once(spark, world)
    send(world, *SALES[30:])
    run_once(spark, world)
    closed = SALES[-1].at - 2 * MINUTE
    assert rows_in(world, *COLUMNS) == expected_totals(SALES, closed)
    rejects = world.rejects()
    assert rejects["offset"].to_pylist() == [30]
    assert rejects["error_class"].to_pylist() == ["future"]
    [status] = table_status(definition_of(world)).pipelines
    assert status.state is not None
    assert status.state.late_count == 0
    assert status.state.watermark_ms == int(closed.timestamp() * 1_000)


def test_records_that_the_function_leaves_out_close_no_window(
    spark: SparkSession, world: World
) -> None:
    """As in the guide: Spark's watermark is of the records that pass the conditions."""

    def totals_of_a(rows: DataFrame) -> DataFrame:
        return totals(rows.where("shop = 'a'"))

    send(world, Sale(10, "a", 1), Sale(600, "b", 5))
    run_once(spark, world, totals_of_a)
    assert rows_in(world, *COLUMNS) == []
    send(world, Sale(600, "a", 0))  # a heartbeat
    run_once(spark, world, totals_of_a)
    assert rows_in(world, *COLUMNS) == [(MORNING, "a", 1, 1)]


def test_records_that_an_expectation_leaves_out_close_windows(
    spark: SparkSession, world: World
) -> None:
    send(world, Sale(10, "a", 1), Sale(20, "b", 2), Sale(600, "b", 5))
    only_a = [{"name": "a", "sql": "shop = 'a'", "action": "drop"}]
    run_once(spark, world, expectations=only_a)
    assert rows_in(world, *COLUMNS) == [(MORNING, "a", 1, 1)]


def test_without_the_number_of_the_batch_rows_are_doubled(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(state: TableState, offer: Offer) -> Commit:
        note = note_after(state.notes["orders"], offer.ranges, CommitCounts())
        return Commit(replace(note, state=offer.state), after=state)

    send(world, *SALES)
    run_once(spark, world)
    expected = expected_totals(SALES, SALES[-1].at - 2 * MINUTE)
    assert rows_in(world, *COLUMNS) == expected
    unfinish(world)
    monkeypatch.setattr(running, "StatefulDriver", partial(StatefulDriver, rule=always))
    run_once(spark, world)
    assert rows_in(world, *COLUMNS) == sorted([*expected, *expected])


def test_sessions_and_dropped_late_records(spark: SparkSession, world: World) -> None:
    state = {"event_time": "at", "delay": "1 minute", "late": "drop"}
    send(world, *(Sale(second, "a", 1) for second in (0, 20, 49, 90, 100)), Sale(10, "b", 7))
    run_once(spark, world, visits, state=state)
    send(world, Sale(5, "b", 100), Sale(125, "a", 1), Sale(300, "a", 50))
    run_once(spark, world, visits, state=state)
    assert rows_in(world, "begin", "shop", "amount") == [
        (MORNING, "a", 3),
        (MORNING + timedelta(seconds=10), "b", 7),
        (MORNING + timedelta(seconds=90), "a", 3),
    ]
    [status] = table_status(definition_of(world, state=state)).pipelines
    assert status.state is not None
    assert status.state.late_count == 1
    assert world.rejects().num_rows == 0


def test_a_lost_or_old_checkpoint_is_refused_and_changes_nothing(
    spark: SparkSession, world: World
) -> None:
    checkpoint = world.folder / "checkpoint"
    copy = world.folder / "copy"
    send(world, *SALES[:30])
    run_once(spark, world)
    shutil.copytree(checkpoint, copy)
    send(world, *SALES[30:])
    run_once(spark, world)
    epoch = table_status(definition_of(world)).pipelines[0].epoch
    shutil.rmtree(checkpoint)
    with pytest.raises(CommitStoppedError, match="there is no checkpoint") as lost:
        run_once(spark, world)
    assert lost.value.reason is StopReason.OTHER_CHECKPOINT
    copy.rename(checkpoint)
    with pytest.raises(CommitStoppedError, match="restored from an old copy"):
        run_once(spark, world)
    plain = TablePipeline(world.definition(value=COLUMNS_OF_TOTALS))
    with pytest.raises(CommitStoppedError, match="the definition has none"):
        plain.start(spark, once=True)
    expected = expected_totals(SALES, SALES[-1].at - 2 * MINUTE)
    assert rows_in(world, *COLUMNS) == expected
    assert table_status(definition_of(world)).pipelines[0].epoch == epoch, "no owner was ended"


def test_rules_apply_to_results(spark: SparkSession, world: World) -> None:
    send(world, *SALES)
    drop = [{"name": "some", "sql": "amount > 60", "action": "drop"}]
    run_once(spark, world, expectations=drop)
    expected = expected_totals(SALES, SALES[-1].at - 2 * MINUTE)
    kept = [one for one in expected if one[2] > 60]
    assert rows_in(world, *COLUMNS) == kept
    assert 0 < len(kept) < len(expected)
    fail = [{"name": "none", "sql": "amount < 0", "action": "fail"}]
    send(world, Sale(900, "a", 1))
    with pytest.raises(ExpectationFailedError, match="none"):
        run_once(spark, world, expectations=fail)
    assert rows_in(world, *COLUMNS) == kept
    run_once(spark, world, expectations=drop)  # the batch again, with the same state
    whole = expected_totals(SALES, Sale(900, "a", 1).at - 2 * MINUTE)
    assert rows_in(world, *COLUMNS) == [one for one in whole if one[2] > 60]


def test_two_kinds_of_records_are_joined(spark: SparkSession, world: World) -> None:
    def paid(rows: DataFrame) -> DataFrame:
        orders = rows.where("kind = 'order'").selectExpr("id", "at", "amount")
        payments = rows.where("kind = 'payment'").selectExpr("id AS paid_id", "at AS paid_at")
        within = "id = paid_id AND paid_at >= at AND paid_at <= at + INTERVAL 5 MINUTES"
        return orders.join(payments, f.expr(within)).select("id", "amount", "paid_at")

    def record(second: int, kind: str, number: int) -> bytes:
        at = (MORNING + timedelta(seconds=second)).isoformat()
        return json.dumps({"at": at, "kind": kind, "id": number, "amount": number * 10}).encode()

    value = {"format": "json", "schema": "at timestamp, kind string, id bigint, amount bigint"}
    orders = [record(number * 10, "order", number) for number in range(6)]
    send(world, *orders, record(30, "payment", 1), record(400, "payment", 2), b"bad")
    run_once(spark, world, paid, value=value)
    assert rows_in(world, "id", "amount") == [(1, 10)]
    send(world, record(340, "payment", 5), record(330, "payment", 4), record(300, "payment", 0))
    run_once(spark, world, paid, value=value)
    assert rows_in(world, "id", "amount") == [(0, 0), (1, 10), (4, 40), (5, 50)]
    assert world.rejects().num_rows == 1, "although both sides of the join read the records"
