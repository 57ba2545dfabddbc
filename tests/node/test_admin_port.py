"""The admin port of a broker in this process: when it answers, its rejections, when it ends."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.admin import server as admin_server
from penstock.broker.connections.server import Listener
from penstock.core.errors import ConfigError
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import Settings
from penstock.node import admin, foundation, log_loading
from penstock.node.server import BrokerServer

MEMORY = Settings.model_validate({"node": {"storage": "memory"}, "listener": {"port": 0}})


def config(**listener: object) -> BrokerConfig:
    tree = Settings.model_validate({"listener": listener})
    return BrokerConfig(port=0, storage="memory", admin_port=0, settings=tree)


@asynccontextmanager
async def client_of(port: int | None) -> AsyncIterator[httpx.AsyncClient]:
    assert port is not None
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        yield client


def reasons(answer: httpx.Response) -> list[str]:
    return [reason["code"] for reason in answer.json()["reasons"]]


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other side ends the connection, politely or not."""
    try:
        return await asyncio.wait_for(reader.read(1), 10) == b""
    except ConnectionResetError:
        return True


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_it_answers_and_asks_the_broker_by_the_address_it_listens_on() -> None:
    async def work() -> None:
        # No client can connect to the advertised address: the admin port must not need it.
        settings = config(advertised_host="broker.invalid", advertised_port=1)
        async with BrokerServer(settings) as server:
            await server.wait_for_admin()
            async with client_of(server.admin_port) as client:
                assert (await client.get("/health/ready")).status_code == 200
                status = (await client.get("/api/v1/status")).json()
                assert status["address"] == "broker.invalid:1"
                assert status["cluster_id"] == server.cluster_id
                names = [limit["name"] for limit in status["limits"]]
                assert {"connections", "requests_in_flight", "disk_used_bytes"} <= set(names)
                made = await client.post("/api/v1/topics", json={"name": "orders"})
                assert made.status_code == 201, made.text
                found = await client.get("/api/v1/topics/orders")
                assert found.json()["partitions"][0]["end_offset"] == 0
                page = await client.get("/metrics")
                assert "penstock_partitions 1.0" in page.text

    run(work)


def test_an_embedded_broker_has_none_unless_it_is_asked_for() -> None:
    async def work() -> None:
        async with BrokerServer(BrokerConfig(port=0, storage="memory")) as server:
            await server.wait_for_admin()
            assert server.admin_port is None

    run(work)


def test_the_default_port_may_be_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with BrokerServer(MEMORY) as server:
            await server.wait_for_admin()
            assert server.admin_port is None

    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(admin, "ADMIN_PORT_DEFAULT", taken.getsockname()[1])
        run(work)
    assert "no admin port" in caplog.text
    assert "--admin-port" in caplog.text


def test_a_port_that_was_asked_for_may_not() -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            settings = BrokerConfig(port=0, storage="memory", admin_port=port)
            with pytest.raises(ConfigError, match=f":{port} for administration") as raised:
                await BrokerServer(settings).__aenter__()
            assert "--admin-port" in raised.value.hint

    run(work)


def test_only_a_taken_port_is_forgiven() -> None:
    async def work() -> None:
        # An address of no machine (RFC 5737).
        admin_settings = {"host": "192.0.2.1"}
        settings = Settings.model_validate({**MEMORY.model_dump(), "admin": admin_settings})
        with pytest.raises(ConfigError, match="Cannot assign requested address") as raised:
            await BrokerServer(settings).__aenter__()
        assert "Check admin.host" in raised.value.hint

    run(work)


def test_probes_are_answered_while_logs_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        may_load = asyncio.Event()
        load_logs = log_loading.load_logs

        async def slow(*given: Any) -> None:  # noqa: ANN401 (passed on)
            await may_load.wait()
            await load_logs(*given)

        monkeypatch.setattr(foundation, "load_logs", slow)
        monkeypatch.setattr(admin, "PATIENCE_SECONDS", 0.0)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = BrokerServer(BrokerConfig(port=0, storage="memory", admin_port=port))
        starting = asyncio.get_running_loop().create_task(server.__aenter__())
        await asyncio.sleep(0)
        async with client_of(port) as client:
            while True:
                try:
                    live = await client.get("/health/live")
                    break
                except httpx.ConnectError:
                    await asyncio.sleep(0.001)
            assert live.status_code == 200
            ready = await client.get("/health/ready")
            assert (ready.status_code, reasons(ready)) == (503, ["starting"])
            topics = await client.get("/api/v1/topics")
            assert topics.status_code == 503
            assert "starting" in topics.json()["detail"]
            status = await client.get("/api/v1/status")
            assert status.json()["cluster_id"] is None
            may_load.set()
            await starting
            assert (await client.get("/health/ready")).status_code == 200
        await server.__aexit__(None, None, None)

    run(work)


def test_it_says_that_the_broker_stops_and_stops_last(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        may_stop, stops = asyncio.Event(), asyncio.Event()
        stop = Listener.stop

        async def slow(listener: Listener) -> None:
            stops.set()
            await may_stop.wait()
            await stop(listener)

        monkeypatch.setattr(Listener, "stop", slow)
        server = BrokerServer(config())
        await server.__aenter__()
        await server.wait_for_admin()
        port = server.admin_port
        stopping = asyncio.get_running_loop().create_task(server.__aexit__(None, None, None))
        await stops.wait()
        async with client_of(port) as client:
            ready = await client.get("/health/ready")
            assert (ready.status_code, reasons(ready)) == (503, ["stopping"])
            assert (await client.get("/health/live")).status_code == 200
            may_stop.set()
            await stopping
            with pytest.raises(httpx.TransportError):
                await client.get("/health/live")

    run(work)


def test_a_stop_does_not_wait_for_an_admin_port_that_is_coming_up() -> None:
    async def work() -> None:
        async with BrokerServer(config()):
            pass

    run(work)


def test_a_start_does_not_import_what_serves_the_port() -> None:
    """It would take longer than the start itself."""
    late = ("starlette", "uvicorn", "h11", "prometheus_client", "penstock.admin")
    program = f"import sys, penstock.node.server; print([m for m in {late} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_connection_above_the_cap_takes_the_place_of_the_oldest_silent_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin_server, "CONNECTIONS_MAX", 2)

    async def work() -> None:
        async with BrokerServer(config()) as server:
            await server.wait_for_admin()
            assert server.admin_port is not None
            opened = [
                await asyncio.open_connection("127.0.0.1", server.admin_port) for _ in range(3)
            ]
            assert await is_ended(opened[0][0])
            for reader, writer in opened[1:]:
                writer.write(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            for _, writer in opened:
                writer.close()

    run(work)


def test_a_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "RECEIVE_SECONDS_MAX", 0.0)

    async def work() -> None:
        async with BrokerServer(config()) as server:
            await server.wait_for_admin()
            assert server.admin_port is not None
            reader, writer = await asyncio.open_connection("127.0.0.1", server.admin_port)
            writer.write(b"GET /health/live HTTP/1.1\r\nhost: a\r\nx-slow: ")
            assert await is_ended(reader)
            writer.close()

    run(work)
