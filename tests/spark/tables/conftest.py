"""Shared fixtures of the suites of tables."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.spark.conftest import BrokerNamed, NewTopic
from tests.spark.tables.batch_world import BatchWorld
from tests.spark.tables.pipeline_world import World


@pytest.fixture
def new_world(tmp_path: Path) -> Callable[[], BatchWorld]:
    """Makes worlds of batches, each from nothing."""
    numbers = count()
    return lambda: BatchWorld(tmp_path / str(next(numbers)))


@pytest.fixture
def partitions() -> int:
    """How many the topic of a pipeline's `world` has; a suite that wants more says so."""
    return 1


@pytest.fixture(params=["delta", "iceberg"])
def world(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    broker_named: BrokerNamed,
    new_topic: NewTopic,
    partitions: int,
) -> World:
    """A pipeline that is defined and not started, its topic on a broker that runs."""
    broker = broker_named("penstock")
    topic = new_topic(broker, partitions=partitions)
    return World(tmp_path, request.param, broker.bootstrap, topic)
