"""A batch query and a backfill of Spark read leased segments: the same rows; leases end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.tables.run.backfill import backfill
from penstock.spark.tables.run.table_pipeline import TablePipeline
from penstock.testing import Broker
from tests.spark.rows import Source, batch_rows
from tests.spark.sealed.sealed_world import admin_url, ask, sealed_broker
from tests.spark.tables.pipeline_world import World, order
from tests.spark.topics import Record, create_topic, produce

pytestmark = pytest.mark.spark
TOPIC = "orders"
RECORDS = 400


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with sealed_broker(tmp_path / "data") as running:
        create_topic(running.bootstrap_server, TOPIC)
        for first in range(0, RECORDS, 20):
            records = [Record(order(number), b"k") for number in range(first, first + 20)]
            produce(running.bootstrap_server, TOPIC, records)
        yield running


def lease_count(broker: Broker) -> int:
    return len(ask(broker, "GET")[1]["leases"])


def test_a_batch_query(spark: SparkSession, broker: Broker) -> None:
    options = {"subscribe": TOPIC, "segments.url": admin_url(broker)}
    before = broker.metrics()["fetched_bytes_total"]
    found = batch_rows(
        spark, Source("penstock", broker.bootstrap_server, {**options, "segments": "only"})
    )
    by_files = broker.metrics()["fetched_bytes_total"] - before
    expected = batch_rows(
        spark, Source("penstock", broker.bootstrap_server, {**options, "segments": "off"})
    )
    by_fetch = broker.metrics()["fetched_bytes_total"] - before - by_files
    assert found == expected
    assert len(found) == RECORDS
    assert by_files < by_fetch / 2, "most records were read from files"


def test_a_backfill(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    world = World(tmp_path, "delta", broker.bootstrap_server, TOPIC)
    source = {
        "starting_offsets": "latest",
        "options": {"segments.url": admin_url(broker)},
    }
    definition = world.definition(source=source)
    with TablePipeline(definition).start(spark, once=True) as running:
        running.await_end()
    produce(broker.bootstrap_server, TOPIC, [Record(order(RECORDS), b"k")])
    with TablePipeline(definition).start(spark, once=True) as running:
        running.await_end()
    before = broker.metrics()["fetched_bytes_total"]
    leased = []
    done = backfill(
        definition,
        spark,
        start="earliest",
        end="latest",
        portion_offsets=150,
        on_commit=lambda now: leased.append((now.commits, lease_count(broker))),
    )
    assert leased == [(1, 0), (2, 0), (3, 0)], "each portion releases its lease"
    assert (done.commits, done.records, done.rejects) == (3, RECORDS, 0)
    assert world.offsets() == [(0, offset) for offset in range(RECORDS + 1)]
    size = sum(path.stat().st_size for path in (tmp_path / "data").glob(f"{TOPIC}-0/*.log"))
    assert broker.metrics()["fetched_bytes_total"] - before < size / 2
    again = backfill(definition, spark, start="earliest", end="latest")
    assert again.commits == 0
