"""For tests marked `spark`: one Spark session and one broker of each kind for the whole run.

The session has the jars of Spark's own Kafka connector, for comparison; `format("penstock")` needs
none of them. Nothing here imports PySpark before a test asks for the session: the fast tests of
this folder run without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import pytest

from penstock.spark.tables.definition import references
from tests.oracle.both_brokers import NAMES, BothBrokers
from tests.oracle.running_broker import RunningBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Before their first import: a failing assert in them then shows both sides.
pytest.register_assert_rewrite("tests.spark.rows", "tests.spark.streams")

SLOTS = 2
BrokerNamed = Callable[[str], RunningBroker]

_numbers = itertools.count()


class NewTopic(Protocol):
    """Creates a topic and returns its name, which no other topic of this run has."""

    def __call__(
        self, broker: RunningBroker, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """A topic on this broker."""


@pytest.fixture(autouse=True)
def no_secrets_of_other_tests() -> None:
    """Forget the secrets of earlier tests: the address of a server may be one, and is hidden."""
    references.forget()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session: two task slots, no pages, every folder it makes among the tests' own."""
    from tests.spark.sessions import new_session

    session = new_session(tmp_path_factory.mktemp("spark"), slots=SLOTS)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker_named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerNamed]:
    """Start the broker of this name at its first use; all are stopped at the end."""
    with BothBrokers(tmp_path_factory.mktemp) as both:
        yield both.named


@pytest.fixture(params=NAMES)
def broker(request: pytest.FixtureRequest, broker_named: BrokerNamed) -> RunningBroker:
    """Each of both brokers: what a test says holds for both."""
    return broker_named(request.param)


@pytest.fixture(scope="session")
def new_topic() -> NewTopic:
    """Make topics with names of their own."""
    from tests.spark.topics import create_topic

    def make(
        broker: RunningBroker, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        name = f"spark-{next(_numbers)}"
        create_topic(broker.bootstrap, name, partitions=partitions, config=config or {})
        return name

    return make
