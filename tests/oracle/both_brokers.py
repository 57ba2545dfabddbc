"""One running broker of each kind, started at its first use and stopped at the end.

Guarantees: `both.named("kafka")` and `both.named("penstock")` are brokers with the same settings as
far as both have them, and no topic is made by asking for it. It starts what is asked for and no
more.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker, penstock_environment
from tests.oracle.running_broker import RunningBroker

NAMES = ("penstock", "kafka")
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
