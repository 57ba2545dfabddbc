"""A broker with a filled topic, and the jobs and commands of a user around it.

Guarantees: `run_jobs` and `run_table` run in processes of their own, with the interpreter and the
source tree of the tests, and raise an error with the output of a process that fails. Topics and
tables are read by librdkafka, pyiceberg and deltalake, not by the code under test.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.oracle.running_broker import RunningBroker
from tests.spark.clusters.cluster_jobs import Jobs
from tests.spark.clusters.spark_process import ROOT, environment
from tests.spark.streams import topic_reader
from tests.spark.tables.pipeline_world import World, order
from tests.spark.topics import Record, create_topic, produce

RECORDS = 1_500
"""More than the driver writes without a job: the tables' tasks run on executors."""
PARTITIONS = 2
SECONDS_MAX = 900
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
QUICK = {
    **LOOPBACK,
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "700m",
}

FILE = """
[pipeline]
name = "orders-{format}"
bootstrap_servers = "{bootstrap}"
checkpoint = "{folder}/checkpoint"
{more}

[source]
topics = ["{topic}"]
options = {{ maxOffsetsPerTrigger = "1200" }}

[table]
format = "{format}"
name = "shop.orders"
catalog = {{ {catalog} }}

[value]
format = "json"
schema = "id bigint, amount double, name string"

[trigger]
interval = "200 milliseconds"
"""


def fill(broker: RunningBroker, name: str, count: int = RECORDS) -> None:
    """Create a topic with numbered orders."""
    create_topic(broker.bootstrap, name, partitions=PARTITIONS)
    add(broker, name, range(count))


def add(broker: RunningBroker, name: str, numbers: range) -> None:
    """Produce further orders."""
    records = (Record(order(n), b"%d" % n, partition=n % PARTITIONS) for n in numbers)
    produce(broker.bootstrap, name, records)


def values_of(broker: RunningBroker, topic: str, count: int) -> Counter[bytes]:
    """Return the committed records; raise if there are fewer than expected."""
    with topic_reader(broker.bootstrap, topic, partitions=PARTITIONS) as reader:
        return Counter(one.value() or b"" for one in reader.wait_for(count))


def run_jobs(
    broker: RunningBroker,
    folder: Path,
    name: str,
    **where: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Run the jobs of `cluster_jobs`; the topics are `name`, `name-batch` and `name-stream`."""
    for suffix in ("batch", "stream"):
        create_topic(broker.bootstrap, f"{name}-{suffix}", partitions=PARTITIONS)
    folder.mkdir(parents=True, exist_ok=True)
    targets = (f"{name}-batch", f"{name}-stream")
    jobs = Jobs(str(folder), broker.bootstrap, name, *targets, **where)
    command = [sys.executable, "-m", "tests.spark.clusters.cluster_jobs"]
    output = _output(command, jobs.text(), {})
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def definition_file(world: World, more: str = "") -> Path:
    """Write the definition of a world's pipeline."""
    catalog = ", ".join(f'{name} = "{text}"' for name, text in world.catalog.items())
    world.folder.mkdir(parents=True, exist_ok=True)
    file = world.folder / "orders.toml"
    file.write_text(
        FILE.format(
            bootstrap=world.bootstrap,
            folder=world.folder,
            topic=world.topic,
            format=world.format,
            catalog=catalog,
            more=more,
        )
    )
    return file


def table_command(file: Path, words: Sequence[str], conf: Mapping[str, str]) -> list[str]:
    """The command `penstock table run`."""
    settings = [part for name, text in conf.items() for part in ("--conf", f"{name}={text}")]
    return [sys.executable, "-m", "penstock", "table", "run", str(file), *words, *settings]


def run_table(
    file: Path,
    *words: str,
    conf: Mapping[str, str] = QUICK,
    variables: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run `penstock table run --json` to its end; returns its document."""
    output = _output(table_command(file, [*words, "--json"], conf), "", variables or {})
    found: dict[str, Any] = json.loads(output)
    return found


def table_fails(file: Path, *words: str, conf: Mapping[str, str] | None = None) -> str:
    """Run `penstock table run`, which has to fail; returns its standard error."""
    done = _run(table_command(file, words, conf or {}), "", {})
    assert done.returncode in {1, 2}, f"{done.stdout[-2_000:]}\n{done.stderr[-6_000:]}"
    return " ".join(done.stderr.split())


@contextmanager
def started_table(
    file: Path, *words: str, conf: Mapping[str, str] = QUICK
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `penstock table run` until it is stopped; killed at the end if it still runs."""
    with (file.parent / "table-run.log").open("ab") as log:
        process = subprocess.Popen(
            table_command(file, words, conf),
            cwd=ROOT,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _output(command: Sequence[str], given: str, variables: Mapping[str, str]) -> str:
    done = _run(command, given, variables)
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-6_000:]}"
    return done.stdout


def _run(
    command: Sequence[str], given: str, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**environment(), **variables},
        input=given,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
