"""Queues side by side: Apache Kafka's own ShareConsumerPerformance reads a share group.

    python -m benchmarks.queues compare [--rounds 3] [--records 400000] [--members 1 --members 32]
        [--partitions 1 --partitions 12] [--json FILE] [--markdown]
    python -m benchmarks.queues backlog [--records 1000000] [--json FILE]

`compare` runs each workload on all brokers before the next one starts, and repeats the list
(A B C A B C …) after a round that is not counted. Apache Kafka does not sync acknowledgements to
disk; Penstock is measured without and with it. Records have 1,000 bytes, are in the page cache, and
are acknowledged implicitly, poll by poll. The rate is counted from the first report with records to
the end, so the start of the JVM and the first assignment are left out.

`backlog` is Penstock alone: the memory of the broker before, during and after a group works off a
backlog. Exit code 1: a target was missed.
"""

import argparse
import contextlib
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from rich.console import Console

from benchmarks.contestants import KAFKA_PROPERTIES, Contestant, Stage, Topics
from benchmarks.groups import machine_notes
from benchmarks.librdkafka_producer import CALL_RECORDS, SETTINGS
from benchmarks.machine import Bystanders
from benchmarks.report import (
    Sample,
    cells,
    judge_all,
    markdown,
    noise,
    print_table,
    put_between_marks,
)
from benchmarks.side_by_side import README
from benchmarks.targets import Bound, Target
from benchmarks.variants import (
    KAFKA_UNSYNCED,
    PENSTOCK_DURABLE,
    PENSTOCK_UNSYNCED,
    Values,
    Variant,
)
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.kafka_jars import KAFKA_VERSION, SERVER_JVM, java_command
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

VARIANTS: Final = (KAFKA_UNSYNCED, PENSTOCK_UNSYNCED, PENSTOCK_DURABLE)
TOOL: Final = "org.apache.kafka.tools.ShareConsumerPerformance"
CLIENT_JVM: Final = ("-Xms256m", "-Xmx1g")
VALUE_BYTES: Final = 1_000
REPORT_MS: Final = 100
TOOL_SECONDS_MAX: Final = 240
IDLE_MS_MAX: Final = 12_000
"""Two intervals of heartbeats: members that join one by one learn their partitions with them."""
ATTEMPTS_MAX: Final = 6
SAMPLE_SECONDS: Final = 0.2
TOPIC_SECONDS_MAX: Final = 120
KAFKA_SHARE: Final = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.share.assignment.interval.ms": "0",
}
PENSTOCK_SHARE: Final = {"PENSTOCK_GROUPS__SHARE_ASSIGNMENT_INTERVAL_MS": "0"}
"""Neither broker delays an assignment."""

_MOMENT: Final = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"
_ROW: Final = re.compile(rf"^{_MOMENT}, ({_MOMENT}), [\d.]+, [\d.]+, [\d.]+, (\d+), ", re.MULTILINE)
"""Start, end, MB, MB/s, records/s, records so far, and the time of fetches."""


class NoResultError(RuntimeError):
    """The tool ended without a result, again and again."""


class Progress(NamedTuple):
    """One report of the tool."""

    seconds: float
    records: int
    """Of one member; in the last report, of all."""


def new_broker(variant: Variant, folder: Path) -> RunningBroker:
    """A fresh broker for the comparison, not started."""
    if variant.broker == "kafka":
        properties = {**KAFKA_PROPERTIES, **KAFKA_SHARE}
        return kafka_broker(folder, properties=properties, java_options=SERVER_JVM)
    flush = ["--flush", "always" if variant.durable else "os"]
    return penstock_broker(folder, arguments=flush, environment=PENSTOCK_SHARE)


