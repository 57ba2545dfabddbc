"""Topic to table: Penstock's two modes beside Spark's own connector, rows per second.

    python -m benchmarks.tables_throughput [--rounds 3] [--records 4000000]
        [--only parquet delta iceberg dlq commit] [--json FILE] [--markdown]

All read the same topic of one broker with `local[2]`. A run goes from the start of a query that
reads all existing records (AvailableNow, `--once`) to its end. The start of Python and Java is not
included; the notes report it. Contestants take turns, and the list is repeated (A B B A …) after
rounds that are not counted. The connector has the fastest settings and version of Spark. Exit code
1 when a target is missed.

Penstock has no sink for bare Parquet files: its Delta table, which does more work, is compared with
Spark's Parquet files.
"""

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyspark
from rich.console import Console

from benchmarks import table_commits
from benchmarks.contestants import Contestant, Stage
from benchmarks.groups import machine_notes
from benchmarks.machine import Bystanders, own_cpu_seconds
from benchmarks.report import Sample, noise
from benchmarks.spark_report import add_output_options, publish
from benchmarks.spark_workloads import PARTITIONS, fill_with
from benchmarks.table_contestants import (
    CONNECTORS,
    DATAFRAME,
    IN_TASK,
    MODES,
    OUR_SINKS,
    SINKS,
    Contestants,
    Topic,
)
from benchmarks.table_events import COLUMNS, METADATA, event, events
from benchmarks.targets import Bound, Target
from benchmarks.variants import PENSTOCK_DURABLE, Values, Variant
from tests.oracle.spark_jars import DELTA_VERSION, ICEBERG

DISTINCT_RECORDS = 200_000
BROKEN_EVERY = 100
"""One in a hundred cannot be parsed."""
TUNING_SHARE = 4
"""The connector's settings are tried on a quarter of the records."""
PARTS = (*SINKS, "dlq", "commit")
BEST = Variant("connector", durable=False)
"""Spark's own connector in its fastest version."""
CLEAN = Variant("clean", durable=False)
BARE = Variant("bare", durable=False)
OURS = Variant("ours", durable=False)
HEADINGS = (
    "medians (lowest..highest)",
    "unit",
    "Spark's own connector",
    "Penstock",
    "ratio",
    "target",
    "",
)
AT_LEAST = {DATAFRAME: 1.2, IN_TASK: 5.0}
NAMES = {DATAFRAME: "DataFrame mode", IN_TASK: "in-task mode"}
SHOWN = {"parquet": "Parquet files (ours: Delta)", "delta": "Delta", "iceberg": "Iceberg"}


def _ratio(limit: float, *, at_least: bool) -> Bound:
    return Bound(limit, is_ratio=True, at_least=at_least)


TARGETS = (
    *(
        Target(
            f"{SHOWN[sink]}, {NAMES[mode]}",
            sink,
            "rows_per_s",
            "rows/s",
            BEST,
            mode,
            _ratio(AT_LEAST[mode], at_least=True),
        )
        for mode in (DATAFRAME, IN_TASK)
        for sink in SINKS
    ),
    *(
        Target(
            f"{SHOWN[sink]}, in-task mode, 1 % bad records; left: no bad ones",
            f"dlq-{sink}",
            "rows_per_s",
            "rows/s",
            CLEAN,
            IN_TASK,
            _ratio(0.9, at_least=True),
        )
        for sink in OUR_SINKS
    ),
    *(
        Target(
            f"{SHOWN[sink]}, one commit; left: the bare library",
            f"commit-{sink}",
            "commit_ms",
            "ms",
            BARE,
            OURS,
            _ratio(table_commits.RATIO_MAX, at_least=False),
        )
        for sink in OUR_SINKS
    ),
)


@dataclasses.dataclass(frozen=True)
class Turn:
    """One run of one contestant."""

    workload: str
    variant: Variant
    run: Callable[[], Values]


def turns(contestants: Contestants, parts: Sequence[str], topics: dict[str, Topic]) -> list[Turn]:
    """Return the runs of one round."""
    found: list[Turn] = []

    def add(workload: str, label: Variant, variant: Variant, sink: str, topic: Topic) -> None:
        found.append(Turn(workload, label, lambda: contestants.run(variant, sink, topic)))

    for sink in SINKS:
        if sink in parts:
            for variant in CONNECTORS[sink]:
                add(sink, variant, variant, sink, topics["clean"])
    for sink in OUR_SINKS:
        if sink in parts or (sink == "delta" and "parquet" in parts):
            for mode in MODES:
                add(sink, mode, mode, sink, topics["clean"])
        if "dlq" in parts:
            add(f"dlq-{sink}", IN_TASK, IN_TASK, sink, topics["broken"])
            add(f"dlq-{sink}", CLEAN, IN_TASK, sink, topics["clean"])
    return found


def measure(
    list_of_turns: Sequence[Turn], options: argparse.Namespace, console: Console
) -> list[Sample]:
    """Run uncounted rounds, because Java compiles, then the counted ones."""
    samples: list[Sample] = []
    for round_number in range(1 - options.warm_up_rounds, options.rounds + 1):
        for turn in list_of_turns if round_number % 2 else reversed(list_of_turns):
            bystanders = Bystanders()
            before = own_cpu_seconds()
            values = turn.run()
            share = bystanders.share(own_cpu_seconds() - before)
            shown = ", ".join(f"{key} {value:,.4g}" for key, value in values.items())
            console.print(f"round {round_number}: {turn.workload}, {turn.variant.broker}: {shown}")
            if round_number > 0:
                samples.append(Sample(turn.workload, turn.variant, round_number, values, share))
    return samples


