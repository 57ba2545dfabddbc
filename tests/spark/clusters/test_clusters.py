"""Source, sink and tables on executors that are processes of their own.

On a standalone cluster of a master and two workers, and on `local-cluster`. The jobs run in a
process of their own; another test kills executors and workers below running streams.
"""

from pathlib import Path

import pytest

from tests.oracle.running_broker import RunningBroker
from tests.spark.clusters.cluster_world import (
    QUICK,
    RECORDS,
    definition_file,
    fill,
    run_jobs,
    run_table,
    values_of,
)
from tests.spark.clusters.standalone import StandaloneCluster
from tests.spark.tables.pipeline_world import World, order

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]

KINDS = (pytest.param("standalone", marks=pytest.mark.every_spark), "local-cluster")
ORDERS = sorted(order(number) for number in range(RECORDS))


@pytest.mark.parametrize("master", KINDS, indirect=True)
def test_source_sink_and_tables(
    master: str, filled_broker: RunningBroker, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name = f"jobs-{request.node.callspec.params['master']}"
    fill(filled_broker, name)
    worlds = [
        World(tmp_path / kind, kind, filled_broker.bootstrap, name) for kind in ("iceberg", "delta")
    ]
    files = [str(definition_file(world, "small_batches = false")) for world in worlds]
    found = run_jobs(
        filled_broker, tmp_path, name, master=master, settings=QUICK, definitions=files
    )
    print(master, found["seconds"])
    assert [value.encode() for value in found["values"]] == ORDERS
    assert found["batches"] > 1
    for target in ("batch", "stream"):
        written = values_of(filled_broker, f"{name}-{target}", RECORDS)
        assert sorted(written.elements()) == ORDERS, target
    for world in worlds:
        rows = [(row["id"], row["amount"]) for row in world.rows().to_pylist()]
        assert sorted(rows) == [(number, number / 4) for number in range(RECORDS)], world.format


def test_the_command_on_a_standalone_cluster(
    standalone: StandaloneCluster, filled_broker: RunningBroker, tmp_path: Path
) -> None:
    fill(filled_broker, "command")
    world = World(tmp_path, "iceberg", filled_broker.bootstrap, "command")
    file = definition_file(world, "small_batches = false")
    done = run_table(file, "--once", "--master", standalone.url)
    assert (done["records"], done["rows"], done["rejects"]) == (RECORDS, RECORDS, 0)
    assert sorted(row["id"] for row in world.rows().to_pylist()) == list(range(RECORDS))
