"""A registry in a broker that is a ROOT: it starts with the broker, and a shop finds its parent."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import BrokerConfig, load_settings
from penstock.edge.registry.documents import TreeDocument
from penstock.edge.registry.registry_http import RegistryHttp
from penstock.edge.registry.topology_file import read_token
from penstock.node.registry.inside_registry import FOLDER
from penstock.node.server import BrokerServer
from tests.oracle.running_broker import free_port

SECONDS_MAX = 20.0


def broker(directory: Path, registry: Mapping[str, object]) -> BrokerServer:
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in registry.items())
    toml = f"[registry]\npoll_interval_ms = 100\n{lines}"
    settings = load_settings(toml, {}, {}).settings
    return BrokerServer(BrokerConfig(port=0, data_dir=str(directory), settings=settings))


async def healthy(directory: Path, port: int, count: int) -> TreeDocument:
    """Return the tree when this number of nodes is healthy."""
    token = read_token(str(directory / FOLDER / "operator.token"))
    http = RegistryHttp(f"http://127.0.0.1:{port}")
    headers = {"Authorization": f"Bearer {token}"}
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            answer = await http.call("GET", "/registry/v1/tree", headers)
            found = TreeDocument.model_validate_json(answer.body)
            called = [one for one in found.nodes if one.seen_seconds_ago is not None]
            if [one.state for one in called] == ["HEALTHY"] * count:
                return found
            await asyncio.sleep(0.02)


def test_a_root_runs_the_registry_of_its_tree(tmp_path: Path) -> None:
    port, root, store = free_port(), tmp_path / "root", tmp_path / "store"

    async def run() -> None:
        for start in range(2):  # a restart does not wait for the silence of the process before
            async with broker(root, {"serve_port": port, "node_id": "root-1"}) as running:
                tree = await healthy(root, port, 1)
                assert [(one.id, one.role) for one in tree.nodes] == [("root-1", "ROOT")]
                assert tree.nodes[0].instance == start + 1
                assert tree.nodes[0].addresses["kafka"].endswith(f":{running.port}")
        async with broker(root, {"serve_port": port, "node_id": "root-1"}):
            shop = {
                "url": f"http://127.0.0.1:{port}",
                "node_id": "store-17",
                "role": "POS",
                "join_token_file": str(root / FOLDER / "join.token"),
            }
            async with broker(store, shop):
                tree = await healthy(root, port, 2)
                assert [one.parent for one in tree.nodes] == [None, "root-1"]

    asyncio.run(run())


def test_a_port_in_use_stops_the_start_with_the_name_of_the_setting(tmp_path: Path) -> None:
    async def run() -> None:
        taken = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with taken:
            port = taken.sockets[0].getsockname()[1]
            with pytest.raises(ConfigError, match="the registry in this broker") as caught:
                async with broker(tmp_path, {"serve_port": port}):
                    pass
        assert "registry.serve_port" in caught.value.hint

    asyncio.run(run())


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ({"serve_certificate": "a.pem"}, "need registry.serve_port"),
        ({"serve_port": 1, "serve_certificate": "a.pem"}, "belong together"),
        ({"serve_port": 1, "serve_client_ca": "a.pem"}, "needs both"),
        ({"serve_port": 1, "serve_host": "0.0.0.0"}, "without TLS"),
        (
            {"serve_port": 1, "serve_certificate": "a.pem", "serve_key": "k.pem"},
            "registry.url is not",
        ),
    ],
)
def test_settings_that_contradict_each_other(lines: dict[str, object], words: str) -> None:
    toml = "\n".join(f"{name} = {json.dumps(value)}" for name, value in lines.items())
    with pytest.raises(ConfigError, match=words):
        load_settings(f"[registry]\n{toml}", {}, {})
