"""The examples for orchestrators run as they are, on Apache Airflow and on Dagster.

Each run moves the table to the end of the topic and adds no row twice. A definition with a mistake
fails at once, without the retries of the task.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.records.topic_writer import TopicWriter
from penstock.spark.tables.formats.opening import open_table
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.orchestrators import materialize, run_dag
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker
from tests.spark.tables.inspection_world import VALUES, World, cluster_of, fill_topic, new_world

pytestmark = [pytest.mark.orchestrators, pytest.mark.timeout(1_200)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "orchestration"
DAG = EXAMPLES / "airflow_orders.py"
ASSET = EXAMPLES / "dagster_orders.py"
BROKERS: dict[str, Callable[[Path], RunningBroker]] = {
    "penstock": penstock_broker,
    "kafka": kafka_broker,
}
FURTHER = [b'{"id": 6, "amount": 1.0}', b'{"id": 7, "amount": 1.5}']
DONE = {"run": "success 1"}


@pytest.fixture(params=BROKERS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A pipeline into Iceberg, over a topic of which three of five records are rejects."""
    with BROKERS[request.param](tmp_path / "broker") as broker:
        fill_topic(broker.bootstrap, VALUES)
        made = new_world(tmp_path, broker.bootstrap, "iceberg")
        text = made.file.read_text()
        made.file.write_text(text.replace("[value]", "[value]\nreject_share_max = 1.0", 1))
        yield made


def environment(world: World) -> dict[str, str]:
    command = Path(sys.executable).with_name("penstock")
    return {"PENSTOCK": str(command), "ORDERS_DEFINITION": str(world.file)}


def add(world: World, values: list[bytes]) -> None:
    with cluster_of(world.bootstrap) as cluster:
        writer = TopicWriter(cluster, "orders", partition=1)
        for value in values:
            writer.append(b"key", value)
        writer.flush()


def ids(world: World) -> list[int]:
    table = open_table(world.definition.table, world.definition.table.name)
    found: list[int] = []
    for batch in table.scan(["id"]):
        found += batch.column("id").to_pylist()
    return sorted(found)


def break_definition(world: World) -> None:
    world.file.write_text(world.file.read_text().replace('format = "json"', 'format = "jason"'))


def test_an_airflow_dag(world: World, tmp_path: Path) -> None:
    home, given = tmp_path / "airflow", environment(world)
    assert run_dag(DAG, "orders_to_table", home, given) == DONE
    assert ids(world) == [1, 5]
    add(world, FURTHER)
    for _ in range(2):
        assert run_dag(DAG, "orders_to_table", home, given) == DONE
        assert ids(world) == [1, 5, 6, 7]
    break_definition(world)
    assert run_dag(DAG, "orders_to_table", home, given) == {"run": "failed 1"}


def test_a_dagster_asset(world: World, tmp_path: Path) -> None:
    home, given = tmp_path / "dagster", environment(world)
    code, printed = materialize(ASSET, "orders", home, given)
    assert code == 0, printed
    assert ids(world) == [1, 5]
    add(world, FURTHER)
    for _ in range(2):
        code, printed = materialize(ASSET, "orders", home, given)
        assert code == 0, printed
        assert ids(world) == [1, 5, 6, 7]
    break_definition(world)
    code, printed = materialize(ASSET, "orders", home, given)
    assert code != 0
    assert "jason" in printed
    assert "STEP_UP_FOR_RETRY" not in printed
