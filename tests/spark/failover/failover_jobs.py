"""The jobs that run through a failover: an exactly-once query, and `penstock table run`.

Guarantees: a job is one process that reads the topic until it is ended, counts the batches that it
committed, and is started again if it ended by itself, as in production; `restarts` counts that.
`ends` are the offsets up to which its output holds the topic.

A job does NOT judge its output: `test_spark_failover` does.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import psutil

from penstock.spark.sink.options import DECISION_TOPIC
from penstock.spark.tables.definition.file import load_definition
from penstock.spark.tables.formats.opening import open_table
from tests.oracle.several_brokers import BrokerCluster
from tests.spark.tables.pipeline_feeder import PARTITIONS
from tests.spark.tables.pipeline_world import World
from tests.spark.topics import end_offsets

ROOT: Final = Path(__file__).resolve().parents[3]
TOPIC: Final = "orders"
OUTPUT: Final = "output"
OUTPUT_PARTITIONS: Final = 2
TRANSACTIONS: Final = "__transaction_state"
BATCH_SECONDS_MAX: Final = 180.0
RESTARTS_MAX: Final = 3
"""Of one wait: a job that ends again and again will not do better."""
QUICK_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_POLL_SECONDS: Final = 0.05

DEFINITION: Final = """
[pipeline]
name = "orders"
bootstrap_servers = "{bootstrap}"
checkpoint = "{folder}/checkpoint"

[source]
topics = ["{topic}"]
options = {{ maxOffsetsPerTrigger = "2000" }}

[table]
format = "{format}"
name = "shop.orders"
catalog = {{ {catalog} }}

[value]
format = "json"
schema = "id bigint, amount double, name string"
reject_share_max = 0.9

[trigger]
interval = "200 milliseconds"
"""


class Job(Protocol):
    """One process with committed batches."""

    restarts: int
    topics: tuple[str, ...]
    """The topics whose leaders it needs."""

    def start(self) -> None:
        """Start the process."""

    def batches(self) -> int:
        """The batches that are committed, over all starts."""

    def wait_for_batches(self, count: int) -> None:
        """Wait until `count` further batches are committed."""

    def close(self) -> None:
        """End the process, if it runs."""


@dataclass
class Process:
    """A process that is started again when it ended by itself."""

    folder: Path
    restarts: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """Both streams of the process, over all its starts."""
        return self.folder / "job.log"

    def command(self) -> list[str]:
        """The command of the process."""
        raise NotImplementedError

    def batches(self) -> int:
        """The batches that are committed, over all starts."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the process."""
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        environment = {**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": QUICK_JVM}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def has_ended(self) -> bool:
        """Whether the process ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def wait_for_batches(self, count: int) -> None:
        """Wait until `count` further batches are committed; restart a process that has ended."""
        wanted, restarts = self.batches() + count, self.restarts
        deadline = time.monotonic() + BATCH_SECONDS_MAX
        while self.batches() < wanted:
            if self.has_ended():
                assert self.restarts < restarts + RESTARTS_MAX, self.tail()
                self.restarts += 1
                self.start()
            assert time.monotonic() < deadline, f"no batch {wanted}:\n{self.tail()}"
            time.sleep(_POLL_SECONDS)

    def tail(self) -> str:
        """The last lines of the output."""
        return self.log.read_text(errors="replace")[-4_000:]

    def close(self) -> None:
        """Kill the process and its JVMs."""
        if self._process is None or self._process.poll() is not None:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        for child in children:
            if child.is_running():
                child.kill()


@dataclass
class SinkJob(Process):
    """Topic, transform, topic: each input once in the output."""

    bootstrap: str = ""
    topics: tuple[str, ...] = (TOPIC, OUTPUT, DECISION_TOPIC, TRANSACTIONS)

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the query."""
        return self.folder / "checkpoint"

    def command(self) -> list[str]:
        """The application of this folder."""
        words = (str(self.folder / "app"), self.bootstrap, TOPIC, OUTPUT, str(self.checkpoint))
        return [sys.executable, "-m", "tests.spark.failover.failover_app", *words]

    def batches(self) -> int:
        """The commits that Spark noted."""
        place = self.checkpoint / "commits"
        names = [one.name for one in place.iterdir()] if place.exists() else []
        return max((int(name) + 1 for name in names if name.isdecimal()), default=0)


@dataclass
class TableJob(Process):
    """`penstock table run`."""

    world: World = field(kw_only=True)
    topics: tuple[str, ...] = (TOPIC, TRANSACTIONS)

    @property
    def file(self) -> Path:
        """The definition of the pipeline."""
        return self.folder / "orders.toml"

    def command(self) -> list[str]:
        """The command that a user types."""
        words = ("table", "run", str(self.file), "--master", "local[2]")
        return [sys.executable, "-m", "penstock", *words]

    def start(self) -> None:
        """Write the definition and start the process."""
        catalog = ", ".join(f'{name} = "{value}"' for name, value in self.world.catalog.items())
        self.file.write_text(
            DEFINITION.format(
                bootstrap=self.world.bootstrap,
                folder=self.folder,
                topic=self.world.topic,
                format=self.world.format,
                catalog=catalog,
            )
        )
        super().start()

    def batches(self) -> int:
        """The lines of finished batches."""
        if not self.log.exists():
            return 0
        text = self.log.read_text(errors="replace")
        return len(re.findall(r"^orders  batch \d+", text, re.MULTILINE))

    def ends(self) -> dict[int, int]:
        """The offsets in the table's note."""
        settings = load_definition(self.file).table
        table = open_table(settings, settings.name)
        try:
            positions = table.load().positions_of("orders")
        finally:
            table.close()
        return {at.partition: offset for at, offset in positions.items()}


def wait_until_drained(job: TableJob, cluster: BrokerCluster) -> dict[int, int]:
    """Wait until the table holds the whole topic, to which nothing comes; return its ends."""
    deadline = time.monotonic() + BATCH_SECONDS_MAX
    while (ends := job.ends()) != (wanted := _committed_ends(cluster, TOPIC, PARTITIONS)):
        assert not job.has_ended(), job.tail()
        assert time.monotonic() < deadline, f"{ends}, {wanted}:\n{job.tail()}"
        time.sleep(_POLL_SECONDS)
    return ends


def _committed_ends(cluster: BrokerCluster, topic: str, partitions: int) -> dict[int, int]:
    found = end_offsets(cluster.bootstrap, topic, partitions, is_read_committed=True)
    return dict(enumerate(found))
