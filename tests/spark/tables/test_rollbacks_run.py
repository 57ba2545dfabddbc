"""Pipelines whose table is put back, or whose topics change: nothing is left out or doubled."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.run.forgetting import forget_pipeline
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.tables.pipeline_world import World, order, wait_until
from tests.spark.topics import Record, create_topic, delete_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def send(world: World, topic: str, *numbers: int) -> None:
    produce(world.bootstrap, topic, [Record(value=order(number)) for number in numbers])


def pipeline_of(world: World, source: dict[str, Any]) -> TablePipeline:
    return TablePipeline(world.definition(source=source, trigger={"interval": "100 milliseconds"}))


def run_stream(spark: SparkSession, world: World, source: dict[str, Any]) -> None:
    """A stream, until it has committed what is there."""
    with pipeline_of(world, source).start(spark) as running:
        running.query.processAllAvailable()


def run_once(spark: SparkSession, world: World, source: dict[str, Any]) -> None:
    with pipeline_of(world, source).start(spark, once=True) as running:
        running.await_end()


def ids(world: World) -> list[int]:
    return sorted(world.rows()["id"].to_pylist())


@pytest.mark.parametrize("option", ["true", "false"])
def test_what_a_rollback_took_out_comes_again(
    spark: SparkSession, world: World, option: str
) -> None:
    later = f"{world.topic}-later"
    source = {
        "pattern": f"^{world.topic}",
        "options": {"failOnDataLoss": option},
    }
    send(world, world.topic, 1, 2)
    run_stream(spark, world, source)
    before = world.states()[0]
    with pipeline_of(world, source).start(spark) as running:
        send(world, world.topic, 3)
        create_topic(world.bootstrap, later)
        send(world, later, 4, 5)
        wait_until(running, lambda: ids(world) == [1, 2, 3, 4, 5])
        world.put_back(before)
        assert ids(world) == [1, 2]
        send(world, later, 6)
        with pytest.raises(CommitStoppedError, match="rolled back while") as caught:
            running.await_end(60)
        assert caught.value.reason is StopReason.WENT_BACK
    assert ids(world) == [1, 2]
    # With the checkpoint of before, which is ahead of the table.
    run_stream(spark, world, source)
    assert ids(world) == [1, 2, 3, 4, 5, 6]
    send(world, world.topic, 7)
    run_stream(spark, world, source)
    assert ids(world) == [1, 2, 3, 4, 5, 6, 7]
    for _ in range(2):
        world.put_back(before)  # and nothing comes to the topics
        run_stream(spark, world, source)
        assert ids(world) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_topic_may_be_taken_out_of_the_definition(
    spark: SparkSession, world: World, is_deleted: bool
) -> None:
    old = f"old-{world.topic}"
    create_topic(world.bootstrap, old)
    send(world, world.topic, 1)
    send(world, old, 2)
    run_stream(spark, world, {"topics": [world.topic, old]})
    assert ids(world) == [1, 2]
    if is_deleted:
        delete_topic(world.bootstrap, old)
    send(world, world.topic, 3)
    run_stream(spark, world, {"topics": [world.topic]})
    assert ids(world) == [1, 2, 3]
    send(world, world.topic, 4)
    run_once(spark, world, {"topics": [world.topic]})
    assert ids(world) == [1, 2, 3, 4]
    if not is_deleted:
        send(world, old, 5)
        run_once(spark, world, {"topics": [world.topic, old]})
        assert ids(world) == [1, 2, 3, 4, 5]


ADVICE = {
    "a new name and checkpoint": {"name": "orders-2", "checkpoint": "checkpoint-2"},
    "forget and a new checkpoint": {"checkpoint": "checkpoint-2"},
}


@pytest.mark.parametrize("advice", list(ADVICE))
def test_the_advice_about_a_topic_that_was_created_again_works(
    spark: SparkSession, world: World, advice: str
) -> None:
    """The message named a new checkpoint and failOnDataLoss=false, and neither helped."""
    send(world, world.topic, 1, 2, 3)
    run_stream(spark, world, {})
    delete_topic(world.bootstrap, world.topic)
    create_topic(world.bootstrap, world.topic)
    send(world, world.topic, 4, 5)
    for option in ("true", "false"):
        with pytest.raises(SparkQueryError, match=r"a new pipeline\.checkpoint"):
            run_once(spark, world, {"options": {"failOnDataLoss": option}})
    changed = ADVICE[advice] | {"checkpoint": f"{world.folder}/{ADVICE[advice]['checkpoint']}"}
    if advice.startswith("forget"):
        forget_pipeline(world.definition(), "orders")
    definition = world.definition(pipeline=changed, trigger={"interval": "100 milliseconds"})
    for _ in range(2):
        with TablePipeline(definition).start(spark) as running:
            running.query.processAllAvailable()
    assert ids(world) == [1, 2, 3, 4, 5]