def fill(bootstrap: str, topic: str, partitions: int, records: int) -> None:
    """Produce records, evenly to all partitions, and wait for their acknowledgements."""
    producer = Producer({"bootstrap.servers": bootstrap, **SETTINGS})
    value, sent = bytes(range(250)) * (VALUE_BYTES // 250), 0
    while sent < records:
        messages = [{"value": value} for _ in range(min(CALL_RECORDS, records - sent))]
        partition = sent // CALL_RECORDS % partitions
        accepted = producer.produce_batch(topic, messages, partition=partition)
        sent += accepted
        producer.poll(0 if accepted == len(messages) else 0.005)
    left = producer.flush(TOPIC_SECONDS_MAX)
    if left:
        raise SystemExit(f"{left} of {records} records were not acknowledged")


def read_from_start(bootstrap: str, group: str) -> None:
    """Let the share group begin at the first record."""
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TOPIC_SECONDS_MAX)


def read_progress(printed: str) -> list[Progress]:
    """Return the reports of single members in the output of the tool, and the total at its end."""
    return [Progress(_seconds(moment), int(count)) for moment, count in _ROW.findall(printed)]


def _seconds(moment: str) -> float:
    """A time of the tool; only differences count, so its time zone does not matter."""
    return datetime.strptime(f"{moment} +0000", "%Y-%m-%d %H:%M:%S:%f %z").timestamp()


def rate_of(progress: Sequence[Progress]) -> float:
    """Return records/s from the first report with records to the end."""
    total = progress[-1]
    first = next((one for one in progress if one.records > 0), total)
    if total.seconds <= first.seconds:
        raise SystemExit("the tool has read all records in one interval; raise --records")
    return (total.records - first.records) / (total.seconds - first.seconds)


def consume(bootstrap: str, topic: str, records: int, members: int) -> float:
    """Read a topic with new share groups until a run succeeds; return records/s.

    A member drops records that it got of a partition which was taken from it since, and does not
    release them: they are locked for 30 s. The tool gives up before, on both brokers.
    """
    printed = ""
    for _ in range(ATTEMPTS_MAX):
        progress, printed = _consume(bootstrap, topic, records, members)
        if progress and progress[-1].records >= records:
            return rate_of(progress)
    raise NoResultError(f"{TOOL} did not read {records} records:\n{printed[-2_000:]}")


def _consume(bootstrap: str, topic: str, records: int, members: int) -> tuple[list[Progress], str]:
    group = f"queue-{uuid.uuid4()}"
    read_from_start(bootstrap, group)
    command = java_command(TOOL, options=CLIENT_JVM)
    command += ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group]
    command += [
        "--num-records",
        str(records),
        "--threads",
        str(members),
        "--timeout",
        str(IDLE_MS_MAX),
    ]
    command += ["--show-detailed-stats", "--reporting-interval", str(REPORT_MS)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX, check=False
    )
    return read_progress(done.stdout), done.stdout + done.stderr


