"""`format("penstock")` beside Spark's own `format("kafka")`: rows per second from and to a broker.

    python -m benchmarks.spark_throughput [--rounds 4] [--records 4000000] [--broker kafka]
        [--only batch json parquet sink floor] [--json FILE] [--markdown]

Both read the same topic of the same broker in one session (`local[2]`), one after the other, and
the whole list is repeated (A B B A …) after rounds that are not counted. Spark's own connector has
its fastest settings. Exit code 1 when a target is missed.
"""

import argparse
import functools
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyspark
from rich.console import Console

from benchmarks.contestants import Stage
from benchmarks.groups import machine_notes
from benchmarks.machine import Bystanders, own_cpu_seconds
from benchmarks.report import Sample, noise
from benchmarks.spark_report import add_output_options, publish
from benchmarks.spark_workloads import (
    BATCH_BYTES,
    BEST_CONNECTOR_OPTIONS,
    FORMATS,
    KAFKA,
    PARTITIONS,
    PENSTOCK,
    Bench,
    Format,
    batch_json_to_noop,
    batch_to_noop,
    batch_to_topic,
    check_rows,
    fill,
    make_rows,
    micro_batch_floor,
    stream_json_to_parquet,
    stream_to_topic,
)
from benchmarks.targets import Bound, Target
from benchmarks.variants import KAFKA_UNSYNCED, PENSTOCK_DURABLE, Values, Variant
from tests.oracle.spark_jars import COORDINATES
from tests.spark.sessions import new_session

SLOTS = 2
SESSION_JVM = "-XX:+UseG1GC"
"""Java's default collector. The parallel collector did not change the result."""
SESSION = {"spark.driver.memory": "4g"}
PARTS = ("batch", "json", "parquet", "sink", "floor")
TABLES = {
    "spark reads": ("batch", "json", "parquet"),
    "spark sinks and floor": ("sink", "sink-once", "sink-batch", "floor"),
}
"""Marks in the README, and the workloads between them: each may be measured alone."""
HEADINGS = (
    "medians (lowest..highest)",
    "unit",
    'format("kafka")',
    'format("penstock")',
    "ratio",
    "target",
    "",
)

OTHER = Variant("connector", durable=False)
"""Spark's own connector."""
OURS = Variant("penstock", durable=False)
BY_FORMAT = {KAFKA.name: OTHER, PENSTOCK.name: OURS}


def _target(text: str, workload: str, value: str, unit: str, bound: Bound | None) -> Target:
    return Target(text, workload, value, unit, OTHER, OURS, bound)


def _at_least(ratio: float) -> Bound:
    return Bound(ratio, is_ratio=True, at_least=True)


TARGETS = (
    _target("batch to noop", "batch", "rows_per_s", "rows/s", _at_least(2.5)),
    _target(
        "broker CPU for one full read",
        "batch",
        "broker_cpu_s",
        "s",
        Bound(1.0, is_ratio=True, at_least=False),
    ),
    _target("batch, from_json, to noop", "json", "rows_per_s", "rows/s", _at_least(1.5)),
    _target(
        "availableNow, from_json, to Parquet", "parquet", "rows_per_s", "rows/s", _at_least(1.3)
    ),
    _target("stream sink, both at least once", "sink", "rows_per_s", "rows/s", _at_least(1.0)),
    _target("stream sink, ours exactly once", "sink-once", "rows_per_s", "rows/s", _at_least(0.8)),
    _target("batch sink, both at least once", "sink-batch", "rows_per_s", "rows/s", None),
    _target("micro-batch floor", "floor", "triggerExecution_ms", "ms", None),
)

Run = Callable[[Format], Values]


def _sinks(bench: Bench, rows: int) -> dict[str, Run]:
    source = make_rows(bench, rows)

    def at_least_once(kind: Format) -> Values:
        options = {"deliveryGuarantee": "at-least-once"} if kind is PENSTOCK else {}
        return stream_to_topic(bench, kind, source, rows, options)

    def exactly_once(kind: Format) -> Values:
        # Spark's own sink has one mode only; this row compares ours with it again.
        return stream_to_topic(bench, kind, source, rows, {})

    return {
        "sink": at_least_once,
        "sink-once": exactly_once,
        "sink-batch": lambda kind: batch_to_topic(bench, kind, source, rows),
    }


