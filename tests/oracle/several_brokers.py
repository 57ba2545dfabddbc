"""`BrokerCluster`: Penstock brokers and one etcd on loopback; a test stops and starts the brokers.

Guarantees: each broker runs as users start it (`penstock serve`), has answered when the block
begins, and knows all others; all processes are stopped when it ends. The brokers have the same
settings and different ids, counted from 1. `wait_until_whole` returns when all brokers are
registered and every replica is in sync, as each broker shows it.

It does NOT take power or cut networks, and etcd syncs nothing: tests kill processes here, never the
machine. `tests.chaos_cluster` does the rest.
"""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ClusterMetadata,
    NewTopic,
)

from tests.oracle.cache import OracleError
from tests.oracle.etcd_server import DEBIAN, EtcdCluster
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

WHOLE_SECONDS_MAX: Final = 60.0
INSYNC: Final = "min.insync.replicas"
_ANSWER_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


class BrokerCluster:
    """A cluster of `count` brokers; a context manager that starts and stops them."""

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 3,
        environment: Mapping[str, str] | None = None,
        etcd_members: int = 1,
    ) -> None:
        self._folder = folder
        self._count = count
        self._environment = dict(environment or {})
        self._etcd_members = etcd_members
        self._exits = contextlib.ExitStack()
        self.brokers: dict[int, RunningBroker] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            etcd = stack.enter_context(
                EtcdCluster(self._folder / "etcd", members=self._etcd_members, version=DEBIAN)
            )
            for number in range(1, self._count + 1):
                broker = self._broker(number, etcd)
                stack.callback(_end, broker)
                broker.start()
                self.brokers[number] = broker
            self.wait_until_whole()
            self._exits = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for number, broker in self.brokers.items():
                error.add_note(f"broker {number} printed last:\n{broker.log_text()[-2000:]}")
        self._exits.close()

    def _broker(self, number: int, etcd: EtcdCluster) -> RunningBroker:
        own = {
            **self._environment,
            "PENSTOCK_NODE__ID": str(number),
            "PENSTOCK_CLUSTER__ETCD": ",".join(etcd.endpoints),
            "PENSTOCK_CLUSTER__LISTEN_PORT": "0",
        }
        return penstock_broker(self._folder / f"broker-{number}", environment=own)

    def create_topic(
        self, name: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """A topic with a replica on each broker, of which all but one must have each record."""
        whole = {INSYNC: str(max(1, self._count - 1)), **(settings or {})}
        topic = NewTopic(name, partitions, self._count, config=whole)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([topic])[name].result(WHOLE_SECONDS_MAX)
        self.wait_until_whole()

    def view(self, broker: RunningBroker | None = None) -> ClusterMetadata | None:
        """Metadata of one broker, or of any; None when it does not answer."""
        bootstrap = broker.bootstrap if broker else self.bootstrap
        # A client of its own each time: an old one keeps earlier answers.
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        with contextlib.suppress(KafkaException):
            return admin.list_topics(timeout=_ANSWER_SECONDS)
        return None

    def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads the partition; waits while there is none."""
        deadline = time.monotonic() + WHOLE_SECONDS_MAX
        while time.monotonic() < deadline:
            view = self.view()
            if view is not None and topic in view.topics:
                leader = view.topics[topic].partitions[partition].leader
                if leader in self.brokers:
                    return int(leader)
            time.sleep(_POLL_SECONDS)
        raise OracleError(f"no leader of {topic}-{partition} in {WHOLE_SECONDS_MAX:.0f} s")

    def wait_until_whole(self, seconds: float = WHOLE_SECONDS_MAX) -> float:
        """Wait until every running broker shows all brokers and full in-sync replicas."""
        begun = time.monotonic()
        while not all(self._is_whole(self.view(one)) for one in self.brokers.values()):
            if time.monotonic() > begun + seconds:
                raise OracleError(f"not all replicas were in sync in {seconds:.0f} s")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - begun

    def _is_whole(self, view: ClusterMetadata | None) -> bool:
        return (
            view is not None
            and len(view.brokers) == self._count
            and all(
                one.leader in one.isrs and set(one.isrs) == set(one.replicas)
                for topic in view.topics.values()
                for one in topic.partitions.values()
            )
        )


def _end(broker: RunningBroker) -> None:
    if broker.is_running():
        broker.stop()
