"""Callers of the admin port: who they are, how long refusals wait, and what is remembered."""

import asyncio
import base64
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.admin.ports import Caller, Credentials
from penstock.core.clock import Clock
from penstock.core.errors import BrokerUnreachableError
from penstock.core.metrics import Registry
from penstock.core.settings.admin_settings import AdminSettings
from penstock.node.security.admin_callers import REMEMBERED_SECONDS, AdminCallers
from penstock.node.security.audit_log import AuditLog
from penstock.node.security.logins import Identities
from penstock.node.security.node_security import NodeSecurity
from penstock.security.principal import user
from penstock.security.sasl.mechanism_logins import VerifiedToken
from penstock.security.sasl.throttle import DELAY_SECONDS_MAX, FAILURES_FREE
from penstock.security.secret import Secret
from tests.node.security.manual_clock import ManualClock

ADDRESS = "10.0.0.7"
PASSWORD = "the right one"
TOKEN = "a.good.token"
TOKEN_SECONDS = 10.0


class Checks:
    """Knows one password and one token, and counts the questions."""

    def __init__(self) -> None:
        self.asked = 0

    async def password(self, name: str, password: Secret) -> str | None:
        self.asked += 1
        return name if password.reveal() == PASSWORD else None

    async def token(self, token: Secret) -> VerifiedToken | None:
        self.asked += 1
        return VerifiedToken("service", TOKEN_SECONDS) if token.reveal() == TOKEN else None


class Door:
    """An admin port whose waits are counted and not waited."""

    def __init__(self, auth: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.checks = Checks()
        self.waits: list[float] = []
        clock = cast("Clock", self.clock)
        identities = Identities(
            lambda _mechanism, _user: None,
            SimpleNamespace(verify=self.checks.password),
            SimpleNamespace(verify=self.checks.token),
            AuditLog(clock, Registry()),
            clock,
        )
        security = cast("NodeSecurity", SimpleNamespace(identities=identities, authorizer=None))
        settings = AdminSettings.model_validate({"auth": auth})
        self.callers = AdminCallers(settings, clock, lambda: security)

        async def wait(seconds: float) -> None:
            self.waits.append(seconds)

        monkeypatch.setattr(asyncio, "sleep", wait)

    def ask(self, header: str | None, address: str = ADDRESS) -> Caller | None:
        return asyncio.run(self.callers.identify(Credentials(address, header, None)))

    def basic(self, name: str, password: str) -> Caller | None:
        pair = base64.b64encode(f"{name}:{password}".encode()).decode()
        return self.ask(f"Basic {pair}")


@pytest.fixture
def basic(monkeypatch: pytest.MonkeyPatch) -> Door:
    return Door("basic", monkeypatch)


@pytest.fixture
def bearer(monkeypatch: pytest.MonkeyPatch) -> Door:
    return Door("bearer", monkeypatch)


def test_a_password_is_an_identity(basic: Door) -> None:
    assert basic.basic("alice", PASSWORD) == Caller(user("alice"), ADDRESS, "PLAIN")
    assert basic.basic("alice", "wrong") is None
    assert basic.basic("alice", f"{PASSWORD}:") is None


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Basic",
        "Basic ",
        "Basic ????",
        "Basic YWxpY2U=",
        "Basic OnNlY3JldA==",
        "Basic YWxpY2U6",
        "Basic /////w==",
        f"Bearer {TOKEN}",
        "Basic " + "A" * 30_000,
    ],
)
def test_a_header_that_is_not_a_password_asks_nothing(basic: Door, header: str | None) -> None:
    assert basic.ask(header) is None
    assert basic.checks.asked == 0


def test_guesses_are_slow_and_the_right_one_is_not_faster(basic: Door) -> None:
    """Otherwise a client that ends slow requests would know which guess was right."""
    for _ in range(FAILURES_FREE):
        basic.basic("alice", "wrong")
    assert set(basic.waits) == {0.0}
    for _ in range(2 * FAILURES_FREE):
        basic.basic("alice", "wrong")
    assert basic.waits[-1] == DELAY_SECONDS_MAX
    assert basic.basic("alice", PASSWORD) is not None
    assert basic.waits[-1] == DELAY_SECONDS_MAX
    # Another user at this address, and this user at another address, do not wait.
    assert basic.basic("bob", PASSWORD) is not None
    assert basic.waits[-1] == 0


def test_a_right_password_is_remembered_for_a_while(basic: Door) -> None:
    for _ in range(3):
        basic.basic("alice", PASSWORD)
    assert basic.checks.asked == 1
    basic.clock.advance(REMEMBERED_SECONDS)
    basic.basic("alice", PASSWORD)
    assert basic.checks.asked == 2


def test_a_wrong_password_is_not_remembered(basic: Door) -> None:
    for _ in range(3):
        assert basic.basic("alice", "wrong") is None
    assert basic.checks.asked == 3


def test_a_token_is_an_identity_until_it_expires(bearer: Door) -> None:
    for _ in range(2):
        caller = bearer.ask(f"Bearer {TOKEN}")
        assert caller == Caller(user("service"), ADDRESS, "OAUTHBEARER")
    assert bearer.checks.asked == 1
    bearer.clock.advance(TOKEN_SECONDS)
    bearer.ask(f"Bearer {TOKEN}")
    assert bearer.checks.asked == 2
    assert bearer.ask("Bearer another") is None


def test_the_memory_holds_no_secret(basic: Door) -> None:
    basic.basic("alice", PASSWORD)
    pair = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
    held = repr(vars(basic.callers))
    assert "alice" in held
    assert PASSWORD not in held
    assert pair not in held


def test_before_the_broker_is_started_no_identity_is_verified() -> None:
    callers = AdminCallers(AdminSettings(auth="basic"), cast("Clock", ManualClock()), lambda: None)
    with pytest.raises(BrokerUnreachableError):
        asyncio.run(callers.identify(Credentials(ADDRESS, "Basic YWxpY2U6eA==", None)))
