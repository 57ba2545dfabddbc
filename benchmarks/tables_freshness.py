"""Topic to table: how old a record is when it can be read, Penstock beside Spark's own connector.

    python -m benchmarks.tables_freshness [--rounds 3] [--seconds 20] [--rates 1000 50000]
        [--triggers default 1000] [--sinks delta iceberg] [--json FILE] [--markdown]

Records are produced at a steady rate while a query runs. The latency of each goes from its
timestamp until the commit of its file could be seen (`table_latencies`). The trigger `default` is
Spark's own, which starts the next batch as soon as it can, and for Penstock the shortest interval
there is, 100 ms; a number is the interval in milliseconds for all. Contestants take turns.

Guarantees: the table has as many rows as records were sent, or the run ends with an error. Exit
code 1 when a target is missed.
"""

import argparse
import dataclasses
import itertools
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer
from rich.console import Console

from benchmarks.contestants import Contestant, Stage
from benchmarks.groups import machine_notes
from benchmarks.machine import Bystanders, own_cpu_seconds
from benchmarks.report import Sample, noise
from benchmarks.spark_report import add_output_options, publish
from benchmarks.spark_workloads import PARTITIONS
from benchmarks.table_contestants import CONNECTORS, IN_TASK, OUR_SINKS, Contestants
from benchmarks.table_events import event, events
from benchmarks.table_latencies import (
    Committed,
    delta_commits,
    iceberg_commits,
    latencies_ms,
    rows_of,
    watched,
)
from benchmarks.tables_throughput import BEST, HEADINGS, SHOWN
from benchmarks.targets import Bound, Target
from benchmarks.variants import PENSTOCK_DURABLE, Values, Variant
from tests.spark.topics import new_producer

RATES = (1_000, 50_000)
P50_RATIO_MAX = 0.5
DEFAULT = "default"
PAUSE_SECONDS = 0.01
LEAD_SECONDS = 8.0
"""Seconds after the first commit in which records are not counted, because plans compile."""
ARRIVAL_SECONDS_MAX = 120.0
RATE_SHARE_MIN = 0.95


class LateError(RuntimeError):
    """Records did not arrive, or could not be sent at the requested rate."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One measured combination of sink, rate and trigger."""

    sink: str
    rate: int
    trigger: str

    @property
    def workload(self) -> str:
        """Return the name of the samples."""
        return f"{self.sink}-{self.rate}-{self.trigger}"

    @property
    def trigger_ms(self) -> int | None:
        """Return the interval for both sides; None means the shortest of each."""
        return None if self.trigger == DEFAULT else int(self.trigger)


def targets(cases: Sequence[Case]) -> list[Target]:
    """Return two lines for each case; medians with the default trigger are judged."""
    found = []
    for case in cases:
        median = Bound(P50_RATIO_MAX, is_ratio=True, at_least=False)
        bounds = {"p50_ms": median} if case.trigger == DEFAULT else {}
        trigger = "" if case.trigger == DEFAULT else f", a batch every {case.trigger} ms"
        for value in ("p50_ms", "p99_ms"):
            name = value.removesuffix("_ms")
            text = f"{SHOWN[case.sink]}, {case.rate:,} records/s{trigger}, {name}"
            bound = bounds.get(value)
            found.append(Target(text, case.workload, value, "ms", BEST, IN_TASK, bound))
    return found


def send(producer: Producer, topic: str, rate: int, seconds: float) -> tuple[int, float, float]:
    """Produce at this rate; return the number of records and the counted time range."""
    values = events(20_000)
    begun = time.perf_counter()
    begin_ms = time.time_ns() / 1e6
    sent = 0
    while (passed := time.perf_counter() - begun) < seconds:
        for number in range(sent, int(passed * rate)):
            producer.produce(topic, values[number % len(values)], partition=number % PARTITIONS)
        sent = max(sent, int(passed * rate))
        producer.poll(PAUSE_SECONDS)
    end_ms = time.time_ns() / 1e6
    if producer.flush(ARRIVAL_SECONDS_MAX):
        raise LateError("the broker did not acknowledge every record")
    if sent < rate * seconds * RATE_SHARE_MIN:
        raise LateError(f"{sent / seconds:,.0f} records a second were sent, not {rate:,}")
    return sent, begin_ms + LEAD_SECONDS * 1_000, end_ms


def commits_of(case: Case, path: Path, changes_ms: Sequence[float]) -> list[Committed]:
    """Return the commits in the table's log."""
    if case.sink == "delta":
        return delta_commits(path)
    return iceberg_commits(path, changes_ms)


def _wait_for(case: Case, path: Path, sent: int) -> None:
    """Wait until the table has all sent rows."""
    deadline = time.monotonic() + ARRIVAL_SECONDS_MAX
    while (held := rows_of(commits_of(case, path, ()))) < sent:
        if time.monotonic() > deadline:
            raise LateError(f"{case.workload}: {held:,} of {sent:,} records are in the table")
        time.sleep(0.5)
    if held > sent:
        raise LateError(f"{case.workload}: {sent:,} records were sent, {held:,} are in the table")


