"""Three brokers of either kind, on one machine: Apache Kafka's nodes, or Penstock's with etcd.

Guarantees: both clusters are fresh, keep everything below a folder, and listen on 127.0.0.1. Each
of Kafka's three nodes is broker and controller. Penstock has three etcd members beside its brokers,
and their processor time counts as Penstock's. Kafka runs with the settings of its own server JVM.
It measures nothing.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.oracle.etcd_server import EtcdCluster
from tests.oracle.kafka_broker import make_class_data_archive
from tests.oracle.kafka_jars import SERVER_JVM, java_command, run_kafka_tool
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import (
    HOST,
    START_TIMEOUT_SECONDS,
    Recipe,
    RunningBroker,
    free_port,
)

NODES = (1, 2, 3)
CLUSTER_ID = "AoiVrXEJTO24QuSBQbC-Rw"


class Node(RunningBroker):
    """One of several brokers, which start together: a quorum is needed before one answers."""

    def __init__(self, recipe: Recipe, *, folder: Path, port: int) -> None:
        super().__init__(recipe, folder=folder, port=port)
        self._waits = False

    def _wait_until_it_answers(self, deadline: float) -> None:
        if self._waits:
            super()._wait_until_it_answers(deadline)

    def wait_ready(self) -> None:
        """Wait until the started process answers."""
        self._waits = True
        self._wait_until_it_answers(time.perf_counter() + START_TIMEOUT_SECONDS)


@dataclass(frozen=True)
class ThreeNodes:
    """A running cluster."""

    name: str
    brokers: dict[int, Node]
    others: tuple[int, ...]
    """Process ids of the metadata store, if it has its own processes."""

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(one.bootstrap for one in self.brokers.values())

    def cpu_seconds(self) -> float:
        """Processor time of all processes so far; stopped ones are left out."""
        pids = [one.pid for one in self.brokers.values() if one.is_running()] + [*self.others]
        times = [psutil.Process(pid).cpu_times() for pid in pids]
        return sum(one.user + one.system for one in times)

    def rss_mb(self) -> float:
        """Resident memory of all processes now."""
        pids = [one.pid for one in self.brokers.values() if one.is_running()] + [*self.others]
        return sum(psutil.Process(pid).memory_info().rss for pid in pids) / 1e6


@contextmanager
def three_nodes(name: str, folder: Path) -> Iterator[ThreeNodes]:
    """Start `kafka` or `penstock`; stop and remove it at the end."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        others: tuple[int, ...] = ()
        if name == "kafka":
            brokers = _kafka(folder)
        else:
            etcd = stack.enter_context(EtcdCluster(folder / "etcd"))
            processes = [member._process for member in etcd.members]
            others = tuple(one.pid for one in processes if one is not None)
            brokers = {
                node: _penstock(folder / f"broker{node}", node, etcd.endpoints) for node in NODES
            }
        for broker in brokers.values():
            stack.callback(_end, broker)
            broker.start()
        for broker in brokers.values():
            broker.wait_ready()
        yield ThreeNodes(name, brokers, others)


def _end(broker: Node) -> None:
    if broker.is_running():
        broker.kill()


def _penstock(folder: Path, node: int, etcd: tuple[str, ...]) -> Node:
    settings = {
        "PENSTOCK_NODE__ID": str(node),
        "PENSTOCK_CLUSTER__ETCD": ",".join(etcd),
        "PENSTOCK_CLUSTER__LISTEN_PORT": "0",
    }
    alone = penstock_broker(folder, environment=settings)
    return Node(alone.recipe, folder=folder, port=alone.port)


def _kafka(folder: Path) -> dict[int, Node]:
    make_class_data_archive()
    controllers = {node: free_port() for node in NODES}
    voters = ",".join(f"{node}@{HOST}:{port}" for node, port in controllers.items())
    brokers = {}
    for node in NODES:
        own = folder / f"broker{node}"
        own.mkdir()
        port = free_port()
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controllers[node]}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(own / "data"),
        }
        path = own / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        run_kafka_tool("kafka.tools.StorageTool", ["format", "-t", CLUSTER_ID, "-c", path])
        command = java_command("kafka.Kafka", [path], options=SERVER_JVM)
        recipe = Recipe("kafka", command, {}, own / "data")
        brokers[node] = Node(recipe, folder=own, port=port)
    return brokers
