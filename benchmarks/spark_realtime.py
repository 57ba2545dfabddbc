"""Spark's real-time mode on Penstock and on Apache Kafka: from produce to sink, side by side.

    python -m benchmarks.spark_realtime [--rounds 5] [--seconds 10] [--rate 100]
        [--json FILE] [--markdown]

Spark's own connector copies a topic to another in real-time mode, one query on each broker. All
queries run for the whole comparison; only one of them has records to copy at a time, and they take
turns (A B B A …) after a warm-up that is not counted. A latency runs from handing a record to the
producer until the copy is in the consumer's hands, by one clock in one process.

Guarantees: each record that was sent came out exactly once, or the run ends with an error. Exit
code 1 when a target is missed. Which PySpark runs is the environment's choice:
`python -m tests.oracle.spark_environments --spark 4.3.0 --python 3.12 -- -m …`.
"""

import argparse
import dataclasses
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

import pyspark
from confluent_kafka import Producer
from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.contestants import Contestant, Stage
from benchmarks.groups import machine_notes
from benchmarks.machine import Bystanders, own_cpu_seconds
from benchmarks.report import Sample, noise
from benchmarks.spark_report import add_output_options, publish
from benchmarks.targets import Bound, Target
from benchmarks.variants import KAFKA_UNSYNCED, PENSTOCK_DURABLE, PENSTOCK_UNSYNCED, Values, Variant
from tests.oracle.kafka_jars import KAFKA_VERSION, SERVER_JVM
from tests.oracle.spark_jars import COORDINATES
from tests.spark.realtime import BATCH, pass_through
from tests.spark.sessions import new_session
from tests.spark.streams import TopicReader, running, topic_reader, wait_until
from tests.spark.topics import new_producer

VARIANTS = (KAFKA_UNSYNCED, PENSTOCK_DURABLE, PENSTOCK_UNSYNCED)
PARTITIONS = 2
ARRIVAL_SECONDS_MAX = 30.0
RATIO_MAX = 1.2
WARM_UP_RATE = 400.0
SESSION_JVM = "-XX:+UseG1GC"
VERSION = ".".join(pyspark.__version__.split(".")[:2])
"""Each version has its own table in the README."""


class LostError(RuntimeError):
    """The copied records differ from the produced records."""


def _target(value: str, penstock: Variant, bound: Bound | None) -> Target:
    kind = "Penstock durable" if penstock.durable else "both unsynced"
    name = value.removesuffix("_ms")
    text = f"real-time mode, {name}, {kind}"
    return Target(text, "realtime", value, "ms", KAFKA_UNSYNCED, penstock, bound)


_WITHIN = Bound(RATIO_MAX, is_ratio=True, at_least=False)
TARGETS = (
    _target("p50_ms", PENSTOCK_DURABLE, _WITHIN),
    _target("p99_ms", PENSTOCK_DURABLE, _WITHIN),
    _target("p50_ms", PENSTOCK_UNSYNCED, None),
    _target("p99_ms", PENSTOCK_UNSYNCED, None),
)


@dataclasses.dataclass
class Lane:
    """One broker with its running query, its producer and its consumer."""

    contestant: Contestant
    producer: Producer
    source: str
    reader: TopicReader

    def measure(self, rate: float, seconds: float) -> Values:
        """Send at this rate, one record at a time, and consume the copies."""
        sent = 0
        latencies_ms: list[float] = []
        begun = time.perf_counter()
        while (due := begun + sent / rate) < begun + seconds:
            self._take_until(due, latencies_ms)
            stamp = b"%d" % time.perf_counter_ns()
            self.producer.produce(self.source, stamp, partition=sent % PARTITIONS)
            self.producer.poll(0)
            sent += 1
        deadline = time.perf_counter() + ARRIVAL_SECONDS_MAX
        while len(latencies_ms) < sent and time.perf_counter() < deadline:
            self._take_until(time.perf_counter() + 0.1, latencies_ms)
        self._take_until(time.perf_counter() + 0.2, latencies_ms)
        if len(latencies_ms) != sent:
            raise LostError(f"{self.contestant.variant}: {sent} in, {len(latencies_ms)} out")
        ordered = sorted(latencies_ms)
        return {
            "p50_ms": statistics.median(ordered),
            "p99_ms": ordered[int(len(ordered) * 0.99)],
            "highest_ms": ordered[-1],
        }

    def _take_until(self, when: float, latencies_ms: list[float]) -> None:
        while (left := when - time.perf_counter()) > 0:
            message = self.reader.poll(left)
            if message is not None:
                sent_at = int(message.value() or b"0")
                latencies_ms.append((time.perf_counter_ns() - sent_at) / 1e6)
                self.reader.messages.clear()


