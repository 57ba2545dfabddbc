"""Bounds of a push session against a client that sends much and reads or waits for nothing."""

import asyncio
import json
from typing import cast

import pytest

from penstock.core.metrics import Registry
from penstock.edge.push import limits
from penstock.edge.push.ports import PushBroker
from penstock.edge.push.reactions import Commit, Ended, Publish
from penstock.edge.push.server import PushServer
from penstock.node.push.memory_link import MemoryTransport, link
from penstock.node.push.push_door import ProcessDoor
from penstock.protocol.push.data import encode_data, encode_tail
from penstock.protocol.push.frames import FrameType, encode_frame
from penstock.protocol.push.payloads import SubscribeRequest
from tests.edge.push.push_scene import Scene, run_of, subscribe_frame

REFUSED = encode_frame(FrameType.RESET, 7)
"""A short request with a long answer."""


class Client(asyncio.Protocol):
    """A client that keeps its transport."""

    transport: MemoryTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport


def new_server() -> PushServer:
    return PushServer(
        cast("PushBroker", None),
        lambda _: None,
        Registry(),
        sessions_max=2,
        sessions_per_address_max=2,
    )


def test_large_frames_that_many_clients_begin_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HELD_BYTES_MAX", 100_000)

    async def test() -> None:
        server, outputs = new_server(), (bytearray(), bytearray())
        for received in outputs:
            connection, client = server.connection(ProcessDoor()), Client()
            link(
                asyncio.get_running_loop(),
                connection,
                connection.receive,
                client,
                received.extend,
            )
            client.transport.write(encode_frame(FrameType.SUBSCRIBE, 1, bytes(90_000))[:80_000])
        for _ in range(5):
            await asyncio.sleep(0)
        assert [b"incomplete frames" in one for one in outputs] == [False, True]
        assert len(server.connections) == 1
        await server.stop(0.0)

    asyncio.run(test())


class AddressDoor(ProcessDoor):
    """Clients of a given address."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address

    def client_of(self, transport: asyncio.BaseTransport) -> tuple[object, str]:
        return super().client_of(transport)[0], self.address


def test_ipv6_addresses_of_one_network_have_the_sessions_of_one_address() -> None:
    async def test() -> None:
        server = new_server()
        server.follow(9, 2, 9)
        addresses = ("2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1")
        opened = [server.connection(AddressDoor(one)) for one in addresses]
        for connection in opened:
            link(
                asyncio.get_running_loop(), connection, connection.receive, Client(), lambda _: None
            )
        for _ in range(5):
            await asyncio.sleep(0)
        assert [one in server.connections for one in opened] == [True, True, False, True]
        for one in opened:
            if one in server.connections:
                one.connection_lost(None)
        assert not server._by_address
        await server.stop(0.0)

    asyncio.run(test())


def test_a_client_that_reads_no_answers_is_not_read() -> None:
    async def test() -> None:
        loop, server = asyncio.get_running_loop(), new_server()
        connection, client, received = server.connection(ProcessDoor()), Client(), bytearray()
        link(loop, connection, connection.receive, client, received.extend)
        client.transport.pause_reading()
        for _ in range(200):
            client.transport.write(REFUSED * 100)
            await asyncio.sleep(0)
        assert connection.unsent_bytes < 2 * limits.WRITE_BUFFER_BYTES_HIGH
        assert client.transport.get_write_buffer_size() > 0
        client.transport.resume_reading()
        async with asyncio.timeout(10):
            while received.count(b'"error"') < 20_000:  # noqa: ASYNC110 (has a deadline)
                await asyncio.sleep(0)
        await server.stop(0.0)

    asyncio.run(test())


def test_a_publish_is_appended_although_its_subscription_ends_in_the_same_bytes() -> None:
    scene = Scene(SubscribeRequest(topic="t", publish=True), partitions=3)
    record = encode_data(scene.number, 5, encode_tail(-1, -1, -1, -1, 0, None, b"v"))
    end = subscribe_frame(6, SubscribeRequest(topic="t", is_unsubscribe=True))
    reactions = scene.session.receive(record + end, scene.now)
    (published,) = [one for one in reactions if isinstance(one, Publish)]
    assert Ended(scene.number) in reactions
    assert published.records[0].partition_count == 3


def test_commits_in_progress_are_bounded() -> None:
    scene = Scene(SubscribeRequest(topic="t", group="g"))
    payload = json.dumps({"t": {"0": 1}}).encode()
    count = limits.COMMITS_IN_FLIGHT_MAX + 2
    frames = b"".join(encode_frame(FrameType.COMMIT_OFFSET, at, payload) for at in range(count))
    begun = [one for one in scene.session.receive(frames, scene.now) if isinstance(one, Commit)]
    assert len(begun) == limits.COMMITS_IN_FLIGHT_MAX
    assert scene.session.is_reading_paused
    later = scene.session.committed(scene.number, begun[0].message_id, scene.now)
    assert [one.message_id for one in later if isinstance(one, Commit)] == [count - 2]


def test_frames_that_are_not_acknowledged_are_bounded_over_all_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "UNACKNOWLEDGED_FRAMES_MAX", 4)
    scene = Scene(SubscribeRequest(topic="t", credit=100))
    wanted = scene.session.next_read()
    assert wanted is not None
    scene.session.deliver(wanted, run_of(0, 0, [b"v"] * 4), 10_000, scene.now)
    assert scene.session.next_read() is None
    scene.session.receive(encode_frame(FrameType.ACK, 2), scene.now)
    assert scene.session.next_read() is not None
