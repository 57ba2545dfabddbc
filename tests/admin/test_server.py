"""The server of the admin port on a real socket: no peer keeps a connection for itself."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.admin import server as admin_server
from penstock.admin.server import AdminServer
from penstock.client.cluster import Cluster
from penstock.core.errors import BrokerUnreachableError
from penstock.core.metrics import Registry
from penstock.core.settings.admin_settings import AdminSettings
from tests.admin.fakes import FakeCheck, FakeDoor, FakeView, no_cluster

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


@pytest.fixture(autouse=True)
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "CONNECTIONS_MAX", 1)


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
            assert await place_becomes_free(port)
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
            assert await place_becomes_free(port)
            dripping.cancel()
            writer.close()

    run(work)


@pytest.mark.parametrize("requests", [1, 2])
def test_a_peer_that_does_not_read_its_answer(
    requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two of them, the second answer waits for the first to be read."""
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
