"""Penstock and Apache Kafka in one run, on one machine, by the same clients.

    python -m benchmarks.side_by_side [--rounds 3] [--quick] [--only NAME] [--json FILE]

Guarantees: every workload runs on all its variants before the next one starts, and the whole list
is repeated for each round (A B A B …), so that a slow minute of the machine hits both. A first
round is not counted: it lets Java compile and the caches fill. Exit code 1 when a
target is missed.
"""

import argparse
import dataclasses
import fnmatch
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.contestants import KAFKA_PROPERTIES, Stage
from benchmarks.librdkafka_producer import SETTINGS
from benchmarks.machine import Bystanders, facts
from benchmarks.report import (
    Line,
    Sample,
    cells,
    judge_all,
    markdown,
    noise,
    print_table,
    put_between_marks,
)
from benchmarks.variants import Variant
from benchmarks.workloads import WORKLOADS, Sizes, Workload
from tests.oracle.kafka_jars import KAFKA_VERSION, SERVER_JVM

README = Path(__file__).resolve().parent / "README.md"


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side")
    parser.add_argument("--rounds", type=int, default=3, help="counted repeats (default 3)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: no figures")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a workload; * and ? match; may repeat"
    )
    parser.add_argument(
        "--broker",
        choices=["kafka", "penstock"],
        help="measure one alone: nothing is compared",
    )
    parser.add_argument("--folder", type=Path, help="where the data directories are made")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample")
    parser.add_argument("--markdown", action="store_true", help="write the table into the README")
    parser.add_argument("--list", action="store_true", help="name the workloads and stop")
    options = parser.parse_args(arguments)
    if options.markdown and (options.quick or options.only or options.broker):
        parser.error("--markdown takes a whole run: not with --quick, --only or --broker")
    return options


def chosen_workloads(only: Sequence[str] | None, broker: str | None) -> list[Workload]:
    """What the command line asks for, in order."""
    chosen = []
    for workload in WORKLOADS:
        if only and not any(fnmatch.fnmatch(workload.name, pattern) for pattern in only):
            continue
        variants = tuple(v for v in workload.variants if broker in (None, v.broker))
        chosen.append(dataclasses.replace(workload, variants=variants))
    return chosen


def run_one(
    stage: Stage, workload: Workload, variant: Variant, sizes: Sizes, round_number: int
) -> Sample:
    """Run a workload once and note how busy the machine was with other things."""
    bystanders = Bystanders()
    values = workload.run(stage, variant, sizes)
    own = values.get("cpu_s", 0.0) + values.get("client_cpu_s", 0.0)
    return Sample(workload.name, variant, round_number, values, bystanders.share(own))


def compare(
    stage: Stage, workloads: Sequence[Workload], sizes: Sizes, rounds: int, console: Console
) -> list[Sample]:
    """The warm-up round, then the counted ones."""
    for workload in workloads:
        for variant in workload.variants if workload.warms_up else ():
            console.print(f"warm-up: {workload.name}, {variant}", style="dim")
            workload.run(stage, variant, sizes)
    samples = []
    for round_number in range(1, rounds + 1):
        for workload in workloads:
            for variant in workload.variants:
                sample = run_one(stage, workload, variant, sizes, round_number)
                samples.append(sample)
                shown = ", ".join(f"{name} {value:.4g}" for name, value in sample.values.items())
                console.print(f"round {round_number}: {workload.name}, {variant}: {shown}")
    return samples


def written_notes(samples: Sequence[Sample], machine: Sequence[str], rounds: int) -> list[str]:
    """What a reader must know to judge the figures."""
    settings = ", ".join(f"{name}={value}" for name, value in SETTINGS.items())
    properties = ", ".join(f"{name}={value}" for name, value in KAFKA_PROPERTIES.items())
    return [
        *machine,
        f"{rounds} rounds, interleaved; {noise(samples)}; ~ marks what the rounds disagree on",
        f"Apache Kafka {KAFKA_VERSION}, {' '.join(SERVER_JVM)}, class-data archive, {properties}",
        f"librdkafka: {settings}",
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 0 when every target is met."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    workloads = chosen_workloads(options.only, options.broker)
    if options.list:
        for workload in workloads:
            console.print(f"{workload.name}: {', '.join(map(str, workload.variants))}")
        return 0
    if not workloads:
        console.print("no workload has this name; --list names them")
        return 2
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        machine = facts(Path(folder))
    variants = {variant for workload in workloads for variant in workload.variants}
    sizes = Sizes.quick() if options.quick else Sizes()
    with Stage(variants, options.folder) as stage:
        samples = compare(stage, workloads, sizes, options.rounds, console)
    lines = judge_all(samples)
    notes = written_notes(samples, machine, options.rounds)
    print_table(lines, console)
    for note in notes:
        console.print(note, style="dim")
    if options.json:
        write_json(options.json, samples, lines, notes)
    if options.markdown:
        README.write_text(put_between_marks(README.read_text(), markdown(lines, notes)))
    return 1 if any(line.verdict.startswith("MISSED") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
