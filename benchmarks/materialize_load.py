"""Time to load a topic into SQLite with `penstock materialize --once`, and to read rows by key.

    python -m benchmarks.materialize_load                     1,000,000 keys, 4 partitions
    python -m benchmarks.materialize_load --keys 100000 --index

The broker runs in this process, in memory, so the figure is that of the loading process alone. Keys
are in random order, as in a topic of updates. Prints seconds, CPU of the process and records/s.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.client.calls import NewTopic, send_batches
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.call import raise_error
from penstock.client.transport.options import ClientOptions
from penstock.core.clock import SystemClock
from penstock.core.types import TopicPartition
from penstock.materialize.bounded_queries import BoundedQueries, QueryBounds
from penstock.records.builder import build_batch
from penstock.records.record import Record
from penstock.testing import Broker

TOPIC = "price"
PARTITIONS = 4
BATCH_RECORDS = 4_000
READS = 2_000


def main() -> None:
    """Produce, load, read; print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--index", action="store_true", help="with an index on $.sku")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        options = ClientOptions(tuple(parse_addresses(broker.bootstrap_server)))
        with open_cluster(options) as cluster:
            produce(cluster, arguments.keys)
        seconds, cpu_seconds = load(broker.bootstrap_server, folder, has_index=arguments.index)
        size_bytes = (Path(folder) / "materialized.sqlite").stat().st_size
        rate = arguments.keys / seconds
        print(
            f"{arguments.keys} keys{' with an index' if arguments.index else ''}: loaded in "
            f"{seconds:.1f} s ({cpu_seconds:.1f} s of CPU), {rate:,.0f} records/s, "
            f"file of {size_bytes / 2**20:.0f} MiB"
        )
        print(f"one row by key: {read_microseconds(Path(folder), arguments.keys):.0f} µs")


def produce(cluster: Cluster, count: int) -> None:
    """Write each key once, in random order."""
    cluster.create_topic(NewTopic(TOPIC, PARTITIONS, 1))
    numbers = list(range(count))
    random.Random(1).shuffle(numbers)
    for start in range(0, count, BATCH_RECORDS):
        at = TopicPartition(TOPIC, start // BATCH_RECORDS % PARTITIONS)
        records = [
            Record(b"sku-%09d" % number, b'{"sku": "sku-%09d", "price": %d.5}' % (number, number))
            for number in numbers[start : start + BATCH_RECORDS]
        ]
        (leader,) = cluster.by_leader([at])
        answer = cluster.at(
            leader, send_batches({at: build_batch(records)}, acks=-1, timeout_ms=30_000)
        )
        raise_error(answer[at].error_code, None, str(at))


def load(bootstrap: str, folder: str, *, has_index: bool) -> tuple[float, float]:
    """Run the command; return seconds and its CPU seconds, with its start."""
    command = [sys.executable, "-m", "penstock", "materialize", TOPIC, "--once"]
    command += ["--bootstrap", bootstrap, "--store", folder]
    command += ["--index", "$.sku"] if has_index else []
    # Users do not have Hypothesis: the schemas would register with it for seconds.
    hidden = Path(folder) / "modules"
    hidden.mkdir()
    (hidden / "hypothesis.py").write_text('raise ImportError("not for this process")\n')
    path = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
    seconds = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def read_microseconds(folder: Path, count: int) -> float:
    """Return the time of one read by key, without HTTP."""
    queries = BoundedQueries(folder / "materialized.sqlite", SystemClock())
    dice = random.Random(7)
    sql = f'SELECT "value" FROM "{TOPIC}" WHERE "key" = ?'
    start = time.monotonic()
    for _ in range(READS):
        key = f"sku-{dice.randrange(count):09}"
        assert len(queries.own(sql, (key,), QueryBounds()).rows) == 1
    microseconds = (time.monotonic() - start) / READS * 1e6
    queries.close()
    return microseconds


if __name__ == "__main__":
    main()
