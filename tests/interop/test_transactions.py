"""Transactional producers of real clients, on Penstock and on Apache Kafka.

Aborted records are not read, offsets and records of a transaction count together, and of two
producers with one transactional id only the later one lives. The Java client speaks transaction
version 2 (KIP-890), the others version 1. Each client is a program of its own, see `drivers`.
"""

import itertools
import sys
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.client_drivers import compiled_java
from tests.interop.conftest import BrokerNamed
from tests.oracle.cache import run
from tests.oracle.kafka_jars import java_command

pytestmark = pytest.mark.interop

SECONDS_MAX = 20.0
DRIVERS = Path(__file__).parent / "drivers"
COMMITTED = [
    f"{number}-{record}".encode() for number in range(8) if number % 3 != 2 for record in range(5)
]
"""What the drivers write and commit."""
_numbers = itertools.count()


@pytest.fixture(params=["kafka", "penstock"])
def bootstrap(request: pytest.FixtureRequest, broker_named: BrokerNamed) -> str:
    return broker_named(request.param).bootstrap


def new_topic(bootstrap: str) -> str:
    name = f"transactions-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS_MAX)
    return name


def committed_in(bootstrap: str, topic: str) -> list[bytes]:
    """All committed values, up to the end of the topic."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, f"no end of {topic} after {len(values)} values"
        error, value = message.error(), message.value()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
            consumer.close()
            return values
        assert isinstance(value, bytes)
        values.append(value)


def found_out(printed: str) -> list[str]:
    """What a driver says; its client may log other things."""
    return [line[2:] for line in printed.splitlines() if line.startswith("> ")]


@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_a_python_client_copies_exactly_once_and_is_fenced(bootstrap: str, client: str) -> None:
    source, target = new_topic(bootstrap), new_topic(bootstrap)
    script = str(DRIVERS / "transactions.py")
    command = [sys.executable, "-W", "ignore", script, client, bootstrap, source, target]
    printed = run(command, timeout_seconds=90)
    assert found_out(printed) == ["copied: 30", "zombie: fenced", "done"]
    assert committed_in(bootstrap, source) == COMMITTED
    assert committed_in(bootstrap, target) == [*COMMITTED, b"heir"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_java_client_copies_exactly_once_and_is_fenced(bootstrap: str, protocol: str) -> None:
    source, target = new_topic(bootstrap), new_topic(bootstrap)
    command = java_command(
        "Transactions",
        [bootstrap, source, target, protocol],
        appended_to_class_path=compiled_java("Transactions"),
        log_level="error",
    )
    printed = run(command, timeout_seconds=90)
    assert found_out(printed) == [
        "copied: 30",
        "zombie: InvalidProducerEpochException",
        "described: Ongoing",
        "listed: 1",
        "fenced: ProducerFencedException",
        "done",
    ]
    assert committed_in(bootstrap, source) == COMMITTED
    assert committed_in(bootstrap, target) == COMMITTED
