"""Batches of a stream with few records: the driver does them, and Spark's tasks when it cannot."""

from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.run import small_batches
from penstock.spark.tables.run.pipeline import RunningPipeline
from penstock.spark.tables.run.plan_file import PlanFile
from penstock.spark.tables.run.table_pipeline import TablePipeline
from penstock.spark.tables.tasks import orders
from tests.spark.tables.pipeline_world import World, wait_until
from tests.spark.topics import Record, produce

pytestmark = [pytest.mark.spark, pytest.mark.every_spark, pytest.mark.timeout(300)]

GOOD, BAD = b'{"id": 1, "amount": 0.5, "name": "a"}', b"not json"


@pytest.fixture
def partitions() -> int:
    return 2


def send(world: World, count: int, value: bytes = GOOD) -> None:
    """The same to each of two partitions."""
    records = [Record(value=value, partition=part) for _ in range(count) for part in (0, 1)]
    produce(world.bootstrap, world.topic, records)


def stream_of(world: World, **options: str) -> TablePipeline:
    """A pipeline with a batch as often as can be."""
    source = {"topics": [world.topic], "options": options}
    return TablePipeline(world.definition(source=source, trigger={"interval": "100 milliseconds"}))


def job_count(spark: SparkSession, running: RunningPipeline) -> int:
    """Jobs that Spark ran for the query."""
    tracker = spark.sparkContext.statusTracker()
    return len(tracker.getJobIdsForGroup(str(running.query.runId)))


def both(count: int) -> list[tuple[int, int]]:
    return [(part, offset) for part in (0, 1) for offset in range(count)]


def test_few_records_need_no_job_and_many_do(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batches, "SECONDS_MAX", 60.0)  # on a machine that is busy, too
    with stream_of(world).start(spark) as running:
        send(world, 3)
        wait_until(running, lambda: world.offsets() == both(3))
        send(world, 1, BAD)
        wait_until(running, lambda: world.rejected() == [(0, 3), (1, 3)])
        assert job_count(spark, running) == 0
        many = 5 * orders.SMALL_OFFSETS_MAX
        send(world, many)
        wait_until(running, lambda: len(world.offsets()) == 6 + 2 * many)
        assert job_count(spark, running) > 0
    assert world.offsets() == [one for one in both(4 + many) if one[1] != 3]


def test_what_the_driver_cannot_do_is_done_by_tasks(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[TaskSettings] = []

    def failing(_orders: object, settings: TaskSettings, *_: object) -> None:
        attempts.append(settings)
        raise ConnectionError("the test says so")

    monkeypatch.setattr(small_batches, "carry_out", failing)
    with stream_of(world, failOnDataLoss="false").start(spark) as running:
        send(world, 3)
        wait_until(running, lambda: world.offsets() == both(3))
        send(world, 3)
        wait_until(running, lambda: world.offsets() == both(6))
        assert job_count(spark, running) > 0
    assert len(attempts) == 1, "for a minute it does not try again"
    assert attempts[0].fail_on_data_loss, "tasks decide about losses"


def test_orders_of_another_batch_are_not_taken_for_this_one(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, first = PlanFile.take_batch, list[Sequence[orders.TaskOrder]]()

    def stale(file: PlanFile) -> Sequence[orders.TaskOrder]:
        found = real(file)
        if found and not first:
            first.append(found)
        return first[0] if first else found

    monkeypatch.setattr(PlanFile, "take_batch", stale)
    with stream_of(world).start(spark) as running:
        for count in (2, 4, 6):
            send(world, 2)
            wait_until(running, lambda count=count: world.offsets() == both(count))  # type: ignore[misc]
        assert job_count(spark, running) > 0


def test_a_stream_with_a_number_of_tasks_has_them(spark: SparkSession, world: World) -> None:
    with stream_of(world, minPartitions="2").start(spark) as running:
        send(world, 3)
        wait_until(running, lambda: world.offsets() == both(3))
        assert job_count(spark, running) > 0
