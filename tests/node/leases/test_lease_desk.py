"""Access to leases: READ on the topic, one's own leases, and a line in the audit log."""

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.admin.models.lease_models import NewLease
from penstock.admin.ports import Caller
from penstock.admin.problems import RefusedError
from penstock.core.clock import Clock
from penstock.core.metrics import Registry
from penstock.node.leases.lease_desk import NodeLeases, Running
from penstock.node.security.audit_log import AuditLog
from penstock.security.acls.values import Operation, ResourceType
from penstock.security.principal import user
from penstock.storage.leases.lease_rules import LeaseNote
from tests.node.security.manual_clock import ManualClock

ALICE = Caller(user("alice"), "10.0.0.7", "PLAIN")
IDS = {"alice": "a" * 32, "bob": "b" * 32}
WANTED = NewLease.model_validate(
    {
        "topic": "orders",
        "seconds": 60,
        "partitions": [{"partition": 0, "from_offset": 0, "until_offset": 9}],
    }
)


class Rules:
    """Allows these operations; it records the questions."""

    def __init__(self, *allowed: Operation) -> None:
        self._allowed = allowed
        self.asked: list[tuple[Any, ...]] = []

    def allows(self, *question: Any) -> bool:  # noqa: ANN401 - as the authorizer is asked
        self.asked.append(question)
        return question[2] in self._allowed


def desk_of(rules: Rules | None, metrics: Registry) -> tuple[NodeLeases, list[str]]:
    """A desk of a broker with a lease of each user, and the leases that it released."""
    released: list[str] = []

    async def release(lease: str) -> bool:
        released.append(lease)
        return True

    notes = [
        LeaseNote(lease, "orders", f"User:{name}", 1, 2, ((0, 9),), 1, 10)
        for name, lease in IDS.items()
    ]
    leases = SimpleNamespace(notes=lambda: notes, release=release)
    running = SimpleNamespace(
        security=SimpleNamespace(
            authorizer=rules, audit=AuditLog(cast("Clock", ManualClock()), metrics)
        ),
        storage=SimpleNamespace(leases=leases),
        metadata=SimpleNamespace(image=SimpleNamespace(topics={}, cluster_id="c")),
    )
    return NodeLeases(lambda: cast("Running", running), has_files=True), released


def test_a_lease_needs_read_on_the_topic(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.audit")
    metrics = Registry()
    rules = Rules(Operation.DESCRIBE, Operation.ALTER, Operation.WRITE)
    desk, _ = desk_of(rules, metrics)
    with pytest.raises(RefusedError) as caught:
        asyncio.run(desk.grant(ALICE, WANTED))
    assert caught.value.problem.status == 403
    assert "User:alice may not read topic orders" in str(caught.value)
    assert rules.asked == [
        (ALICE.principal, ALICE.address, Operation.READ, ResourceType.TOPIC, "orders")
    ]
    (line,) = [json.loads(one.getMessage()) for one in caplog.records]
    assert (line["event"], line["api"], line["resource"], line["operation"]) == (
        "denied",
        "GRANT_LEASE",
        "TOPIC:orders",
        "READ",
    )
    assert metrics.snapshot()['authorization_denied_total{api="GRANT_LEASE"}'] == 1


@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        (None, ["alice", "bob"]),
        (Rules(Operation.DESCRIBE), ["alice", "bob"]),
        (Rules(Operation.READ, Operation.ALTER), ["alice"]),
    ],
)
def test_callers_see_their_own_leases(rules: Rules | None, seen: list[str]) -> None:
    desk, _ = desk_of(rules, Registry())
    assert [one.principal for one in desk.leases(ALICE)] == [f"User:{name}" for name in seen]


@pytest.mark.parametrize(
    ("rules", "owner", "is_released"),
    [
        (None, "bob", True),
        (Rules(), "alice", True),
        (Rules(Operation.DESCRIBE, Operation.READ), "bob", False),
        (Rules(Operation.ALTER), "bob", True),
    ],
)
def test_callers_release_their_own_leases(
    rules: Rules | None, owner: str, *, is_released: bool
) -> None:
    desk, released = desk_of(rules, Registry())
    assert asyncio.run(desk.release(ALICE, IDS[owner])) is is_released
    assert released == ([IDS[owner]] if is_released else [])
    assert not asyncio.run(desk.release(ALICE, "c" * 32))
