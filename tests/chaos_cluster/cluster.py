"""`Cluster`: three etcd members and three brokers, each on a machine of its own.

Guarantees: the block begins when all brokers are registered, and ends with nothing left running,
mounted or connected, whatever happened inside. Brokers run as users start them (`penstock serve`),
from the source tree or from the environment that `PENSTOCK_BROKER_PYTHON` names. etcd is Debian's
3.4, or the version that `PENSTOCK_ETCD_VERSION` names; it syncs, since its disks lose power too.

It does NOT judge: it starts, stops and shows. `view` returns the metadata of one broker, which may
be old.
"""

import contextlib
import dataclasses
import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.chaos_cluster.machines import Machine, machines_folder
from tests.chaos_cluster.network import Network
from tests.histories.brokers import PENSTOCK_SETTINGS
from tests.oracle.cache import OracleError
from tests.oracle.etcd_server import DEBIAN, _programs
from tests.oracle.penstock_broker import ROOT, _without_hypothesis

BROKERS: Final = 3
SESSION_SECONDS: Final = 9
REPLICAS: Final = 3
START_SECONDS_MAX: Final = 60.0
_CLIENT_PORT: Final = 9092
_PEER_PORT: Final = 9192
_ETCD_PORT: Final = 2379
_ETCD_PEER_PORT: Final = 2380
_POLL_SECONDS: Final = 0.05
_VIEW_SECONDS: Final = 5.0
_FAILURES_OF_HTTP = (OSError, LookupError, ValueError, http.client.HTTPException)

SETTINGS: Final = """
[node]
id = {number}
data_dir = "{data_dir}"
[listener]
host = "{address}"
port = {port}
[admin]
enabled = false
[cluster]
etcd = [{etcd}]
listen_host = "{address}"
listen_port = {peer_port}
session_seconds = {session_seconds}
leader_rebalance_seconds = 20
[security]
allow_insecure = true
"""


