"""The project in `pipelines/` runs with `spark-pipelines`, and a second run reads new records.

The commands of its README are the same but for where things lie: everything that Spark writes is
below a folder of the test.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from penstock.client.calls import NewTopic
from penstock.client.records.positions import parse_start
from penstock.client.records.topic_reader import TopicReader
from penstock.client.records.topic_writer import TopicWriter
from tests.oracle.penstock_broker import penstock_broker
from tests.spark.tables.inspection_world import cluster_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 400
SETTINGS = """\
spark.sql.catalogImplementation hive
spark.sql.warehouse.dir {folder}/warehouse
spark.driver.extraJavaOptions -Dderby.system.home={folder}/derby -XX:TieredStopAtLevel=1
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.ui.enabled false
spark.sql.pipelines.execution.maxConcurrentFlows 1
"""
"""In a file: of many `--conf` options only the last few reach Spark. One flow after the other: each
starts a Python process, and Spark gives those ten seconds, however busy the machine is."""


def project_in(folder: Path, bootstrap: str) -> Path:
    """A copy of the project that writes below the folder."""
    project = folder / "project"
    shutil.copytree(ROOT / "pipelines", project)
    spec = project / "spark-pipeline.yml"
    text = spec.read_text()
    assert "file:///tmp/penstock-pipelines" in text
    assert "localhost:9092" in text
    text = text.replace("file:///tmp/penstock-pipelines", f"file://{folder}/storage")
    spec.write_text(text.replace("localhost:9092", bootstrap))
    (folder / "conf").mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(SETTINGS.format(folder=folder))
    return project


def run_project(project: Path, folder: Path) -> None:
    missing = [name for name in ("yaml", "grpc_status", "google.rpc") if find_spec(name) is None]
    assert not missing, f"{missing}: run `make install`, which installs pyspark[pipelines]"
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    home = Path(pyspark.origin).parent
    done = subprocess.run(
        [home / "bin" / "spark-pipelines", "run"],
        cwd=project,
        env={
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]


def produce(bootstrap: str, values: Sequence[bytes]) -> None:
    with cluster_of(bootstrap) as cluster:
        writer = TopicWriter(cluster, "orders")
        for value in values:
            writer.append(None, value)
        writer.flush()


def sent_on(bootstrap: str) -> list[int]:
    with cluster_of(bootstrap) as cluster:
        places = cluster.partitions_of("orders-clean")
        records = TopicReader(cluster, places, parse_start("earliest")).records()
        return sorted(json.loads(one.value or b"")["id"] for one in records)


def totals(warehouse: Path) -> dict[str, tuple[int, float]]:
    rows = pq.read_table(warehouse / "order_totals").to_pylist()
    return {one["customer"]: (one["orders"], one["amount"]) for one in rows}


def test_both_runs(tmp_path: Path) -> None:
    with penstock_broker(tmp_path / "broker") as broker:
        with cluster_of(broker.bootstrap) as cluster:
            cluster.create_topic(NewTopic("orders", 2, 1))
            cluster.create_topic(NewTopic("orders-clean", 1, 1))
        project = project_in(tmp_path, broker.bootstrap)
        ada, bob = (b'{"id": %d, "customer": "ada", "amount": 9.5}' % number for number in (1, 2))
        produce(broker.bootstrap, [ada, bob, b'{"id": 3, "amount": -1}', b"no JSON"])
        run_project(project, tmp_path)
        warehouse = tmp_path / "warehouse"
        assert pq.read_table(warehouse / "raw_orders").num_rows == 4
        assert sorted(pq.read_table(warehouse / "orders")["id"].to_pylist()) == [1, 2]
        assert pq.read_table(warehouse / "bad_orders").num_rows == 2
        assert totals(warehouse) == {"ada": (2, 19.0)}
        assert sent_on(broker.bootstrap) == [1, 2]

        produce(broker.bootstrap, [b'{"id": 4, "customer": "eve", "amount": 1}'])
        run_project(project, tmp_path)
        assert sorted(pq.read_table(warehouse / "orders")["id"].to_pylist()) == [1, 2, 4]
        assert pq.read_table(warehouse / "raw_orders").num_rows == 5
        assert pq.read_table(warehouse / "bad_orders").num_rows == 2
        assert totals(warehouse) == {"ada": (2, 19.0), "eve": (1, 1.0)}
        assert sent_on(broker.bootstrap) == [1, 2, 4]
