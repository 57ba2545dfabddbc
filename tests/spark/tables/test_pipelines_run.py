"""Pipelines from a topic to a table: each record once, in the table or among the rejects."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError
from penstock.spark.tables.commit.owned_tables import Owned
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.definition.errors import SchemaError
from penstock.spark.tables.files.storages import StoreError
from penstock.spark.tables.rules.expectations import ExpectationFailedError
from penstock.spark.tables.run.backfill import BackfillRefusedError, backfill
from penstock.spark.tables.run.batches import BatchDriver
from penstock.spark.tables.run.dataframe_stage import Transform
from penstock.spark.tables.run.events import BatchDone, MaintenanceDone
from penstock.spark.tables.run.pipeline import RunningPipeline
from penstock.spark.tables.run.replay import RejectFilter, replay
from penstock.spark.tables.run.stream_query import PipelineStoppedError
from penstock.spark.tables.run.table_pipeline import TablePipeline, breaker_of
from tests.oracle.running_broker import RunningBroker
from tests.spark.conftest import NewTopic
from tests.spark.tables.pipeline_world import VALUE, World, order
from tests.spark.topics import Record, delete_records_before, produce

pytestmark = [pytest.mark.spark]
FORMATS = ["delta", "iceberg"]
MODES = ["in_task", "dataframe"]


@pytest.fixture
def partitions() -> int:
    return 2


class Seen:
    """The events of a pipeline."""

    def __init__(self) -> None:
        self.batches: list[BatchDone] = []
        self.cares: list[MaintenanceDone] = []

    def batch_done(self, event: BatchDone) -> None:
        self.batches.append(event)

    def maintenance_done(self, event: MaintenanceDone) -> None:
        self.cares.append(event)


def send(world: World, partition: int, *values: bytes | None, key: bytes = b"k") -> None:
    records = [Record(partition=partition, key=key, value=value) for value in values]
    produce(world.bootstrap, world.topic, records)


def run_once(
    spark: SparkSession,
    world: World,
    transform: Transform | None = None,
    **sections: Any,  # noqa: ANN401 - sections of a definition
) -> Seen:
    seen = Seen()
    pipeline = TablePipeline(world.definition(**sections), transform=transform, observer=seen)
    with pipeline.start(spark, once=True) as running:
        running.await_end()
    return seen


def run_stream(spark: SparkSession, world: World, **sections: Any) -> None:  # noqa: ANN401
    """A stream, until it has committed what is there."""
    definition = world.definition(trigger={"interval": "100 milliseconds"}, **sections)
    with TablePipeline(definition).start(spark) as running:
        running.query.processAllAvailable()


def spans(*found: tuple[int, Sequence[int]]) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, offsets in found for offset in offsets]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.every_spark
def test_records_become_rows_and_bad_ones_rejects(
    spark: SparkSession,
    tmp_path: Path,
    broker: RunningBroker,
    new_topic: NewTopic,
    format_: str,
    mode: str,
) -> None:
    world = World(tmp_path, format_, broker.bootstrap, new_topic(broker, partitions=2))
    send(world, 0, *(order(n) for n in range(10)))
    send(world, 1, order(10), b"not json", order(11, amount="much"), order(12))
    seen = run_once(spark, world, pipeline={"mode": mode})
    assert world.offsets() == spans((0, range(10)), (1, [0, 3]))
    assert world.rejected() == [(1, 1), (1, 2)]
    rows = world.rows()
    assert sorted(rows["id"].to_pylist()) == [*range(11), 12]
    assert rows.column_names[:3] == ["id", "amount", "name"]
    found = world.rejects().sort_by("offset").to_pylist()
    assert [one["error_class"] for one in found] == ["malformed", "type_mismatch"]
    assert [one["value"] for one in found] == [b"not json", order(11, amount="much")]
    (batch,) = seen.batches
    assert (batch.records, batch.rows, batch.rejects) == (14, 12, 2)
    assert batch.lags == {world.topic: 0}
    send(world, 0, order(20))
    run_once(spark, world, pipeline={"mode": mode})
    assert world.offsets() == spans((0, range(11)), (1, [0, 3]))


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_may_be_deleted_or_set_back(
    spark: SparkSession, world: World, tmp_path: Path, mode: str
) -> None:
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    sections: dict[str, Any] = {"pipeline": {"mode": mode}}
    send(world, 0, *(order(n) for n in range(5)), b"bad")
    run_stream(spark, world, **sections)
    shutil.copytree(checkpoint, copy)
    send(world, 0, *(order(n) for n in range(5)), b"bad")
    run_stream(spark, world, **sections)
    shutil.rmtree(checkpoint)
    copy.rename(checkpoint)
    # The records after the old checkpoint are deleted from the topic, and are not a loss.
    delete_records_before(world.bootstrap, world.topic, 0, 8)
    send(world, 1, order(1))
    run_stream(spark, world, **sections)
    expected = spans((0, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]), (1, [0]))
    assert world.offsets() == expected
    shutil.rmtree(checkpoint)
    send(world, 1, order(2), b"bad")
    run_stream(spark, world, **sections)
    assert world.offsets() == [*expected, (1, 1)]
    assert world.rejected() == [(0, 5), (0, 11), (1, 2)]
    run_once(spark, world, **sections)
    send(world, 0, order(3))
    run_once(spark, world, **sections)
    run_stream(spark, world, **sections)
    assert world.offsets() == sorted([*expected, (1, 1), (0, 12)])


@pytest.mark.parametrize("mode", MODES)
def test_rules_warn_drop_quarantine_and_fail(spark: SparkSession, world: World, mode: str) -> None:
    rules = [
        {"name": "small", "sql": "amount < 2", "action": "warn"},
        {"name": "named", "sql": "name <> 'n1'", "action": "drop"},
        {"name": "positive", "sql": "amount > 0", "action": "quarantine"},
    ]
    sections: dict[str, Any] = {"pipeline": {"mode": mode}, "expectations": rules}
    send(world, 0, *(order(n) for n in range(10)))
    seen = run_once(spark, world, **sections)
    assert world.offsets() == spans((0, range(2, 10)))
    assert world.rejected() == [(0, 0)]
    reject = world.rejects().to_pylist()[0]
    assert (reject["error_class"], reject["value"]) == ("expectation", order(0))
    assert seen.batches[0].expectations == {"small": 2, "named": 1, "positive": 1}
    send(world, 0, order(1, amount=-1))
    rules[2]["action"] = "fail"
    # maxOffsetsPerTrigger: there is a batch after the one that fails.
    send(world, 0, order(7))
    limited = {"options": {"maxOffsetsPerTrigger": "1"}}
    pipeline = TablePipeline(world.definition(**sections, source=limited))
    with pipeline.start(spark, once=True) as running:
        for _ in range(2):
            with pytest.raises(ExpectationFailedError, match="positive"):
                running.await_end()
    assert world.offsets() == spans((0, range(2, 10)))
    rules[2]["action"] = "warn"
    rules[1]["action"] = "warn"
    run_once(spark, world, **sections)
    assert world.offsets() == spans((0, range(2, 12)))


def test_rules_that_only_spark_understands_choose_the_way_through_it(
    spark: SparkSession, world: World
) -> None:
    send(world, 0, order(1), order(2, name="x2"))
    rules = [{"name": "form", "sql": "name RLIKE '^n[0-9]+$'", "action": "quarantine"}]
    run_once(spark, world, expectations=rules)
    assert (world.offsets(), world.rejected()) == ([(0, 0)], [(0, 1)])


def test_a_function_between_topic_and_table(spark: SparkSession, world: World) -> None:
    def doubled(rows: DataFrame) -> DataFrame:
        return rows.where("id <> 3").selectExpr("id", "amount * 2 AS twice", "_kafka")

    send(world, 0, *(order(n) for n in range(5)), b"bad")
    run_once(spark, world, transform=doubled)
    rows = world.rows().sort_by("id")
    assert rows.column_names == ["id", "twice", "_kafka"]
    assert rows["id"].to_pylist() == [0, 1, 2, 4]
    assert rows["twice"].to_pylist() == [0.0, 0.5, 1.0, 2.0]
    assert world.rejected() == [(0, 5)]


@pytest.mark.parametrize("mode", MODES)
def test_upserts_keep_the_last_of_each_key_and_tombstones_delete(
    spark: SparkSession, world: World, mode: str
) -> None:
    sections: dict[str, Any] = {
        "pipeline": {"mode": mode},
        "table": {"mode": "upsert", "key": ["id"]},
    }
    for number in range(4):
        send(world, 0, order(number), key=str(number).encode())
    send(world, 0, order(1, name="newer"), b'{"amount": 1}', key=b"1")
    run_once(spark, world, **sections)
    named = {one["id"]: one["name"] for one in world.rows().to_pylist()}
    assert named == {0: "n0", 1: "newer", 2: "n2", 3: "n3"}
    assert world.rejected() == [(0, 5)]
    send(world, 0, None, key=b"2")
    send(world, 0, None, key=b"not a number")
    send(world, 0, order(3, name="newest"), key=b"3")
    run_once(spark, world, **sections)
    named = {one["id"]: one["name"] for one in world.rows().to_pylist()}
    assert named == {0: "n0", 1: "newer", 3: "newest"}
    assert world.rejected() == [(0, 5), (0, 7)]


def test_partial_updates_keep_the_other_columns(spark: SparkSession, world: World) -> None:
    table = {"mode": "upsert", "key": ["id"], "partial_updates": True}
    sections: dict[str, Any] = {"pipeline": {"small_batches": False}, "table": table}
    for number in range(3):
        send(world, 0, order(number), key=str(number).encode())
    run_once(spark, world, **sections)
    send(world, 0, b'{"id": 0, "name": "a"}', b'{"id": 0, "amount": null}', b'{"name": "x"}')
    send(world, 1, None, b'{"id": 2, "name": "b"}', key=b"2")
    run_once(spark, world, **sections)
    found = {one["id"]: (one["name"], one["amount"]) for one in world.rows().to_pylist()}
    assert found == {0: ("a", None), 1: ("n1", 0.25), 2: ("b", None)}
    assert world.rejected() == [(0, 5)]


@pytest.mark.parametrize("mode", MODES)
def test_rejects_are_replayed_once(spark: SparkSession, world: World, mode: str) -> None:
    narrow = {"format": "json", "schema": "id int, amount double, name string"}
    send(world, 0, order(1), order(2**40), b"bad", order(2))
    run_once(spark, world, pipeline={"mode": mode}, value=narrow)
    assert world.rejected() == [(0, 1), (0, 2)]
    # A Delta table cannot be widened, so there the rule changes.
    value = {"format": "json", "schema": "id bigint, amount double, name string"}
    if world.format == "delta":
        value["schema"] = "id int, amount double, name string"
    definition = world.definition(pipeline={"mode": mode}, value=value)
    done = replay(definition, spark, where=RejectFilter(topic=world.topic))
    inserted = 1 if world.format == "iceberg" else 0
    assert (done.records, done.rows, done.rejects) == (2, inserted, 2 - inserted)
    assert world.offsets() == spans((0, [0, 1, 3] if inserted else [0, 3]))
    left = world.rejects().to_pylist()
    assert {(one["offset"], one["attempt"]) for one in left} == (
        {(2, 2)} if inserted else {(1, 2), (2, 2)}
    )
    assert {one["pipeline"] for one in left} == {"orders"}
    again = replay(definition, spark, where=RejectFilter(error_class="malformed"))
    assert (again.records, again.rows) == (1, 0)
    send(world, 0, order(5))
    run_once(spark, world, pipeline={"mode": mode}, value=value)
    assert len(world.offsets()) == len(set(world.offsets())) == 3 + inserted


def test_a_backfill_commits_what_was_before_the_pipeline(spark: SparkSession, world: World) -> None:
    send(world, 0, *(order(n) for n in range(10)), b"bad")
    definition = world.definition(source={"starting_offsets": "latest"})
    with TablePipeline(definition).start(spark, once=True) as running:
        running.await_end()
    send(world, 0, order(11))
    run_once(spark, world, source={"starting_offsets": "latest"})
    assert world.offsets() == [(0, 11)]
    told: list[int] = []
    done = backfill(
        definition,
        spark,
        start="earliest",
        end="latest",
        portion_offsets=4,
        on_commit=lambda now: told.append(now.commits),
    )
    assert told == [1, 2, 3]
    assert done.portions == 3
    assert (done.commits, done.records, done.rows, done.rejects) == (3, 11, 10, 1)
    assert world.offsets() == spans((0, [*range(10), 11]))
    assert world.rejected() == [(0, 10)]
    again = backfill(definition, spark, start="earliest", end="latest")
    assert again.commits == 0
    with pytest.raises(BackfillRefusedError):
        backfill(definition, spark, start="earliest", end="1")


def test_a_run_that_ends_fails_when_most_of_its_records_were_bad(
    spark: SparkSession, world: World
) -> None:
    send(world, 0, *(b"bad" for _ in range(8)), order(1), order(2))
    with pytest.raises(CircuitOpenError, match=r"80\.0% of the last 10 records.*next run cont"):
        run_once(spark, world)
    assert world.offsets() == [(0, 8), (0, 9)]
    send(world, 0, b"bad", b"bad", order(3))
    run_once(spark, world)
    assert world.offsets() == [(0, 8), (0, 9), (0, 12)], "three records prove nothing"
    send(world, 0, b"bad", b"bad")
    with pytest.raises(CircuitOpenError, match=r"100\.0% of the last 2 records"):
        run_once(spark, world)


@pytest.mark.parametrize("is_response_lost", [False, True])
def test_a_run_that_ends_is_judged_by_all_attempts_of_its_command(
    spark: SparkSession, world: World, is_response_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt commits the bad records and fails; the second one commits the rest."""
    send(world, 0, *(b"bad" for _ in range(8)), order(1), order(2))
    definition = world.definition()
    owned, breaker = Owned("one command"), breaker_of(definition)
    pipeline = TablePipeline(definition, owned=owned, breaker=breaker)

    def away(*_: object) -> None:
        raise StoreError("the store is unreachable")

    with monkeypatch.context() as patched:
        if is_response_lost:
            commit = BatchDriver.commit
            patched.setattr(BatchDriver, "commit", lambda *given: away(commit(*given)))
        else:
            patched.setattr(RunningPipeline, "_maintain_tables", away)
        with pytest.raises(StoreError), pipeline.start(spark, once=True) as running:
            running.await_end()
    assert world.offsets() == [(0, 8), (0, 9)]
    send(world, 0, order(3), order(4), order(5))
    again = TablePipeline(definition, owned=owned, breaker=breaker)
    with (
        pytest.raises(CircuitOpenError, match=r"61\.5% of the last 13 records"),
        again.start(spark, once=True) as running,
    ):
        running.await_end()
    assert world.offsets() == [(0, number) for number in range(8, 13)]
    run_once(spark, world)  # another command


