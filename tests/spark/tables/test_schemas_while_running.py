"""Schemas that change while a pipeline runs, by a real registry: no restart, nothing lost.

A column is added, widened, left out, and made another type. Records that the table cannot hold are
in the table of bad records with the reason; those that became readable later are inserted once, by
a replay.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark.tables.run.replay import replay
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.oracle.schema_registry import SchemaRegistry, schema_registry
from tests.spark.tables.pipeline_world import World, wait_until
from tests.spark.tables.test_registry_apicurio import encoded, framed, order
from tests.spark.topics import Record, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    with schema_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def optional(name: str, kind: str) -> tuple[str, list[str]]:
    return (name, ["null", kind])


class Producer:
    """Sends Avro values of whatever schema, as producers with a registry do."""

    def __init__(self, world: World, registry: SchemaRegistry) -> None:
        self._world = world
        self._registry = registry

    def send(self, value: dict[str, Any], *fields: tuple[str, object]) -> int:
        schema = order(*fields)
        schema_id = self._registry.register(f"{self._world.topic}-value", json.dumps(schema))
        data = framed(schema_id, encoded(schema, value))
        produce(self._world.bootstrap, self._world.topic, [Record(value=data)])
        return schema_id


@pytest.mark.parametrize("mode", ["in_task", "dataframe"])
def test_columns_come_widen_go_and_clash(
    spark: SparkSession, world: World, registry: SchemaRegistry, mode: str
) -> None:
    producer = Producer(world, registry)
    producer.send({"id": 1, "amount": 1}, ("id", "long"), ("amount", "int"))
    definition = world.definition(
        pipeline={"mode": mode},
        value={"format": "avro", "schema": registry.address},
        trigger={"interval": "200 milliseconds"},
    )
    with TablePipeline(definition).start(spark) as running:
        wait_until(running, lambda: world.offsets() == [(0, 0)])
        added = (("id", "long"), ("amount", "int"), optional("name", "string"))
        producer.send({"id": 2, "amount": 2, "name": "two"}, *added)
        wait_until(running, lambda: (0, 1) in world.offsets())
        producer.send({"id": 3, "amount": 2**40}, ("id", "long"), ("amount", "long"))
        producer.send({"id": 4}, ("id", "long"))
        producer.send({"id": "five"}, ("id", "string"))
        producer.send({"id": 6, "amount": 6, "name": "six"}, *added)
        wait_until(running, lambda: (0, 5) in world.offsets())
        assert running.query.exception() is None
    rows = {one["id"]: one for one in world.rows().to_pylist()}
    assert (rows[2]["name"], rows[6]["name"]) == ("two", "six")
    assert (rows[1]["name"], rows[4]["amount"]) == (None, None)
    rejected = world.rejects().to_pylist()
    assert {one["error_class"] for one in rejected} == {"incompatible_schema"}
    if world.format == "iceberg":
        assert rows[3]["amount"] == 2**40
        assert [one["offset"] for one in rejected] == [4]
    else:
        # Columns of a Delta table are not widened.
        assert sorted(one["offset"] for one in rejected) == [2, 4]


def test_what_became_readable_is_replayed_once(
    spark: SparkSession, world: World, registry: SchemaRegistry
) -> None:
    producer = Producer(world, registry)
    # Schemas that were not registered before: a registry has one id for each text.
    own = optional(f"of_{world.topic.replace('-', '_')}", "string")
    known = producer.send({"id": 1}, ("id", "long"), own)
    schema = order(("id", "long"), own, optional("more", "string"))
    later = framed(known + 1, encoded(schema, {"id": 2, "more": "yes"}))
    produce(world.bootstrap, world.topic, [Record(value=later, headers=(("h", b"1"),))])
    definition = world.definition(value={"format": "avro", "schema": registry.address})
    with TablePipeline(definition).start(spark, once=True) as running:
        running.await_end()
    (reject,) = world.rejects().to_pylist()
    assert (reject["error_class"], reject["schema_id"]) == ("unknown_schema", known + 1)
    assert reject["headers"] == [{"key": "h", "value": b"1"}]
    found = registry.register(f"{world.topic}-value", json.dumps(schema))
    assert found == known + 1, "registries count upwards"
    done = replay(definition, spark)
    assert (done.records, done.rows, done.rejects) == (1, 1, 0)
    assert world.offsets() == [(0, 0), (0, 1)]
    assert sorted(str(one["more"]) for one in world.rows().to_pylist()) == ["None", "yes"]
    assert world.rejected() == []
    assert replay(definition, spark).records == 0
