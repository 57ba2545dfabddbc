"""Callers of the admin port: who they are, how long refusals wait, and what is remembered."""

import asyncio
import base64
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.admin.ports import Caller, Credentials
from penstock.admin.problems import RefusedError
from penstock.broker.connections.check_turns import CHECKS_PER_ADDRESS_MAX, CheckTurns
from penstock.core.clock import Clock
from penstock.core.errors import BrokerUnreachableError
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.node.security.admin_callers import (
    PENDING_MAX,
    PENDING_PER_ADDRESS_MAX,
    REMEMBERED_SECONDS,
    AdminCallers,
)
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
DELAY_MS = 70


class Checks:
    """Knows one password and one token, and counts the questions."""

    def __init__(self) -> None:
        self.asked = 0
        self.right = PASSWORD
        self.may_answer: asyncio.Event | None = None
        """Set: checks wait for it."""

    def version(self, name: str) -> object:
        return hash((name, self.right))

    async def verify(self, name: str, password: Secret) -> str | None:
        self.asked += 1
        right = self.right
        if self.may_answer is not None:
            await self.may_answer.wait()
        return name if password.reveal() == right else None

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
            self.checks,
            SimpleNamespace(verify=self.checks.token),
            AuditLog(clock, Registry()),
            clock,
        )
        security = cast("NodeSecurity", SimpleNamespace(identities=identities, authorizer=None))
        settings = settings_of(auth, failed_login_delay_ms=DELAY_MS)
        self.turns = CheckTurns()
        self.callers = AdminCallers(settings, clock, lambda: security, lambda: self.turns)

        self.may_go_on: asyncio.Event | None = None
        """Set: delays end with it."""

        async def wait(seconds: float) -> None:
            self.waits.append(seconds)
            if self.may_go_on is not None:
                await self.may_go_on.wait()

        monkeypatch.setattr(asyncio, "sleep", wait)

    def ask(self, header: str | None, address: str = ADDRESS) -> Caller | None:
        return asyncio.run(self.callers.identify(Credentials(address, header, None)))

    def basic(self, name: str, password: str) -> Caller | None:
        return self.ask(header_of(name, password))

    async def identify(self, name: str, address: str = ADDRESS) -> Caller | None:
        given = Credentials(address, header_of(name, PASSWORD), None)
        return await self.callers.identify(given)


