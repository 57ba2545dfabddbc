"""The broker that a module's tests share: Penstock in this process, or Apache Kafka as a process.

Each test that uses `asker` describes both: with Penstock it is one of the fast tests, with Kafka it
is part of `make interop`. Where Kafka differs, a test uses `penstock` and says why.
"""

from collections.abc import Iterator

import pytest

from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.running_broker import RunningBroker


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as running:
        with Asker(running.port, is_kafka=True) as connection:
            # Kafka gives the first producer id a while after it is ready.
            connection.until(lambda: connection.producer_id() >= 0)
        yield running


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(params=["penstock", pytest.param("kafka", marks=pytest.mark.interop)])
def asker(request: pytest.FixtureRequest) -> Iterator[Asker]:
    """A connection of its own for each test, to either broker."""
    is_kafka = request.param == "kafka"
    running = request.getfixturevalue("kafka" if is_kafka else "broker")
    with Asker(running.port, is_kafka=is_kafka) as connection:
        yield connection


@pytest.fixture
def penstock(broker: Broker) -> Iterator[Asker]:
    """A connection to Penstock, for what Kafka does not do."""
    with Asker(broker.port) as connection:
        yield connection
