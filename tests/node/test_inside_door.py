"""The admin port's own connections: no limit of a listener ends them, and the audit log knows."""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.broker.peer import Peer
from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings
from penstock.node.server import BrokerServer

PASSWORD = "administrator-secret"
AUTH = ("admin", PASSWORD)


def settings_in(
    folder: Path, security: str = "", listener: str = "", all_listeners: str = ""
) -> Settings:
    """One listener with PLAIN, and an admin port with the same users."""
    file = folder / "administrator.txt"
    file.write_text(f"admin:{PASSWORD}\n")
    file.chmod(0o600)
    text = f"""
[node]
storage = "memory"
[listener]
{all_listeners}
[admin]
port = 0
auth = "basic"
[security]
bootstrap_admin_file = "{file}"
{security}
[[listeners]]
name = "CLIENTS"
port = 0
protocol = "SASL_PLAINTEXT"
mechanisms = ["PLAIN"]
{listener}
"""
    return load_settings(text, {}, {}).settings


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def client_of(server: BrokerServer) -> httpx.AsyncClient:
    url = f"http://127.0.0.1:{server.admin_port}"
    return httpx.AsyncClient(base_url=url, timeout=30, trust_env=False, auth=AUTH)


FULL = {
    "broker": {"all_listeners": "connections_max = 2"},
    "address": {"all_listeners": "connections_per_address_max = 2"},
    "listener": {"listener": "connections_max = 2"},
}


@pytest.mark.parametrize("limit", FULL)
def test_a_listener_that_is_full_does_not_stop_administration(tmp_path: Path, limit: str) -> None:
    async def work() -> None:
        async with BrokerServer(settings_in(tmp_path, **FULL[limit])) as server:
            await server.wait_for_admin()
            async with AsyncExitStack() as stack:
                for _ in range(6):
                    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                    stack.callback(writer.close)
                async with client_of(server) as client:
                    found = await client.get("/api/v1/topics")
            assert (found.status_code, found.json()["topics"]) == (200, [])

    run(work)


def test_a_connection_of_the_admin_port_takes_no_place_of_a_listener(tmp_path: Path) -> None:
    async def work() -> None:
        async with BrokerServer(settings_in(tmp_path)) as server:
            served = server._running.admin._served
            assert served is not None
            ours, theirs = socket.socketpair()
            with ours:
                theirs.setblocking(False)
                await served.listener.adopt(theirs, Peer("127.0.0.1"))
                metrics = server.metrics()
                assert metrics["connections"] == 1
                assert metrics['listener_connections{listener="CLIENTS"}'] == 0

    run(work)


@pytest.mark.parametrize("authorizer", ["none", "acl"])
def test_a_change_over_http_is_recorded_with_the_door_and_the_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, authorizer: str
) -> None:
    """With an authorizer or without: each caller has an identity."""
    caplog.set_level(logging.INFO, "penstock.audit")

    async def work() -> None:
        security = f'authorizer = "{authorizer}"\nsuper_users = "User:admin"'
        async with BrokerServer(settings_in(tmp_path, security)) as server:
            await server.wait_for_admin()
            async with client_of(server) as client:
                made = await client.post("/api/v1/topics", json={"name": "orders"})
            assert made.status_code == 201

    run(work)
    lines = [json.loads(one.getMessage()) for one in caplog.records if one.name == "penstock.audit"]
    (change,) = [one for one in lines if one["event"] == "allowed"]
    assert (change["listener"], change["principal"]) == ("ADMIN", "User:admin")
    assert (change["resource"], change["operation"]) == ("TOPIC:orders", "CREATE")
    assert change["address"] == "127.0.0.1"


def test_a_user_that_is_removed_has_no_access_at_once(tmp_path: Path) -> None:
    from penstock.cluster.scram_changes import ScramDeletion
    from penstock.security.sasl_client import SCRAM_SHA_256, SCRAM_SHA_512

    async def work() -> None:
        async with BrokerServer(settings_in(tmp_path)) as server, client_of(server) as client:
            await server.wait_for_admin()
            assert (await client.get("/api/v1/topics")).status_code == 200
            users = server._running.security.users
            for mechanism in (SCRAM_SHA_512, SCRAM_SHA_256):
                outcome = await users.change([ScramDeletion("admin", mechanism)])
                assert outcome == {"admin": None}
            assert (await client.get("/api/v1/topics")).status_code == 401

    run(work)
