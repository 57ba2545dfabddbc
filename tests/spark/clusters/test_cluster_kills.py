"""Executors and workers are killed below running streams: each record once.

A copy of a topic by the exactly-once sink and a pipeline into a table run in one session, step by
step of input. Executors are killed with kill -9, and on a standalone cluster a worker with its
executor. A session that fails is started again, as in production. The output topic is read by
librdkafka with read_committed, the table by pyiceberg or deltalake.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from deltalake.exceptions import TableNotFoundError
from pyiceberg.exceptions import NoSuchTableError

from tests.oracle.running_broker import RunningBroker
from tests.spark.clusters.cluster_jobs import Jobs
from tests.spark.clusters.cluster_world import PARTITIONS, QUICK, add, definition_file
from tests.spark.clusters.conftest import LOCAL_CLUSTER
from tests.spark.clusters.spark_process import ROOT, environment
from tests.spark.clusters.standalone import EXECUTOR, StandaloneCluster
from tests.spark.streams import topic_reader
from tests.spark.tables.pipeline_world import World, order
from tests.spark.topics import create_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_600)]

WAIT_SECONDS_MAX = 900.0
STARTS_MAX = 5
"""Spark waits ten seconds for a Python process, which a loaded machine may need."""
RECORDS_OF_A_STEP = 1_200
"""More than the driver writes itself: a step is a job on executors."""


class Streams:
    """The process with the streams, its input and its outputs."""

    def __init__(
        self, folder: Path, broker: RunningBroker, name: str, master: str, format_: str
    ) -> None:
        self._broker = broker
        self._name = name
        self.sent = 0
        for topic in (name, f"{name}-stream"):
            create_topic(broker.bootstrap, topic, partitions=PARTITIONS)
        self.world = World(folder / format_, format_, broker.bootstrap, name)
        file = definition_file(self.world, "small_batches = false")
        self.starts = 0
        self._jobs = Jobs(
            str(folder),
            broker.bootstrap,
            name,
            "",
            f"{name}-stream",
            master=master,
            settings={**QUICK, "spark.task.maxFailures": "8"},
            definitions=[str(file)],
            is_endless=True,
        )
        self._log = folder / "streams.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.starts += 1
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.clusters.cluster_jobs"],
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(self._jobs.text())
        self._process.stdin.close()

    def executors(self) -> list[psutil.Process]:
        """The executors that this process started itself."""
        assert self._process is not None
        below = psutil.Process(self._process.pid).children(recursive=True)
        return [one for one in below if any(EXECUTOR in part for part in _command(one))]

    def feed(self) -> None:
        """Produce a step more."""
        add(self._broker, self._name, range(self.sent, self.sent + RECORDS_OF_A_STEP))
        self.sent += RECORDS_OF_A_STEP

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not is_there():
            assert self._process is not None
            told = self._log.read_text()[-6_000:]
            if self._process.poll() is not None:
                assert self.starts < STARTS_MAX, f"the streams ended:\n{told}"
                self.start()
            assert time.monotonic() < deadline, f"nothing happened:\n{told}"
            time.sleep(0.2)

    def wait_until_written(self) -> None:
        """Wait until every output has as many records as the input, or more."""
        self.wait_for(lambda: self.copied().total() >= self.sent)
        self.wait_for(lambda: self._rows_written() >= self.sent)

    def _rows_written(self) -> int:
        try:
            return int(self.world.rows().num_rows)
        except (NoSuchTableError, TableNotFoundError):
            return 0

    def copied(self) -> Counter[bytes]:
        """Return the committed records of the output topic."""
        with topic_reader(
            self._broker.bootstrap, f"{self._name}-stream", partitions=PARTITIONS
        ) as reader:
            while reader.poll(2.0) is not None:
                pass
            return Counter(one.value() or b"" for one in reader.messages)

    def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait()
        for child in children:
            if child.is_running():
                child.kill()


@contextmanager
def streams(
    folder: Path, broker: RunningBroker, name: str, master: str, format_: str
) -> Iterator[Streams]:
    running = Streams(folder, broker, name, master, format_)
    try:
        running.feed()
        running.start()
        running.wait_until_written()
        yield running
    finally:
        running.stop()


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def finish(running: Streams) -> None:
    """Feed once more, wait for it, and compare every output with the input."""
    running.feed()
    running.wait_until_written()
    expected = Counter(order(number) for number in range(running.sent))
    copied = running.copied()
    found = Counter(row["id"] for row in running.world.rows().to_pylist())
    numbers = Counter(range(running.sent))
    wrong = {
        "copy": ((expected - copied).total(), (copied - expected).total()),
        running.world.format: ((numbers - found).total(), (found - numbers).total()),
    }
    print(f"{running.sent} records, {running.starts} starts, (missing, doubled): {wrong}")
    assert all(pair == (0, 0) for pair in wrong.values()), wrong


def kill_one(running: Streams, found: Callable[[], list[psutil.Process]]) -> None:
    """Kill -9 an executor, as soon as there is one, in the middle of a step."""
    running.feed()
    running.wait_for(lambda: bool(found()))
    found()[0].kill()


def test_executors_and_a_worker_of_a_standalone_cluster(
    standalone: StandaloneCluster, filled_broker: RunningBroker, tmp_path: Path
) -> None:
    with streams(tmp_path, filled_broker, "kills-a", standalone.url, "iceberg") as running:
        kill_one(running, standalone.executors)
        running.wait_until_written()
        running.feed()
        standalone.kill_worker()
        running.wait_until_written()
        standalone.add_worker()
        finish(running)


def test_executors_of_a_local_cluster(filled_broker: RunningBroker, tmp_path: Path) -> None:
    with streams(tmp_path, filled_broker, "kills-b", LOCAL_CLUSTER, "delta") as running:
        kill_one(running, running.executors)
        finish(running)
