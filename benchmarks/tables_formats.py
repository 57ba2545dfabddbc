"""Topic to table by the format of the values, as a stream and as a batch, beside Spark's connector.

    python -m benchmarks.tables_formats [--rounds 3] [--records 2000000] [--sink delta]
        [--kinds json json-lz4 nested avro protobuf] [--ways stream batch] [--json FILE]
        [--markdown]

Both sides read the same topic and write the same columns into a new table, with `local[2]`, without
Hadoop's checksum files. The connector has the fastest settings of `table_contestants`, tried for
each format as a stream. A stream is a streaming query: AvailableNow
of the connector, and a query of Penstock that is stopped after its last commit. A batch is one
Spark job of the connector, and a run of Penstock with `--once`. Contestants take turns, and the
list is repeated (A B B A …) after rounds that are not counted.

Before each run the same contestant runs with few records, so that its processes are warm.

Guarantees: the table has each record once, or the run ends with an error. Each row names the
processes that used the CPU time, measured in the same rounds. Exit code 1 when a target is missed.

Spark's connector does not parse Protobuf here, because no jar for it can be fetched: its one column
has the bytes. The ratio of that row is a lower bound.
"""

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.contestants import Contestant, Stage
from benchmarks.groups import machine_notes
from benchmarks.machine import Bystanders, own_cpu_seconds
from benchmarks.process_work import CLASSES, shares_text
from benchmarks.report import Sample, noise
from benchmarks.spark_report import add_output_options, publish
from benchmarks.spark_workloads import PARTITIONS, fill_with
from benchmarks.table_contestants import (
    CONNECTORS,
    IN_TASK,
    MODES,
    OLD,
    OUR_SINKS,
    Contestants,
    Topic,
)
from benchmarks.table_kinds import AVRO_SCHEMA, KINDS, SCHEMA_ID, Kind
from benchmarks.table_workers import Request
from benchmarks.tables_throughput import BEST, HEADINGS, NAMES, SHOWN, TUNING_SHARE
from benchmarks.targets import Bound, Target
from benchmarks.variants import PENSTOCK_DURABLE, Values, Variant
from tests.spark.tables.registry_stub import RegistryStub, registry_stub

WAYS: Final = ("stream", "batch")
DISTINCT_RECORDS: Final = 100_000
DATAFRAME_MIN: Final = 1.5
TUNING: Final = "-tuning"
WARM_UP: Final = "-warm-up"
WARM_UP_RECORDS: Final = 50_000
"""A short run before each run: Spark ends Python workers that were idle for a minute, and a stream
that lasts has warm ones."""
SIDES: Final = {BEST: "connector", **{mode: NAMES[mode] for mode in MODES}}


@dataclasses.dataclass(frozen=True)
class Case:
    """One format of values, read in one way."""

    kind: Kind
    way: str

    @property
    def workload(self) -> str:
        """Return the name of the samples."""
        return f"{self.kind.name}-{self.way}"

    @property
    def connectors(self) -> Sequence[Variant]:
        """Return the versions of Spark whose connector can parse the values."""
        return (OLD,) if self.kind.name == "avro" else CONNECTORS["delta"]


def targets(cases: Sequence[Case], sink: str) -> list[Target]:
    """Return a line for each case and mode."""
    found = []
    for case in cases:
        for mode in MODES:
            least = case.kind.in_task_min if mode == IN_TASK else DATAFRAME_MIN
            bound = Bound(least, is_ratio=True, at_least=True)
            text = f"{case.kind.text}, {SHOWN[sink]}, {case.way}, {NAMES[mode]}"
            found.append(Target(text, case.workload, "rows_per_s", "rows/s", BEST, mode, bound))
    return found


def measure(
    contestants: Contestants,
    cases: Sequence[Case],
    topics: dict[str, Topic],
    more: Request,
    options: argparse.Namespace,
    console: Console,
) -> list[Sample]:
    """Run uncounted rounds, because Java compiles, then the counted ones."""
    samples: list[Sample] = []
    turns = [
        (case, variant) for case in cases for variant in (*_versions(case, options.sink), *MODES)
    ]
    for round_number in range(1 - options.warm_up_rounds, options.rounds + 1):
        for case, variant in turns if round_number % 2 else reversed(turns):
            values, share = _run(contestants, case, variant, topics, more, options.sink)
            shown = ", ".join(f"{key} {value:,.4g}" for key, value in values.items())
            console.print(f"round {round_number}: {case.workload}, {variant.broker}: {shown}")
            if round_number > 0:
                samples.append(Sample(case.workload, variant, round_number, values, share))
    return samples


def _versions(case: Case, sink: str) -> Sequence[Variant]:
    return [one for one in case.connectors if one in CONNECTORS[sink]]


def _run(
    contestants: Contestants,
    case: Case,
    variant: Variant,
    topics: dict[str, Topic],
    more: Request,
    sink: str,
) -> tuple[Values, float]:
    """Return the figures of one run, and the share of the machine that bystanders used."""
    request = {"kind": case.kind.name, "way": case.way, **more}
    contestants.run(variant, sink, topics[case.kind.name + WARM_UP], request)
    bystanders, before = Bystanders(), own_cpu_seconds()
    values = contestants.run(variant, sink, topics[case.kind.name], request)
    return values, bystanders.share(own_cpu_seconds() - before)


