"""The advice in the message about a recreated topic works: without Spark."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from penstock.spark.errors import SparkQueryError
from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.run import jobs
from penstock.spark.tables.run import pipeline as running
from penstock.spark.tables.run.forgetting import forget_pipeline
from penstock.spark.tables.run.table_pipeline import TablePipeline
from penstock.spark.tables.tasks.orders import TaskOrder, carry_out
from penstock.spark.tables.tasks.report import TaskReport
from penstock.testing import Broker
from tests.spark.tables.pipeline_world import World, order
from tests.spark.topics import Record, create_topic, delete_topic, produce

pytestmark = pytest.mark.slow


def in_this_process(
    _spark: SparkSession, settings: TaskSettings, orders: Sequence[TaskOrder]
) -> list[TaskReport]:
    """What tasks do, without Spark."""
    return list(carry_out(orders, settings))


@pytest.fixture(params=["delta", "iceberg"])
def small_world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    for module in (jobs, running):
        monkeypatch.setattr(module, "run_orders", in_this_process)
    with Broker() as broker:
        create_topic(broker.bootstrap_server, "orders")
        yield World(tmp_path, request.param, broker.bootstrap_server, "orders")


def send(world: World, *numbers: int) -> None:
    produce(world.bootstrap, "orders", [Record(value=order(number)) for number in numbers])


def run(definition: PipelineDefinition) -> None:
    with TablePipeline(definition).start(cast("SparkSession", None), once=True) as query:
        query.await_end()


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_the_advice_works(small_world: World, *, is_forgotten: bool) -> None:
    """A new checkpoint and failOnDataLoss=false were named, and neither helped."""
    world = small_world
    send(world, 1, 2, 3)
    run(world.definition())
    delete_topic(world.bootstrap, "orders")
    create_topic(world.bootstrap, "orders")
    send(world, 4, 5)
    for option in ("true", "false"):
        with pytest.raises(SparkQueryError, match=r"a new pipeline\.checkpoint"):
            run(world.definition(source={"options": {"failOnDataLoss": option}}))
    if is_forgotten:
        forget_pipeline(world.definition(), "orders")
    name = "orders" if is_forgotten else "orders-2"
    for _ in range(2):
        run(world.definition(pipeline={"name": name}))
    assert sorted(world.rows()["id"].to_pylist()) == [1, 2, 3, 4, 5]
