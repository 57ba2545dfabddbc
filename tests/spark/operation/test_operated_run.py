"""`penstock table run` as an operator sees it: probes, metrics, restarts, the group, lineage."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

import penstock
from penstock.client.groups.groups import Groups
from penstock.client.records.topic_writer import TopicWriter
from penstock.spark.tables.formats.opening import open_table
from penstock.spark.tables.inspection.status import PipelineStatus, table_status
from penstock.spark.tables.run.committer import TableCommitter
from penstock.testing import Broker
from tests.oracle.running_broker import free_port
from tests.spark.tables.inspection_world import VALUES, World, cluster_of, fill_topic, new_world

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SECONDS_MAX = 240
GROUP = "table-orders"


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        address = f"{broker.host}:{broker.port}"
        fill_topic(address, VALUES)
        yield address


class Running:
    """The command, and the lines that it wrote."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.seen = ""

    def wait_for(self, text: str) -> None:
        """Read its standard error up to a line with this text; the time limit bounds it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.seen += line
            if text in line:
                return
        raise AssertionError(f"it ended before {text!r}:\n{self.seen}")

    def stop(self) -> dict[str, Any]:
        """Stop it cleanly; its totals."""
        self.process.send_signal(signal.SIGTERM)
        output, errors = self.process.communicate(timeout=SECONDS_MAX)
        assert self.process.returncode == 0, self.seen + errors
        found: dict[str, Any] = json.loads(output)
        return found

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self) -> dict[str, float]:
        lines = self.page("/metrics")[1].splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def java(self) -> int:
        """The process of Spark."""
        for folder in Path("/proc").iterdir():
            try:
                stat = (folder / "stat").read_text()
                name, rest = stat.partition("(")[2].rsplit(") ", 1)
            except (OSError, ValueError):
                continue
            if name == "java" and int(rest.split()[1]) == self.process.pid:
                return int(folder.name)
        raise AssertionError("no process of Java")


@contextmanager
def running(world: World, *words: str) -> Iterator[Running]:
    port = free_port()
    command = [sys.executable, "-m", "penstock", "table", "run", str(world.file), "--json"]
    with subprocess.Popen(
        [*command, "--master", "local[1]", "--metrics-port", str(port), *words],
        env={**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Running(process, port)
        finally:
            process.kill()


def operated(world: World, folder: Path, *, small_batches: bool = True) -> World:
    """The same pipeline with a short interval, a group and lineage."""
    text = world.file.read_text()
    keys = f'publish_group = "{GROUP}"\nlineage = "file://{folder}/lineage.jsonl"\n'
    keys += "" if small_batches else "small_batches = false\n"
    text = text.replace("[source]", f"{keys}\n[source]", 1)
    world.file.write_text(f'{text}\n[trigger]\ninterval = "500 ms"\n')
    return world


def produce(bootstrap: str, values: list[bytes]) -> None:
    with cluster_of(bootstrap) as cluster:
        writer = TopicWriter(cluster, "orders", partition=0)
        for value in values:
            writer.append(b"key", value)
        writer.flush()


def status_of(world: World) -> PipelineStatus:
    (found,) = table_status(world.definition).pipelines
    return found


def test_a_pipeline_whose_spark_dies_restarts_and_shows_it(bootstrap: str, tmp_path: Path) -> None:
    world = operated(new_world(tmp_path, bootstrap, "delta"), tmp_path)
    with running(world, "--restarts", "3") as run:
        run.wait_for("batch 0")
        assert run.page("/health/live")[0] == 200
        assert run.page("/health/ready")[0] == 200
        os.kill(run.java(), signal.SIGKILL)
        run.wait_for("restart 1 of 3 in ")
        status, text = run.page("/health/ready")
        assert (status, json.loads(text)["phase"] in {"waiting", "starting"}) == (503, True)
        assert run.page("/health/live")[0] == 200
        run.wait_for("runs in_task")
        produce(bootstrap, [b'{"id": 6, "amount": 1.0}'])
        run.wait_for("  1 row  0 rejects")
        metrics = run.metrics()
        done = run.stop()
    own = 'pipeline="orders"'
    assert metrics[f'penstock_pipeline_restarts_total{{{own},reason="spark"}}'] == 1
    assert metrics[f"penstock_pipeline_records_total{{{own}}}"] == 6
    assert metrics[f'penstock_pipeline_rejects_total{{{own},reason="malformed"}}'] == 1
    assert metrics[f'penstock_pipeline_rejects_total{{{own},reason="expectation"}}'] == 1
    assert metrics[f'penstock_pipeline_lag_records{{{own},topic="orders"}}'] == 0
    assert (done["records"], done["rows"], done["rejects"]) == (6, 3, 3)
    status_now = status_of(world)
    assert (status_now.lag, status_now.epoch) == (0, 1), "a restart is the same driver"
    small = metrics[f'penstock_pipeline_batches_total{{{own},way="driver"}}']
    assert status_now.small_batches == small > 0
    with cluster_of(bootstrap) as cluster:
        committed = Groups(cluster).committed(GROUP)
    assert {at.partition: one.offset for at, one in committed.items()} == {0: 6, 1: 0}
    events = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    kinds = [one["eventType"] for one in events if one["eventType"] != "RUNNING"]
    assert kinds == ["START", "FAIL", "START", "COMPLETE"]


def test_a_restart_leaves_the_table_to_another_driver_and_the_shortcut_can_be_off(
    bootstrap: str, tmp_path: Path
) -> None:
    world = operated(new_world(tmp_path, bootstrap, "delta"), tmp_path, small_batches=False)
    with running(world, "--restarts", "forever") as run:
        run.wait_for("batch 0")
        own = 'pipeline="orders"'
        metrics = run.metrics()
        assert metrics[f'penstock_pipeline_batches_total{{{own},way="driver"}}'] == 0
        assert metrics[f'penstock_pipeline_batches_total{{{own},way="tasks"}}'] == 1
        words = ["skip", str(world.file), "--topic", "orders", "--partition", "0", "--to", "5"]
        refused = subprocess.run(
            [sys.executable, "-m", "penstock", "table", *words, "--yes"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert refused.returncode == 1
        assert "nothing to skip up to 5" in refused.stderr
        os.kill(run.java(), signal.SIGKILL)
        run.wait_for("restart 1 in ")
        rows = open_table(world.definition.table, "shop.orders")
        TableCommitter(rows, "orders", "elsewhere").take()
        rows.close()
        _, errors = run.process.communicate(timeout=SECONDS_MAX)
    assert run.process.returncode == 1
    assert "another driver of pipeline 'orders' (elsewhere, number 2) acquired the table" in errors
    assert "restart 2" not in errors
    assert status_of(world).epoch == 2  # the restart did not take it back


def test_spark_submit_runs_the_same_command(bootstrap: str, tmp_path: Path) -> None:
    """As a SparkApplication does: the file of the package, with the words of the command."""
    world = new_world(tmp_path, bootstrap, "iceberg")
    text = world.file.read_text()
    world.file.write_text(text.replace("[value]", "[value]\nreject_share_max = 1.0", 1))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    main = Path(penstock.__file__).parent / "__main__.py"
    words = ["table", "run", str(world.file), "--once", "--json", "--restarts", "1"]
    done = subprocess.run(
        [str(submit), "--master", "local[1]", str(main), *words],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # spark-submit joins both streams of the driver.
    assert json.loads(done.stdout[done.stdout.index("{") :])["records"] == 5
