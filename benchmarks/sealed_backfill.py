"""A backfill from sealed segments beside Fetch and beside Spark's own connector.

    python -m benchmarks.sealed_backfill [--gib 10] [--rounds 3] [--segment-mib 256] [--slots 2]
        [--without-connector]

One broker, one partition of 1-KB records. Each way reads the same offsets, those of the sealed
segments, to `noop` in one session, one after the other, and the list is repeated; the first round
is not counted. The CPU time is that of the broker's process, from /proc. Rows are counted once for
each way. The full size is 10 GiB. Exit code 1 when a target is missed: less than 0.01 s of broker
CPU for a GB, and twice the rows per second of Spark's own connector.

The CPU of an idle broker is measured and printed, because a longer way has more of it.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from tests.oracle.running_broker import free_port
from tests.spark.sessions import new_session
from tests.spark.topics import create_topic, new_producer

TOPIC = "backfill"
RECORD_BYTES = 1_000
GIB = 1 << 30
GB = 1_000_000_000
START_SECONDS_MAX = 60.0
CPU_SECONDS_PER_GB_MAX = 0.01
RATIO_MIN = 2.0
FILES, FETCH, CONNECTOR = "sealed segments", "Fetch", 'format("kafka")'


class Sample(NamedTuple):
    """One read of all offsets."""

    seconds: float
    broker_cpu_seconds: float


class Scene(NamedTuple):
    """A broker with a filled topic."""

    pid: int
    bootstrap: str
    admin: str
    offsets: int
    sealed_bytes: int


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def broker(folder: Path) -> Iterator[tuple[int, str, str]]:
    """Run `penstock serve`; return its process id, its address and its admin port."""
    port, admin = free_port(), free_port()
    command = [sys.executable, "-m", "penstock", "serve", "--data-dir", str(folder)]
    command += ["--port", str(port), "--admin-port", str(admin)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{admin}"
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _is_ready(url):
            if time.monotonic() > deadline or process.poll() is not None:
                raise RuntimeError("the broker did not start")
            time.sleep(0.1)
        yield process.pid, f"127.0.0.1:{port}", url
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def fill(bootstrap: str, size_bytes: int, segment_bytes: int) -> None:
    """Create the topic, and send records that do not compress."""
    create_topic(bootstrap, TOPIC, config={"segment.bytes": str(segment_bytes)})
    draw = random.Random(7)
    values = [draw.randbytes(RECORD_BYTES) for _ in range(2_000)]
    producer = new_producer(bootstrap, {"batch.size": "262144", "linger.ms": "20"})
    for number in range(size_bytes // RECORD_BYTES):
        while True:
            try:
                producer.produce(TOPIC, values[number % len(values)], partition=0)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(600):
        raise RuntimeError("records were not acknowledged")


def sealed_end(admin: str) -> tuple[int, int]:
    """Return the end of the sealed offsets, and their bytes, by a lease that is released."""
    wish = {
        "topic": TOPIC,
        "seconds": 60,
        "partitions": [{"partition": 0, "from_offset": 0, "until_offset": 2**63 - 1}],
    }
    lease = _ask("POST", f"{admin}/api/v1/leases", wish)
    segments = lease["partitions"][0]["segments"]
    _ask("DELETE", f"{admin}/api/v1/leases/{lease['id']}")
    return segments[-1]["next_offset"], sum(one["size_bytes"] for one in segments)


def _ask(method: str, url: str, document: object = None) -> dict:  # type: ignore[type-arg]
    body = None if document is None else json.dumps(document).encode()
    request = urllib.request.Request(url, body, method=method)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.loads(answer.read() or b"{}"))


def frame(spark: SparkSession, scene: Scene, way: str) -> DataFrame:
    """Return the DataFrame of all sealed offsets."""
    options = {
        "kafka.bootstrap.servers": scene.bootstrap,
        "assign": f'{{"{TOPIC}": [0]}}',
        "startingOffsets": f'{{"{TOPIC}": {{"0": 0}}}}',
        "endingOffsets": f'{{"{TOPIC}": {{"0": {scene.offsets}}}}}',
    }
    if way == CONNECTOR:
        # Its fastest settings; it splits a partition by a minimum of tasks.
        options |= {"kafka.max.poll.records": "10000", "minPartitions": "8"}
        return spark.read.format("kafka").options(**options).load()
    if way == FILES:
        options |= {"segments": "only", "segments.url": scene.admin}
    else:
        options |= {"segments": "off"}
    return spark.read.format("penstock").options(**options).load()


def measure(spark: SparkSession, scene: Scene, way: str) -> Sample:
    """Read everything once."""
    cpu, begun = cpu_seconds(scene.pid), time.monotonic()
    frame(spark, scene, way).write.format("noop").mode("overwrite").save()
    seconds = time.monotonic() - begun
    return Sample(seconds, cpu_seconds(scene.pid) - cpu)


def report(console: Console, scene: Scene, samples: dict[str, list[Sample]]) -> bool:
    """Print the medians; return whether the targets are met."""
    table = Table(title=f"{scene.offsets:,} records, {scene.sealed_bytes / GB:.2f} GB")
    for name in ("way", "rows/s", "lowest", "highest", "broker CPU s/GB"):
        table.add_column(name)
    rows, costs = {}, {}
    for way, found in samples.items():
        rates = [scene.offsets / one.seconds for one in found]
        rows[way] = statistics.median(rates)
        costs[way] = statistics.median(one.broker_cpu_seconds for one in found) / (
            scene.sealed_bytes / GB
        )
        table.add_row(
            way,
            f"{rows[way]:,.0f}",
            f"{min(rates):,.0f}",
            f"{max(rates):,.0f}",
            f"{costs[way]:.4f}",
        )
    console.print(table)
    is_met = costs[FILES] < CPU_SECONDS_PER_GB_MAX
    if CONNECTOR in rows:
        ratio = rows[FILES] / rows[CONNECTOR]
        console.print(f"rows/s: {ratio:.2f} x {CONNECTOR}")
        is_met &= ratio >= RATIO_MIN
    return is_met


def run(arguments: argparse.Namespace, folder: Path) -> bool:
    """Fill the topic, read it in turn, and report."""
    console = Console()
    data = folder / "data"
    with broker(data) as (pid, bootstrap, admin):
        fill(bootstrap, int(arguments.gib * GIB), arguments.segment_mib << 20)
        offsets, sealed_bytes = sealed_end(admin)
        scene = Scene(pid, bootstrap, admin, offsets, sealed_bytes)
        idle, begun = cpu_seconds(pid), time.monotonic()
        time.sleep(5)
        seconds = time.monotonic() - begun
        console.print(f"idle broker: {(cpu_seconds(pid) - idle) / seconds:.4f} CPU-s/s")
        spark = new_session(folder, slots=arguments.slots, extra={"spark.driver.memory": "3g"})
        try:
            ways = [FILES, FETCH] + ([] if arguments.without_connector else [CONNECTOR])
            for way in ways:
                count = frame(spark, scene, way).count()
                if count != offsets:
                    raise RuntimeError(f"{way}: {count} rows of {offsets}")
            samples: dict[str, list[Sample]] = {way: [] for way in ways}
            for number in range(arguments.rounds):
                for way in ways if number % 2 == 0 else reversed(ways):
                    samples[way].append(measure(spark, scene, way))
                    console.print(f"round {number + 1}: {way}: {samples[way][-1]}")
        finally:
            spark.stop()
        return report(console, scene, samples)


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--segment-mib", type=int, default=256)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--without-connector", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sealed-") as folder:
        return 0 if run(arguments, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())
