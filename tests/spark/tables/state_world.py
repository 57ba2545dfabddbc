"""Stateful pipelines for tests: orders with a time, functions with state, and their totals."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.run.dataframe_stage import Transform
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.tables.pipeline_world import World
from tests.spark.topics import Record, produce

MORNING = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
VALUE = {"format": "json", "schema": "at timestamp, shop string, amount bigint"}
STATE = {"event_time": "at", "delay": "2 minutes"}
MINUTE = timedelta(minutes=1)


class Seen:
    """The events of a pipeline."""

    def __init__(self) -> None:
        self.batches: list[BatchDone] = []

    def batch_done(self, event: BatchDone) -> None:
        self.batches.append(event)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        """Nothing is asked about it."""


@dataclass(frozen=True)
class Sale:
    """One record."""

    second: int
    """Of the event, after the morning's begin."""
    shop: str
    amount: int

    @property
    def at(self) -> datetime:
        return MORNING + timedelta(seconds=self.second)

    def value(self) -> bytes:
        return json.dumps(
            {"at": self.at.isoformat(), "shop": self.shop, "amount": self.amount}
        ).encode()


def totals(rows: DataFrame) -> DataFrame:
    """Totals of each shop and minute."""
    return (
        rows.groupBy(f.window("at", "1 minute"), "shop")
        .agg(f.sum("amount").alias("amount"), f.count("*").alias("sales"))
        .select(f.col("window.start").alias("minute"), "shop", "amount", "sales")
    )


def visits(rows: DataFrame) -> DataFrame:
    """Sessions of each shop that end after half a minute without a sale."""
    return (
        rows.groupBy(f.session_window("at", "30 seconds").alias("session"), "shop")
        .agg(f.sum("amount").alias("amount"))
        .select(f.col("session.start").alias("begin"), "shop", "amount")
    )


def expected_totals(sales: Sequence[Sale], until: datetime) -> list[tuple[Any, ...]]:
    """The totals of the minutes that end at or before this time."""
    found: dict[tuple[datetime, str], tuple[int, int]] = {}
    for one in sales:
        minute = one.at.replace(second=0)
        if minute + MINUTE <= until:
            amount, count = found.get((minute, one.shop), (0, 0))
            found[minute, one.shop] = (amount + one.amount, count + 1)
    return sorted((minute, shop, *both) for (minute, shop), both in found.items())


def rows_in(world: World, *names: str) -> list[tuple[Any, ...]]:
    """These columns of the table's rows, in order; a double is there twice."""
    rows = world.rows()
    return sorted(zip(*(rows[name].to_pylist() for name in names), strict=True))


def definition_of(world: World, **sections: Any) -> PipelineDefinition:  # noqa: ANN401
    return world.definition(
        **{"value": VALUE, "state": STATE, "trigger": {"interval": "100 milliseconds"}, **sections}
    )


def send(world: World, *values: bytes | Sale, partition: int = 0) -> None:
    records = [
        Record(partition=partition, value=one.value() if isinstance(one, Sale) else one)
        for one in values
    ]
    produce(world.bootstrap, world.topic, records)


def run_once(
    spark: SparkSession,
    world: World,
    function: Transform = totals,
    **sections: Mapping[str, Any] | list[Any],
) -> Seen:
    """Run the pipeline to the current end of its topic."""
    seen = Seen()
    pipeline = TablePipeline(definition_of(world, **sections), transform=function, observer=seen)
    with pipeline.start(spark, once=True) as running:
        running.await_end()
    return seen