def measure_commits(folder: Path, rounds: int) -> list[Sample]:
    """Measure commits of the bare library and ours in turns; return the median of each."""
    samples = []
    for sink in OUR_SINKS:
        for variant, taken in zip(
            (BARE, OURS), table_commits.measure(sink, folder, rounds), strict=True
        ):
            values = {"commit_ms": statistics.median(taken)}
            samples.append(Sample(f"commit-{sink}", variant, 1, values, 0.0))
    return samples


def judged(samples: Sequence[Sample]) -> list[Sample]:
    """The connector by its fastest version, and our Delta table beside Spark's Parquet files."""
    found = list(samples)
    for sink, variants in CONNECTORS.items():
        of_sink = [one for one in samples if one.workload == sink and one.variant in variants]
        medians = {
            variant: statistics.median(
                one.values["rows_per_s"] for one in of_sink if one.variant == variant
            )
            for variant in {one.variant for one in of_sink}
        }
        if medians:
            best = max(medians, key=lambda variant: medians[variant])
            found += [
                dataclasses.replace(one, variant=BEST) for one in of_sink if one.variant == best
            ]
    found += [
        dataclasses.replace(one, workload="parquet")
        for one in samples
        if one.workload == "delta" and one.variant in MODES
    ]
    return found


def rates_of_versions(samples: Sequence[Sample], contestants: Contestants) -> list[str]:
    """Return the rate and the settings of each version of the connector."""
    found = []
    for (variant, sink, _), settings in contestants.chosen.items():
        rates = [
            one.values["rows_per_s"]
            for one in samples
            if one.workload == sink and one.variant == variant
        ]
        if rates:
            found.append(f"{variant.broker}, {sink}: {statistics.median(rates):,.0f} ({settings})")
    return found


def notes(
    options: argparse.Namespace, samples: Sequence[Sample], contestants: Contestants
) -> list[str]:
    """Return the conditions of the measurement, for the reader of the figures."""
    size = sum(len(event(number)) for number in range(1_000)) / 1_000
    versions = rates_of_versions(samples, contestants)
    return [
        *machine_notes(),
        (
            f"{options.records:,} JSON records of {size:.0f} B on {PARTITIONS} partitions of one "
            f"Penstock broker, {len(COLUMNS)} columns by `from_json`, and "
            f"`_kafka` with {', '.join(METADATA)}"
        ),
        f"local[2]; ours on PySpark {pyspark.__version__}; Delta {DELTA_VERSION}, {ICEBERG}",
        *(
            [f"rows/s of the connector by version of Spark: {'; '.join(versions)}"]
            if versions
            else []
        ),
        f"not counted: the start of Python, Java and the session ({contestants.start_seconds()})",
        f"{options.rounds} rounds, interleaved; {noise(samples)}",
    ]


def fill_topics(
    contestant: Contestant, options: argparse.Namespace, console: Console
) -> dict[str, Topic]:
    """The topics that the parts read."""
    console.print(f"producing {options.records:,} records", style="dim")
    good = events(min(DISTINCT_RECORDS, options.records))
    part = max(options.records // TUNING_SHARE, 1)
    topics = {
        "clean": Topic(fill_with(contestant, good, options.records), options.records),
        "tuning": Topic(fill_with(contestant, good, part), part),
    }
    if "dlq" in options.only:
        values = events(len(good), broken_every=BROKEN_EVERY)
        name = fill_with(contestant, values, options.records)
        topics["broken"] = Topic(name, options.records, options.records // BROKEN_EVERY)
    return topics


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables_throughput")
    parser.add_argument("--rounds", type=int, default=3, help="counted repeats (default 3)")
    parser.add_argument("--warm-up-rounds", type=int, default=2, help="uncounted (default 2)")
    parser.add_argument("--records", type=int, default=4_000_000, help="default 4000000")
    parser.add_argument("--commits", type=int, default=60, help="commits timed (default 60)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--no-tuning", action="store_true", help="use the most frequent settings")
    parser.add_argument("--folder", type=Path, help="folder for the data directories")
    add_output_options(parser)
    options = parser.parse_args(arguments)
    if options.records % (BROKEN_EVERY * PARTITIONS):
        parser.error(f"--records must be a multiple of {BROKEN_EVERY * PARTITIONS}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a target is missed."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    samples: list[Sample] = []
    with Stage({PENSTOCK_DURABLE}, options.folder) as stage, ExitStack() as stack:
        contestant = stage.contestant(PENSTOCK_DURABLE)
        contestants = Contestants(stack, contestant, stage.folder / "tables")
        if "commit" in options.only:
            samples += measure_commits(stage.folder / "commits", options.commits)
        if set(options.only) - {"commit"}:
            topics = fill_topics(contestant, options, console)
            if not options.no_tuning:
                for sink in (one for one in SINKS if one in options.only):
                    for variant in CONNECTORS[sink]:
                        contestants.tune(variant, sink, topics["tuning"], console)
            samples += measure(turns(contestants, options.only, topics), options, console)
        said = notes(options, samples, contestants)
    return publish(
        judged(samples), TARGETS, said, options, console, mark="tables", headings=HEADINGS
    )


if __name__ == "__main__":
    sys.exit(main())
