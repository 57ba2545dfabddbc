"""`penstock registry` and `penstock edge tree` against a registry in this process."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.edge.tree_text import tree_lines
from penstock.cli.registry.registry_access import TREE_BYTES_MAX, Access
from penstock.edge.registry.documents import NodeDocument
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_errors import RegistryUnreachableError
from penstock.edge.registry.registry_http import ANSWER_BYTES_MAX, RegistryHttp
from penstock.node.registry.registry_process import RegistryOptions, RegistryServer
from tests.cli.conftest import Outcome, Penstock


class Registry:
    """A registry on a thread of its own, and commands that ask it."""

    def __init__(self, server: RegistryServer, penstock: Penstock) -> None:
        self.server = server
        self._penstock = penstock

    def run(self, *words: str) -> Outcome:
        where = ["--registry", self.server.url, "--token-file", self.server.operator_token_file]
        return self._penstock(*words, *where)

    def register(self, node_id: str, token: str, address: str = "h:9092") -> int:
        body = {"addresses": {"kafka": address}, "boot": "b007" * 4, "labels": {"region": "n"}}
        call = RegistryHttp(self.server.url).call(
            "PUT",
            f"/registry/v1/nodes/{node_id}",
            {"Authorization": f"Bearer {token}"},
            json.dumps(body).encode(),
        )
        return asyncio.run(call).status


@pytest.fixture
def registry(tmp_path: Path, penstock: Penstock) -> Iterator[Registry]:
    server = RegistryServer(RegistryOptions(data_dir=str(tmp_path / "registry"), port=0))
    is_ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with server:
            is_ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert is_ready.wait(20)
    yield Registry(server, penstock)
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def test_create_assign_and_draw(registry: Registry) -> None:
    assert registry.run("registry", "nodes").output.startswith("No nodes.")
    root = registry.run("registry", "token", "root-1").output.strip()
    assert registry.run("registry", "assign", "root-1", "--role", "ROOT").output == (
        "root-1: role ROOT, no parent\n"
    )
    store = registry.run("registry", "token", "store-17", "--json")
    assert registry.register("root-1", root) == 200
    assert registry.register("store-17", json.loads(store.output)["token"]) == 200
    topics = registry.run(
        "registry", "topics", "LOCAL", "--down", "prices", "--down", "promo.*", "--no-up"
    )
    assert topics.output == "LOCAL down: prices, promo.*\nLOCAL up: none\n"
    drawn = registry.run("edge", "tree").output
    assert drawn == "root-1  ROOT  HEALTHY  1 child\n└── store-17  LOCAL  HEALTHY\n"
    assert registry.run("edge", "tree", "--depth", "1").output == "root-1  ROOT  HEALTHY  1 child\n"
    document = json.loads(registry.run("edge", "tree", "--json").output)
    assert [one["parent"] for one in document["nodes"]] == [None, "root-1"]
    lines = registry.run("registry", "nodes").output.splitlines()
    assert lines[2].split()[:5] == ["store-17", "LOCAL", "root-1", "0", "HEALTHY"]
    assert registry.run("registry", "remove", "store-17").output == "store-17: removed\n"
    assert len(json.loads(registry.run("registry", "nodes", "--json").output)["nodes"]) == 1


def test_assign_parent_and_instance(registry: Registry) -> None:
    for name, role in (("root-1", "ROOT"), ("root-2", "ROOT"), ("store", "POS")):
        token = registry.run("registry", "token", name).output.strip()
        registry.run("registry", "assign", name, "--role", role)
        assert registry.register(name, token) == 200
    assert registry.run("registry", "assign", "store", "--parent", "root-2").output == (
        "store: role POS, parent root-2\n"
    )
    found = registry.run("registry", "assign", "store", "--parent", "auto", "--json")
    assert json.loads(found.output)["pinned_parent"] is None
    assert registry.run("registry", "assign", "store", "--new-instance").code == 0


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["registry", "assign", "x", "--role", "POS"], 1, "there is no node x"),
        (["registry", "assign", "x"], 2, "Nothing to assign"),
        (["registry", "assign", "a/b", "--role", "POS"], 1, "error:"),
        (["registry", "remove", "x"], 1, "hint: List nodes"),
        (["registry", "topics", "POS"], 2, "Nothing to set"),
        (["registry", "topics", "POS", "--up", "a", "--no-up"], 2, "both set and emptied"),
        (["registry", "topics", "POS", "--up", "a b"], 1, "other characters"),
        (["registry", "topics", "KING", "--up", "a"], 2, "KING"),
        (["registry", "token", "-x"], 2, "-x"),
    ],
)
def test_errors_say_what_to_do(registry: Registry, words: list[str], code: int, text: str) -> None:
    found = registry.run(*words)
    assert found.code == code, found
    assert text in found.errors


def test_a_registry_that_is_unreachable(tmp_path: Path, penstock: Penstock) -> None:
    token = tmp_path / "token"
    token.write_text("t" * 40)
    found = penstock("edge", "tree", "--registry", "http://127.0.0.1:1", "--token-file", str(token))
    assert found.code == 3
    assert "the registry http://127.0.0.1:1 cannot be used" in found.errors
    assert "hint: Start one with `penstock registry`" in found.errors


def test_the_token_is_sent_over_tls_or_to_this_machine_only(penstock: Penstock) -> None:
    found = penstock("registry", "nodes", "--registry", "http://192.0.2.1:8070")
    assert found.code == 2
    assert "without TLS" in found.errors


def test_a_url_that_is_none(penstock: Penstock) -> None:
    found = penstock("registry", "nodes", "--registry", "localhost:8070")
    assert found.code == 2
    assert "is not a URL such as" in found.errors


def test_a_missing_token_file(penstock: Penstock, tmp_path: Path) -> None:
    found = penstock("registry", "nodes", "--token-file", str(tmp_path / "none"))
    assert found.code == 2
    assert "cannot be read" in found.errors


def test_another_server_is_not_a_registry(
    monkeypatch: pytest.MonkeyPatch, penstock: Penstock
) -> None:
    monkeypatch.setattr(Access, "ask", lambda *_: b"<html>")
    found = penstock("registry", "nodes")
    assert "not as a registry does" in found.errors


@pytest.mark.parametrize("port", ["x", "65536", "-1"])
def test_a_wrong_port_names_the_range(penstock: Penstock, port: str) -> None:
    found = penstock("registry", "--port", port)
    assert found.code == 2
    assert f"'{port}' is not a whole number from 0 to 65535" in found.errors


def test_only_a_tree_may_be_large(
    monkeypatch: pytest.MonkeyPatch, penstock: Penstock, tmp_path: Path
) -> None:
    """Another server at this address may answer with any number of bytes."""
    token = tmp_path / "token"
    token.write_text("t" * 40)
    bounds: list[int] = []

    class Endless(RegistryHttp):
        def __init__(self, url: str, context: object, **options: int) -> None:
            bounds.append(options["answer_bytes_max"])
            raise RegistryUnreachableError(url)

    monkeypatch.setattr("penstock.cli.registry.registry_access.RegistryHttp", Endless)
    where = ["--token-file", str(token)]
    assert penstock("edge", "tree", *where).code == 3
    assert penstock("registry", "token", "store-17", *where).code == 3
    assert bounds == [TREE_BYTES_MAX, ANSWER_BYTES_MAX]


def test_without_a_command_it_serves(
    monkeypatch: pytest.MonkeyPatch, penstock: Penstock, tmp_path: Path
) -> None:
    served: list[object] = []

    async def serve(options: object, _data_dir: str) -> None:
        served.append(options)

    monkeypatch.setattr("penstock.cli.registry.command._serve", serve)
    assert penstock("registry").code == 0
    assert penstock("registry", "--port", "0", "--data-dir", str(tmp_path)).code == 0
    assert penstock("registry", "serve", "--host", "0.0.0.0", "--allow-insecure").code == 0
    assert served == [
        RegistryOptions(),
        RegistryOptions(port=0, data_dir=str(tmp_path)),
        RegistryOptions(host="0.0.0.0", is_insecure_allowed=True, allowed_hosts="*"),
    ]
    assert "Run a registry of sites" in penstock("registry", "--help").output


def node(node_id: str, role: Role, parent: str | None = None, **more: object) -> NodeDocument:
    document: dict[str, object] = {
        "id": node_id,
        "role": role,
        "chosen_role": None,
        "parent": parent,
        "pinned_parent": None,
        "children": 0,
        "addresses": {},
        "labels": {},
        "version": "",
        "instance": 1,
        "revision": 1,
        "state": "HEALTHY",
        "reason": "",
        "seen_seconds_ago": 1.0,
    }
    return NodeDocument.model_validate(document | more)


def test_the_drawing_has_each_node_once() -> None:
    nodes = [
        node("root", Role.ROOT),
        node("l2", Role.L2, "root", children=2),
        node("pos-1", Role.POS, "l2", lag_records=12_345, lag_seconds=61.4),
        node("pos-2", Role.POS, "l2", state="UNHEALTHY", reason="\x1b[31mgone"),
        node("l2-b", Role.L2, "root"),
        node("lost", Role.POS, "removed"),
    ]
    lines = list(tree_lines(nodes))
    assert lines == [
        "root  ROOT  HEALTHY",
        "├── l2  L2  HEALTHY  2 children",
        "│   ├── pos-1  POS  HEALTHY  lag 12,345 (61 s)",
        "│   └── pos-2  POS  UNHEALTHY   [31mgone",
        "└── l2-b  L2  HEALTHY",
        "without a parent:",
        "  lost  POS  HEALTHY",
    ]
    assert next(iter(tree_lines(nodes[-1:]))) == "no ROOT; without a parent:"
    assert all(line.isascii() for line in tree_lines(nodes, is_ascii=True))
