"""Limits of push on a real broker: sessions, slow frames, quotas, and records that were sent."""

import asyncio
import time
from pathlib import Path
from typing import cast

import pytest

from penstock.client.push import PushRequestError, open_push
from penstock.core.metrics import Registry
from penstock.edge.push import limits
from penstock.edge.push.connection import PushConnection
from penstock.edge.push.pauses import Pauses
from penstock.edge.push.ports import PartitionView, PushBroker
from penstock.edge.push.reactions import OpenedTopic
from penstock.edge.push.record_runs import LogRead
from penstock.edge.push.server import PushServer
from penstock.edge.push.session import PushSession
from penstock.node.push.push_door import ProcessDoor
from penstock.protocol.messages import alter_client_quotas
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.protocol.push.payloads import SubscribeRequest
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.broker.handlers.asker import Asker
from tests.edge.push.push_scene import subscribe_frame
from tests.node.gateways.gateway_stage import opened
from tests.node.push.push_stage import connect, push_broker, run, take
from tests.node.push.test_push_security import GOOD, sasl_settings


def test_a_principal_has_a_limit_of_sessions(tmp_path: Path) -> None:
    async def test() -> None:
        text = sasl_settings(tmp_path).replace("[edge]", "[edge]\nsessions_per_principal_max = 1")
        async with push_broker(text) as broker:
            assert broker.push_port is not None
            port = broker.push_port
            first = await open_push("127.0.0.1", port, credentials=GOOD)
            await first.subscribe("t")
            second = await open_push("127.0.0.1", port, credentials=GOOD)
            with pytest.raises(PushRequestError, match="sessions_per_principal_max") as refused:
                await second.subscribe("t")
            assert refused.value.code == "POLICY_VIOLATION"
            assert (await second.wait_closed()).code == "POLICY_VIOLATION"
            await second.close()
            await first.close()
            third = await open_push("127.0.0.1", port, credentials=GOOD)
            await third.subscribe("t")
            await third.close()

    run(test)


FIXED = """
[node]
storage = "memory"
[[listeners]]
name = "TEST"
protocol = "PLAINTEXT"
host = "127.0.0.1"
port = 0
principal = "User:test"
[edge]
push_port = 0
http_port = 0
sessions_per_principal_max = 1
"""


def test_a_fixed_identity_of_a_listener_is_not_counted() -> None:
    async def test() -> None:
        async with push_broker(FIXED) as broker:
            clients = [await connect(broker) for _ in range(2)]
            for client in clients:
                await client.subscribe("t")
            sockets = [await opened(broker) for _ in range(2)]
            for socket in sockets:
                socket.send(2, subscribe_frame(1, SubscribeRequest(topic="t")))
                (answer,) = await socket.receive_frames()
                assert b'"subscription"' in answer.payload, answer
                socket.close()
            for client in clients:
                await client.close()

    run(test)


def test_a_frame_that_trickles_ends_the_session() -> None:
    session = PushSession(0.0, needs_credentials=False)
    frame = encode_frame(FrameType.SUBSCRIBE, 1, b"{" + b" " * 100)
    now = 0.0
    session.receive(encode_frame(FrameType.HEARTBEAT, 0), now)
    for byte in frame[:40]:
        session.receive(bytes([byte]), now)
        now += 1.0
        assert session.check_at() <= limits.FRAME_SECONDS_MAX
        if now < limits.FRAME_SECONDS_MAX:
            session.tick(now)
            assert not session.is_ending
    session.tick(now)
    assert session.is_ending


def test_a_frame_may_last_if_the_broker_did_not_read() -> None:
    session = PushSession(0.0, needs_credentials=False)
    session.receive(encode_frame(FrameType.HEARTBEAT, 0) + b"\x08", 0.0)
    session.reading_resumed(29.0)
    session.tick(31.0)
    assert not session.is_ending
    session.receive(encode_frame(FrameType.HEARTBEAT, 0)[1:], 31.0)
    session.tick(60.0)
    assert not session.is_ending


def _set_quota(port: int, name: str, value: float) -> None:
    entity = alter_client_quotas.RequestEntityData(
        entity_type="client-id", entity_name="penstock-push"
    )
    with Asker(port) as asker:
        answer = asker.ask(
            alter_client_quotas.AlterClientQuotasRequest(
                entries=(
                    alter_client_quotas.RequestEntryData(
                        entity=(entity,),
                        ops=(alter_client_quotas.OpData(key=name, value=value, remove=False),),
                    ),
                ),
                validate_only=False,
            ),
            1,
            alter_client_quotas.AlterClientQuotasResponse,
        )
        assert [one.error_code for one in answer.entries] == [0]


