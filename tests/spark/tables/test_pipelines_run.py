"""Pipelines from a topic to a table: each record once, in the table or among the rejects."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark.tables.run.pipeline import TablePipeline
from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import NewTopic
from tests.spark.tables.pipeline_world import World, order
from tests.spark.topics import Record, produce

pytestmark = [pytest.mark.spark]


@pytest.fixture(params=["delta", "iceberg"])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, broker: RunningBroker, new_topic: NewTopic
) -> World:
    topic = new_topic(broker, partitions=2)
    return World(tmp_path, request.param, broker.bootstrap, topic)


def send(world: World, partition: int, *values: bytes | None) -> None:
    produce(
        world.bootstrap,
        world.topic,
        [Record(partition=partition, key=b"k", value=value) for value in values],
    )


def run_once(spark: SparkSession, world: World, **sections: Any) -> None:
    with TablePipeline(world.definition(**sections)).start(spark, once=True) as running:
        running.await_end()


@pytest.mark.parametrize("mode", ["in_task", "dataframe"])
def test_records_become_rows_and_bad_ones_rejects(
    spark: SparkSession, world: World, mode: str
) -> None:
    send(world, 0, *(order(n) for n in range(10)))
    send(world, 1, order(10), b"not json", order(11, amount="much"), order(12))
    run_once(spark, world, pipeline={"mode": mode})
    assert world.offsets() == [(0, n) for n in range(10)] + [(1, 0), (1, 3)]
    assert world.rejected() == [(1, 1), (1, 2)]
    rows = world.rows()
    assert sorted(rows["id"].to_pylist()) == [*range(11), 12]
    assert rows.column_names[:3] == ["id", "amount", "name"]
    found = world.rejects().sort_by("offset").to_pylist()
    assert [one["error_class"] for one in found] == ["malformed", "type_mismatch"]
    assert [one["value"] for one in found] == [b"not json", order(11, amount="much")]
