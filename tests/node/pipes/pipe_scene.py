"""A parent and a child with a pipe, in this process: settings, raw batches, waiting."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Final

import httpx

from penstock.client import calls
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.core.settings.admin_settings import AdminSettings
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.coordinator_settings import GroupsSettings, TransactionsSettings
from penstock.core.settings.pipe_declarations import PipeDeclaration
from penstock.core.settings.tree import Settings
from penstock.core.types import TopicPartition
from penstock.edge.pipes.parent_calls import whole_batches
from penstock.testing import Broker

SECONDS_MAX: Final = 10.0
TOPIC: Final = "price"


def down_pipe(parent: str, **options: object) -> PipeDeclaration:
    """Return a pipe named hq with short waits."""
    given: dict[str, object] = {
        "name": "hq",
        "parent": parent,
        "topics": (TOPIC,),
        "poll_interval_ms": 50,
        **options,
    }
    return PipeDeclaration.model_validate(given)


def up_pipe(parent: str, **options: object) -> PipeDeclaration:
    """Return an up pipe of the site store-1 with short waits."""
    given: dict[str, object] = {
        "name": "up",
        "direction": "up",
        "parent": parent,
        "topics": (TOPIC,),
        "site": "store-1",
        "poll_interval_ms": 10,
        **options,
    }
    return PipeDeclaration.model_validate(given)


def child_settings(pipes: Sequence[PipeDeclaration], data_dir: PurePath | None = None) -> Settings:
    """Return the settings of a child with an admin port, in memory or on the disk."""
    base = (
        BrokerConfig(port=0, storage="memory")
        if data_dir is None
        else BrokerConfig(port=0, data_dir=data_dir)
    )
    return base.model_copy(
        update={
            "pipes": tuple(pipes),
            "admin": AdminSettings(port=0),
            "groups": GroupsSettings(offsets_partitions=3),
            "transactions": TransactionsSettings(state_partitions=3),
        }
    )


def client_of(address: str) -> Cluster:
    """Return a client of a broker."""
    return open_cluster(ClientOptions(tuple(parse_addresses(address))))


def stored(address: str, topic: str = TOPIC, partition: int = 0) -> bytes:
    """Return the batches of a partition as a broker stores them."""
    at = TopicPartition(topic, partition)
    found = bytearray()
    with client_of(address) as cluster:
        start = cluster.look_up_offsets({at: calls.EARLIEST_TIMESTAMP}, is_read_committed=False)
        end = cluster.look_up_offsets({at: calls.LATEST_TIMESTAMP}, is_read_committed=False)
        offset = start[at].offset
        while offset < end[at].offset:
            leader = cluster.leaders([at])[at]
            answer = cluster.at(
                leader.address, calls.fetch_batches({at: offset}, calls.FetchBounds())
            )[at]
            records = whole_batches(memoryview(bytes(answer.records or b"")))
            if not records:
                break  # its log is being cut
            found += records
            offset = _next_offset(records)
    return bytes(found)


def _next_offset(records: memoryview) -> int:
    from penstock.records.batch import LOG_OVERHEAD_BYTES, read_header

    position, last = 0, -1
    while position < len(records):
        header = read_header(records, position)
        position, last = position + header.batch_length + LOG_OVERHEAD_BYTES, header.last_offset
    return last + 1


def until(condition: Callable[[], bool], seconds_max: float = SECONDS_MAX) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.01)


class Operator:
    """Requests to the admin port of a child."""

    def __init__(self, child: Broker) -> None:
        self._child = child

    @property
    def url(self) -> str:
        """The address of the admin port."""
        return f"http://127.0.0.1:{self._child.admin_port}"

    def ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> object:
        """Return the answer of a request about pipes."""
        answer = httpx.request(method, f"{self.url}/api/v1/pipes{path}", json=body, timeout=10)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def pipe(self, name: str = "hq") -> dict[str, object]:
        """Return the state of a pipe."""
        found = self.ask("GET", f"/{name}")
        assert isinstance(found, dict)
        pipe = found["pipe"]
        assert isinstance(pipe, dict)
        return pipe

    def wait_in_step(self, name: str = "hq") -> None:
        """Wait until a pipe has copied everything."""
        until(lambda: bool(self.pipe(name)["is_in_step"]))


def equal(child: Broker, parent: Broker, topic: str = TOPIC, partition: int = 0) -> bool:
    """Return whether both have the same batches."""
    return stored(child.bootstrap_server, topic, partition) == stored(
        parent.bootstrap_server, topic, partition
    )
