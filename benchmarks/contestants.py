"""The brokers that are compared: one Apache Kafka, and one Penstock for each way to flush.

Durable acknowledgements are a topic setting in Kafka (`flush.messages=1`), so one process serves
both of its variants. In Penstock they depend on `serve --flush`, so it has two processes. All
processes run for the whole comparison; a broker without requests is idle.

The `Stage` does not depend on the workload: it starts and stops brokers, creates topics, and
reports the CPU time and memory of a process.
"""

import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from benchmarks.variants import Variant
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.kafka_jars import SERVER_JVM
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

KAFKA_PROPERTIES = {"log.segment.delete.delay.ms": "1000"}
"""Topics of earlier runs leave the disk soon; everything else is Kafka's default."""

ADMIN_TIMEOUT_SECONDS = 120
POLL_SECONDS = 0.05


def new_broker(variant: Variant, folder: Path) -> RunningBroker:
    """A fresh broker with the settings of the comparison, not started."""
    if variant.broker == "kafka":
        return kafka_broker(folder, properties=KAFKA_PROPERTIES, java_options=SERVER_JVM)
    return penstock_broker(folder, arguments=["--flush", "always" if variant.durable else "os"])


class Topics:
    """Creates, checks and deletes topics of one broker, with librdkafka's admin client."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = self._new_admin()
        self._made = 0

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})

    def create(self, *, partitions: int = 1, durable_by_setting: bool = False) -> str:
        """Create a topic that is ready for produce requests; return its name."""
        self._made += 1
        name = f"bench-{self._made}"
        settings = {"flush.messages": "1"} if durable_by_setting else {}
        topic = NewTopic(name, partitions, 1, config=settings)
        for done in self._admin.create_topics(
            [topic], request_timeout=ADMIN_TIMEOUT_SECONDS
        ).values():
            done.result(ADMIN_TIMEOUT_SECONDS)
        self.wait_until_led(name, partitions)
        return name

    def wait_until_led(self, name: str, partitions: int) -> int:
        """Wait until every partition returns its end offset; return the sum of the offsets.

        Kafka answers CreateTopics before its broker leads the new partitions.
        """
        deadline = time.monotonic() + ADMIN_TIMEOUT_SECONDS
        while True:
            try:
                return self.records(name, partitions)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)
                self._admin = self._new_admin()  # The old one remembers that there was no leader.

    def records(self, name: str, partitions: int = 1) -> int:
        """Return the sum of the end offsets, which the broker reports."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(name, number): latest for number in range(partitions)}
        found = self._admin.list_offsets(wanted, request_timeout=ADMIN_TIMEOUT_SECONDS)
        return sum(int(done.result(ADMIN_TIMEOUT_SECONDS).offset) for done in found.values())

    def delete(self, name: str) -> None:
        """Delete the topic."""
        for done in self._admin.delete_topics([name]).values():
            done.result(ADMIN_TIMEOUT_SECONDS)


@dataclasses.dataclass
class Contestant:
    """One variant, running."""

    variant: Variant
    broker: RunningBroker
    topics: Topics
    kept: dict[str, str] = dataclasses.field(default_factory=dict)
    """Topics that are filled once and read in every round, by their content."""

    @contextlib.contextmanager
    def topic(self, partitions: int = 1) -> Iterator[str]:
        """A topic for one measurement."""
        by_setting = self.variant.durable and self.variant.broker == "kafka"
        name = self.topics.create(partitions=partitions, durable_by_setting=by_setting)
        yield name
        self.topics.delete(name)


class Stage:
    """Every running broker of a comparison; a context manager."""

    def __init__(
        self,
        variants: set[Variant],
        folder: Path | None = None,
        make_broker: Callable[[Variant, Path], RunningBroker] = new_broker,
    ) -> None:
        self._variants = variants
        self._parent = folder
        self._make_broker = make_broker
        self._contestants: dict[Variant, Contestant] = {}
        self._stack = contextlib.ExitStack()
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=self._parent))
        self._stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        running: dict[str, tuple[RunningBroker, Topics]] = {}
        for variant in sorted(self._variants):
            process = "kafka" if variant.broker == "kafka" else str(variant)
            if process not in running:
                broker = self._make_broker(variant, self.folder / process.replace(" ", "-"))
                self._stack.enter_context(broker)
                running[process] = (broker, Topics(broker.bootstrap))
            self._contestants[variant] = Contestant(variant, *running[process])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def contestant(self, variant: Variant) -> Contestant:
        """The running broker of this variant."""
        return self._contestants[variant]

    @contextlib.contextmanager
    def fresh(self, variant: Variant) -> Iterator[RunningBroker]:
        """One more broker, on an empty data directory, started now and stopped afterwards."""
        folder = Path(tempfile.mkdtemp(prefix="cold-", dir=self.folder))
        with self._make_broker(variant, folder) as broker:
            yield broker
        shutil.rmtree(folder, ignore_errors=True)
