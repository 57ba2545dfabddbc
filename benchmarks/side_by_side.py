"""Penstock and Apache Kafka in one run, on one machine, by the same clients.

    python -m benchmarks.side_by_side [--rounds 5] [--quick] [--rows PATTERN] [--json FILE]

Guarantees: every workload runs on all its variants before the next one starts, and the whole list
is repeated for each round (A B A B …), so that a slow minute of the machine hits both. A first
round is not counted: it lets Java compile and the caches fill. Exit code 1 when a target is missed.

On a shared machine: broker and client have a core each and a raised priority; a measurement during
which other processes were busy is repeated, and the quietest attempt counts; one that fails is
repeated once and then left out of its round. A mismatch between client and log always ends the run.
"""

import argparse
import dataclasses
import fnmatch
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console

from benchmarks.contestants import KAFKA_PROPERTIES, Stage, new_broker
from benchmarks.librdkafka_producer import SETTINGS
from benchmarks.machine import Bystanders, facts, spent_cpu_seconds
from benchmarks.pinning import Cores, choose_cores, describe, pin_client, pinned, raise_priority
from benchmarks.report import (
    Line,
    Sample,
    cells,
    judge_all,
    markdown,
    noise,
    print_table,
    put_between_marks,
    row_text,
)
from benchmarks.targets import TARGETS, Target
from benchmarks.variants import Variant
from benchmarks.workloads import WORKLOADS, Sizes, Workload
from tests.oracle.cache import OracleError
from tests.oracle.kafka_jars import KAFKA_VERSION, SERVER_JVM
from tests.oracle.running_broker import RunningBroker

README = Path(__file__).resolve().parent / "README.md"

