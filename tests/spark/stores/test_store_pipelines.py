"""Whole pipelines into tables in a store.

By the command line, as a user types it: `check`, `run --once` and `status`, without a secret in any
output. And in each mode: batches, bad records and their replay, maintenance with compaction, expiry
and orphans. The rows are compared with the topic.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.core.clock import SystemClock
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.files.data_files import FilesWriter
from penstock.spark.tables.formats.opening import open_table
from penstock.spark.tables.run.events import MaintenanceDone
from penstock.spark.tables.run.maintenance_now import maintain_now
from penstock.spark.tables.run.replay import replay
from penstock.spark.tables.run.table_pipeline import TablePipeline
from tests.spark.conftest import BrokerNamed, NewTopic
from tests.spark.stores.lake import Lake
from tests.spark.tables.pipeline_world import World, order
from tests.spark.tables.table_kinds import SetClock
from tests.spark.topics import Record, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

KINDS = ("rest", "sql", "delta", "delta path", "local path")
COUNT = 50
BAD = 3


def world_of(kind: str, lake: Lake, folder: Path, bootstrap: str, topic: str) -> World:
    if kind == "local path":
        return World(folder, "delta", bootstrap, topic, {}, f"{folder}/by path/orders")
    return lake.world(kind, folder, bootstrap, topic)


def write_definition(world: World, *, schema: str) -> Path:
    """The definition as a file, with references in the place of secrets."""
    catalog = ", ".join(f'"{name}" = "{text}"' for name, text in world.catalog.items())
    file = world.folder / "orders.toml"
    file.write_text(
        f'[pipeline]\nname = "orders"\nbootstrap_servers = "{world.bootstrap}"\n'
        f'checkpoint = "{world.folder}/checkpoint"\n[source]\ntopics = ["{world.topic}"]\n'
        f'[table]\nformat = "{world.format}"\nname = "shop.orders"\n'
        + (f"catalog = {{ {catalog} }}\n" if catalog else "")
        + (f'path = "{world.path}"\n' if world.path else "")
        + f'[value]\nformat = "json"\nschema = "{schema}"\nreject_share_max = 0.9\n'
    )
    return file


def penstock(lake: Lake, *words: str | Path) -> str:
    """Run a command of `penstock table`; its output has no secret."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "table", *map(str, words)],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert lake.store.secret_key not in output
    return done.stdout


@pytest.mark.parametrize("kind", ["rest", "delta path"])
def test_the_command_line(
    kind: str, lake: Lake, tmp_path: Path, broker_named: BrokerNamed, new_topic: NewTopic
) -> None:
    broker = broker_named("penstock")
    world = world_of(kind, lake, tmp_path, broker.bootstrap, new_topic(broker))
    send(world, 0, COUNT)
    file = write_definition(world, schema="id bigint, amount double, name string")
    assert "failed" not in penstock(lake, "check", file)
    assert f"{COUNT} rows" in penstock(lake, "run", file, "--once")
    assert world.offsets() == [(0, number) for number in range(COUNT)]
    shown = penstock(lake, "status", file)
    assert f"last commit: {COUNT} rows" in shown


def send(world: World, start: int, count: int, bad: int = 0) -> None:
    values = [order(number) for number in range(start, start + count)]
    values += [b'{"id": 1, "amount": "many"}'] * bad
    produce(world.bootstrap, world.topic, map(Record, values))


def run_once(spark: SparkSession, definition: PipelineDefinition) -> None:
    with TablePipeline(definition).start(spark, once=True) as running:
        running.await_end()


def follow_pipeline(world: World, mode: str, spark: SparkSession) -> None:
    """Run batches, bad records, maintenance and a replay, and compare the rows with the topic."""
    more: dict[str, Any] = {
        "pipeline": {"mode": mode},
        "source": {"options": {"maxOffsetsPerTrigger": str(COUNT // 10)}},
        "maintenance": {"expire_snapshots": "1 minute"},
    }
    strict = world.definition(**more)
    send(world, 0, COUNT, BAD)
    run_once(spark, strict)
    whole = [(0, number) for number in range(COUNT)]
    assert world.offsets() == whole
    assert world.rejected() == [(0, COUNT + number) for number in range(BAD)]
    send(world, COUNT, 1)
    run_once(spark, strict)
    whole.append((0, COUNT + BAD))
    found = maintained(strict)
    assert not any(one.problem for one in found)
    assert found[0].live_files < COUNT // 5, "the files of ten batches are merged"
    assert found[0].expired_snapshots > 0
    assert world.offsets() == whole
    lenient = world.definition(**more, value={"format": "json", "schema": "id bigint, name string"})
    assert replay(lenient, spark).rows == BAD
    assert world.offsets() == sorted([*whole, *((0, COUNT + one) for one in range(BAD))])
    assert world.rejected() == []


@pytest.mark.parametrize("mode", ["in_task", "dataframe"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_into_a_store(
    kind: str,
    mode: str,
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    broker_named: BrokerNamed,
    new_topic: NewTopic,
) -> None:
    broker = broker_named("penstock")
    world = world_of(kind, lake, tmp_path, broker.bootstrap, new_topic(broker))
    follow_pipeline(world, mode, spark)


def maintained(definition: PipelineDefinition) -> list[MaintenanceDone]:
    """Maintenance a day later, when all files are old enough to be orphans."""
    later = SetClock(SystemClock().now_ms() + 5 * 86_400_000)
    return [done for _, done in maintain_now(definition, clock=later)]


@pytest.mark.parametrize("kind", ["rest", "sql", "delta"])
def test_orphans_in_a_store_are_removed_and_nothing_else(
    kind: str,
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    broker_named: BrokerNamed,
    new_topic: NewTopic,
) -> None:
    broker = broker_named("penstock")
    world = world_of(kind, lake, tmp_path, broker.bootstrap, new_topic(broker))
    definition = world.definition()
    send(world, 0, 10)
    run_once(spark, definition)
    table = open_table(definition.table, "shop.orders")
    place = table.layout(table.schema())
    with FilesWriter(place, "crashed") as writer:
        writer.write(pa.RecordBatch.from_pylist([{"id": 1}], place.file_schema()))
        writer.finish()
    table.close()
    assert sum(one.removed_orphans for one in maintained(definition)) == 1
    assert sum(one.removed_orphans for one in maintained(definition)) == 0
    assert world.offsets() == [(0, number) for number in range(10)]
