"""One running broker of each kind, started at its first use and stopped at the end.

Guarantees: `both.named("kafka")` and `both.named("penstock")` are brokers with the same settings as
far as both have them, and no topic is auto-created. It starts only the requested brokers.
`running_bootstrap` adds a third kind, Penstock in this process and in memory, for tests that run
fast by default and on both brokers with a marker (`kinds_of_brokers`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from penstock.core.settings.tree import settings_of
from penstock.testing import Broker
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker, penstock_environment
from tests.oracle.running_broker import RunningBroker

NAMES = ("penstock", "kafka")
IN_MEMORY = "memory"
TRANSACTION_CHECK_MS = 50
"""How often brokers look for transactions that are open for too long: tests wait for it."""
NO_TOPIC_BY_ASKING = {"auto.create.topics.enable": "false"}


class BothBrokers:
    """The brokers of one test run; a context manager that stops those that were started."""

    def __init__(
        self,
        new_folder: Callable[[str], Path],
        properties: Mapping[str, str] = NO_TOPIC_BY_ASKING,
    ) -> None:
        self._new_folder = new_folder
        self._properties = properties
        self._running: dict[str, RunningBroker] = {}

    def named(self, name: str) -> RunningBroker:
        """The broker of this name, running."""
        assert name in NAMES, name
        if name not in self._running:
            folder = self._new_folder(name)
            if name == "kafka":
                made = kafka_broker(folder, properties=self._properties)
            else:
                made = penstock_broker(folder, environment=penstock_environment(self._properties))
            self._running[name] = made.start()
        return self._running[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for made in self._running.values():
            made.stop()


def kinds_of_brokers(mark: pytest.MarkDecorator) -> list[object]:
    """Parameters of a fixture: Penstock in memory always, both brokers where the mark is wanted."""
    return [IN_MEMORY, *(pytest.param(name, marks=mark) for name in NAMES)]


@contextmanager
def running_bootstrap(kind: str, new_folder: Callable[[str], Path]) -> Iterator[str]:
    """The address of a broker of this kind that soon ends transactions which took too long."""
    if kind == IN_MEMORY:
        settings = settings_of(
            {
                "listener.port": 0,
                "node.storage": "memory",
                "transactions.timeout_check_interval_ms": TRANSACTION_CHECK_MS,
            }
        )
        with Broker(settings) as broker:
            yield broker.bootstrap_server
        return
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    properties = {**NO_TOPIC_BY_ASKING, interval: str(TRANSACTION_CHECK_MS)}
    with BothBrokers(new_folder, properties) as both:
        yield both.named(kind).bootstrap