def workloads(bench: Bench, options: argparse.Namespace) -> dict[str, Run]:
    """Return the selected workloads by name."""
    chosen: dict[str, Run] = {}
    reads = {
        "batch": batch_to_noop,
        "json": batch_json_to_noop,
        "parquet": stream_json_to_parquet,
        "floor": micro_batch_floor,
    }
    for part in options.only:
        if part == "sink":
            chosen.update(_sinks(bench, options.records // 2))
        else:
            chosen[part] = functools.partial(reads[part], bench)
    return chosen


def measure(bench: Bench, options: argparse.Namespace, console: Console) -> list[Sample]:
    """Run uncounted rounds, because Java compiles, then the counted ones."""
    samples: list[Sample] = []
    runs = workloads(bench, options)
    for round_number in range(1 - options.warm_up_rounds, options.rounds + 1):
        for name, run in runs.items():
            for kind in FORMATS if round_number % 2 else reversed(FORMATS):
                bystanders = Bystanders()
                before = own_cpu_seconds()
                values = run(kind)
                values["cpu_s"] = own_cpu_seconds() - before
                share = bystanders.share(values["cpu_s"])
                shown = ", ".join(f"{key} {value:,.4g}" for key, value in values.items())
                console.print(f"round {round_number}: {name}, {kind.name}: {shown}")
                if round_number > 0:
                    variant = BY_FORMAT[kind.name]
                    samples.append(Sample(name, variant, round_number, values, share))
        if "floor" in runs and round_number > 0:
            values = micro_batch_floor(bench, None)
            shown = ", ".join(f"{key} {value:,.4g}" for key, value in values.items())
            console.print(f"round {round_number}: floor, rate: {shown}")
            samples.append(Sample("floor", Variant("rate", durable=False), round_number, values, 0))
    return samples


def notes(options: argparse.Namespace, samples: Sequence[Sample]) -> list[str]:
    """Return the conditions of the measurement, for the reader of the figures."""
    best = ", ".join(f"{name}={value}" for name, value in BEST_CONNECTOR_OPTIONS.items())
    floors = [
        f"{sample.values['triggerExecution_ms']:.0f}"
        for sample in samples
        if sample.variant.broker == "rate"
    ]
    return [
        *machine_notes(),
        (
            f"PySpark {pyspark.__version__}, local[{SLOTS}], {SESSION_JVM}, "
            f"Python {platform.python_version()}"
        ),
        f'format("kafka") is {COORDINATES[0]} with {best}, {COORDINATES[2]}',
        (
            f"{options.records:,} JSON records of about 200 B on {PARTITIONS} partitions of "
            f"{options.broker}, batches of {BATCH_BYTES} B; the sinks write half as many rows"
        ),
        f"{options.rounds} rounds, interleaved; {noise(samples)}",
        *([f"micro-batch floor of `rate`, ms: {', '.join(floors)}"] if floors else []),
    ]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_throughput")
    parser.add_argument("--rounds", type=int, default=4, help="counted repeats (default 4)")
    parser.add_argument("--warm-up-rounds", type=int, default=2, help="uncounted (default 2)")
    parser.add_argument("--records", type=int, default=4_000_000, help="default 4000000")
    parser.add_argument("--broker", choices=["penstock", "kafka"], default="penstock")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--folder", type=Path, help="folder for the data directories")
    add_output_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a target is missed."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    variant = KAFKA_UNSYNCED if options.broker == "kafka" else PENSTOCK_DURABLE
    with Stage({variant}, options.folder) as stage, ExitStack() as stack:
        contestant = stage.contestant(variant)
        console.print(f"producing {options.records:,} records", style="dim")
        topic = fill(contestant, options.records)
        folder = stage.folder / "spark"
        spark = new_session(folder, slots=SLOTS, java_options=SESSION_JVM, extra=SESSION)
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("OFF")
        bench = Bench(spark, contestant, topic, options.records, folder)
        for kind in FORMATS:
            check_rows(bench, kind)
        samples = measure(bench, options, console)
    return report(samples, options, console)


def report(samples: Sequence[Sample], options: argparse.Namespace, console: Console) -> int:
    """The tables that were measured; 1 when a target is missed."""
    code = 0
    for mark, names in TABLES.items():
        part = [sample for sample in samples if sample.workload in names]
        if part:
            targets = [target for target in TARGETS if target.workload in names]
            said = notes(options, part)
            code |= publish(part, targets, said, options, console, mark=mark, headings=HEADINGS)
    return code


if __name__ == "__main__":
    sys.exit(main())