def judged(samples: Sequence[Sample], cases: Sequence[Case]) -> list[Sample]:
    """Return the samples, and as `BEST` those of the connector's fastest version."""
    found = list(samples)
    for case in cases:
        rates: dict[Variant, list[float]] = {}
        for one in samples:
            if one.workload == case.workload and one.variant in case.connectors:
                rates.setdefault(one.variant, []).append(one.values["rows_per_s"])
        if rates:
            best = max(rates, key=lambda variant: statistics.median(rates[variant]))
            found += [
                dataclasses.replace(one, variant=BEST)
                for one in samples
                if one.workload == case.workload and one.variant == best
            ]
    return found


def work_notes(samples: Sequence[Sample], cases: Sequence[Case]) -> list[str]:
    """Return which processes used the CPU time, a line for each case."""
    lines = []
    for case in cases:
        parts = []
        for variant in (BEST, *MODES):
            of_case = [
                one.values
                for one in samples
                if one.workload == case.workload and one.variant == variant
            ]
            if of_case:
                sums = {name: sum(one[name] for one in of_case) for name in CLASSES}
                parts.append(f"{SIDES[variant]}: {shares_text(sums)}")
        lines.append(f"CPU time of {case.kind.text}, {case.way}: {'; '.join(parts)}")
    return lines


def fill_topics(
    contestant: Contestant, kinds: Sequence[Kind], records: int, console: Console
) -> dict[str, Topic]:
    """Return a filled topic for each format, and smaller ones for tuning and warm-up."""
    topics = {}
    for kind in kinds:
        console.print(f"producing {records:,} records: {kind.text}", style="dim")
        values = kind.values(min(DISTINCT_RECORDS, records))
        for suffix, count in (
            ("", records),
            (TUNING, max(records // TUNING_SHARE, 1)),
            (WARM_UP, min(records, WARM_UP_RECORDS)),
        ):
            name = fill_with(contestant, values, count, compression=kind.compression)
            topics[kind.name + suffix] = Topic(name, count)
    return topics


def tune(
    contestants: Contestants,
    cases: Sequence[Case],
    topics: dict[str, Topic],
    options: argparse.Namespace,
    console: Console,
) -> None:
    """Choose the settings of the connector for each format."""
    for case in {case.kind.name: case for case in cases}.values():
        topic = topics[f"{case.kind.name}{TUNING}"]
        for variant in _versions(case, options.sink):
            contestants.tune(variant, options.sink, topic, console, {"kind": case.kind.name})


def serve_schema(stub: RegistryStub, topic: str) -> None:
    """Answer the requests for the one schema."""
    answer = (200, {"schema": AVRO_SCHEMA, "schemaType": "AVRO", "id": SCHEMA_ID, "version": 1})
    stub.answer(f"/schemas/ids/{SCHEMA_ID}", answer)
    stub.answer(f"/subjects/{topic}-value/versions/latest", answer)


def notes(
    options: argparse.Namespace,
    samples: Sequence[Sample],
    cases: Sequence[Case],
    contestants: Contestants,
) -> list[str]:
    """Return the conditions of the measurement, for the reader of the figures."""
    sizes = ", ".join(
        f"{kind.text} {sum(map(len, kind.values(1_000))) / 1_000:.0f} B"
        for kind in dict.fromkeys(case.kind for case in cases)
    )
    return [
        *machine_notes(),
        f"{options.records:,} records on {PARTITIONS} partitions of one Penstock broker: {sizes}",
        (
            "a stream: the connector with AvailableNow, ours until all is committed and the query "
            "has stopped; a batch: one Spark job of the connector, and ours with `--once`"
        ),
        *_settings_notes(contestants),
        "Protobuf: the connector writes the bytes without parsing; the ratio is a lower bound",
        *work_notes(samples, cases),
        f"{options.rounds} rounds, interleaved; {noise(samples)}",
    ]


def _settings_notes(contestants: Contestants) -> list[str]:
    chosen = contestants.chosen.items()
    shown = [f"{variant.broker}, {kind}: {name}" for (variant, _, kind), name in chosen]
    return [f"settings of the connector: {'; '.join(shown)}"] if shown else []


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables_formats")
    parser.add_argument("--rounds", type=int, default=3, help="counted repeats (default 3)")
    parser.add_argument("--warm-up-rounds", type=int, default=1, help="uncounted (default 1)")
    parser.add_argument("--records", type=int, default=2_000_000, help="default 2000000")
    parser.add_argument("--sink", choices=OUR_SINKS, default="delta")
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--no-tuning", action="store_true", help="use the most frequent settings")
    parser.add_argument("--folder", type=Path, help="folder for the data directories")
    add_output_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a target is missed."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    kinds = [KINDS[name] for name in options.kinds]
    cases = [Case(kind, way) for kind in kinds for way in options.ways]
    with (
        Stage({PENSTOCK_DURABLE}, options.folder) as stage,
        registry_stub() as stub,
        ExitStack() as stack,
    ):
        contestant = stage.contestant(PENSTOCK_DURABLE)
        contestants = Contestants(stack, contestant, stage.folder / "tables")
        topics = fill_topics(contestant, kinds, options.records, console)
        for name in (one.name for kind, one in topics.items() if kind.startswith("avro")):
            serve_schema(stub, name)
        more = {"registry": stub.address}
        if not options.no_tuning:
            tune(contestants, cases, topics, options, console)
        samples = judged(measure(contestants, cases, topics, more, options, console), cases)
        said = notes(options, samples, cases, contestants)
    return publish(
        samples,
        targets(cases, options.sink),
        said,
        options,
        console,
        mark="tables formats",
        headings=HEADINGS,
    )


if __name__ == "__main__":
    sys.exit(main())
