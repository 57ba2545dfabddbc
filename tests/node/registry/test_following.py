"""Brokers follow a registry and get their places; without one, nothing of it is imported."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import BrokerConfig, load_settings
from penstock.edge.registry.documents import TokenDocument
from penstock.edge.registry.registry_http import RegistryHttp
from penstock.edge.registry.topology_client import TopologyClient
from penstock.edge.registry.topology_file import read_token
from penstock.node.registry import topology_wiring
from penstock.node.registry.registry_process import RegistryOptions, RegistryServer
from penstock.node.server import BrokerServer

SECONDS_MAX = 20.0


def broker(directory: Path, **registry: object) -> BrokerServer:
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in registry.items())
    toml = f"[registry]\npoll_interval_ms = 100\n{lines}"
    settings = load_settings(toml, {}, {}).settings
    return BrokerServer(BrokerConfig(port=0, data_dir=str(directory), settings=settings))


async def operate(server: RegistryServer, method: str, path: str, body: object = None) -> bytes:
    headers = {"Authorization": f"Bearer {read_token(server.operator_token_file)}"}
    data = None if body is None else json.dumps(body).encode()
    http = RegistryHttp(server.url)
    answer = await http.call(method, f"/registry/v1/{path}", headers, data)
    assert answer.status < 300, answer
    return answer.body


async def eventually(is_true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await is_true():  # noqa: ASYNC110 (the broker has no event for it)
            await asyncio.sleep(0.02)


def test_two_brokers_find_their_places(tmp_path: Path) -> None:
    root_file, store_file = (tmp_path / name / "topology.json" for name in ("root", "store"))

    async def run() -> None:
        async with RegistryServer(RegistryOptions(str(tmp_path / "reg"), port=0)) as registry:
            made = await operate(registry, "POST", "nodes/root-1/token", {})
            token = tmp_path / "root.token"
            token.write_text(TokenDocument.model_validate_json(made).token)
            await operate(registry, "PATCH", "nodes/root-1", {"role": "ROOT"})
            await operate(registry, "PATCH", "levels/POS", {"down": ["prices"]})
            root = broker(
                tmp_path / "root", url=registry.url, node_id="root-1", token_file=str(token)
            )
            store = broker(
                tmp_path / "store",
                url=registry.url,
                node_id="store-17",
                role="POS",
                join_token_file=registry.join_token_file,
                labels=["region=north"],
            )
            async with root, store:

                async def has_parent() -> bool:
                    return store_file.exists() and '"root-1"' in store_file.read_text()

                await eventually(has_parent)
                found = json.loads(store_file.read_text())
                address = found["parent"]["addresses"]["kafka"]
                assert address == root.bootstrap_server
                assert (found["role"], found["down"]) == ("POS", ["prices"])
                shown = json.loads(await operate(registry, "GET", "nodes/store-17"))
                assert shown["labels"] == {"region": "north"}
                assert shown["disk"]["free_bytes"] > 0
        assert json.loads(root_file.read_text())["role"] == "ROOT"

    asyncio.run(run())


def test_the_interval_changes_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients: list[TopologyClient] = []
    real = topology_wiring.open_topology

    async def opened(*arguments: Any) -> TopologyClient:  # noqa: ANN401
        clients.append(await real(*arguments))
        return clients[0]

    monkeypatch.setattr(topology_wiring, "open_topology", opened)

    async def run() -> float:
        async with broker(tmp_path / "store", url="http://127.0.0.1:1") as server:
            assert server._parts is not None
            live = server._parts.live
            now = live.current.settings
            registry = now.registry.model_copy(update={"poll_interval_ms": 5_000})
            await live.take(now.model_copy(update={"registry": registry}))
            return clients[0].interval_seconds

    assert asyncio.run(run()) == 5


def test_a_broker_starts_and_stops_without_its_registry(tmp_path: Path) -> None:
    async def run() -> None:
        async with broker(tmp_path / "store", url="http://127.0.0.1:1") as server:
            assert server.port
            await asyncio.sleep(0)

    asyncio.run(run())
    assert not (tmp_path / "store" / "topology.json").exists()
    token = tmp_path / "store" / "registry.token"
    assert token.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("registry", "words"),
    [
        ({"url": "http://127.0.0.1:x"}, "registry.url"),
        ({"url": "http://127.0.0.1:1", "token_file": "/nonexistent"}, "cannot be read"),
        ({"url": "https://127.0.0.1:1", "ca": "/nonexistent"}, "cannot be used"),
    ],
)
def test_a_start_with_files_that_cannot_be_used_fails(
    tmp_path: Path, registry: dict[str, str], words: str
) -> None:
    async def run() -> None:
        async with broker(tmp_path / "store", **registry):
            pass

    with pytest.raises(ConfigError, match=words):
        asyncio.run(run())


def test_a_broker_without_a_registry_imports_none_of_it(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from penstock import BrokerConfig, BrokerServer
async def run():
    async with BrokerServer(BrokerConfig(port=0, data_dir=sys.argv[1])):
        print([name for name in sys.modules if name.startswith("penstock.edge.registry")])
asyncio.run(run())
"""
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "[]\n"
