"""Many topics, a table each: one process beside single pipelines, extrapolated from a few.

    python -m benchmarks.table_many [--topics 200] [--singles 5] [--seconds 60] [--rate 200]
        [--format delta] [--markdown]

A broker runs in its own process. Records are sent to all topics in turn at a steady rate in sum
while `penstock table run` works, first with one definition for all topics, then with one process
for each of a few topics at the same rate for each topic. Memory is that of the process and its
children: Python's driver, Java and workers. The freshness of a record goes from its timestamp to
the commit, as the pipeline's own lines report it; only batches of the second half count.

Guarantees: after the end every table has every record once, or the run ends with an error. Single
pipelines are a few, and their figures are multiplied: the sum of all is never run.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing import Broker

DEFINITION: Final = """\
[pipeline]
name = "{name}"
bootstrap_servers = "{bootstrap}"
checkpoint = "{folder}/checkpoint-{name}"

[source]
{source}

[table]
format = "{format}"
name = "{table}"
catalog = {catalog}

[value]
format = "json"
schema = "id bigint, name string"

[trigger]
interval = "1 second"
"""
START_SECONDS_MAX: Final = 300.0
JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmx512m"
_FRESHNESS: Final = re.compile(r"freshness ([0-9.]+) (ms|s|min)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0}


@dataclass(frozen=True)
class Figures:
    """The measurements of one arrangement."""

    name: str
    pipelines: int
    memory_mb: float
    cpu_seconds_per_minute: float
    commits_per_second: float
    freshness_p50_s: float
    freshness_p99_s: float
    ready_seconds: float
    """From the start until each topic had its first commit."""


class Running:
    """A `penstock table run`, whose lines are kept with their times."""

    def __init__(self, file: Path) -> None:
        self.lines: list[tuple[float, str]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "table", "run", str(file), "--master", "local[2]"],
            env={**os.environ, "JAVA_TOOL_OPTIONS": JVM},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self._thread = Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines.append((time.monotonic(), line))

    def names(self) -> set[str]:
        """The pipelines that have committed a batch."""
        return {line.split()[0] for _, line in list(self.lines) if " batch " in line}

    def stop(self) -> None:
        """Stop it in order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)
        self._thread.join()


