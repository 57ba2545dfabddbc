"""Access to the sessions over HTTP: a denial leaves a line in the audit log, and is counted."""

import json
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.admin.ports import Caller
from penstock.core.clock import Clock
from penstock.core.metrics import Registry
from penstock.node.admin_parts import Served
from penstock.node.admin_sessions import NodeSessions
from penstock.node.security.audit_log import AuditLog
from penstock.security.acls.values import Operation
from penstock.security.principal import user
from tests.node.security.manual_clock import ManualClock

CALLER = Caller(user("alice"), "10.0.0.7", "PLAIN")


@pytest.mark.parametrize(
    ("operation", "api"),
    [(Operation.DESCRIBE, "LIST_SESSIONS"), (Operation.ALTER, "END_SESSIONS")],
)
@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_denial_is_logged(
    operation: Operation, api: str, is_allowed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.audit")
    metrics, clock = Registry(), cast("Clock", ManualClock())
    security = SimpleNamespace(
        authorizer=SimpleNamespace(allows=lambda *_question: is_allowed),
        audit=AuditLog(clock, metrics),
    )
    served = cast("Served", SimpleNamespace(security=security))
    assert NodeSessions(lambda: served, clock).allows(CALLER, operation) is is_allowed
    lines = [json.loads(one.getMessage()) for one in caplog.records]
    counted = metrics.snapshot().get(f'authorization_denied_total{{api="{api}"}}')
    if is_allowed:
        assert (lines, counted) == ([], None)
        return
    (line,) = lines
    line.pop("time")
    assert counted == 1
    assert line == {
        "event": "denied",
        "principal": "User:alice",
        "mechanism": "PLAIN",
        "listener": "ADMIN",
        "address": "10.0.0.7",
        "api": api,
        "resource": "CLUSTER:kafka-cluster",
        "operation": operation.name,
    }
