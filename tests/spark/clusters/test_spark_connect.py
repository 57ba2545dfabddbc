"""Source, sink and tables over a real Spark Connect server; refusals with their remedies."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.running_broker import RunningBroker
from tests.spark.clusters.cluster_world import (
    RECORDS,
    add,
    definition_file,
    fill,
    run_jobs,
    run_table,
    started_table,
    table_fails,
    values_of,
)
from tests.spark.clusters.connect_server import ConnectServer
from tests.spark.tables.pipeline_world import World, order

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

ORDERS = sorted(order(number) for number in range(RECORDS))
WAIT_SECONDS_MAX = 300.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    with ConnectServer(tmp_path_factory.mktemp("connect")) as running:
        print(f"the Connect server was ready after {running.ready_seconds:.1f} s")
        yield running


def test_source_and_exactly_once_sink(
    server: ConnectServer, filled_broker: RunningBroker, tmp_path: Path
) -> None:
    fill(filled_broker, "connect")
    found = run_jobs(filled_broker, tmp_path, "connect", remote=server.url)
    print(found["seconds"])
    assert [value.encode() for value in found["values"]] == ORDERS
    assert found["batches"] > 1
    for target in ("batch", "stream"):
        written = values_of(filled_broker, f"connect-{target}", RECORDS)
        assert sorted(written.elements()) == ORDERS, target


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_a_table_once_and_on_and_on(
    format_: str, server: ConnectServer, filled_broker: RunningBroker, tmp_path: Path
) -> None:
    name = f"connect-{format_}"
    fill(filled_broker, name)
    world = World(tmp_path, format_, filled_broker.bootstrap, name)
    file = definition_file(world, "small_batches = false")
    done = run_table(file, "--once", "--master", server.url, conf={})
    assert (done["records"], done["rows"], done["rejects"]) == (RECORDS, RECORDS, 0)
    with started_table(file, "--master", server.url, conf={}) as process:
        add(filled_broker, name, range(RECORDS, RECORDS + 40))
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while world.rows().num_rows < RECORDS + 40:
            assert process.poll() is None, "the pipeline ended"
            assert time.monotonic() < deadline, "the new records are not in the table"
            time.sleep(0.5)
        process.terminate()
        try:
            assert process.wait(60) == 0
        except subprocess.TimeoutExpired:
            pytest.fail("the pipeline did not stop")
    found = sorted(row["id"] for row in world.rows().to_pylist())
    assert found == list(range(RECORDS + 40))


def test_a_rule_for_spark_sql_is_refused_by_name(
    server: ConnectServer, filled_broker: RunningBroker, tmp_path: Path
) -> None:
    fill(filled_broker, "connect-sql", 1)
    world = World(tmp_path, "delta", filled_broker.bootstrap, "connect-sql")
    file = definition_file(world, 'mode = "dataframe"')
    told = table_fails(file, "--once", "--master", server.url)
    assert "pipeline.mode" in told
    assert "does not run over Spark Connect" in told
    assert "--master local[*]" in told


def test_an_unreachable_server_and_a_refused_setting(
    server: ConnectServer, filled_broker: RunningBroker, tmp_path: Path
) -> None:
    fill(filled_broker, "connect-refused", 1)
    world = World(tmp_path, "delta", filled_broker.bootstrap, "connect-refused")
    file = definition_file(world)
    begun = time.monotonic()
    told = table_fails(file, "--once", "--master", "sc://127.0.0.1:9")
    assert "no Spark Connect server answers at sc://127.0.0.1:9" in told
    assert time.monotonic() - begun < WAIT_SECONDS_MAX / 2
    told = table_fails(file, "--once", "--master", server.url, conf={"spark.driver.memory": "4g"})
    assert "spark.driver.memory cannot be set by a client of Spark Connect" in told