def header_of(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def settings_of(auth: str, **security: object) -> Settings:
    return Settings.model_validate({"admin": {"auth": auth}, "security": security})


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
    assert set(basic.waits) == {DELAY_MS / 1000}
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
    callers = unstarted(settings_of("basic"))
    with pytest.raises(BrokerUnreachableError):
        asyncio.run(callers.identify(Credentials(ADDRESS, "Basic YWxpY2U6eA==", None)))


def unstarted(settings: Settings) -> AdminCallers:
    clock = cast("Clock", ManualClock())
    return AdminCallers(settings, clock, lambda: None, CheckTurns)


@pytest.mark.parametrize(("authorizer", "is_shown"), [("none", True), ("acl", False)])
def test_before_the_rules_are_loaded_no_state_is_shown(authorizer: str, is_shown: bool) -> None:
    callers = unstarted(settings_of("none", authorizer=authorizer, super_users="User:admin"))
    assert callers.may_describe(Caller()) is is_shown


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_denial_is_logged_unless_it_only_hides_something(is_allowed: bool) -> None:
    metrics, clock = Registry(), cast("Clock", ManualClock())
    security = SimpleNamespace(
        authorizer=SimpleNamespace(allows=lambda *_question: is_allowed),
        audit=AuditLog(clock, metrics),
    )
    callers = AdminCallers(
        settings_of("none"), clock, lambda: cast("NodeSecurity", security), CheckTurns
    )
    caller = Caller(user("alice"), ADDRESS, "PLAIN")
    for api in ("", "METRICS", "STATUS", "STATUS"):
        assert callers.may_describe(caller, api) is is_allowed
    name = "authorization_denied_total{api="
    denied = {key: count for key, count in metrics.snapshot().items() if key.startswith(name)}
    expected = {f'{name}"METRICS"}}': 1, f'{name}"STATUS"}}': 2}
    assert denied == ({} if is_allowed else expected)


@pytest.mark.parametrize(
    ("name", "password", "is_asked"),
    [
        ("n" * 255, "p" * 255, True),
        ("n" * 256, "p", False),
        ("n", "p" * 256, False),
        ("\u00e9" * 128, "p", False),
        ("n", "\u00e9" * 128, False),
    ],
)
def test_names_and_passwords_are_bounded(
    basic: Door, name: str, password: str, is_asked: bool
) -> None:
    assert basic.basic(name, password) is None
    assert basic.checks.asked == is_asked


def test_a_changed_or_removed_credential_ends_what_is_remembered(basic: Door) -> None:
    assert basic.basic("alice", PASSWORD) is not None
    basic.checks.right = "another password"
    assert basic.basic("alice", PASSWORD) is None
    assert basic.basic("alice", "another password") is not None
    basic.basic("alice", "another password")
    assert basic.checks.asked == 3


def test_a_change_during_a_check_is_not_missed(basic: Door) -> None:
    async def work() -> None:
        basic.checks.may_answer = asyncio.Event()
        first = begin(basic.identify("alice"))
        await turns_of_the_loop()
        basic.checks.right = "another password"
        basic.checks.may_answer.set()
        assert await first is not None
        assert await basic.identify("alice") is None

    asyncio.run(work())


def test_checks_take_turns_with_the_logins_of_listeners(basic: Door) -> None:
    async def work() -> None:
        for _ in range(CHECKS_PER_ADDRESS_MAX):
            basic.turns.join(ADDRESS, lambda: True)
        waiting = begin(basic.identify("alice"))
        gone = begin(basic.identify("bob"))
        await turns_of_the_loop()
        assert basic.checks.asked == 0
        assert await basic.identify("carol", "10.0.0.8") is not None
        gone.cancel()
        await turns_of_the_loop()
        basic.turns.leave(ADDRESS)
        assert await waiting is not None
        assert basic.checks.asked == 2
        for _ in range(CHECKS_PER_ADDRESS_MAX - 1):
            basic.turns.leave(ADDRESS)
        assert basic.turns.hosts == 0
        assert not basic.callers._pending

    asyncio.run(work())


def test_a_request_that_ends_when_its_turn_comes_leaves_the_turn(basic: Door) -> None:
    async def work() -> None:
        for _ in range(CHECKS_PER_ADDRESS_MAX):
            basic.turns.join(ADDRESS, lambda: True)
        waiting = begin(basic.identify("alice"))
        await turns_of_the_loop()
        for _ in range(CHECKS_PER_ADDRESS_MAX):
            basic.turns.leave(ADDRESS)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert basic.turns.hosts == 0

    asyncio.run(work())


def test_the_checks_of_one_address_are_bounded(basic: Door) -> None:
    """A connection can end before the check of its request: they would not bound them."""

    async def work() -> None:
        basic.checks.may_answer = asyncio.Event()
        tasks = [
            begin(basic.identify(f"user{number}")) for number in range(PENDING_PER_ADDRESS_MAX)
        ]
        await turns_of_the_loop()
        assert basic.checks.asked == CHECKS_PER_ADDRESS_MAX
        with pytest.raises(RefusedError) as refused:
            await basic.identify("alice")
        assert refused.value.problem.status == 503
        other = begin(basic.identify("alice", "10.0.0.8"))
        await turns_of_the_loop()
        basic.checks.may_answer.set()
        assert None not in await asyncio.gather(other, *tasks)
        assert not basic.callers._pending

    asyncio.run(work())


@pytest.mark.parametrize("auth", ["basic", "bearer"])
@pytest.mark.parametrize("is_right", [False, True], ids=["wrong", "right"])
def test_delayed_requests_are_bounded(
    auth: str, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that sends a token and disconnects would fill the memory."""
    door = Door(auth, monkeypatch)

    def given(number: int, host: int = 0) -> Credentials:
        name = f"user{number}"
        basic = header_of(name, PASSWORD if is_right else "wrong")
        bearer = f"Bearer {TOKEN}" if is_right else f"Bearer {name}"
        header = basic if auth == "basic" else bearer
        return Credentials(f"10.0.0.{host}", header, None)

    async def is_refused(credentials: Credentials) -> bool:
        before = door.checks.asked
        task = begin(door.callers.identify(credentials))
        await turns_of_the_loop()
        assert task.done(), "it waits, and is not refused at once"
        error = task.exception()
        assert isinstance(error, RefusedError)
        return error.problem.status == 503 and door.checks.asked == before

    async def work() -> None:
        door.may_go_on = asyncio.Event()
        hosts = range(PENDING_MAX // PENDING_PER_ADDRESS_MAX)
        tasks = []
        for host in hosts:
            for number in range(PENDING_PER_ADDRESS_MAX):
                tasks.append(begin(door.callers.identify(given(number, host))))
                await turns_of_the_loop()
            assert len(door.waits) == len(tasks)
            if host == 0:
                assert await is_refused(given(100))
        assert await is_refused(given(100, host=100))
        door.may_go_on.set()
        assert {one is not None for one in await asyncio.gather(*tasks)} == {is_right}
        assert not door.callers._pending

    asyncio.run(work())


@pytest.mark.parametrize("is_right", [False, True], ids=["wrong", "right"])
def test_a_delay_ends_with_its_connection_and_nothing_is_remembered(
    basic: Door, is_right: bool
) -> None:
    """Otherwise clients that disconnect take all places of their address."""
    for _ in range(3 * FAILURES_FREE):
        basic.basic("alice", "wrong")

    async def work() -> None:
        lost = asyncio.Event()
        header = header_of("alice", PASSWORD if is_right else "wrong")
        waiting = begin(basic.callers.identify(Credentials(ADDRESS, header, None, lost)))
        await turns_of_the_loop()
        assert basic.callers._pending == {ADDRESS: 1}
        lost.set()
        assert await waiting is None
        assert not basic.callers._pending
        assert not basic.callers._remembered

    asyncio.run(work())


def begin(work: Coroutine[object, object, Caller | None]) -> "asyncio.Task[Caller | None]":
    return asyncio.get_running_loop().create_task(work)


_turn = asyncio.sleep


async def turns_of_the_loop() -> None:
    for _ in range(5):
        await _turn(0)
