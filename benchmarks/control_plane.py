"""Three brokers beside Apache Kafka: propagation of changes, and loss of the controller.

    python -m benchmarks.control_plane [--rounds 3] [--changes 200] [--partitions 1000]

- propagation: a topic is created by one broker; the time until all three name its leader, from the
  request and from its answer. A change is asked for again and again, about once a millisecond;
- loss: kill -9 of the active controller, which also leads partitions. The time until a topic can be
  created again, and until the metadata of the others names a living leader for every partition.

The rounds are interleaved, and each cluster is fresh. It prints medians with extremes, and judges
nothing.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.cluster import KINDS, Values, show
from benchmarks.machine import processor
from benchmarks.three_brokers import ThreeNodes, three_nodes
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker.handlers.asker import Asker
from tests.oracle.kafka_jars import run_kafka_tool

METADATA_VERSION: Final = 9
CREATE_VERSION: Final = 5
SECONDS_MAX: Final = 120.0
PAUSE_SECONDS: Final = 0.02


def request_topic(asker: Asker, name: str, partitions: int, replicas: int) -> ErrorCode:
    """Ask for a topic once; return the code of the answer."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=(),
        configs=(),
    )
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=30_000)
    return asker.ask(request, CREATE_VERSION, CreateTopicsResponse).topics[0].error_code


def leaders(asker: Asker, name: str) -> list[int]:
    """Return the leaders of a topic that a broker names; none while it does not know the topic."""
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False
    )
    (topic,) = asker.ask(request, METADATA_VERSION, MetadataResponse).topics
    return [one.leader_id for one in topic.partitions]


def wait_led(askers: Sequence[Asker], name: str, partitions: int, lost: int = -1) -> float:
    """Wait until all brokers name a living leader for each partition; return the time."""
    deadline = time.perf_counter() + SECONDS_MAX
    waiting = list(askers)
    while waiting:
        found = leaders(waiting[0], name)
        if len(found) == partitions and min(found) >= 0 and lost not in found:
            waiting.pop(0)
        elif time.perf_counter() > deadline:
            raise SystemExit(f"{name} has no leaders after {SECONDS_MAX:g} s: {found[:20]}")
        elif partitions > 1:
            time.sleep(PAUSE_SECONDS)
    return time.perf_counter()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def propagate(cluster: ThreeNodes, changes: int) -> Values:
    """Create topics one by one; return how long all brokers need to know them."""
    from_request, from_answer = [], []
    askers = [Asker(one.port) for one in cluster.brokers.values()]
    for number in range(-20, changes):
        name = f"change-{number + 20}"
        begun = time.perf_counter()
        code = request_topic(askers[number % 3], name, 1, 3)
        assert code is ErrorCode.NONE, code
        answered = time.perf_counter()
        known = wait_led(askers, name, 1)
        if number >= 0:  # The first ones warm both sides.
            from_request.append((known - begun) * 1000)
            from_answer.append((known - answered) * 1000)
    return {
        "p50 ms": statistics.median(from_request),
        "p99 ms": percentile(from_request, 0.99),
        "p50 ms after the answer": statistics.median(from_answer),
        "p99 ms after the answer": percentile(from_answer, 0.99),
    }


def controller_of(cluster: ThreeNodes) -> int:
    """Return the id of the active controller."""
    if cluster.name == "kafka":
        words = ["--bootstrap-server", cluster.bootstrap, "describe", "--status"]
        text = run_kafka_tool("org.apache.kafka.tools.MetadataQuorumCommand", words)
        found = re.search(r"LeaderId:\s+(\d+)", text)
        assert found is not None, text
        return int(found[1])
    broker = next(iter(cluster.brokers.values()))
    answer = Asker(broker.port).ask(MetadataRequest(topics=()), METADATA_VERSION, MetadataResponse)
    return answer.controller_id


class FirstTopic:
    """Creates a topic as soon as the cluster can, on a thread of its own."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.created_at = 0.0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        deadline = time.perf_counter() + SECONDS_MAX
        while time.perf_counter() < deadline:
            code = request_topic(Asker(self._port), "after-the-loss", 1, 2)
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                self.created_at = time.perf_counter()
                return
            time.sleep(PAUSE_SECONDS)

    def join(self) -> float:
        """Return when the topic was created."""
        self._thread.join()
        assert self.created_at > 0, f"no topic was created in {SECONDS_MAX:g} s"
        return self.created_at


def lose_controller(cluster: ThreeNodes, partitions: int) -> Values:
    """Kill the controller; return how long the others need."""
    askers = {node: Asker(one.port) for node, one in cluster.brokers.items()}
    code = request_topic(askers[1], "wide", partitions, 3)
    assert code is ErrorCode.NONE, code
    wait_led([*askers.values()], "wide", partitions)
    time.sleep(10)
    victim = controller_of(cluster)
    led = leaders(askers[victim], "wide").count(victim)
    others = [asker for node, asker in askers.items() if node != victim]
    begun = time.perf_counter()
    cluster.brokers[victim].kill()
    first = FirstTopic(others[0].port)
    led_again = wait_led(others, "wide", partitions, victim)
    return {
        "s until a topic is created": first.join() - begun,
        "s until all partitions are led": led_again - begun,
        "partitions that it led": float(led),
    }


def round_of(kind: str, folder: Path, changes: int, partitions: int) -> dict[str, Values]:
    """Measure one fresh cluster."""
    with three_nodes(kind, folder) as cluster:
        time.sleep(5)
        return {
            "propagation": propagate(cluster, changes),
            "kill -9 of the controller": lose_controller(cluster, partitions),
        }


def main() -> int:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=KINDS)
    options = parser.parse_args()
    print(processor(), flush=True)
    samples: list[tuple[str, dict[str, Values]]] = []
    for number in range(options.rounds):
        for kind in KINDS:
            if options.only in (None, kind):
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / kind
                    results = round_of(kind, path, options.changes, options.partitions)
                samples.append((kind, results))
                print(f"round {number + 1}, {kind}: {json.dumps(results)}", flush=True)
                if options.json is not None:
                    options.json.write_text(json.dumps(samples))
    show(samples)
    return 0


if __name__ == "__main__":
    sys.exit(main())
