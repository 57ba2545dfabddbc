"""Pipelines whose definition gets other partitions and another order between two starts.

Each record is in the table or among the rejects, once, and new files have the new arrangement.
"""

from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.manifest import DataFile
from pyspark.sql import SparkSession

from penstock.core.errors import PenstockError
from penstock.spark.tables.formats.port import PartitionsDifferError
from penstock.spark.tables.inspection.check import check_pipeline
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.tables.pipeline_world import World, order
from tests.spark.topics import Record, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

DAYS = {"partition_by": ["day(_kafka.timestamp)"]}
BUCKETS = {
    "partition_by": ["bucket(4, id)", "truncate(1000, id)"],
    "sort_by": ["name desc", "_kafka.offset"],
}
UPSERT = {"mode": "upsert", "key": ["id"]}
LEAST = -(2**63)
"""It has no multiple of 1,000 below it."""
WAYS: dict[str, dict[str, Any]] = {
    "in_task": {"small_batches": False},
    "by_the_driver": {},
    "dataframe": {"mode": "dataframe"},
}


def send(world: World, *numbers: int) -> None:
    records = [Record(key=b"k", value=order(number)) for number in numbers]
    produce(world.bootstrap, world.topic, records)


def run(spark: SparkSession, world: World, way: str, *, once: bool, **table: Any) -> None:  # noqa: ANN401
    definition = world.definition(
        pipeline=WAYS[way], table=table, trigger={"interval": "100 milliseconds"}
    )
    with TablePipeline(definition).start(spark, once=once) as running:
        if once:
            running.await_end()
        else:
            running.query.processAllAvailable()


def files(world: World) -> list[DataFile]:
    with load_catalog("default", **world.catalog) as catalog:
        return [one.file for one in catalog.load_table("shop.orders").scan().plan_files()]


def ids(world: World) -> list[int]:
    return sorted(world.rows()["id"].to_pylist())


@pytest.mark.parametrize("mode", [{}, UPSERT, {**UPSERT, "upserts": "merge_on_read"}], ids=str)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_a_changed_definition_arranges_new_files(
    spark: SparkSession, world: World, way: str, mode: dict[str, Any]
) -> None:
    send(world, 1, 2, 3)
    run(spark, world, way, once=False, **DAYS, **mode)
    send(world, 3, 1004, LEAST, -5)
    run(spark, world, way, once=False, **BUCKETS, **mode)
    assert ids(world) == sorted([1, 2, 3, 1004, -5] + ([3] if not mode else []))
    assert world.rejected() == [(0, 5)]
    (message,) = world.rejects()["message"].to_pylist()
    assert "truncate(1000, id)" in message
    found = files(world)
    rewrites = mode == UPSERT  # copy on write: the key 3 is in the only file of before
    assert {one.spec_id for one in found} == ({1} if rewrites else {0, 1})
    assert {one.sort_order_id for one in found if one.spec_id == 1} == {1}
    send(world, 2005)
    run(spark, world, way, once=True, **mode)  # without the keys the table keeps them
    assert 2005 in ids(world)
    assert {(one.spec_id, one.sort_order_id) for one in files(world)} <= {(0, None), (1, 1)}


@pytest.mark.parametrize("world", ["iceberg"], indirect=True)
def test_a_table_of_two_pipelines_is_refused_before_anything_is_written(
    spark: SparkSession, world: World
) -> None:
    send(world, 1, 2)
    run(spark, world, "in_task", once=True, **DAYS)
    other = world.definition(pipeline={"name": "returns"}, table=BUCKETS)
    before = world.states()
    with pytest.raises(PartitionsDifferError, match=r"other pipelines write to it, too \(orders\)"):
        TablePipeline(other).start(spark, once=True)
    assert world.states() == before
    changed = world.definition(table=BUCKETS)
    report = check_pipeline(changed, has_transform=False)
    (text,) = [one.text for one in report.checks if one.name == "table"]
    assert "new files would get other partitions or order" in text


@pytest.mark.parametrize("world", ["delta"], indirect=True)
def test_a_delta_table_keeps_its_partitions(spark: SparkSession, world: World) -> None:
    send(world, 1, 2)
    run(spark, world, "in_task", once=True, partition_by=["year(_kafka.timestamp)"])
    years = set(world.rows()["_kafka_timestamp_year"].to_pylist())
    assert all(len(one) == 4 for one in years)
    with pytest.raises(PenstockError, match="partitions of a Delta table cannot change"):
        run(spark, world, "in_task", once=True, **DAYS)