class Memory:
    """The largest resident memory of a broker while the block runs."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.before_bytes = broker.usage().rss_bytes
        self.largest_bytes = self.before_bytes

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.largest_bytes = max(self.largest_bytes, self._broker.usage().rss_bytes)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Take samples while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._ended.set()
            self._thread.join()


def workload_name(members: int, partitions: int) -> str:
    """The name of a workload."""
    return f"queue-{members}-{partitions}"


def _measure(contestant: Contestant, members: int, partitions: int, records: int) -> Values:
    broker = contestant.broker
    kept = f"{partitions}-{records}"
    if kept not in contestant.kept:
        topic = contestant.topics.create(partitions=partitions)
        fill(broker.bootstrap, topic, partitions, records)
        contestant.kept[kept] = topic
    before = broker.usage().cpu_seconds
    memory = Memory(broker)
    with memory.watched():
        rate = consume(broker.bootstrap, contestant.kept[kept], records, members)
    cpu_seconds = broker.usage().cpu_seconds - before
    return {
        "records_per_s": rate,
        "cpu_us_per_record": cpu_seconds / records * 1e6,
        "rss_mb": memory.largest_bytes / 1e6,
        "cpu_s": cpu_seconds,
    }


def compare(options: argparse.Namespace, console: Console) -> list[Sample]:
    """Run one uncounted round, then the counted ones."""
    samples = []
    cases = [(members, count) for count in options.partitions for members in options.members]
    with Stage(set(VARIANTS), make_broker=new_broker) as stage:
        for round_number in range(options.rounds + 1):
            for members, partitions in cases:
                for variant in VARIANTS:
                    bystanders = Bystanders()
                    name = workload_name(members, partitions)
                    try:
                        values = _measure(
                            stage.contestant(variant), members, partitions, options.records
                        )
                    except NoResultError as error:
                        console.print(f"round {round_number}: {name}, {variant}: {error}")
                        continue
                    share = bystanders.share(values["cpu_s"])
                    samples.append(Sample(name, variant, round_number, values, share))
                    shown = ", ".join(f"{key} {value:.4g}" for key, value in values.items())
                    console.print(f"round {round_number}: {name}, {variant}: {shown}")
    return [sample for sample in samples if sample.round_number > 0 or options.rounds == 0]


def targets(options: argparse.Namespace) -> tuple[Target, ...]:
    """The figures that are compared, and the bound of the rate."""
    at_least = Bound(1.0, is_ratio=True, at_least=True)
    return tuple(
        Target(
            f"queue of 1-KB records, {members} member{'s' if members > 1 else ''}, "
            f"{'synced' if variant.durable else 'not synced'}, {text}",
            workload_name(members, partitions),
            value,
            unit,
            KAFKA_UNSYNCED,
            variant,
            at_least if value == "records_per_s" else None,
            partitions=partitions,
        )
        for partitions in options.partitions
        for members in options.members
        for variant in VARIANTS[1:]
        for value, text, unit in (
            ("records_per_s", "rate", "1/s"),
            ("cpu_us_per_record", "CPU of the broker", "µs/record"),
            ("rss_mb", "memory of the broker", "MB"),
        )
    )


def measure_backlog(records: int, console: Console) -> Values:
    """Work off a backlog on a fresh Penstock, and return its memory meanwhile."""
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        penstock_broker(Path(folder), environment=PENSTOCK_SHARE) as broker,
    ):
        topic = Topics(broker.bootstrap).create(partitions=1)
        fill(broker.bootstrap, topic, 1, records)
        memory = Memory(broker)
        begun = time.perf_counter()
        with memory.watched():
            rate = consume(broker.bootstrap, topic, records, 1)
        values = {
            "records": float(records),
            "before_mb": memory.before_bytes / 1e6,
            "largest_mb": memory.largest_bytes / 1e6,
            "after_mb": broker.usage().rss_bytes / 1e6,
            "records_per_s": rate,
            "seconds": time.perf_counter() - begun,
        }
    console.print(", ".join(f"{key} {value:,.4g}" for key, value in values.items()))
    return values


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queues")
    parser.add_argument("part", choices=["compare", "backlog"])
    parser.add_argument("--rounds", type=int, default=3, help="counted repeats (default 3)")
    parser.add_argument("--records", type=int, help="records of a topic")
    parser.add_argument("--members", type=int, action="append", help="default 1 and 32")
    parser.add_argument("--partitions", type=int, action="append", help="default 1 and 12")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument("--markdown", action="store_true", help="write the table into the README")
    options = parser.parse_args(arguments)
    options.members = options.members or [1, 32]
    options.partitions = options.partitions or [1, 12]
    options.records = options.records or (400_000 if options.part == "compare" else 1_000_000)
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a target was missed."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    notes = machine_notes()
    content: object
    if options.part == "backlog":
        content = measure_backlog(options.records, console)
        is_met = True
    else:
        samples = compare(options, console)
        lines = judge_all(samples, targets(options))
        notes += [
            (
                f"{options.rounds} rounds of {options.records:,} records, interleaved; "
                f"{noise(samples)} (the client is among them)"
            ),
            f"Apache Kafka {KAFKA_VERSION}, {' '.join(SERVER_JVM)}; no assignment interval",
        ]
        print_table(lines, console)
        content = [cells(line) for line in lines]
        is_met = not any(line.verdict.startswith("MISSED") for line in lines)
        if options.markdown:
            table = markdown(lines, notes)
            README.write_text(put_between_marks(README.read_text(), table, "queues"))
    for line in notes:
        console.print(line, style="dim")
    if options.json:
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
