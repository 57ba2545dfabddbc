"""Two workers in one process, with the parts that a supervisor gives them."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from penstock.admin.status import status
from penstock.client import calls
from penstock.client.security.options import NO_SECURITY, Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.client.transport.connection import connect
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerState, Endpoint, MetadataImage, TopicImage
from penstock.core.clock import SystemClock
from penstock.core.errors import AuthenticationError, ClientError
from penstock.core.metrics import Registry
from penstock.core.types import CLUSTER_LISTENER, PLAINTEXT, TopicPartition
from penstock.node.admin_view import NodeView
from penstock.node.server import BrokerServer
from penstock.node.stand_ins import StandIns
from penstock.node.workers.worker_login import worker_security
from penstock.node.workers.worker_parts import WorkerParts, WorkerState
from penstock.node.workers.worker_settings import worker_settings
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.records.builder import BatchBuilder
from penstock.records.record import Record
from penstock.security.secret import Secret
from penstock.storage.disk.memory_disk import MemoryDisk
from penstock.testing.memory_store import MemoryMetadataStore
from tests.node.peers.three_brokers import settings, until

FETCH = Call(
    FetchRequest(max_wait_ms=0, min_bytes=0, topics=()), FetchResponse, lambda answer: answer
)
SECRET = Secret("a" * 64)
STATES = (
    WorkerState(1, 1, "running", pid=11, address="127.0.0.1:1", admin="http://127.0.0.1:2"),
    WorkerState(2, 2, "restarting", restarts=3),
)


class Workers:
    """Two running workers, and their bootstrap address."""

    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.bootstrap = socket.create_server(("127.0.0.1", 0))
        self.servers: dict[int, BrokerServer] = {}

    async def start(self) -> None:
        for number in (1, 2):
            parts = WorkerParts(
                number=number,
                store=self.store,
                shared={PLAINTEXT: [self.bootstrap.dup()]},
                secret=SECRET,
                states=lambda: STATES,
            )
            stand_ins = StandIns(filesystem=MemoryDisk(), metadata_store=self.store, worker=parts)
            server = BrokerServer(worker_settings(settings(1), number), stand_ins=stand_ins)
            await server.__aenter__()
            self.servers[number] = server
        await until(
            lambda: all(one.state is BrokerState.RUNNING for one in self.image.brokers.values())
        )

    async def stop(self) -> None:
        for server in self.servers.values():
            await server.__aexit__(None, None, None)
        self.bootstrap.close()

    @property
    def image(self) -> MetadataImage:
        parts = self.servers[1]._parts
        assert parts is not None
        return parts.metadata.image

    def peer_endpoint(self, number: int) -> Endpoint:
        found = self.image.brokers[number].endpoint(CLUSTER_LISTENER)
        assert found is not None
        return found


def run(act: Callable[[Workers], Awaitable[None]]) -> None:
    async def main() -> None:
        workers = Workers()
        try:
            await workers.start()
            async with asyncio.timeout(20):
                await act(workers)
        finally:
            await workers.stop()

    asyncio.run(main())


def test_the_bootstrap_address_answers_as_long_as_one_worker_does() -> None:
    async def act(workers: Workers) -> None:
        address = Address("127.0.0.1", workers.bootstrap.getsockname()[1])
        own = {server.port for server in workers.servers.values()}
        await workers.servers.pop(1).__aexit__(None, None, None)
        # Several: each worker would accept some.
        for _ in range(4):
            connection = await connect(address, timeout_seconds=10.0)
            found = await connection.carry(calls.describe_brokers([]))
            await connection.close()
            assert {one.port for one in found.brokers} <= own
            assert address.port not in own

    run(act)


def test_workers_copy_records_from_each_other() -> None:
    """Guards the login of workers: without it no follower gets a connection."""

    async def act(workers: Workers) -> None:
        parts = workers.servers[1]._parts
        assert parts is not None
        topic = NewTopic(name="t", partition_count=2, replication_factor=2)
        (created,) = await parts.metadata.create_topics([topic])
        assert isinstance(created, TopicImage), created
        builder = BatchBuilder()
        builder.append(Record(None, b"value", (), 0))
        for index, partition in enumerate(created.partitions):
            leader = workers.servers[partition.leader]
            connection = await connect(Address(leader.host, leader.port), timeout_seconds=10.0)
            at = TopicPartition("t", index)
            call = calls.send_batches({at: builder.build()}, acks=-1, timeout_ms=9_000)
            # Answered when the follower has it too.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            while code is not ErrorCode.NONE:
                await asyncio.sleep(0.01)
                code = (await connection.carry(call))[at].error_code
            await connection.close()

    run(act)


@pytest.mark.parametrize(
    ("security", "error"),
    [(NO_SECURITY, ClientError), (worker_security(Secret("b" * 64)), AuthenticationError)],
    ids=["no login", "another secret"],
)
def test_a_process_without_the_secret_is_no_worker(
    security: Security, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.node.workers.worker_login.FAILURE_DELAY_MS", 1)

    async def act(workers: Workers) -> None:
        peer = workers.peer_endpoint(2)
        assert peer.protocol == "SASL_PLAINTEXT"
        with pytest.raises(error):
            await ask(Address(peer.host, peer.port), security)

    run(act)


async def ask(address: Address, security: Security) -> None:
    connection = await connect(address, timeout_seconds=5.0, security=security)
    try:
        await connection.carry(FETCH)
    finally:
        await connection.close()


def test_the_secret_makes_a_worker() -> None:
    async def act(workers: Workers) -> None:
        peer = workers.peer_endpoint(2)
        await ask(Address(peer.host, peer.port), worker_security(SECRET))

    run(act)


def test_internal_topics_have_one_replica() -> None:
    async def act(workers: Workers) -> None:
        parts = workers.servers[1]._parts
        assert parts is not None
        served = parts.admin._served
        assert served is not None
        assert await served.coordinators.ensure_topic("group") is None
        topic = workers.image.topic("__consumer_offsets")
        assert topic is not None
        assert {len(one.replicas) for one in topic.partitions} == {1}
        assert {one.leader for one in topic.partitions} == {1, 2}

    run(act)


def test_the_status_names_all_workers() -> None:
    view = NodeView(
        settings(1),
        Registry(),
        SystemClock(),
        (0, 0.0),
        lambda: None,
        lambda: False,
        lambda: STATES,
    )
    first, second = status(view).workers
    assert (first.worker, first.condition, first.pid) == (1, "running", 11)
    assert (second.condition, second.pid, second.restarts) == ("restarting", None, 3)
