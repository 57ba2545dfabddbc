"""The server of the admin port on a real socket: no peer keeps a connection for itself."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.admin import server as admin_server
from penstock.admin.places import Places
from penstock.admin.server import AdminServer
from penstock.client.cluster import Cluster
from penstock.core.errors import BrokerUnreachableError
from penstock.core.metrics import Registry
from penstock.core.settings.admin_settings import AdminSettings
from tests.admin.fakes import FakeCheck, FakeDoor, FakeView, no_cluster

CONNECTIONS_MAX = admin_server.CONNECTIONS_MAX
CONNECTIONS_PER_ADDRESS_MAX = admin_server.CONNECTIONS_PER_ADDRESS_MAX
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SECONDS_MAX = 10.0
SHORT_SECONDS = 0.2
LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
METRICS = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
PAGE_BYTES = 16 * 1024 * 1024
"""More than the kernel takes for a peer that does not read."""


@asynccontextmanager
async def serving(
    view: FakeView | None = None, make_cluster: Callable[[], Cluster] = no_cluster
) -> AsyncIterator[int]:
    server = AdminServer(view or FakeView(), FakeDoor(make_cluster), FakeCheck(), AdminSettings())
    bound = socket.create_server(("127.0.0.1", 0))
    bound.setblocking(False)
    await server.start(bound)
    try:
        yield bound.getsockname()[1]
    finally:
        await server.stop()
        bound.close()


async def is_answered(port: int) -> bool:
    """Whether a new connection is served."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(LIVE)
        return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False
    finally:
        writer.close()


async def place_becomes_free(port: int) -> bool:
    try:
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                if await is_answered(port):
                    return True
                await asyncio.sleep(0.02)
    except TimeoutError:
        return False


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends the connection, politely or not."""
    try:
        return await asyncio.wait_for(reader.read(1), SECONDS_MAX) == b""
    except ConnectionResetError:
        return True


async def ask_once(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes = LIVE
) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return await reader.readexactly(len(b'{"alive":true}'))


def test_a_second_request_that_is_begun_and_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "RECEIVE_SECONDS_MAX", SHORT_SECONDS)

    async def work() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await ask_once(reader, writer) == b'{"alive":true}'
            writer.write(b"G")
            assert await is_ended(reader)
            writer.close()

    run(work)


def test_bytes_that_drip_in_buy_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "RECEIVE_SECONDS_MAX", 3 * SHORT_SECONDS)

    async def drip(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"G")
            await asyncio.sleep(SHORT_SECONDS / 4)

    async def work() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await ask_once(reader, writer)
            dripping = asyncio.get_running_loop().create_task(drip(writer))
            assert await is_ended(reader)
            dripping.cancel()
            writer.close()

    run(work)


@pytest.mark.parametrize("requests", [1, 2])
def test_a_peer_that_does_not_read_its_answer(
    requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two of them, the second answer waits for the first to be read."""
    monkeypatch.setattr(admin_server, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(Places, "rest", lambda _places, _one: None)  # it never yields its place
    monkeypatch.setattr(admin_server, "IDLE_SECONDS_MAX", SHORT_SECONDS)
    monkeypatch.setattr(admin_server, "ANSWER_SECONDS_MAX", SHORT_SECONDS)
    metrics = Registry()
    metrics.counter("things_total", "x" * PAGE_BYTES)

    async def work() -> None:
        async with serving(FakeView(metrics=metrics)) as port:
            silent = socket.create_connection(("127.0.0.1", port))
            with silent:
                silent.sendall(METRICS * requests)
                assert await place_becomes_free(port)

    run(work)


def test_an_idle_connection_is_closed_and_one_that_asks_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin_server, "IDLE_SECONDS_MAX", 4 * SHORT_SECONDS)
    monkeypatch.setattr(admin_server, "RECEIVE_SECONDS_MAX", 2 * SHORT_SECONDS)

    async def work() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(6):
                await ask_once(reader, writer)
                await asyncio.sleep(SHORT_SECONDS)
            assert await asyncio.wait_for(reader.read(1), SECONDS_MAX) == b""
            writer.close()

    run(work)


@pytest.mark.parametrize("character", ["a", "%C3%A9"], ids=["ASCII", "encoded"])
def test_the_longest_name_that_a_page_ends_with_leads_to_the_next(character: str) -> None:
    name = character * (32_767 // (1 if character == "a" else 2))

    def unreachable() -> Cluster:
        raise BrokerUnreachableError("nobody")

    async def scenario() -> None:
        async with serving(make_cluster=unreachable) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            request = f"GET /api/v1/groups?after={name} HTTP/1.1\r\nhost: localhost\r\n\r\n"
            writer.write(request.encode())
            # The request was accepted, though no broker can be reached.
            assert (await reader.readline()).startswith(b"HTTP/1.1 503")
            writer.close()

    run(scenario)


async def silent_connections(port: int, count: int, host: str = "127.0.0.1") -> list[Streams]:
    """Open connections from an address of this machine, and send nothing."""
    return [
        await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)) for _ in range(count)
    ]


def test_silent_connections_of_one_address_keep_no_probe_out() -> None:
    async def work() -> None:
        async with serving() as port:
            opened = await silent_connections(port, 2 * CONNECTIONS_MAX)
            assert await is_answered(port)
            # All but those of one address, and one of these for the probe.
            ended = opened[: 1 - CONNECTIONS_PER_ADDRESS_MAX]
            assert all([await is_ended(reader) for reader, _ in ended])
            for _, writer in opened:
                writer.close()

    run(work)


def test_silent_connections_of_many_addresses_keep_no_probe_out() -> None:
    async def work() -> None:
        async with serving() as port:
            opened = []
            for number in range(2, 8):
                opened += await silent_connections(
                    port, CONNECTIONS_PER_ADDRESS_MAX, f"127.0.0.{number}"
                )
            assert await is_answered(port)
            for _, writer in opened:
                writer.close()

    run(work)


def test_a_head_without_its_body_keeps_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "CONNECTIONS_PER_ADDRESS_MAX", 1)

    async def work() -> None:
        async with serving() as port:
            ((reader, writer),) = await silent_connections(port, 1)
            writer.write(
                b"POST /api/v1/topics HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\ncontent-length: 9\r\n\r\n{"
            )
            assert await is_answered(port)
            assert await is_ended(reader)
            writer.close()

    run(work)


def test_a_request_that_is_carried_out_is_not_ended_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin_server, "CONNECTIONS_PER_ADDRESS_MAX", 1)
    begun, may_end = threading.Event(), threading.Event()

    def slow() -> Cluster:
        begun.set()
        assert may_end.wait(SECONDS_MAX)
        raise BrokerUnreachableError("it took too long")

    async def work() -> None:
        async with serving(make_cluster=slow) as port:
            ((reader, writer),) = await silent_connections(port, 1)
            writer.write(b"GET /api/v1/groups HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert await asyncio.to_thread(begun.wait, SECONDS_MAX)
            assert not await is_answered(port)
            may_end.set()
            assert (await reader.readline()).startswith(b"HTTP/1.1 503")
            writer.close()

    run(work)
