"""Groups, offsets and transactions: side by side with Apache Kafka, and the size of one broker.

    python -m benchmarks.groups compare [--rounds 3] [--json FILE] [--markdown]
    python -m benchmarks.groups scale [--json FILE] [--markdown]

`compare` runs every workload on all brokers before the next one starts, and repeats the list
(A B A B …) after a round that is not counted, by the same raw client for all. `scale` is Penstock
alone: a thousand members, ten thousand groups, a million offsets. `--markdown` writes the table
into the README. The measuring functions are in `group_load`, `transaction_load` and `offset_log`;
`tests/scale` compares their figures with bounds.
"""

import argparse
import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.contestants import KAFKA_PROPERTIES, Contestant, Stage
from benchmarks.group_load import (
    PAUSE_SECONDS,
    REBALANCE_PARTITIONS,
    measure_large_group,
    measure_many_groups,
    measure_rebalance,
)
from benchmarks.machine import Bystanders, file_system, processor, sync_us
from benchmarks.offset_log import measure_offset_load
from benchmarks.report import (
    Sample,
    cells,
    judge_all,
    markdown,
    noise,
    print_table,
    put_between_marks,
)
from benchmarks.scale import allow_open_files
from benchmarks.side_by_side import README
from benchmarks.targets import Target
from benchmarks.transaction_load import measure_transactions
from benchmarks.variants import (
    KAFKA_UNSYNCED,
    PENSTOCK_DURABLE,
    PENSTOCK_UNSYNCED,
    Values,
    Variant,
)
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.kafka_jars import KAFKA_VERSION, SERVER_JVM
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

VARIANTS = (KAFKA_UNSYNCED, PENSTOCK_DURABLE, PENSTOCK_UNSYNCED)
MEMBERS = (2, 20, 100)
TRANSACTION_RECORDS = (1, 1_000)
TRANSACTION_SECONDS = 2.0
OPEN_FILES = 20_000

# Neither broker pauses by itself during the measured time.
KAFKA_AT_ONCE = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "add.partitions.to.txn.retry.backoff.ms": "1",
}
PENSTOCK_AT_ONCE = {
    "PENSTOCK_GROUPS__INITIAL_REBALANCE_DELAY_MS": "0",
    "PENSTOCK_GROUPS__CONSUMER_ASSIGNMENT_INTERVAL_MS": "0",
}
QUICK_HEARTBEAT_MS = 3_000
QUICK_HEARTBEAT = {"PENSTOCK_GROUPS__CONSUMER_HEARTBEAT_INTERVAL_MS": str(QUICK_HEARTBEAT_MS)}
"""A KIP-848 member gets its assignment at its second heartbeat: twice this is the least time."""

Workload = tuple[str, Callable[[Contestant], Values]]


def new_broker(variant: Variant, folder: Path) -> RunningBroker:
    """A fresh broker that does not wait by itself, not started."""
    if variant.broker == "kafka":
        properties = {**KAFKA_PROPERTIES, **KAFKA_AT_ONCE}
        return kafka_broker(folder, properties=properties, java_options=SERVER_JVM)
    flush = ["--flush", "always" if variant.durable else "os"]
    return penstock_broker(folder, arguments=flush, environment=PENSTOCK_AT_ONCE)


def _rebalance(protocol: str, members: int) -> Workload:
    def run(contestant: Contestant) -> Values:
        kept = contestant.kept
        if "rebalances" not in kept:
            kept["rebalances"] = contestant.topics.create(partitions=REBALANCE_PARTITIONS)
        topic = kept["rebalances"]
        return {"ms": measure_rebalance(contestant.broker, topic, protocol, members) * 1e3}

    return f"rebalance-{protocol}-{members}", run


def _transactions(records: int) -> Workload:
    def run(contestant: Contestant) -> Values:
        found = measure_transactions(
            contestant.broker, contestant.topics, records=records, seconds=TRANSACTION_SECONDS
        )
        return {"per_s": found.per_second, "p50_ms": found.p50_ms, "p99_ms": found.p99_ms}

    return f"transactions-{records}", run


WORKLOADS: tuple[Workload, ...] = (
    *(_rebalance(protocol, count) for protocol in ("classic", "consumer") for count in MEMBERS),
    *(_transactions(records) for records in TRANSACTION_RECORDS),
)


def _target(text: str, workload: str, value: str, unit: str, penstock: Variant) -> Target:
    return Target(text, workload, value, unit, KAFKA_UNSYNCED, penstock, None)