def test_quotas_slow_publish_and_delivery_down(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        held: list[tuple[str, float]] = []

        def hold(kind: str, seconds: float) -> None:
            held.append((kind, seconds))

        monkeypatch.setattr(Pauses, "hold_reading", lambda _, s, __: hold("publish", s))
        monkeypatch.setattr(Pauses, "hold_delivery", lambda _, s, __: hold("delivery", s))
        async with push_broker() as broker, await connect(broker) as client:
            subscription = await client.subscribe("t")
            await client.publish("t", b"x" * 60_000)
            await take(subscription, 1)
            assert held == []
            await asyncio.to_thread(_set_quota, broker.port, "producer_byte_rate", 1_000.0)
            await client.publish("t", b"x" * 60_000)
            await take(subscription, 1)
            assert [kind for kind, _ in held] == ["publish"]
            assert held[0][1] > 1.0
            held.clear()
            await asyncio.to_thread(_set_quota, broker.port, "consumer_byte_rate", 1_000.0)
            await broker.publish("t", b"x" * 60_000)
            await take(subscription, 1)
            assert [kind for kind, _ in held] == ["delivery"]

    run(test)


@pytest.mark.slow
def test_a_client_above_a_quota_is_not_read() -> None:
    async def test() -> None:
        async with push_broker() as broker, await connect(broker) as client:
            await asyncio.to_thread(_set_quota, broker.port, "producer_byte_rate", 20_000.0)
            for _ in range(2):
                await client.publish("t", b"x" * 115_000)
            began = time.monotonic()
            await client.publish("t", b"x")
            assert time.monotonic() - began > 0.1

    run(test)


class _SlowTransport(asyncio.Transport):
    """A socket that accepts nothing until it is drained."""

    def __init__(self, protocol: PushConnection, *, has_limits: bool) -> None:
        super().__init__()
        self._has_limits = has_limits
        self._protocol = protocol
        self._high = 65_536
        self.unsent = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent += data
        if len(self.unsent) > self._high:
            self._protocol.pause_writing()

    def drain(self) -> None:
        self.unsent.clear()
        self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del low
        if self._has_limits:
            self._high = 65_536 if high is None else high

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Do nothing."""

    def resume_reading(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class _OneBatch:
    """A broker with one batch in one partition, which keeps commits."""

    def __init__(self) -> None:
        self.batch = bytes(build_batch([Record(None, b"v", (), 0)]))
        self.committed: list[dict[int, int]] = []

    def queue_group(self, request: SubscribeRequest) -> None:
        del request

    async def open(self, client: object, request: SubscribeRequest) -> OpenedTopic:
        del client, request
        return OpenedTopic(1, {0: 0}, 1_000, {}, {})

    def may_read(self, client: object, topic: str) -> bool:
        del client, topic
        return True

    def view(self, topic: str, partition: int) -> PartitionView:
        del topic, partition
        return PartitionView((b"", 0, 0), 0, 1)

    def read(self, topic: str, partition: int, offset: int, bytes_max: int) -> LogRead:
        del topic, bytes_max
        return LogRead(partition, offset, self.batch, (), (b"", 0, 0))

    def wait(self, topic: str, partition: int, on_news: object) -> object:
        del topic, partition, on_news
        return lambda: None

    def charge_delivery(self, client: object, size_bytes: int) -> float:
        del client, size_bytes
        return 0.0

    async def commit(self, client: object, group: str, topic: str, offsets: dict[int, int]) -> None:
        del client, group, topic
        self.committed.append(offsets)


async def turns() -> None:
    """Let the event loop work."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("has_limits", [True, False])
def test_auto_ack_commits_only_records_that_the_socket_accepted(*, has_limits: bool) -> None:
    async def test() -> None:
        tasks: list[asyncio.Task[None]] = []
        broker, loop = _OneBatch(), asyncio.get_running_loop()
        server = PushServer(
            cast("PushBroker", broker),
            lambda work: tasks.append(loop.create_task(work)),
            Registry(),
            sessions_max=2,
            sessions_per_address_max=2,
        )
        connection = server.connection(ProcessDoor())
        transport = _SlowTransport(connection, has_limits=has_limits)
        connection.connection_made(transport)
        request = SubscribeRequest(topic="t", group="g", start="earliest", auto_ack=True)
        connection.receive(subscribe_frame(1, request))
        await turns()
        if has_limits:
            transport.drain()  # the answer to SUBSCRIBE
        await turns()
        assert connection.session.delivered_records == 1
        assert broker.committed == [], "nothing has left this process"
        transport.drain()
        await turns()
        assert broker.committed == [{0: 1}]
        server.feeds.stop()
        connection.connection_lost(None)
        await asyncio.gather(*tasks)

    run(test)
