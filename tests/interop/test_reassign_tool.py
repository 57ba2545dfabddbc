"""Apache Kafka's tool for reassignments moves partitions between three Penstock brokers.

Generate, execute with a throttle, verify, cancel, as an operator does. The copy keeps the rate of
the throttle within a fifth, and all records are there afterwards.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.interop.tool_runner import Output, ToolRunner, compiled
from tests.oracle.several_brokers import BrokerCluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC: Final = "moved"
RECORD_BYTES: Final = 10_000
RECORDS: Final = 2_000
"""Of each of two partitions: 40 MB in all."""
RATE: Final = 4_000_000
SECONDS_MAX: Final = 60.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCluster]:
    compiled()
    with BrokerCluster(tmp_path_factory.mktemp("brokers")) as running:
        yield running


class Operator:
    """Runs the tool with files of its own."""

    def __init__(self, tools: ToolRunner, brokers: BrokerCluster, folder: Path) -> None:
        self._tools = tools
        self._brokers = brokers
        self._folder = folder

    def reassign(self, *words: str) -> str:
        """Run the tool; return its output."""
        done: Output = self._tools.run(
            "kafka-reassign-partitions", "--bootstrap-server", self._brokers.bootstrap, *words
        )
        assert done.code == 0, done
        return done.out

    def file(self, name: str, document: object) -> str:
        """Write a file for the tool; return its path."""
        path = self._folder / name
        path.write_text(json.dumps(document))
        return str(path)

    def verified(self, plan: str) -> str:
        """Wait until the tool says that the moves are complete; return its output."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            said = self.reassign("--verify", "--reassignment-json-file", plan)
            if "still in progress" not in said:
                return said
            assert time.monotonic() < deadline, said
            time.sleep(0.1)


@pytest.fixture
def operator(brokers: BrokerCluster, tmp_path: Path) -> Iterator[Operator]:
    with ToolRunner(brokers.bootstrap, tmp_path) as tools:
        yield Operator(tools, brokers, tmp_path)


def replicas(brokers: BrokerCluster) -> list[list[int]]:
    view = brokers.view()
    assert view is not None
    return [list(one.replicas) for one in view.topics[TOPIC].partitions.values()]


def wait_until_moved(brokers: BrokerCluster) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while sorted(replicas(brokers)) != [[2], [3]]:
        assert time.monotonic() < deadline, replicas(brokers)
        time.sleep(0.05)


def fill(brokers: BrokerCluster) -> None:
    """Create the topic on broker 1, with records."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    topic = NewTopic(TOPIC, 2, replica_assignment=[[1], [1]])
    admin.create_topics([topic])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
    value = bytes(RECORD_BYTES)
    for number in range(2 * RECORDS):
        producer.produce(TOPIC, value, key=str(number).encode(), partition=number % 2)
        producer.poll(0)
    assert producer.flush(60) == 0


def read_all(brokers: BrokerCluster) -> list[int]:
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, one, 0) for one in (0, 1)])
    found: list[int] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(found) < 2 * RECORDS and time.monotonic() < deadline:
        for message in consumer.consume(1_000, 1.0):
            assert message.error() is None
            found.append(int(message.key() or b""))
    consumer.close()
    return sorted(found)


def test_generate_execute_verify_and_cancel(operator: Operator, brokers: BrokerCluster) -> None:
    fill(brokers)
    wanted = operator.file("topics.json", {"version": 1, "topics": [{"topic": TOPIC}]})
    said = operator.reassign(
        "--generate", "--broker-list", "2,3", "--topics-to-move-json-file", wanted
    )
    proposed = json.loads(said.split("Proposed partition reassignment configuration\n")[1])
    assert {one["replicas"][0] for one in proposed["partitions"]} == {2, 3}
    plan = operator.file("plan.json", proposed)

    # A slow copy is cancelled: the partitions stay where they are.
    slowly = ("--execute", "--throttle", "100000", "--reassignment-json-file", plan)
    assert "Successfully started partition reassignments" in operator.reassign(*slowly)
    assert "still in progress" in operator.reassign("--verify", "--reassignment-json-file", plan)
    assert f"{TOPIC}-0: replicas" in operator.reassign("--list")
    said = operator.reassign("--cancel", "--reassignment-json-file", plan)
    assert "Successfully cancelled partition reassignments" in said
    assert replicas(brokers) == [[1], [1]]

    # With more, it ends, in the time that the rate allows.
    before = time.monotonic()
    said = operator.reassign("--execute", "--throttle", str(RATE), "--reassignment-json-file", plan)
    assert "The inter-broker throttle limit was set to" in said
    after = time.monotonic()
    wait_until_moved(brokers)
    end = time.monotonic()
    size = 2 * RECORDS * RECORD_BYTES
    slowest, fastest = size / (end - before), size / (end - after)
    print(f"{slowest:,.0f} to {fastest:,.0f} bytes a second with a throttle of {RATE:,}")
    # It began between the two moments.
    assert fastest > 0.8 * RATE
    assert slowest < 1.2 * RATE
    said = operator.verified(plan)
    assert f"Reassignment of partition {TOPIC}-0 is completed." in said
    assert f"Clearing topic-level throttles on topic {TOPIC}" in said
    assert "No partition reassignments found." in operator.reassign("--list")
    assert read_all(brokers) == list(range(2 * RECORDS))
