"""The registry over HTTP: keys, ETags, hostile requests, bounds."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from json import dumps
from typing import Any

import httpx
import pytest

from penstock.edge.registry import registry_app
from penstock.edge.registry.documents import TopologyDocument, entity_tag
from penstock.edge.registry.identities import token_identity
from penstock.edge.registry.registry_app import BODY_BYTES_MAX, Keys, RegistryApp, RegistryDesk
from tests.edge.registry.stage import Scene, token_of

OPERATOR = "operator-token".ljust(40, "o")
JOIN = "join-token".ljust(40, "j")
NODE = "/registry/v1/nodes/store"
TOPOLOGY = "/registry/v1/topology/store"
BODY = {"addresses": {"kafka": "store:9092"}, "boot": "b007" * 4}
Headers = dict[str, str]


class Door:
    """Requests to an application over a scene."""

    def __init__(self) -> None:
        self.scene = Scene()
        self.certificate: str | None = None
        self.desk = RegistryDesk(self.scene.service)
        self.app = RegistryApp(
            self.desk,
            Keys(token_identity(OPERATOR), token_identity(JOIN)),
            self._objection,
            lambda _: self.certificate,
        )

    def _objection(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> tuple[int, str] | None:
        return (403, f"{method} {path} from another site") if "origin" in headers else None

    def ask(
        self,
        method: str,
        path: str,
        headers: Headers | Sequence[tuple[bytes, bytes]] | None = None,
        json: object = None,
        content: bytes | str | None = None,
    ) -> httpx.Response:
        given: Any = headers

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost"
            ) as client:
                return await client.request(method, path, headers=given, json=json, content=content)

        return asyncio.run(send())


@pytest.fixture
def door() -> Door:
    return Door()


def bearer(token: str, **more: str) -> Headers:
    return {"Authorization": f"Bearer {token}", **more}


NODE_KEY = bearer(token_of("store"))
JOINING = bearer(token_of("store"), **{"Penstock-Join-Token": JOIN})
OPERATING = bearer(OPERATOR)


def problem(found: httpx.Response, status: int, words: str = "") -> None:
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/problem+json"
    document = found.json()
    assert document["status"] == status
    assert words in document["detail"]
    assert document["remedy"]


def test_register_poll_and_not_modified(door: Door) -> None:
    found = door.ask("PUT", NODE, JOINING, json=BODY)
    assert found.status_code == 200, found.text
    etag = found.headers["etag"]
    assert etag == entity_tag(TopologyDocument.model_validate(found.json()))
    again = door.ask("GET", f"{TOPOLOGY}?instance=1", NODE_KEY | {"If-None-Match": f'"x", {etag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    full = door.ask("GET", f"{TOPOLOGY}?instance=1", NODE_KEY | {"If-None-Match": '"1"'})
    assert (full.status_code, full.json()) == (200, found.json())


def test_operators(door: Door) -> None:
    token = door.ask("POST", f"{NODE}/token", OPERATING)
    assert token.status_code == 201
    own = bearer(token.json()["token"])
    assert door.ask("PUT", NODE, own, json=BODY).status_code == 200
    assert door.ask("PATCH", NODE, OPERATING, json={"role": "ROOT"}).json()["role"] == "ROOT"
    level = door.ask("PATCH", "/registry/v1/levels/ROOT", OPERATING, json={"up": ["a.*"]})
    assert level.json() == {"role": "ROOT", "down": [], "up": ["a.*"]}
    assert door.ask("GET", NODE, OPERATING).json()["id"] == "store"
    tree = door.ask("GET", "/registry/v1/tree", OPERATING).json()
    assert [one["id"] for one in tree["nodes"]] == ["store"]
    assert tree["levels"] == [{"role": "ROOT", "down": [], "up": ["a.*"]}]
    assert door.ask("DELETE", NODE, OPERATING).status_code == 204
    problem(door.ask("GET", NODE, OPERATING), 404, "no node store")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", NODE),
        ("PATCH", NODE),
        ("DELETE", NODE),
        ("POST", f"{NODE}/token"),
        ("GET", "/registry/v1/tree"),
        ("PATCH", "/registry/v1/levels/POS"),
    ],
)
def test_nodes_are_not_operators(door: Door, method: str, path: str) -> None:
    door.ask("PUT", NODE, JOINING, json=BODY)
    problem(door.ask(method, path, NODE_KEY, json={}), 403, "operator's token")
    problem(door.ask(method, path, bearer(JOIN), json={}), 403, "operator's token")
    found = door.ask(method, path, json={})
    problem(found, 401)
    assert found.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer short", "Basic abc", "Bearer " + "x" * 600, "é" * 50]
)
def test_keys_that_are_none(door: Door, authorization: str) -> None:
    headers = [(b"authorization", authorization.encode())]
    problem(door.ask("PUT", NODE, headers, json=BODY), 401)


def test_two_keys_are_none(door: Door) -> None:
    value = f"Bearer {OPERATOR}".encode()
    headers = [(b"authorization", value), (b"authorization", value)]
    problem(door.ask("GET", "/registry/v1/tree", headers), 401)


def test_a_certificate_is_a_key(door: Door) -> None:
    door.certificate = "certificate:CN=store"
    assert door.ask("PUT", NODE, {"Penstock-Join-Token": JOIN}, json=BODY).status_code == 200
    door.certificate = "certificate:CN=thief"
    problem(door.ask("GET", f"{TOPOLOGY}?instance=1"), 403, "another key")
    door.certificate = None
    problem(door.ask("GET", f"{TOPOLOGY}?instance=1"), 401)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"addresses": {}}, "no address for kafka"),
        ({"addresses": {"kafka": "a b:1"}}, "addresses"),
        ({"addresses": {"kafka": "host:0"}}, "not host:port"),
        ({"addresses": {"kafka": "host:1\r\nx: y"}}, "addresses"),
        ({"addresses": {f"a{n}": "h:1" for n in range(9)} | {"kafka": "h:1"}}, "addresses"),
        ({"labels": {f"l{n}": "" for n in range(33)}}, "labels"),
        ({"labels": {"a b": ""}}, "labels"),
        ({"labels": {"a": "x" * 256}}, "labels"),
        ({"labels": {"a": 1}}, "labels"),
        ({"wanted_role": "KING"}, "wanted_role"),
        ({"wanted_role": 1}, "wanted_role"),
        ({"instance": -1}, "instance"),
        ({"instance": "1"}, "instance"),
        ({"instance": 1e30}, "instance"),
        ({"instance": True}, "instance"),
        ({"boot": "x"}, "boot"),
        ({"boot": None}, "boot"),
        ({"version": "x" * 101}, "version"),
        ({"disk": {"free_bytes": 1}}, "disk"),
        ({"health": {"state": "FINE"}}, "health"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_hostile_registrations(door: Door, change: dict[str, Any], words: str) -> None:
    problem(door.ask("PUT", NODE, JOINING, json=BODY | change), 400, words)
    assert door.scene.store.nodes == {}


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"null", b"[]", b"\xff", b"[" * 100_000, b'{"lag": NaN}', b'{"a":' * 50_000],
)
def test_bodies_that_are_not_json(door: Door, body: bytes) -> None:
    headers = JOINING | {"content-type": "application/json"}
    problem(door.ask("PUT", NODE, headers, content=body), 400)


def test_numbers_that_json_does_not_have(door: Door) -> None:
    text = dumps(BODY | {"health": {"state": "HEALTHY", "lag_seconds": float("inf")}})
    headers = JOINING | {"content-type": "application/json"}
    problem(door.ask("PUT", NODE, headers, content=text), 400, "lag_seconds")


@pytest.mark.parametrize(
    "node", ["a%2Fb", "%00", "..%2F..", "a b", "é", "x" * 129, ".hidden", "-x", "a%0A"]
)
def test_hostile_ids(door: Door, node: str) -> None:
    found = door.ask("PUT", f"/registry/v1/nodes/{node}", JOINING, json=BODY)
    assert found.status_code in (400, 404)
    assert found.headers["content-type"] == "application/problem+json"
    assert door.scene.store.nodes == {}


@pytest.mark.parametrize("instance", ["x", "-1", "1e3", "", "9" * 5_000])
def test_hostile_instances(door: Door, instance: str) -> None:
    problem(door.ask("GET", f"{TOPOLOGY}?instance={instance}", NODE_KEY), 400, "instance")


@pytest.mark.parametrize(
    "body", [{"down": ["a b"]}, {"down": ["x"] * 257}, {"down": "x"}, {"x": 1}]
)
def test_hostile_levels(door: Door, body: dict[str, Any]) -> None:
    problem(door.ask("PATCH", "/registry/v1/levels/POS", OPERATING, json=body), 400)
    problem(door.ask("PATCH", "/registry/v1/levels/KING", OPERATING, json={}), 400, "KING")


def test_a_body_that_is_too_large(door: Door) -> None:
    headers = JOINING | {"content-type": "application/json"}
    content = b" " * (BODY_BYTES_MAX + 1)
    problem(door.ask("PUT", NODE, headers, content=content), 413, str(BODY_BYTES_MAX))


def test_a_body_of_another_type(door: Door) -> None:
    headers = JOINING | {"content-type": "text/plain"}
    problem(door.ask("PUT", NODE, headers, content=b"{}"), 415)


def test_unknown_paths_and_methods(door: Door) -> None:
    problem(door.ask("GET", "/registry/v1/other", OPERATING), 404)
    found = door.ask("PUT", TOPOLOGY, OPERATING)
    problem(found, 405)
    assert "GET" in found.headers["allow"]


def test_pages_of_other_sites_are_refused(door: Door) -> None:
    found = door.ask("PATCH", NODE, OPERATING | {"origin": "http://evil.example"}, json={})
    problem(found, 403, "from another site")


def test_health_says_nothing_else(door: Door) -> None:
    found = door.ask("GET", "/health")
    assert (found.status_code, found.json()) == (200, {"status": "ok"})
    assert found.headers["cache-control"] == "no-store"


def test_a_conflict_has_a_time_to_wait(door: Door) -> None:
    door.ask("PUT", NODE, JOINING, json=BODY)
    door.ask("GET", f"{TOPOLOGY}?instance=1", NODE_KEY)
    copy = BODY | {"boot": "c0" * 8, "instance": 1}
    found = door.ask("PUT", NODE, NODE_KEY, json=copy)
    problem(found, 409, "another process")
    assert found.headers["retry-after"] == "90"


def test_a_failing_disk_is_not_a_success(door: Door) -> None:
    door.scene.store.is_failing = True
    found = door.ask("PUT", NODE, JOINING, json=BODY)
    problem(found, 503, "cannot store a change")
    assert "disk is full" not in found.text, "details are in the log of the registry"


def test_a_defect_is_a_problem_too(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(door.scene.service, "tree", fail)
    problem(door.ask("GET", "/registry/v1/tree", OPERATING), 500)


def test_waiting_requests_are_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_app, "WAITING_MAX", 0)
    found = door.ask("GET", "/registry/v1/tree", OPERATING)
    problem(found, 503, "are waiting")
    assert found.headers["retry-after"] == "5"


def test_a_request_has_a_time_limit(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_app, "REQUEST_SECONDS_MAX", 0.05)

    async def never(_operation: Callable[[], object]) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(door.desk, "run", never)
    problem(door.ask("GET", "/registry/v1/tree", OPERATING), 503, "took longer")
