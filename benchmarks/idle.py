"""The cost of an idle broker: processor, wake-ups and memory, beside Apache Kafka.

    python -m benchmarks.idle [--partitions 0 100 4000] [--seconds 30] [--rounds 3]
        [--json FILE] [--markdown]

For each number of partitions both brokers are started fresh, get one topic with one record in each
partition, and are idle at the same time. Then both are measured for `--rounds` windows of
`--seconds` each. During a window nothing is sent and no client is connected. `--markdown` writes
the table into the README. Exit code 1: a bound was missed (an idle Penstock uses under 1 % of a
core).

The processor's share is of one core, user and system time of all threads. Wake-ups are voluntary
context switches of all threads: they keep the processor of a small machine from sleeping.
"""

import argparse
import contextlib
import dataclasses
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.contestants import KAFKA_PROPERTIES, Topics, new_broker
from benchmarks.load import run_raw
from benchmarks.machine import Bystanders, file_system, processor
from benchmarks.report import (
    Sample,
    judge_all,
    markdown,
    noise,
    print_table,
    put_between_marks,
)
from benchmarks.scale import allow_open_files
from benchmarks.side_by_side import README
from benchmarks.targets import Bound, Target
from benchmarks.variants import KAFKA_UNSYNCED, PENSTOCK_DURABLE, Variant
from tests.oracle.kafka_jars import KAFKA_VERSION, SERVER_JVM
from tests.oracle.running_broker import RunningBroker

VARIANTS = (KAFKA_UNSYNCED, PENSTOCK_DURABLE)
PARTITIONS = (0, 100, 4_000)
SECONDS = 30.0
SETTLE_SECONDS = 15.0
"""After the load: Java still compiles and collects garbage, and both write checkpoints."""
OPEN_FILES = 20_000
CPU_PERCENT_MAX = Bound(1.0, is_ratio=False, at_least=False)
NOT_MORE = Bound(1.0, is_ratio=True, at_least=False)


@dataclasses.dataclass(frozen=True)
class Idleness:
    """Counters of one process now; a window is the difference of two."""

    at: float
    cpu_seconds: float
    wake_ups: int
    rss_bytes: int


def look_at(broker: RunningBroker) -> Idleness:
    """The counters of a broker's process."""
    usage = broker.usage()
    return Idleness(time.perf_counter(), usage.cpu_seconds, wake_ups(broker.pid), usage.rss_bytes)


def wake_ups(pid: int) -> int:
    """Voluntary context switches of all threads that live now."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end while its file is read.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches"):
                    total += int(line.split()[1])
    return total


def window(before: Idleness, after: Idleness) -> dict[str, float]:
    """Return CPU time, wake-ups and memory of the window between two readings."""
    seconds = after.at - before.at
    cpu_seconds = after.cpu_seconds - before.cpu_seconds
    return {
        "cpu_s": cpu_seconds,
        "cpu_percent": 100 * cpu_seconds / seconds,
        "wake_ups_per_s": max(0, after.wake_ups - before.wake_ups) / seconds,
        "rss_mb": after.rss_bytes / 1e6,
    }


def fill(broker: RunningBroker, partitions: int) -> None:
    """Create one topic with a record in each partition."""
    if partitions:
        topic = Topics(broker.bootstrap).create(partitions=partitions)
        run_raw(
            "produce-each",
            address=broker.bootstrap,
            topic=topic,
            partitions=partitions,
            in_flight=32,
        )


def workload_name(partitions: int) -> str:
    """Return the name of the samples with this number of partitions."""
    return f"idle-{partitions}"


def measure(
    folder: Path, partitions: int, *, seconds: float, rounds: int, settle_seconds: float
) -> list[Sample]:
    """Measure both brokers with this number of partitions at the same time."""
    samples = []
    with contextlib.ExitStack() as stack:
        brokers: dict[Variant, RunningBroker] = {}
        for variant in VARIANTS:
            broker = new_broker(variant, folder / f"{variant.broker}-{partitions}")
            brokers[variant] = stack.enter_context(broker)
            fill(broker, partitions)
        time.sleep(settle_seconds)
        for round_number in range(1, rounds + 1):
            bystanders = Bystanders()
            before = {variant: look_at(broker) for variant, broker in brokers.items()}
            time.sleep(seconds)
            found = {
                variant: window(before[variant], look_at(broker))
                for variant, broker in brokers.items()
            }
            share = bystanders.share(sum(values["cpu_s"] for values in found.values()))
            samples += [
                Sample(workload_name(partitions), variant, round_number, values, share)
                for variant, values in found.items()
            ]
    return samples


def targets(partition_counts: Sequence[int]) -> list[Target]:
    """The rows of the table."""

    def row(partitions: int, text: str, value: str, unit: str, bound: Bound | None) -> Target:
        title = f"{text}, {partitions:,} partitions"
        name = workload_name(partitions)
        return Target(title, name, value, unit, KAFKA_UNSYNCED, PENSTOCK_DURABLE, bound)

    rows = []
    for partitions in partition_counts:
        rows += [
            row(partitions, "idle CPU", "cpu_percent", "% of a core", CPU_PERCENT_MAX),
            row(partitions, "idle wake-ups", "wake_ups_per_s", "1/s", None),
            row(partitions, "idle memory", "rss_mb", "MB", NOT_MORE),
        ]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write; 1 when a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle")
    parser.add_argument("--partitions", type=int, nargs="+", default=PARTITIONS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of a window")
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS, help="seconds before it")
    parser.add_argument("--rounds", type=int, default=3, help="windows (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    parser.add_argument("--markdown", action="store_true", help="write the table into the README")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    allow_open_files(OPEN_FILES)
    folder = Path(tempfile.mkdtemp(prefix="penstock-idle-"))
    samples: list[Sample] = []
    try:
        for partitions in options.partitions:
            found = measure(
                folder,
                partitions,
                seconds=options.seconds,
                rounds=options.rounds,
                settle_seconds=options.settle,
            )
            for sample in found:
                shown = ", ".join(f"{key} {value:.4g}" for key, value in sample.values.items())
                console.print(f"{sample.workload}, {sample.variant}: {shown}")
            samples += found
        notes = [
            f"{processor()}, {file_system(folder)}",
            (
                f"{options.rounds} windows of {options.seconds:g} s, both brokers watched at the "
                f"same time, {options.settle:g} s after the load; {noise(samples)}"
            ),
            (
                f"Apache Kafka {KAFKA_VERSION}, {' '.join(SERVER_JVM)}, class-data archive, "
                + ", ".join(f"{name}={value}" for name, value in KAFKA_PROPERTIES.items())
            ),
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lines = judge_all(samples, targets(options.partitions))
    print_table(lines, console)
    for note in notes:
        console.print(note, style="dim")
    if options.json:
        content = [dataclasses.asdict(sample) for sample in samples]
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    if options.markdown:
        README.write_text(put_between_marks(README.read_text(), markdown(lines, notes), "idle"))
    return 1 if any(line.verdict.startswith("MISSED") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