def run(
    contestants: Contestants, contestant: Contestant, variant: Variant, case: Case, seconds: float
) -> Values:
    """Measure one query with its own topic and table."""
    topic = contestant.topics.create(partitions=PARTITIONS)
    request = {"name": "freshness", "topic": topic, "sink": case.sink, "mode": IN_TASK.broker}
    if case.trigger_ms is not None:
        request["trigger_ms"] = str(case.trigger_ms)
    started = contestants.ask(variant, {"do": "start", **request})
    path = Path(started["path"])
    with watched(started.get("database", "")) as changes_ms:
        bootstrap = contestant.broker.bootstrap
        producer = new_producer(bootstrap, {"queue.buffering.max.messages": "500000"})
        for partition in range(PARTITIONS):
            producer.produce(topic, event(partition), partition=partition)
        _wait_for(case, path, PARTITIONS)
        sent, begin_ms, end_ms = send(producer, topic, case.rate, LEAD_SECONDS + seconds)
        _wait_for(case, path, PARTITIONS + sent)
        contestants.ask(variant, {"do": "stop"})
    commits = commits_of(case, path, changes_ms)
    found = latencies_ms(commits, begin_ms, end_ms)
    contestant.topics.delete(topic)
    return {
        "p50_ms": float(found[len(found) // 2]),
        "p99_ms": float(found[int(len(found) * 0.99)]),
        "highest_ms": float(found[-1]),
        "commits": len(commits),
        "records": len(found),
    }


def measure(
    contestants: Contestants,
    contestant: Contestant,
    cases: Sequence[Case],
    options: argparse.Namespace,
    console: Console,
) -> list[Sample]:
    """Run one uncounted round, then the others; contestants take turns in each case."""
    samples: list[Sample] = []
    for round_number, case in itertools.product(range(options.rounds + 1), cases):
        if round_number == 0 and case.rate != cases[0].rate:
            continue
        variants = (*CONNECTORS[case.sink], IN_TASK)
        for variant in variants if round_number % 2 else reversed(variants):
            bystanders = Bystanders()
            before = own_cpu_seconds()
            values = run(contestants, contestant, variant, case, options.seconds)
            values["cpu_s"] = own_cpu_seconds() - before
            share = bystanders.share(values["cpu_s"])
            shown = ", ".join(f"{key} {value:,.4g}" for key, value in values.items())
            console.print(f"round {round_number}: {case.workload}, {variant.broker}: {shown}")
            if round_number > 0:
                samples.append(Sample(case.workload, variant, round_number, values, share))
    return samples


def judged(samples: Sequence[Sample], cases: Sequence[Case]) -> list[Sample]:
    """Return the samples, and as `BEST` those of the connector version with the lowest median."""
    found = list(samples)
    for case in cases:
        of_case = [one for one in samples if one.workload == case.workload]
        medians = {
            variant: statistics.median(
                one.values["p50_ms"] for one in of_case if one.variant == variant
            )
            for variant in CONNECTORS[case.sink]
        }
        best = min(medians, key=lambda variant: medians[variant])
        found += [dataclasses.replace(one, variant=BEST) for one in of_case if one.variant == best]
    return found


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables_freshness")
    parser.add_argument("--rounds", type=int, default=3, help="counted repeats (default 3)")
    parser.add_argument("--seconds", type=float, default=20, help="counted of each run (20)")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES)
    parser.add_argument("--triggers", nargs="+", default=[DEFAULT, "1000"], metavar="TRIGGER")
    parser.add_argument("--sinks", nargs="+", choices=OUR_SINKS, default=OUR_SINKS)
    parser.add_argument("--folder", type=Path, help="folder for the data directories")
    add_output_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a target is missed."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    cases = [
        Case(sink, rate, trigger)
        for rate in options.rates
        for trigger in options.triggers
        for sink in options.sinks
    ]
    with Stage({PENSTOCK_DURABLE}, options.folder) as stage, ExitStack() as stack:
        contestant = stage.contestant(PENSTOCK_DURABLE)
        contestants = Contestants(stack, contestant, stage.folder / "tables")
        samples = measure(contestants, contestant, cases, options, console)
    notes = [
        *machine_notes(),
        (
            f"{options.seconds:g} s of records are counted after {LEAD_SECONDS:g} s that are not; "
            f"{PARTITIONS} partitions, local[2], in-task mode; without a number the trigger is "
            "Spark's default, and 100 ms for Penstock"
        ),
        f"{options.rounds} rounds, interleaved; {noise(samples)}",
    ]
    return publish(
        judged(samples, cases),
        targets(cases),
        notes,
        options,
        console,
        mark="tables freshness",
        headings=HEADINGS,
    )


if __name__ == "__main__":
    sys.exit(main())