def tree_of(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for one in read_text(child).split():
            found += tree_of(int(one))
    return found


def read_text(path: Path) -> str:
    """The text of a file below /proc; empty if its process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def memory_mb(pids: Sequence[int]) -> float:
    """The proportional memory of processes."""
    total = 0
    for pid in pids:
        for line in read_text(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def cpu_seconds(pids: Sequence[int]) -> float:
    """The processor time of processes, and of their children that have ended."""
    ticks = 0
    for pid in pids:
        fields = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


class Feeder:
    """Sends records to topics in turn, until it is stopped."""

    def __init__(self, bootstrap: str, topics: Sequence[str], rate: float) -> None:
        self.sent = dict.fromkeys(topics, 0)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._rate = rate
        self._ends = False
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        topics, begun, count = list(self.sent), time.monotonic(), 0
        while not self._ends:
            while count < (time.monotonic() - begun) * self._rate:
                topic = topics[count % len(topics)]
                number = self.sent[topic]
                self._producer.produce(topic, json.dumps({"id": number, "name": topic}).encode())
                self.sent[topic] += 1
                count += 1
            self._producer.poll(0)
            time.sleep(0.005)

    def stop(self) -> None:
        """Stop, and wait for all acknowledgements."""
        self._ends = True
        self._thread.join()
        if self._producer.flush(60):
            raise RuntimeError("records were not acknowledged")


@contextmanager
def fed(bootstrap: str, topics: Sequence[str], rate: float) -> Iterator[Feeder]:
    """A feeder for as long as the block lasts."""
    feeder = Feeder(bootstrap, topics, rate)
    try:
        yield feeder
    finally:
        feeder.stop()


class Arrangement:
    """Some definitions that run together."""

    def __init__(self, folder: Path, bootstrap: str, format_: str) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        self._format = format_
        self.catalog = (
            {"warehouse": f"file://{folder}/warehouse"}
            if format_ == "delta"
            else {
                "type": "sql",
                "uri": f"sqlite:///{folder}/catalog.db",
                "warehouse": f"file://{folder}/warehouse",
            }
        )

    def file(self, name: str, source: str, table: str) -> Path:
        """Write a definition."""
        catalog = ", ".join(f"{key} = {json.dumps(text)}" for key, text in self.catalog.items())
        path = self.folder / f"{name}.toml"
        path.write_text(
            DEFINITION.format(
                name=name,
                bootstrap=self._bootstrap,
                folder=self.folder,
                source=source,
                format=self._format,
                table=table,
                catalog=f"{{ {catalog} }}",
            )
        )
        return path

    def count(self, table: str) -> tuple[int, int]:
        """The rows of a table, and its different ids."""
        if self._format == "delta":
            from deltalake import DeltaTable

            path = f"{self.folder}/warehouse/{table.replace('.', '/')}"
            ids = DeltaTable(path).to_pyarrow_table(columns=["id"]).column("id")
        else:
            from pyiceberg.catalog import load_catalog

            catalog = load_catalog("default", **self.catalog)
            ids = catalog.load_table(table).scan(selected_fields=("id",)).to_arrow().column("id")
            catalog.close()
        return len(ids), len(ids.unique())


def all_of(runs: Sequence[Running]) -> list[int]:
    """The processes of all runs."""
    return [pid for run in runs for pid in tree_of(run.process.pid)]


def measure(
    name: str, runs: Sequence[Running], topics: Sequence[str], seconds: float, begun: float
) -> Figures:
    """Wait until all topics have a commit, then measure."""
    while len({one for run in runs for one in run.names()}) < len(topics):
        if time.monotonic() - begun > START_SECONDS_MAX:
            raise RuntimeError(f"{name}: not every topic had a commit in {START_SECONDS_MAX} s")
        if any(run.process.poll() is not None for run in runs):
            raise RuntimeError(f"{name}: a pipeline ended: {runs[0].lines[-3:]}")
        time.sleep(0.5)
    ready = time.monotonic() - begun
    time.sleep(seconds / 4)
    started, before = time.monotonic(), cpu_seconds(all_of(runs))
    time.sleep(seconds)
    pids = all_of(runs)
    ended, used = time.monotonic(), cpu_seconds(pids) - before
    memory = memory_mb(pids)
    batches = [line for run in runs for at, line in list(run.lines) if started < at < ended]
    fresh = sorted(
        float(found[1]) * _UNITS[found[2]]
        for line in batches
        if (found := _FRESHNESS.search(line)) is not None
    )
    return Figures(
        name,
        len(runs),
        memory,
        used / (ended - started) * 60,
        len(fresh) / (ended - started),
        statistics.median(fresh),
        fresh[int(len(fresh) * 0.99)],
        ready,
    )


def one_process(
    folder: Path, bootstrap: str, format_: str, topics: Sequence[str], rate: float, seconds: float
) -> Figures:
    """One definition for all topics."""
    arrangement = Arrangement(folder, bootstrap, format_)
    file = arrangement.file("all", "pattern = '^many\\.(?P<entity>.+)$'", "shop.{entity}")
    begun = time.monotonic()
    run = Running(file)
    try:
        with fed(bootstrap, topics, rate) as feeder:
            found = measure("one process", [run], topics, seconds, begun)
        time.sleep(5)
    finally:
        run.stop()
    finish(file)
    for topic, count in feeder.sent.items():
        require_equal(arrangement, f"shop.{topic.partition('.')[2]}", count)
    return found


def single_processes(
    folder: Path, bootstrap: str, format_: str, topics: Sequence[str], rate: float, seconds: float
) -> Figures:
    """A process for each topic."""
    arrangement = Arrangement(folder, bootstrap, format_)
    files = [
        arrangement.file(f"p{number}", f'topics = ["{topic}"]', f"single.t{number}")
        for number, topic in enumerate(topics)
    ]
    begun = time.monotonic()
    runs = [Running(file) for file in files]
    try:
        with fed(bootstrap, topics, rate) as feeder:
            found = measure("single processes", runs, topics, seconds, begun)
        time.sleep(5)
    finally:
        for run in runs:
            run.stop()
    for number, (file, count) in enumerate(zip(files, feeder.sent.values(), strict=True)):
        finish(file)
        require_equal(arrangement, f"single.t{number}", count)
    return found


def finish(file: Path) -> None:
    """Write what was sent after the last batch."""
    subprocess.run(
        [sys.executable, "-m", "penstock", "table", "run", str(file), "--once"],
        env={**os.environ, "JAVA_TOOL_OPTIONS": JVM},
        check=True,
        capture_output=True,
    )


def require_equal(arrangement: Arrangement, table: str, sent: int) -> None:
    """Raise if a record is missing or doubled."""
    rows, ids = arrangement.count(table)
    if (rows, ids) != (sent, sent):
        raise RuntimeError(f"{table} has {rows} rows and {ids} ids of {sent} records")


def table_text(rows: Sequence[Figures], topics: int) -> str:
    """The figures as a table, single processes also multiplied."""
    text = [
        (
            "| arrangement | processes | memory | CPU a minute | commits/s | freshness p50, p99 |"
            " all topics after |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in rows:
        text.append(
            f"| {one.name} | {one.pipelines} | {one.memory_mb:,.0f} MB |"
            f" {one.cpu_seconds_per_minute:.1f} s | {one.commits_per_second:.1f} |"
            f" {one.freshness_p50_s:.2f} s, {one.freshness_p99_s:.2f} s |"
            f" {one.ready_seconds:.0f} s |"
        )
        if one.pipelines > 1:
            factor = topics / one.pipelines
            text.append(
                f"| ... extrapolated | {topics} | {one.memory_mb * factor:,.0f} MB |"
                f" {one.cpu_seconds_per_minute * factor:.1f} s |"
                f" {one.commits_per_second * factor:.1f} | | |"
            )
    return "\n".join(text)


def main() -> int:
    """Run both arrangements and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--singles", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=200.0, help="records a second to all topics")
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Broker() as broker:
        bootstrap = f"{broker.host}:{broker.port}"
        names = [f"many.t{number}" for number in range(given.topics)]
        singles = [f"single.t{number}" for number in range(given.singles)]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for done in admin.create_topics([NewTopic(one, 1) for one in names + singles]).values():
            done.result()
        base = Path(folder)
        for part in ("one", "single"):
            (base / part).mkdir()
        each = given.rate / given.topics
        found = [
            one_process(base / "one", bootstrap, given.format, names, given.rate, given.seconds),
            single_processes(
                base / "single",
                bootstrap,
                given.format,
                singles,
                each * given.singles,
                given.seconds,
            ),
        ]
    print(table_text(found, given.topics))
    print(
        f"- {given.format}, {given.topics} topics of one partition, {given.rate:g} records/s in"
        f" sum, trigger 1 s, {given.seconds:g} s; load average at the end {os.getloadavg()[0]:.1f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
