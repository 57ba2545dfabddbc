"""The audit log: one line for the denials of a request, the door of a client, and changes."""

import asyncio
import json
import logging
from typing import cast

import pytest

from penstock.broker.peer import Peer
from penstock.core.clock import Clock
from penstock.core.metrics import Registry
from penstock.node.security import audit_log
from penstock.node.security.audit_log import GATHERED_MAX, AuditLog
from penstock.protocol.api_keys import ApiKey
from penstock.security.acls.values import Operation, ResourceType
from penstock.security.audit import LINES_MAX, NAMED_MAX, TEXT_MAX
from penstock.security.principal import Principal, user
from tests.node.security.manual_clock import ManualClock

ALICE = Peer("10.0.0.7", user("alice"), "CLIENTS", "PLAIN")
TOPIC = ResourceType.TOPIC


class Scene:
    """An audit log, and the lines that it has written."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog
        caplog.set_level(logging.INFO, "penstock.audit")
        self.clock = ManualClock()
        self.metrics = Registry()
        self.log = AuditLog(cast("Clock", self.clock), self.metrics)

    def lines(self) -> list[dict[str, object]]:
        found = [json.loads(one.getMessage()) for one in self._caplog.records]
        self._caplog.clear()
        return found

    def deny(
        self, name: str, peer: Peer = ALICE, operation: Operation = Operation.DESCRIBE
    ) -> None:
        self.log.denied(peer, ApiKey.METADATA, operation, TOPIC, name)


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(caplog)


def test_a_thousand_denials_of_one_request_are_one_bounded_line(scene: Scene) -> None:
    async def work() -> None:
        for number in range(1_000):
            scene.deny(f"topic-{number}-" + "x" * 200)
        assert scene.lines() == []
        scene.log.write_gathered()

    asyncio.run(work())
    (line,) = scene.lines()
    assert (line["event"], line["api"], line["count"]) == ("denied", "METADATA", 1_000)
    resources = cast("list[str]", line["resources"])
    assert len(resources) == NAMED_MAX
    assert resources[0].startswith("TOPIC:topic-0-")
    assert "resource" not in line
    assert len(json.dumps(line)) < 3_000
    assert scene.metrics.snapshot()['authorization_denied_total{api="METADATA"}'] == 1_000


def test_a_single_denial_names_its_resource(scene: Scene) -> None:
    async def work() -> None:
        scene.deny("secrets")
        scene.log.write_gathered()

    asyncio.run(work())
    (line,) = scene.lines()
    assert line == {
        "time": "2023-11-14T22:13:20.000+00:00",
        "event": "denied",
        "principal": "User:alice",
        "mechanism": "PLAIN",
        "listener": "CLIENTS",
        "address": "10.0.0.7",
        "api": "METADATA",
        "resource": "TOPIC:secrets",
        "operation": "DESCRIBE",
    }


def test_denials_of_the_admin_port_are_written_and_counted(scene: Scene) -> None:
    peer = ALICE._replace(listener="ADMIN")
    for _ in range(3):
        scene.log.denied_over_http(peer, "METRICS", Operation.DESCRIBE)
    scene.log.denied_over_http(peer, "END_SESSIONS", Operation.ALTER)
    assert [
        (one["event"], one["listener"], one["api"], one["operation"], one["resource"])
        for one in scene.lines()
    ] == [
        ("denied", "ADMIN", "METRICS", "DESCRIBE", "CLUSTER:kafka-cluster"),
        ("denied", "ADMIN", "END_SESSIONS", "ALTER", "CLUSTER:kafka-cluster"),
    ]
    counts = scene.metrics.snapshot()
    assert counts['authorization_denied_total{api="METRICS"}'] == 3
    assert counts['authorization_denied_total{api="END_SESSIONS"}'] == 1


def test_denials_are_written_soon_by_themselves(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "GATHER_SECONDS", 0.0)

    async def work() -> None:
        scene.deny("secrets")
        async with asyncio.timeout(10):
            while not (lines := scene.lines()):  # noqa: ASYNC110 (has a deadline)
                await asyncio.sleep(0)
        assert lines[0]["resource"] == "TOPIC:secrets"

    asyncio.run(work())


def test_clients_and_operations_have_lines_of_their_own(scene: Scene) -> None:
    async def work() -> None:
        bob = ALICE._replace(principal=user("bob"))
        for _ in range(3):
            scene.deny("t")
            scene.deny("t", bob)
            scene.deny("t", ALICE, Operation.READ)
        scene.log.write_gathered()

    asyncio.run(work())
    found = [(one["principal"], one["operation"], one["count"]) for one in scene.lines()]
    assert found == [
        ("User:alice", "DESCRIBE", 3),
        ("User:bob", "DESCRIBE", 3),
        ("User:alice", "READ", 3),
    ]


def test_denials_that_wait_for_their_line_are_bounded(scene: Scene) -> None:
    async def work() -> None:
        for number in range(GATHERED_MAX + 1):
            scene.deny("t", Peer(f"10.0.{number >> 8}.{number & 255}"))
        assert len(scene.log._gathered) == 1
        scene.log.write_gathered()

    asyncio.run(work())
    assert len(scene.lines()) == GATHERED_MAX + 1


def test_a_flood_of_requests_gets_a_bounded_number_of_lines(scene: Scene) -> None:
    async def work() -> None:
        for number in range(4 * LINES_MAX):
            scene.deny(f"t{number}")
            scene.log.write_gathered()
        duty = asyncio.get_running_loop().create_task(scene.log.run())
        await asyncio.sleep(0)
        duty.cancel()
        await asyncio.wait([duty])

    asyncio.run(work())
    lines = scene.lines()
    assert [one["event"] for one in lines] == ["denied"] * LINES_MAX + ["suppressed"]
    assert lines[-1]["count"] == 3 * LINES_MAX


def test_a_long_identity_is_kept_cut(scene: Scene) -> None:
    async def work() -> None:
        scene.deny("t", Peer("10.0.0.7", Principal("User", "CN=" + "x" * 30_000)))
        scene.log.write_gathered()

    asyncio.run(work())
    (event,) = [one.first for one in scene.log._denials._known.values()]
    assert len(event.principal) == TEXT_MAX


def test_a_caller_of_the_admin_port_has_its_door(scene: Scene) -> None:
    async def work() -> None:
        caller = ALICE._replace(door="ADMIN")
        scene.deny("t", caller)
        scene.log.write_gathered()
        scene.log.allowed(caller, ApiKey.CREATE_TOPICS, Operation.CREATE, TOPIC, "t")
        scene.log.changed(caller, ApiKey.CREATE_ACLS, [{"user": "bob"}], 2)

    asyncio.run(work())
    lines = scene.lines()
    assert [one["listener"] for one in lines] == ["ADMIN"] * 3
    assert lines[2]["changes"] == [{"user": "bob"}]
    assert (lines[2]["others"], lines[2]["api"]) == (2, "CREATE_ACLS")
