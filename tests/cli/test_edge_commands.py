"""`penstock edge sessions` and its REST operation; `penstock edge tree` without a registry."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from penstock import BrokerServer
from penstock.client.push import PushClient, open_push
from penstock.core.settings.config import load_settings
from tests.cli.conftest import Penstock

TEXT = """
[node]
storage = "memory"
[listener]
port = 0
[admin]
port = 0
[edge]
push_port = 0
"""
FIRST_ID = 1_000_000_000_001


async def _client(broker: BrokerServer) -> PushClient:
    assert broker.push_port is not None
    return await open_push("127.0.0.1", broker.push_port)


def test_push_sessions_are_listed_and_ended(penstock: Penstock) -> None:
    async def test() -> None:
        async with BrokerServer(load_settings(TEXT, {}, {}).settings) as broker:
            where = ["--admin", f"http://127.0.0.1:{broker.admin_port}"]

            async def run(*words: str) -> str:
                outcome = await asyncio.to_thread(penstock, *words, *where)
                assert outcome.code == 0, outcome
                return outcome.output

            assert "No push clients" in await run("edge", "sessions")
            await broker.create_topic("prices", partitions=2)
            await broker.create_topic("orders", routing="queue")
            client = await _client(broker)
            subscription = await client.subscribe("prices", group="shelf", credit=2)
            await client.subscribe("orders")
            for number in range(3):
                await client.publish("prices", b"%d" % number, partition=0)
            await anext(subscription)
            found: list[dict[str, Any]] = json.loads(await run("edge", "sessions", "--json"))
            (one,) = found
            assert one["id"] == FIRST_ID
            assert (one["principal"], one["address"]) == ("User:ANONYMOUS", "127.0.0.1")
            assert (one["state"], one["in_flight"]) == ("subscribed", 2)
            fanout, queue, publish = one["subscriptions"]
            assert fanout["unacknowledged_bytes"] == one["unacknowledged_bytes"] == 72
            assert [fanout[name] for name in ("mode", "group", "credit", "lag")] == [
                "fanout",
                "shelf",
                2,
                3,
            ]
            assert [queue[name] for name in ("mode", "group", "lag")] == ["queue", "orders", None]
            assert publish["mode"] == "publish"
            table = await run("edge", "sessions", "--principal", "User:ANONYMOUS")
            assert str(FIRST_ID) in table
            assert "shelf" in table
            assert "No push clients" in await run("edge", "sessions", "--principal", "User:x")
            assert "1 session ended" in await run("session", "end", str(FIRST_ID))
            ended = await client.wait_closed()
            assert "an operator" in str(ended)
            await client.close()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_the_sessions_of_a_principal_end_together(penstock: Penstock) -> None:
    async def test() -> None:
        async with BrokerServer(load_settings(TEXT, {}, {}).settings) as broker:
            await broker.create_topic("prices")
            clients = [await _client(broker) for _ in range(3)]
            for client in clients:
                await client.subscribe("prices")
            url = f"http://127.0.0.1:{broker.admin_port}"
            words = ("session", "end", "--principal", "User:ANONYMOUS", "--admin", url)
            outcome = await asyncio.to_thread(penstock, *words)
            assert "3 sessions ended" in outcome.output
            for client in clients:
                await client.wait_closed()
                await client.close()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_tree_without_a_registry_names_the_command_that_starts_one(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = penstock("edge", "tree")
    assert outcome.code != 0
    assert "penstock registry" in outcome.errors
    token = tmp_path / "operator.token"
    token.write_text("t" * 43)
    token.chmod(0o600)
    outcome = penstock("edge", "tree", "--token-file", str(token), "--registry", "http://[::1]:9")
    assert "penstock registry" in outcome.errors