BUSY_SHARE_MAX = 0.15
"""Share of the machine that bystanders may use during a measurement before it is repeated."""
ATTEMPTS_MAX = 3
"""Of one measurement: with more, a run on a machine that stays busy never ends."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side")
    parser.add_argument("--rounds", type=int, default=5, help="counted repeats (default 5)")
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="start no round that would end after M minutes"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: no figures")
    parser.add_argument(
        "--rows",
        action="append",
        metavar="PATTERN",
        help="rows whose text or workload matches; * and ? match anything; may repeat",
    )
    parser.add_argument(
        "--broker",
        choices=["kafka", "penstock"],
        help="measure only this broker, without a comparison",
    )
    parser.add_argument(
        "--unpinned", action="store_true", help="let broker and client use every core"
    )
    parser.add_argument("--folder", type=Path, help="folder for the data directories")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every sample, after each round"
    )
    parser.add_argument("--markdown", action="store_true", help="write the table into the README")
    parser.add_argument("--list", action="store_true", help="list the rows and exit")
    options = parser.parse_args(arguments)
    if options.markdown and (options.quick or options.rows or options.broker):
        parser.error("--markdown needs a full run, without --quick, --rows or --broker")
    return options


def chosen_rows(patterns: Sequence[str] | None) -> list[Target]:
    """The rows whose text or workload matches one of the patterns; all without patterns."""
    if not patterns:
        return list(TARGETS)
    wanted = [pattern.lower() for pattern in patterns]
    return [
        target
        for target in TARGETS
        if any(
            fnmatch.fnmatchcase(name.lower(), pattern)
            for name in (target.workload, row_text(target))
            for pattern in wanted
        )
    ]


def chosen_workloads(rows: Sequence[Target], broker: str | None) -> list[Workload]:
    """Return the workloads of the rows, in their order, with the variants to compare."""
    needed = {(row.workload, variant) for row in rows for variant in (row.kafka, row.penstock)}
    chosen = []
    for workload in WORKLOADS:
        variants = tuple(
            variant
            for variant in workload.variants
            if (workload.name, variant) in needed and broker in (None, variant.broker)
        )
        if variants:
            chosen.append(dataclasses.replace(workload, variants=variants))
    return chosen


def run_once(
    stage: Stage, workload: Workload, variant: Variant, sizes: Sizes, round_number: int
) -> Sample:
    """Run a workload, and note the share of the machine that other processes used."""
    bystanders = Bystanders()
    before = spent_cpu_seconds()
    values = workload.run(stage, variant, sizes)
    share = bystanders.share(spent_cpu_seconds() - before)
    return Sample(workload.name, variant, round_number, values, share)


def quietest(
    measure: Callable[[], Sample], report: Callable[[str], None], attempts: int = ATTEMPTS_MAX
) -> Sample | None:
    """Return the attempt with the least load by other processes; None if two failed.

    An attempt on a quiet machine is the last one.
    """
    best: Sample | None = None
    failures = 0
    for _attempt in range(attempts):
        try:
            sample = measure()
        except (OracleError, KafkaException) as error:
            failures += 1
            report(f"failed: {error}")
            if failures == 2:
                break
            continue
        if best is None or sample.others_busy < best.others_busy:
            best = sample
        if sample.others_busy <= BUSY_SHARE_MAX:
            break
    return best


def run_round(
    stage: Stage, workloads: Sequence[Workload], sizes: Sizes, round_number: int, console: Console
) -> list[Sample]:
    """Every workload on all its variants; round 0 is the warm-up and measures each once."""
    samples = []
    for workload in workloads:
        for variant in workload.variants if round_number or workload.warms_up else ():
            name = f"round {round_number or 'warm-up'}: {workload.name}, {variant}"

            def measure(workload: Workload = workload, variant: Variant = variant) -> Sample:
                return run_once(stage, workload, variant, sizes, round_number)

            def report(text: str, name: str = name) -> None:
                console.print(f"{name}: {text}", style="dim", markup=False)

            sample = quietest(measure, report, ATTEMPTS_MAX if round_number else 2)
            if sample is not None:
                samples.append(sample)
                values = ", ".join(f"{key} {value:.4g}" for key, value in sample.values.items())
                report(f"{values} (others {sample.others_busy:.0%})")
    return samples


def compare(
    run: Callable[[int], list[Sample]],
    rounds: int,
    minutes: float | None,
    after_round: Callable[[Sequence[Sample]], None],
    now: Callable[[], float] = time.monotonic,
) -> list[Sample]:
    """Run the warm-up round, then counted rounds while time is left, at least one."""
    begun = now()
    run(0)
    samples: list[Sample] = []
    longest_seconds = 0.0
    for round_number in range(1, rounds + 1):
        round_begun = now()
        is_late = minutes is not None and round_begun - begun + longest_seconds > minutes * 60
        if is_late and round_number > 1:
            break
        samples += run(round_number)
        longest_seconds = max(longest_seconds, now() - round_begun)
        after_round(samples)
    return samples


def written_notes(samples: Sequence[Sample], machine: Sequence[str], placing: str) -> list[str]:
    """Return the conditions of the measurement, for the reader of the figures."""
    settings = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    properties = ", ".join(f"{name}={value}" for name, value in KAFKA_PROPERTIES.items())
    rounds = len({sample.round_number for sample in samples})
    return [
        *machine,
        placing,
        f"{rounds} rounds, interleaved; {noise(samples)}; ~ marks what the rounds disagree on",
        f"Apache Kafka {KAFKA_VERSION}, {' '.join(SERVER_JVM)}, class-data archive, {properties}",
        (
            "durable Kafka is the topic setting flush.messages=1. Few people run it: Kafka's "
            "documentation advises against it and relies on replication. Rows that say 'Penstock "
            "durable' compare with Kafka's default, which does not sync"
        ),
        f"librdkafka: {settings}",
        (
            f"Java producer: kafka-clients {KAFKA_VERSION}, default settings (acks=all, "
            "enable.idempotence=true, batch.size=16384, linger.ms=5), records without a key"
        ),
    ]


def write_json(
    path: Path, samples: Sequence[Sample], lines: Sequence[Line], notes: list[str]
) -> None:
    """Every sample and every verdict, for machines."""
    content = {
        "notes": notes,
        "lines": [cells(line) for line in lines],
        "samples": [
            {**dataclasses.asdict(sample), "variant": str(sample.variant)} for sample in samples
        ],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def placed_broker(cores: Cores | None) -> Callable[[Variant, Path], RunningBroker]:
    """Return the function with which the stage creates a broker, pinned to its core if any."""

    def make(variant: Variant, folder: Path) -> RunningBroker:
        broker = new_broker(variant, folder)
        return broker if cores is None else pinned(broker, cores)

    return make


def measure_all(
    options: argparse.Namespace,
    rows: Sequence[Target],
    workloads: Sequence[Workload],
    console: Console,
) -> tuple[list[Line], list[str]]:
    """Run the comparison and judge it."""
    cores = None if options.unpinned else choose_cores(sorted(os.sched_getaffinity(0)))
    placing = describe(cores, has_priority=raise_priority())
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        machine = facts(Path(folder))
    if cores is not None:
        pin_client(cores)
    variants = {variant for workload in workloads for variant in workload.variants}
    sizes = Sizes.quick() if options.quick else Sizes()

    def after_round(samples: Sequence[Sample]) -> None:
        if options.json:
            notes = written_notes(samples, machine, placing)
            write_json(options.json, samples, judge_all(samples, rows), notes)

    with Stage(variants, options.folder, placed_broker(cores)) as stage:
        samples = compare(
            lambda number: run_round(stage, workloads, sizes, number, console),
            options.rounds,
            options.minutes,
            after_round,
        )
    return judge_all(samples, rows), written_notes(samples, machine, placing)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 0 when every target is met."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    rows = chosen_rows(options.rows)
    workloads = chosen_workloads(rows, options.broker)
    if options.list:
        for row in rows:
            console.print(f"{row.workload}: {row_text(row)}, {row.unit} ({row.kafka})")
        return 0
    if not workloads:
        console.print("no row matches; list them with --list")
        return 2
    lines, notes = measure_all(options, rows, workloads, console)
    print_table(lines, console)
    for note in notes:
        console.print(note, style="dim")
    if options.markdown:
        README.write_text(put_between_marks(README.read_text(), markdown(lines, notes)))
    return 1 if any(line.verdict.startswith("MISSED") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
