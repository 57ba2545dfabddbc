"""Helpers for the tests of the node: a broker on a directory, and its content after a crash."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from penstock.core.settings.config import BrokerConfig
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of, values_in

TOPIC = "orders"


@contextmanager
def broker_on(path: Path, **settings: object) -> Iterator[Asker]:
    """A broker that keeps its data in `path`, and a connection to it."""
    config = BrokerConfig(port=0, data_dir=path, **settings)  # type: ignore[arg-type]
    with Broker(config) as broker, Asker(broker.port) as asker:
        yield asker


def crash(path: Path) -> Path:
    """The directory as a power cut would leave it now: a copy, taken while the broker runs."""
    return Path(shutil.copytree(path, path.with_name(path.name + "-crashed")))


def fill(asker: Asker, *values: bytes, topic: str = TOPIC) -> UUID:
    """Create a topic with these records; its id."""
    topic_id = asker.create(topic)
    for value in values:
        assert asker.produce(topic, batch_of(value)).error_code == 0
    return topic_id


def records(asker: Asker, topic: str = TOPIC) -> list[bytes | None]:
    """Every record of partition 0."""
    return values_in(asker.fetch(topic, 0))


def names_in(path: Path) -> set[str]:
    """Directories of logs, under whatever name."""
    return {entry.name for entry in path.iterdir() if entry.is_dir()}
