"""The client of a node over a fake registry: a week without it, nonsense, kills, a full disk."""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock.edge.registry import topology_client
from penstock.edge.registry.documents import Health, LevelPatch, Registration, entity_tag
from penstock.edge.registry.identities import bearer_token, token_identity
from penstock.edge.registry.node_entry import Topology
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_errors import RegistryRefusedError, RegistryUnreachableError
from penstock.edge.registry.registry_http import HttpAnswer
from penstock.edge.registry.registry_service import Caller
from penstock.edge.registry.topology_client import NodeFacts, NodeReport, TopologyClient
from penstock.edge.registry.topology_follower import OLDER_ANSWERS_MAX
from tests.edge.registry.stage import Scene, token_of

WEEK_SECONDS = 7 * 86_400
INTERVAL_SECONDS = 30.0


class InsideHttp:
    """The registry without HTTP: answers as the application does, or as a test wants."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.calls: list[tuple[str, str]] = []
        self.answers: Callable[[], HttpAnswer] | None = None
        self.is_away = False

    async def call(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpAnswer:
        self.calls.append((method, path))
        if self.is_away:
            raise RegistryUnreachableError("the registry cannot be used: no route")
        if self.answers is not None:
            return self.answers()
        try:
            return self._answer(method, path, headers or {}, body)
        except RegistryRefusedError as error:
            extra = error.retry_after_seconds
            named = {} if extra is None else {"retry-after": str(extra)}
            document = {"detail": error.detail, "remedy": error.remedy}
            return HttpAnswer(error.status, named, json.dumps(document).encode())

    def _answer(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> HttpAnswer:
        token = bearer_token(headers["Authorization"])
        assert token is not None
        caller = Caller(token_identity(token), "192.0.2.7", "Penstock-Join-Token" in headers)
        node_id, _, query = path.rpartition("/")[2].partition("?instance=")
        service = self.scene.service
        if method == "PUT":
            assert body is not None
            given = Registration.model_validate_json(body, strict=True)
            return HttpAnswer(
                200, {}, service.register(node_id, given, caller).model_dump_json().encode()
            )
        found = service.poll(node_id, int(query), caller)
        if headers["If-None-Match"] == entity_tag(found):
            return HttpAnswer(304, {}, b"")
        return HttpAnswer(200, {}, found.model_dump_json().encode())


class Site:
    """A node with its disk; `start` is a process."""

    def __init__(self, scene: Scene, path: Path, http: InsideHttp | None = None) -> None:
        self.scene = scene
        self.path = path
        self.http = http or InsideHttp(scene)
        self.seen: list[Topology] = []
        self.boots = 0

    def start(self) -> TopologyClient:
        self.boots += 1
        facts = NodeFacts(
            id="store",
            boot=f"{id(self):x}{self.boots:x}".rjust(16, "0"),
            token=token_of("store"),
            join_token="j" * 40,
            wanted_role=Role.POS,
        )
        client = TopologyClient(
            facts,
            self.http,
            str(self.path),
            self.scene.clock,
            interval_seconds=INTERVAL_SECONDS,
            report=lambda: NodeReport({"kafka": "store:9092"}),
            fraction=random.Random(1).random,
        )
        client.followers.append(self.seen.append)
        return client

    def turns(
        self, client: TopologyClient, count: int = 1, seconds: float = INTERVAL_SECONDS
    ) -> None:
        async def run() -> None:
            for _ in range(count):
                self.scene.clock.advance(seconds)
                await client.turn()

        asyncio.run(run())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    scene = Scene()
    scene.create("root", "ROOT")
    return Site(scene, tmp_path / "topology.json")


def parents(site: Site) -> list[str | None]:
    return [None if one.parent is None else one.parent.id for one in site.seen]


def test_it_registers_then_polls(site: Site) -> None:
    client = site.start()
    site.turns(client, 5)
    assert [method for method, _ in site.http.calls] == ["PUT", "GET", "GET", "GET", "PUT"]
    assert parents(site) == ["root"], "followers hear of changes only"
    assert client.problem is None
    assert json.loads(site.path.read_text())["parent"]["id"] == "root"


def test_a_change_is_followed_with_the_next_poll(site: Site) -> None:
    client = site.start()
    site.turns(client, 2)
    site.scene.service.set_level(Role.POS, LevelPatch(down=("prices",)))
    site.turns(client)
    assert site.seen[-1].down == ("prices",)
    assert json.loads(site.path.read_text())["down"] == ["prices"]


def test_a_changed_state_is_reported_at_once(site: Site) -> None:
    client = site.start()
    site.turns(client, 2)
    client.health_source = lambda: Health(state="DEGRADED", reason="catching up", lag_records=5)
    site.turns(client)
    found = site.scene.service.node("store")
    assert (found.state, found.lag_records) == ("DEGRADED", 5)


def test_a_registry_that_is_unreachable_for_a_week_changes_nothing(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    client = site.start()
    site.turns(client, 2)
    before = client.topology
    site.http.is_away = True
    site.turns(client, 1_000, WEEK_SECONDS / 1_000)
    assert client.topology == before
    assert len(site.seen) == 1
    assert "no route" in (client.problem or "")
    assert caplog.text.count("no route") == 1, "a week is one message"
    restarted = site.start()
    site.turns(restarted, 3)
    assert restarted.topology == before, "also over a restart"
    site.http.is_away = False
    site.turns(restarted, 5)
    assert restarted.problem is None
    assert restarted.topology is not None
    assert restarted.topology.instance == 2


@pytest.mark.parametrize(
    "nonsense",
    [
        HttpAnswer(200, {}, b"<html>Welcome</html>"),
        HttpAnswer(200, {}, b'{"id": "store"}'),
        HttpAnswer(302, {"location": "http://elsewhere"}, b""),
        HttpAnswer(500, {}, b"\xff"),
        HttpAnswer(404, {}, b"[]"),
        HttpAnswer(503, {"retry-after": "soon"}, b'{"detail": "\x1b[31m"}'),
    ],
    ids=lambda one: str(one.status),
)
def test_nonsense_changes_nothing(
    site: Site, nonsense: HttpAnswer, caplog: pytest.LogCaptureFixture
) -> None:
    client = site.start()
    site.turns(client, 2)
    before, file = client.topology, site.path.read_bytes()
    site.http.answers = lambda: nonsense
    site.turns(client, 3)
    assert (client.topology, site.path.read_bytes()) == (before, file)
    assert client.problem is not None
    assert "\x1b" not in caplog.text
    site.http.answers = None
    site.turns(client, 2)
    assert client.problem is None


def test_a_copy_of_the_registry_that_answers_now_and_then_is_never_followed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology_client, "REPORT_POLLS", 1_000)
    client = site.start()
    site.turns(client)
    last = client._follower.last
    assert last is not None
    older = last.model_copy(update={"revision": last.revision - 1, "down": ("other",)})
    copied = HttpAnswer(200, {}, older.model_dump_json().encode())
    for _ in range(2 * OLDER_ANSWERS_MAX):
        site.http.answers = lambda: copied
        site.turns(client)
        site.http.answers = None
        site.turns(client)
    assert [one.down for one in site.seen] == [last.down]


def test_a_pause_that_the_registry_asks_for(site: Site) -> None:
    client = site.start()
    site.http.answers = lambda: HttpAnswer(503, {"retry-after": "90"}, b"{}")
    assert asyncio.run(client.turn()) == 90
    site.http.answers = lambda: HttpAnswer(503, {"retry-after": "-9"}, b"{}")
    assert asyncio.run(client.turn()) is None


def test_a_cloned_disk_is_refused(site: Site, tmp_path: Path) -> None:
    first = site.start()
    site.turns(first, 2)
    copied = tmp_path / "copy.json"
    copied.write_bytes(site.path.read_bytes())
    second = Site(site.scene, copied, site.http)
    clone = second.start()
    second.turns(clone)
    assert "409: another process of node store" in (clone.problem or "")
    assert clone.topology == first.topology, "it uses the last topology of its disk"
    site.turns(first)
    assert first.problem is None


def test_kills_between_answer_and_file_lose_no_node(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_path: str, _document: object) -> None:
        raise KeyboardInterrupt  # nothing after this line runs in the process

    for _ in range(3):
        client = site.start()
        with monkeypatch.context() as patch:
            patch.setattr("penstock.edge.registry.topology_client.write_topology", killed)
            with pytest.raises(KeyboardInterrupt):
                site.turns(client)
        site.scene.clock.advance(90)
    client = site.start()
    site.turns(client, 2)
    assert client.problem is None
    assert client.topology is not None
    assert client.topology.instance == 4


def test_an_instance_that_is_not_on_disk_is_not_used(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: str, _document: object) -> None:
        raise OSError(28, "No space left on device")

    client = site.start()
    with monkeypatch.context() as patch:
        patch.setattr("penstock.edge.registry.topology_client.write_topology", full)
        site.turns(client, 3)
        assert {method for method, _ in site.http.calls} == {"PUT"}, "a poll would use the number"
        assert "No space left" in (client.problem or "")
        assert parents(site) == ["root"], "the topology is followed anyway"
    site.turns(client, 2)
    assert client.problem is None
    assert site.http.calls[-1][0] == "GET"


def test_a_damaged_file_is_reported_and_replaced(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.path.write_text("{")
    client = site.start()
    assert "it is not a topology" in caplog.text
    site.turns(client)
    assert json.loads(site.path.read_text())["id"] == "store"


def test_the_last_topology_is_followed_before_the_first_call(site: Site) -> None:
    site.turns(site.start())
    site.seen.clear()
    client = site.start()
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        raise asyncio.CancelledError

    client._sleep = sleep
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(client.run())
    assert parents(site) == ["root"]
    assert 0 <= pauses[0] <= INTERVAL_SECONDS