def test_a_restart_stops_if_a_batch_without_a_response_was_too_bad(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good records that follow would push the bad ones out of the window."""
    send(world, 0, *(b"bad" for _ in range(8)), order(1), order(2))
    definition = world.definition(value={**VALUE, "reject_window_records": 10})
    owned, breaker = Owned("one command"), breaker_of(definition)
    commit = BatchDriver.commit

    def away(_done: object) -> None:
        raise StoreError("the store is unreachable")

    with monkeypatch.context() as patched:
        patched.setattr(BatchDriver, "commit", lambda *given: away(commit(*given)))
        pipeline = TablePipeline(definition, owned=owned, breaker=breaker)
        with pytest.raises(StoreError), pipeline.start(spark, once=True) as running:
            running.await_end()
    assert len(world.rejected()) == 8
    again = TablePipeline(definition, owned=owned, breaker=breaker)
    with pytest.raises(CircuitOpenError, match=r"80\.0% of the last 10 records"):
        again.start(spark)


def test_a_checkpoint_that_cannot_be_written_is_named(spark: SparkSession, world: World) -> None:
    send(world, 0, order(1))
    (world.folder / "file").touch()
    definition = world.definition(pipeline={"checkpoint": f"{world.folder}/file/checkpoint"})
    with pytest.raises(PipelineStoppedError, match=r"with checkpoint .*/file/checkpoint: .*not a"):
        TablePipeline(definition).start(spark)


def test_too_many_bad_records_open_the_circuit(spark: SparkSession, world: World) -> None:
    send(world, 0, *(b"bad" for _ in range(20)), order(1))
    value = {
        "format": "json",
        "schema": "id bigint, amount double, name string",
        "reject_share_max": 0.5,
        "reject_window_records": 10,
    }
    with pytest.raises(CircuitOpenError, match=r"shop\.orders__dlq"):
        run_once(spark, world, value=value)
    assert world.offsets() == [(0, 20)]
    assert len(world.rejected()) == 20


def test_a_driver_that_was_replaced_commits_nothing(spark: SparkSession, world: World) -> None:
    send(world, 0, order(1))
    slow = world.definition(trigger={"interval": "1 second"})
    with TablePipeline(slow).start(spark) as first:
        first.query.processAllAvailable()
        second = world.definition(pipeline={"checkpoint": f"{world.folder}/other"})
        # A session of its own: Spark has one query of a name in each.
        with TablePipeline(second).start(spark.newSession(), once=True) as running:
            running.await_end()
        send(world, 0, order(2))
        with pytest.raises(CommitStoppedError) as caught:
            first.await_end(60)
        assert caught.value.reason is StopReason.FENCED
    assert world.offsets() == [(0, 0)]


def test_a_schema_that_the_table_cannot_take_is_told_before_the_first_batch(
    spark: SparkSession, world: World
) -> None:
    send(world, 0, order(1))
    run_once(spark, world)
    with pytest.raises(SchemaError, match="'amount' is double in the table and string"):
        run_once(spark, world, value={"format": "json", "schema": "id bigint, amount string"})


def test_inferred_columns_are_pinned_by_the_table(spark: SparkSession, world: World) -> None:
    send(world, 0, order(1))
    run_once(spark, world, value={"format": "json"})
    assert world.rows().column_names[:3] == ["id", "amount", "name"]
    send(world, 0, order(2, more=1), order(3, amount="x"))
    run_once(spark, world, value={"format": "json"})
    assert world.offsets() == [(0, 0), (0, 1)]
    assert world.rejected() == [(0, 2)]
