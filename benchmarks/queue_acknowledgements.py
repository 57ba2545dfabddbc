"""Time of an explicit acknowledgement of a share group, side by side: Apache Kafka's own client.

    python -m benchmarks.queue_acknowledgements [--rounds 3] [--polls 4000] [--markdown]

One member polls one record, accepts it and waits for the answer (`ShareAcknowledger.java`), again
and again; the first round is not counted. Apache Kafka answers when the new state of the record is
in memory, Penstock with `flush = always` when it is on the disk; Penstock is measured without this
sync too. Exit code 1: p50 or p99 without the sync are above those of Apache Kafka.
"""

import argparse
import functools
import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks.contestants import Contestant, Stage
from benchmarks.groups import machine_notes
from benchmarks.machine import Bystanders
from benchmarks.queues import VARIANTS, fill, new_broker, read_from_start
from benchmarks.report import (
    Sample,
    judge_all,
    markdown,
    noise,
    print_table,
    put_between_marks,
)
from benchmarks.side_by_side import README
from benchmarks.targets import Bound, Target
from benchmarks.variants import KAFKA_UNSYNCED, PENSTOCK_DURABLE, PENSTOCK_UNSYNCED, Values
from tests.oracle.cache import built, content_key, run, tool
from tests.oracle.kafka_jars import KAFKA_VERSION, class_path, java_command, java_version

SOURCE: Final = Path(__file__).resolve().parent / "ShareAcknowledger.java"
WORKLOAD: Final = "acknowledgements"
JVM: Final = ("-Xms256m", "-Xmx256m")
RUN_SECONDS_MAX: Final = 180
TARGETS: Final = tuple(
    Target(
        f"explicit acknowledgement of a record, {text}, {name}",
        WORKLOAD,
        value,
        "µs",
        KAFKA_UNSYNCED,
        variant,
        bound,
    )
    for variant, text, bound in (
        (PENSTOCK_UNSYNCED, "not synced", Bound(1.0, is_ratio=True, at_least=False)),
        (PENSTOCK_DURABLE, "synced", None),
    )
    for value, name in (("p50_us", "p50"), ("p99_us", "p99"))
)


@functools.cache
def java_classes() -> Path:
    """The folder with the compiled Java program."""

    def build(folder: Path) -> None:
        javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
        run([javac, "-nowarn", "-d", folder, "-cp", class_path(), SOURCE])

    return built(f"share-acknowledger-{content_key(SOURCE, java_version(), class_path())}", build)


def measure(contestant: Contestant, polls: int) -> Values:
    """Acknowledge records one by one with a new group."""
    broker = contestant.broker
    if WORKLOAD not in contestant.kept:
        topic = contestant.topics.create(partitions=1)
        fill(broker.bootstrap, topic, 1, polls * 2)
        contestant.kept[WORKLOAD] = topic
    group = f"queue-{uuid.uuid4()}"
    read_from_start(broker.bootstrap, group)
    command = java_command(
        "ShareAcknowledger",
        [broker.bootstrap, contestant.kept[WORKLOAD], group, str(polls)],
        options=JVM,
        appended_to_class_path=java_classes(),
        log_level="error",
    )
    before = broker.usage().cpu_seconds
    printed = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False
    )
    if printed.returncode:
        raise SystemExit(
            f"{SOURCE.name} ended with {printed.returncode}:\n{printed.stderr[-2000:]}"
        )
    values: Values = json.loads(printed.stdout.splitlines()[-1])
    return {**values, "cpu_s": broker.usage().cpu_seconds - before}


def compare(rounds: int, polls: int, console: Console) -> list[Sample]:
    """Run one uncounted round, then the counted ones; brokers take turns."""
    samples = []
    with Stage(set(VARIANTS), make_broker=new_broker) as stage:
        for round_number in range(rounds + 1):
            for variant in VARIANTS:
                bystanders = Bystanders()
                values = measure(stage.contestant(variant), polls)
                share = bystanders.share(values["cpu_s"])
                samples.append(Sample(WORKLOAD, variant, round_number, values, share))
                shown = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
                console.print(f"round {round_number}: {variant}: {shown}")
    return [sample for sample in samples if sample.round_number > 0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queue_acknowledgements")
    parser.add_argument("--rounds", type=int, default=3, help="counted repeats (default 3)")
    parser.add_argument("--polls", type=int, default=4_000, help="acknowledgements of a run")
    parser.add_argument("--markdown", action="store_true", help="write the table into the README")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    samples = compare(options.rounds, options.polls, console)
    lines = judge_all(samples, TARGETS)
    notes = [
        *machine_notes(),
        (
            f"{options.rounds} rounds of {options.polls:,} acknowledgements, interleaved; "
            f"{noise(samples)} (the client is among them)"
        ),
        f"Apache Kafka {KAFKA_VERSION}",
    ]
    print_table(lines, console)
    for line in notes:
        console.print(line, style="dim")
    if options.markdown:
        table = markdown(lines, notes)
        README.write_text(put_between_marks(README.read_text(), table, "queue acknowledgements"))
    return 1 if any(line.verdict.startswith("MISSED") for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