def open_lane(stack: ExitStack, spark: SparkSession, stage: Stage, variant: Variant) -> Lane:
    """Topics, a running query and its two clients; the first records are through."""
    contestant = stage.contestant(variant)
    bootstrap = contestant.broker.bootstrap
    source = contestant.topics.create(partitions=PARTITIONS)
    target = contestant.topics.create(partitions=PARTITIONS)
    checkpoint = stage.folder / f"checkpoint-{variant}".replace(" ", "-")
    query = stack.enter_context(running(pass_through(spark, bootstrap, source, target, checkpoint)))
    reader = stack.enter_context(topic_reader(bootstrap, target, partitions=PARTITIONS))
    producer = new_producer(bootstrap, {"linger.ms": "0"})
    for partition in range(PARTITIONS):
        producer.produce(source, b"0", partition=partition)
    producer.flush()
    wait_until(query, lambda: reader.has(PARTITIONS))
    reader.messages.clear()
    return Lane(contestant, producer, source, reader)


def compare(options: argparse.Namespace, console: Console) -> list[Sample]:
    """Warm up until Java has compiled its code, then run the counted rounds."""
    samples = []
    with Stage(set(VARIANTS)) as stage, ExitStack() as stack:
        spark = new_session(
            stage.folder / "spark", slots=PARTITIONS * len(VARIANTS), java_options=SESSION_JVM
        )
        stack.callback(spark.stop)
        spark.sparkContext.setLogLevel("OFF")
        lanes = {variant: open_lane(stack, spark, stage, variant) for variant in VARIANTS}
        for lane in (*lanes.values(), *lanes.values()):
            console.print(f"warm-up: {lane.contestant.variant}", style="dim")
            lane.measure(WARM_UP_RATE, options.warm_up_seconds / 2)
        for round_number in range(1, options.rounds + 1):
            # Forward and backward, so that no broker is always the first.
            for variant in VARIANTS if round_number % 2 else reversed(VARIANTS):
                lane = lanes[variant]
                bystanders = Bystanders()
                before = own_cpu_seconds()
                values = lane.measure(options.rate, options.seconds)
                values["cpu_s"] = own_cpu_seconds() - before
                share = bystanders.share(values["cpu_s"])
                samples.append(Sample("realtime", variant, round_number, values, share))
                shown = ", ".join(f"{name} {value:.4g}" for name, value in values.items())
                console.print(f"round {round_number}: {variant}: {shown}")
    return samples


def notes(options: argparse.Namespace, samples: Sequence[Sample]) -> list[str]:
    """Return the conditions of the measurement, for the reader of the figures."""
    return [
        *machine_notes(),
        f"PySpark {pyspark.__version__}, Python {platform.python_version()}, {COORDINATES[0]}",
        (
            f"{options.rounds} rounds of {options.seconds:g} s for each broker, interleaved; "
            f"{options.rate:g} records a second, {PARTITIONS} partitions, trigger {BATCH}"
        ),
        noise(samples),
        f"Apache Kafka {KAFKA_VERSION}, {' '.join(SERVER_JVM)}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_realtime")
    parser.add_argument("--rounds", type=int, default=5, help="counted repeats (default 5)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each turn (default 10)")
    parser.add_argument(
        "--warm-up-seconds", type=float, default=30.0, help="on each broker, uncounted (30)"
    )
    parser.add_argument("--rate", type=float, default=100.0, help="records a second (default 100)")
    add_output_options(parser)
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    samples = compare(options, console)
    said = notes(options, samples)
    return publish(samples, TARGETS, said, options, console, mark=f"spark realtime {VERSION}")


if __name__ == "__main__":
    sys.exit(main())