TARGETS = (
    *(
        _target(
            f"rebalance, {name}, {count} members, Penstock durable",
            f"rebalance-{protocol}-{count}",
            "ms",
            "ms",
            PENSTOCK_DURABLE,
        )
        for protocol, name in (("classic", "classic"), ("consumer", "KIP-848"))
        for count in MEMBERS
    ),
    *(
        _target(
            f"transactions of {records:,} record{'s' if records > 1 else ''}, {text}",
            f"transactions-{records}",
            value,
            unit,
            penstock,
        )
        for records in TRANSACTION_RECORDS
        for penstock, text in (
            (PENSTOCK_DURABLE, "Penstock durable"),
            (PENSTOCK_UNSYNCED, "both unsynced"),
        )
        for value, unit in (("per_s", "1/s"), ("p99_ms", "ms (p99)"))
    ),
)


def _run(stage: Stage, workload: Workload, variant: Variant, round_number: int) -> Sample:
    name, measure = workload
    contestant = stage.contestant(variant)
    broker = contestant.broker
    bystanders = Bystanders()
    before = broker.usage().cpu_seconds
    values = measure(contestant)
    values["cpu_s"] = broker.usage().cpu_seconds - before
    return Sample(name, variant, round_number, values, bystanders.share(values["cpu_s"]))


def compare(rounds: int, console: Console) -> list[Sample]:
    """Run one uncounted round, then the counted ones."""
    samples = []
    with Stage(set(VARIANTS), make_broker=new_broker) as stage:
        for round_number in range(rounds + 1):
            for workload in WORKLOADS:
                for variant in VARIANTS:
                    sample = _run(stage, workload, variant, round_number)
                    shown = ", ".join(f"{key} {value:.4g}" for key, value in sample.values.items())
                    console.print(f"round {round_number}: {workload[0]}, {variant}: {shown}")
                    samples.append(sample)
    return [sample for sample in samples if sample.round_number > 0]


def measure_scale(console: Console) -> dict[str, dict[str, float]]:
    """A thousand members, ten thousand groups, a million offsets; each on a fresh broker."""
    allow_open_files(OPEN_FILES)
    found: dict[str, dict[str, float]] = {}

    def note(name: str, figures: object) -> None:
        console.print(figures)
        assert dataclasses.is_dataclass(figures)
        assert not isinstance(figures, type)
        found[name] = dataclasses.asdict(figures)

    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        with penstock_broker(folder / "group", environment=QUICK_HEARTBEAT) as broker:
            name = f"one group, heartbeat interval {QUICK_HEARTBEAT_MS / 1_000:g} s"
            note(name, measure_large_group(broker, 1_000, 1_000))
        with penstock_broker(folder / "default") as broker:
            name = "one group, heartbeat interval 5 s (the default)"
            note(name, measure_large_group(broker, 1_000, 1_000))
        with penstock_broker(folder / "groups") as broker:
            figures = measure_many_groups(broker, 10_000, period_seconds=5.0, periods=2)
            note("many groups, each commits every 5 s", figures)
        for records in (100, 1):
            figures_of_load = measure_offset_load(
                folder / f"load-{records}", 1_000_000, records_in_batch=records
            )
            note(f"start after kill -9, {records} to a batch", figures_of_load)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def scale_table(found: dict[str, dict[str, float]]) -> str:
    """The figures as they were named, one row for each measurement."""
    rows = ["| measurement | figures |", "| --- | --- |"]
    for name, figures in found.items():
        shown = ", ".join(
            f"{key} {value:,.0f}" if value >= 100 else f"{key} {value:.3g}"
            for key, value in figures.items()
        )
        rows.append(f"| {name} | {shown} |")
    return "\n".join(rows)


def machine_notes() -> list[str]:
    """Return the notes about the machine that was measured."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        return [
            f"{processor()}, {file_system(place)}",
            f"fdatasync after an append of 4 KiB: {sync_us(place):.0f} µs",
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 0 unless something failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.groups")
    parser.add_argument("part", choices=["compare", "scale"])
    parser.add_argument("--rounds", type=int, default=3, help="counted repeats (default 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--markdown", action="store_true", help="write the table into the README")
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    notes = machine_notes()
    content: object
    if options.part == "scale":
        figures = measure_scale(console)
        content, table = figures, "\n".join([scale_table(figures), "", *(f"- {n}" for n in notes)])
    else:
        samples = compare(options.rounds, console)
        lines = judge_all(samples, TARGETS)
        notes += [
            f"{options.rounds} rounds, interleaved; {noise(samples)} (the client is among them)",
            (
                f"Apache Kafka {KAFKA_VERSION}, {' '.join(SERVER_JVM)}; no rebalance delay and no "
                f"assignment interval on either; members heartbeat every {PAUSE_SECONDS:g} s"
            ),
        ]
        print_table(lines, console)
        content, table = [cells(line) for line in lines], markdown(lines, notes)
    for line in notes:
        console.print(line, style="dim")
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    if options.markdown:
        name = f"groups {options.part}"
        README.write_text(put_between_marks(README.read_text(), table, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
