"""The time that a broker costs a test: `penstock.testing.Broker` beside Apache Kafka.

    python -m benchmarks.testing_start [--rounds 20] [--kafka-rounds 3] [--json FILE] [--markdown]

Both brokers are measured in one run. A start ends when the broker has answered a Metadata request,
the same request for both. A stop is a clean shutdown. A return is the time from a crash until the
broker answers again on the same port: `crash()` and `restart()`, or kill -9 and a new process. The
first start of a process includes the imports, so it is measured in processes of its own. Kafka's
starts are spread over ours; it starts from a class-data archive and a formatted directory, which is
to its advantage.

Exit code 1 when the median of a start or of a stop is above 150 ms.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.groups import machine_notes
from benchmarks.machine import Bystanders
from benchmarks.report import put_between_marks
from benchmarks.side_by_side import README
from benchmarks.spark_report import add_output_options
from penstock.testing import Broker
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.running_broker import Recipe, RunningBroker

LIMIT_MS = 150.0
"""The limit of a start, and of a stop."""
JUDGED = ("start", "stop")
COLD = "first start of a process, imports included"
COLD_ROUNDS = 5
MARK = "testing start"
HEADINGS = ("", "Penstock, median (p95), ms", "Apache Kafka, median (p95), ms", "ratio")

_COLD_PROGRAM = """
import time
begun = time.perf_counter()
from penstock.testing import Broker
broker = Broker()
broker.start()
print((time.perf_counter() - begun) * 1000)
broker.stop()
"""

Times = dict[str, list[float]]


def timed_ms(action: Callable[[], object]) -> float:
    """Return the duration of a call."""
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1_000


def answered(port: int) -> None:
    """Return when the broker on this port answers the request that Apache Kafka gets."""
    here = Path()
    asked = RunningBroker(Recipe("penstock", (), {}, here), folder=here, port=port)
    while not asked.answers():
        time.sleep(0.001)


def measure_ours(times: Times) -> None:
    """Measure one broker of this process: start, crash and return, stop."""
    broker = Broker()

    def start() -> None:
        broker.start()
        answered(broker.port)

    def come_back() -> None:
        broker.crash()
        broker.restart()
        answered(broker.port)

    times["start"].append(timed_ms(start))
    times["return after a crash"].append(timed_ms(come_back))
    times["stop"].append(timed_ms(broker.stop))


def measure_cold(times: Times) -> None:
    """The first broker of a process."""
    done = subprocess.run(
        [sys.executable, "-c", _COLD_PROGRAM],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    times[COLD].append(float(done.stdout))


def measure_kafka(times: Times) -> None:
    """Measure one process of Apache Kafka: start, kill and return, stop."""
    with tempfile.TemporaryDirectory() as folder:
        broker = kafka_broker(Path(folder))

        def come_back() -> None:
            broker.kill()
            broker.start()

        start_ms = timed_ms(broker.start)
        times["start"].append(start_ms)
        times[COLD].append(start_ms)
        times["return after a crash"].append(timed_ms(come_back))
        times["stop"].append(timed_ms(broker.stop))


def own_cpu_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    return sum(os.times()[:4])


def p95(values: Sequence[float]) -> float:
    """The value that 95 in a hundred do not exceed; of a few values, the highest."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def shown(values: Sequence[float]) -> str:
    """Median and p95 for a cell."""
    return f"{statistics.median(values):,.1f} ({p95(values):,.1f})"


def rows(ours: Times, kafkas: Times) -> list[tuple[str, ...]]:
    """The table's lines."""
    found: list[tuple[str, ...]] = []
    for name, values in ours.items():
        theirs = kafkas.get(name)
        if theirs is None:
            found.append((name, shown(values), "", ""))
            continue
        ratio = statistics.median(values) / statistics.median(theirs)
        found.append((name, shown(values), shown(theirs), f"{ratio:.3f} x"))
    return found


def misses(ours: Times) -> list[str]:
    """Return a line for each median above the limit."""
    return [
        f"{name}: {statistics.median(ours[name]):.0f} ms, at most {LIMIT_MS:.0f} ms"
        for name in JUDGED
        if statistics.median(ours[name]) > LIMIT_MS
    ]


def markdown(lines: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    """The table for the README."""
    head = [HEADINGS, ("---",) * len(HEADINGS)]
    table = [f"| {' | '.join(line)} |" for line in [*head, *lines]]
    return "\n".join([*table, "", *(f"- {note}" for note in notes)])


def measure(rounds: int, kafka_rounds: int) -> tuple[Times, Times]:
    """Measure Penstock and Kafka in turns."""
    ours: Times = defaultdict(list)
    kafkas: Times = defaultdict(list)
    measure_ours(defaultdict(list))  # Not counted: this process imports the broker here.
    every = max(1, rounds // max(1, kafka_rounds))
    for number in range(rounds):
        measure_ours(ours)
        if number < COLD_ROUNDS:
            measure_cold(ours)
        if number % every == 0 and number // every < kafka_rounds:
            measure_kafka(kafkas)
    return ours, kafkas


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a limit is exceeded."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.testing_start")
    parser.add_argument("--rounds", type=int, default=20, help="starts of Penstock (20)")
    parser.add_argument("--kafka-rounds", type=int, default=3, help="starts of Kafka (3)")
    add_output_options(parser)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    bystanders, before = Bystanders(), own_cpu_seconds()
    ours, kafkas = measure(options.rounds, options.kafka_rounds)
    share = bystanders.share(own_cpu_seconds() - before)
    table = Table(*HEADINGS)
    lines = rows(ours, kafkas)
    for line in lines:
        table.add_row(*line)
    console.print(table)
    notes = [
        *machine_notes(),
        (
            f"{options.rounds} starts of Penstock, {options.kafka_rounds} of Kafka, spread among "
            f"them; {COLD_ROUNDS} of new processes; others used {share:.0%} of the machine"
        ),
    ]
    missed = misses(ours)
    for miss in missed:
        console.print(f"MISSED {miss}", style="red")
    if options.json:
        document = {"penstock_ms": ours, "kafka_ms": kafkas, "notes": notes}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    if options.markdown:
        README.write_text(put_between_marks(README.read_text(), markdown(lines, notes), MARK))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