@dataclasses.dataclass(frozen=True)
class PartitionView:
    """One partition, as metadata shows it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class View:
    """The cluster as one broker describes it."""

    controller: int
    brokers: tuple[int, ...]
    partitions: dict[tuple[str, int], PartitionView]

    @property
    def is_whole(self) -> bool:
        """Whether all brokers are there, and all replicas in sync."""
        return len(self.brokers) == BROKERS and all(
            one.leader in one.isr and set(one.isr) == set(one.replicas)
            for one in self.partitions.values()
        )


class EtcdMachine(Machine):
    """One member of etcd."""

    def __init__(self, number: int, folder: Path, network: Network) -> None:
        super().__init__(f"etcd{number}", folder, network)
        self.client_url = f"http://{self.address}:{_ETCD_PORT}"
        self.peer_url = f"http://{self.address}:{_ETCD_PEER_PORT}"

    def start(self, members: Sequence["EtcdMachine"]) -> None:
        """Start the process, with its data if there is some."""
        peers = ",".join(f"{member.name}={member.peer_url}" for member in members)
        command = [
            _programs(os.environ.get("PENSTOCK_ETCD_VERSION", DEBIAN))[0],
            *("--name", self.name, "--data-dir", str(self.disk.path / "data")),
            *("--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", peers, "--initial-cluster-token", "penstock-chaos"),
            *("--logger", "zap", "--log-level", "warn"),
        ]
        self.run(command, {})

    def is_leader(self) -> bool:
        """Whether the member says that it leads."""
        connection = http.client.HTTPConnection(self.address, _ETCD_PORT, timeout=1)
        with contextlib.suppress(*_FAILURES_OF_HTTP), contextlib.closing(connection):
            connection.request("POST", "/v3/maintenance/status", body="{}")
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return bool(answer.get("leader") == answer["header"]["member_id"])
        return False


class BrokerMachine(Machine):
    """One broker."""

    def __init__(self, number: int, folder: Path, network: Network) -> None:
        super().__init__(f"broker{number}", folder, network)
        self.number = number
        self.data_dir = self.disk.path / "data"
        self._settings = folder / f"broker{number}.toml"
        self._environment = _environment_of(folder)

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"{self.address}:{_CLIENT_PORT}"

    def configure(self, etcd: Sequence[EtcdMachine], settings: str) -> None:
        """Write the settings file; `settings` are further sections."""
        text = SETTINGS.format(
            number=self.number,
            data_dir=self.data_dir,
            address=self.address,
            port=_CLIENT_PORT,
            peer_port=_PEER_PORT,
            etcd=", ".join(f'"{member.client_url}"' for member in etcd),
            session_seconds=SESSION_SECONDS,
        )
        self._settings.write_text(text + settings)

    def start(self) -> None:
        """Start the process, with its data if there is some."""
        python = os.environ.get("PENSTOCK_BROKER_PYTHON") or sys.executable
        command = [python, "-m", "penstock", "serve", "--config", str(self._settings)]
        self.run(command, self._environment)

    def accepts(self) -> bool:
        """Whether it accepts connections of clients."""
        with contextlib.suppress(OSError):
            socket.create_connection((self.address, _CLIENT_PORT), timeout=1).close()
            return True
        return False


def _environment_of(folder: Path) -> dict[str, str]:
    if os.environ.get("PENSTOCK_BROKER_PYTHON"):
        return {"PYTHONPATH": ""}
    parts = (str(_without_hypothesis(folder)), str(ROOT / "src"))
    return {"PYTHONPATH": os.pathsep.join(parts)}


class Cluster:
    """Three machines of each kind; a context manager."""

    def __init__(self, folder: Path, *, settings: str = "") -> None:
        self._settings = PENSTOCK_SETTINGS + settings
        self._folder = machines_folder(folder)
        self._exits = contextlib.ExitStack()
        self.etcd: list[EtcdMachine] = []
        self.brokers: dict[int, BrokerMachine] = {}
        self.network = Network()

    @property
    def machines(self) -> list[Machine]:
        """All of them."""
        return [*self.etcd, *self.brokers.values()]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.network)
            for number in range(1, BROKERS + 1):
                member = EtcdMachine(number, self._folder, self.network)
                stack.callback(member.remove)
                self.etcd.append(member)
            for number in range(1, BROKERS + 1):
                broker = BrokerMachine(number, self._folder, self.network)
                stack.callback(broker.remove)
                self.brokers[number] = broker
                broker.configure(self.etcd, self._settings)
            for member in self.etcd:
                member.start(self.etcd)
            self.wait(lambda: self.etcd_leader() is not None, "etcd has a leader")
            for broker in self.brokers.values():
                broker.start()
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
            for broker in self.brokers.values():
                error.add_note(f"{broker.name} printed last:\n{broker.log_text()[-3000:]}")
        self._exits.close()

    # --- What is there ---

    def view(self, broker: BrokerMachine | None = None) -> View | None:
        """Metadata of one broker, or of any; None when it does not answer."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            # A client of its own each time: an old one keeps what it knows.
            bootstrap = broker.bootstrap if broker else self.bootstrap
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
            found = admin.list_topics(timeout=_VIEW_SECONDS)
        except KafkaException:
            return None
        partitions = {
            (name, one.id): PartitionView(one.leader, tuple(one.replicas), tuple(one.isrs))
            for name, topic in found.topics.items()
            for one in topic.partitions.values()
        }
        return View(found.controller_id, tuple(sorted(found.brokers)), partitions)

    def etcd_leader(self) -> EtcdMachine | None:
        """The member that leads."""
        return next((member for member in self.etcd if member.is_leader()), None)

    def wait(
        self, is_true: Callable[[], bool], text: str, seconds: float = START_SECONDS_MAX
    ) -> float:
        """Wait for something, and return how long it took."""
        begun = time.monotonic()
        while not is_true():
            if time.monotonic() > begun + seconds:
                raise OracleError(f"not within {seconds:.0f} s: {text}")
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - begun

    def wait_until_whole(self, seconds: float = START_SECONDS_MAX) -> float:
        """Wait until every broker shows all brokers, and all replicas in sync.

        One broker is not asked alone: it may have been cut off, and know nothing of it yet.
        """
        views: list[View | None] = []

        def is_whole() -> bool:
            self.require_running()
            views[:] = [self.view(broker) for broker in self.brokers.values()]
            return all(view is not None and view.is_whole for view in views)

        try:
            return self.wait(is_whole, "all brokers registered, all replicas in sync", seconds)
        except OracleError as error:
            error.add_note(f"last seen: {views}")
            raise

    def require_running(self) -> None:
        """Raise when a process ended by itself."""
        for machine in self.machines:
            if not machine.is_running:
                text = machine.log_text()[-3000:]
                raise OracleError(f"{machine.name} ended with {machine.exit_code}:\n{text}")

    def create_topic(self, name: str, partitions: int, settings: dict[str, str]) -> None:
        """A topic with three replicas, of which two must have each record."""
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        whole = {"min.insync.replicas": "2", **settings}
        topic = NewTopic(name, partitions, REPLICAS, config=whole)

        def is_created() -> bool:
            # A broker that is still starting is shown to clients, and gets no replicas.
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            try:
                admin.create_topics([topic])[name].result(START_SECONDS_MAX)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                    raise
                return False
            return True

        self.wait(is_created, f"topic {name} is created")

    # --- Healing ---

    def heal(self) -> None:
        """Everything runs, is connected and has power."""
        self.network.heal()
        for machine in self.machines:
            machine.go_on()
        for member in self.etcd:
            if not member.is_running:
                member.start(self.etcd)
        for broker in self.brokers.values():
            if not broker.is_running:
                broker.start()
