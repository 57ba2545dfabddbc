"""Three brokers beside three of Apache Kafka: cost of replication, latency, and failures.

    python -m benchmarks.cluster [--rounds 3] [--records 200000] [--json FILE]

The rounds are interleaved, and each round of each cluster is fresh. The load is Kafka's own
ProducerPerformance (records of 1 KB, acks=all, six partitions, linger 5 ms; for latency 300 records
a second, linger 0), so both sides have the same client. Penstock syncs each record on each replica
before it acknowledges; Kafka does so only in the rows `synced` (`flush.messages=1`).

The gap after a failure is the longest time without an acknowledgement, of an idempotent librdkafka
producer that writes to each partition a hundred times a second: for partitions that the lost broker
led, and for the others, which it only followed.

Results are printed as a table of medians with extremes. It judges nothing.
"""

import argparse
import json
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from rich.console import Console
from rich.table import Table

from benchmarks.machine import processor
from benchmarks.three_brokers import ThreeNodes, three_nodes
from tests.oracle.kafka_jars import run_kafka_tool

PARTITIONS: Final = 6
VALUE_BYTES: Final = 1_000
KINDS: Final = ("penstock", "kafka")
Values = dict[str, float]


def create(cluster: ThreeNodes, name: str, replicas: int, *, is_synced: bool = False) -> None:
    """Create a topic and wait until it is led."""
    settings = {"min.insync.replicas": str(min(2, replicas))}
    if is_synced:
        settings["flush.messages"] = "1"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    deadline = time.monotonic() + 60
    while True:
        created = admin.create_topics([NewTopic(name, PARTITIONS, replicas, config=settings)])
        try:
            created[name].result(30)
            break
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    time.sleep(2)


def perform(cluster: ThreeNodes, topic: str, records: int, rate: int, linger_ms: int) -> Values:
    """Run ProducerPerformance; return its figures and the processor time of the cluster."""
    before = cluster.cpu_seconds()
    text = run_kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        [
            "--topic",
            topic,
            "--num-records",
            str(records),
            "--record-size",
            str(VALUE_BYTES),
            "--throughput",
            str(rate),
            "--producer-props",
            f"bootstrap.servers={cluster.bootstrap}",
            "acks=all",
            f"linger.ms={linger_ms}",
        ],
        timeout_seconds=300,
    )
    last = text.strip().splitlines()[-1]
    found = re.search(r"\(([\d.]+) MB/sec\).*, (\d+) ms 50th.*, (\d+) ms 99th", last)
    assert found is not None, last
    cpu = cluster.cpu_seconds() - before
    return {
        "MB/s": float(found[1]),
        "CPU-s/GB": cpu / (records * VALUE_BYTES / 1e9),
        "p50 ms": float(found[2]),
        "p99 ms": float(found[3]),
    }


class Heartbeat:
    """A producer that writes to each partition all the time, and notes the acknowledgements."""

    def __init__(self, cluster: ThreeNodes, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "log_level": 0,
            }
        )
        self.times: defaultdict[int, list[float]] = defaultdict(list)
        self.failures = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.01):
            for partition in range(PARTITIONS):
                self._producer.produce(
                    self._topic, b"x" * 100, partition=partition, on_delivery=self._delivered
                )
            self._producer.poll(0)
        self._producer.flush(120)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures += 1
            return
        partition = message.partition()
        assert partition is not None
        self.times[partition].append(time.monotonic())

    def gap_seconds(self, partition: int, since: float) -> float:
        """Return the longest time without an acknowledgement since a moment."""
        times = [one for one in self.times[partition] if one > since - 1]
        return max((later - earlier for earlier, later in pairwise(times)))

    def end(self) -> None:
        """Stop the producer."""
        self._is_over.set()
        self._thread.join()


def lose(cluster: ThreeNodes, topic: str, number: signal.Signals, seconds: float) -> Values:
    """End the leader of the first partition; return the longest gaps of acknowledgements."""
    beat = Heartbeat(cluster, topic)
    try:
        time.sleep(4)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
        victim = partitions[0].leader
        begun = time.monotonic()
        broker = cluster.brokers[victim]
        broker.process.send_signal(number)
        time.sleep(seconds)
    finally:
        beat.end()
    assert beat.failures == 0, "the producer gave records up"
    gaps = {index: beat.gap_seconds(index, begun) for index in partitions}
    led = [gap for index, gap in gaps.items() if partitions[index].leader == victim]
    followed = [gap for index, gap in gaps.items() if partitions[index].leader != victim]
    broker.process.wait(60)
    broker._process = None
    broker.start()
    broker.wait_ready()
    time.sleep(5)
    return {"led s": max(led), "followed s": max(followed)}


def round_of(kind: str, folder: Path, records: int) -> dict[str, Values]:
    """Measure one fresh cluster."""
    results: dict[str, Values] = {}
    with three_nodes(kind, folder) as cluster:
        time.sleep(3)
        create(cluster, "warm", 3)
        perform(cluster, "warm", records // 4, -1, 5)
        for row, replicas, is_synced in (
            ("replicas 3", 3, False),
            ("replicas 1", 1, False),
            ("replicas 3, synced", 3, True),
        ):
            if kind == "penstock" and is_synced:
                continue
            name = f"load-{replicas}-{is_synced}".lower()
            create(cluster, name, replicas, is_synced=is_synced)
            results[row] = perform(cluster, name, records, -1, 5)
            if replicas == 3:
                results[f"{row}, 300/s"] = perform(cluster, name, 4_500, 300, 0)
        create(cluster, "failures", 3)
        results["SIGTERM of a leader"] = lose(cluster, "failures", signal.SIGTERM, 10)
        results["kill -9 of a leader"] = lose(cluster, "failures", signal.SIGKILL, 25)
        results["memory"] = {"MB": cluster.rss_mb()}
    return results


def show(samples: Sequence[tuple[str, dict[str, Values]]]) -> None:
    """Print the medians and extremes of all rounds."""
    table = Table("row", "figure", *KINDS)
    rows = {row: values for _, results in samples for row, values in results.items()}
    for row, values in rows.items():
        for figure in values:
            cells = []
            for kind in KINDS:
                found = [
                    results[row][figure]
                    for name, results in samples
                    if name == kind and row in results
                ]
                middle = f"{statistics.median(found):.2f}" if found else ""
                spread = f" ({min(found):.2f}..{max(found):.2f})" if found else ""
                cells.append(middle + spread)
            table.add_row(row, figure, *cells)
    Console(width=120).print(table)


def main() -> int:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    print(processor(), flush=True)
    samples: list[tuple[str, dict[str, Values]]] = []
    for number in range(options.rounds):
        for kind in KINDS:
            if options.only in (None, kind):
                with tempfile.TemporaryDirectory() as folder:
                    results = round_of(kind, Path(folder) / kind, options.records)
                samples.append((kind, results))
                print(f"round {number + 1}, {kind}: {json.dumps(results)}", flush=True)
                if options.json is not None:
                    options.json.write_text(json.dumps(samples))
    show(samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
