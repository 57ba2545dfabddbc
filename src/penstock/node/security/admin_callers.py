"""`AdminCallers`: verifies the identity of HTTP callers of the admin port (`admin.auth`).

`basic` and `bearer` verify the same credentials as the mechanisms PLAIN and OAUTHBEARER of the
listeners, with the same delay after failures. Checks of passwords take turns with those of the
listeners (`CheckTurns`), so that one address leaves places to the others. `mtls` takes the identity
from the certificate that TLS has verified. With `none` each caller is `User:ANONYMOUS`: settings
allow that on loopback addresses only. Access rules judge each caller by its own identity.

A right password is remembered for `REMEMBERED_SECONDS` as a keyed hash, because each HTTP request
carries it and its verification takes milliseconds. It is forgotten at once when the user's
credential is changed or removed; the passwords of a directory are the exception, because the broker
does not see their changes.

A request outlives its connection, so neither connections nor their limits bound the requests that
wait here. Each has a place from its check to the end of its delay, and above the bounds it is
refused at once. The delay keeps no header, and ends with the connection, so that clients that
disconnect leave their places to others at their address; nothing is remembered then, because a
second request would show the result without a delay.
"""

import asyncio
import base64
import binascii
import hmac
import logging
import math
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final, NamedTuple

from penstock.admin.ports import Caller, Credentials
from penstock.admin.problems import RETRY_AFTER_SECONDS, refused
from penstock.broker.connections.check_turns import CheckTurns
from penstock.broker.peer import Peer
from penstock.core.client_host import host_of
from penstock.core.clock import Clock
from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.core.security_limits import USER_NAME_BYTES_MAX
from penstock.core.settings.tree import Settings
from penstock.node.security.certificates_in_use import ADMIN
from penstock.node.security.check_threads import CheckUnavailableError, TooManyChecksError
from penstock.node.security.logins import Identities
from penstock.node.security.node_security import NodeSecurity
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from penstock.security.principal import user
from penstock.security.sasl_client import OAUTHBEARER, PLAIN
from penstock.security.secret import Secret

logger = logging.getLogger(__name__)

HEADER_BYTES_MAX: Final = 24_576
PASSWORD_BYTES_MAX: Final = 255
REMEMBERED_SECONDS: Final = 5.0
REMEMBERED_MAX: Final = 1_000
PENDING_PER_ADDRESS_MAX: Final = 16
"""Requests of one address that are being checked, wait for their turn, or are delayed: as many as
an address may have connections."""
PENDING_MAX: Final = 256
_REALM: Final = 'realm="penstock", charset="UTF-8"'


class _Remembered(NamedTuple):
    """A proof of identity that was verified."""

    caller: Caller
    until: float
    user: str = ""
    """The name that was typed; empty for a token."""
    version: object = None
    """The credential that it was verified with (`Identities.password_version`)."""


class _Verdict(NamedTuple):
    """The result of a check, without the secret."""

    mechanism: str
    given: str
    """The user that was typed; empty for a token."""
    found: str | None
    """The user whose identity is proven; None: the proof is wrong."""
    until: float = math.inf
    """When the proof expires."""
    version: object = None
    """See `_Remembered`."""


class AdminCallers:
    """`admin.ports.CallerCheck`."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        security: Callable[[], NodeSecurity | None],
        turns: Callable[[], CheckTurns],
    ) -> None:
        """`security` returns None until the broker is started; `turns` is called afterwards."""
        self._settings = settings.admin
        self._has_authorizer = settings.security.authorizer != "none"
        self._delay_ms_min = settings.security.failed_login_delay_ms
        self._clock = clock
        self._security = security
        self._turns = turns
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, _Remembered] = {}
        self._pending: dict[str, int] = {}
        """Requests that are checked, wait or are delayed, by address."""

    @property
    def challenge(self) -> str | None:
        """The header `WWW-Authenticate` of a refusal; None if a header would not help."""
        return {"basic": f"Basic {_REALM}", "bearer": f"Bearer {_REALM}"}.get(self._settings.auth)

    def is_open(self, path: str) -> bool:
        """Whether callers without an identity may read this path.

        Probes of an orchestrator need none: they learn only whether the broker is ready.
        """
        return path.startswith("/health/") or (self._settings.metrics_open and path == "/metrics")

    async def identify(self, given: Credentials) -> Caller | None:
        """Return the caller; None if the proof is missing or wrong."""
        auth = self._settings.auth
        if auth == "none":
            return Caller(address=given.address)
        security = self._security()
        if security is None:
            raise BrokerUnreachableError("the broker is starting and verifies no identity yet.")
        if auth == "mtls":
            return self._by_certificate(given)
        header = given.authorization
        if header is None or len(header) > HEADER_BYTES_MAX:
            return None
        kind, _, value = header.partition(" ")
        if kind.lower() != auth:
            return None
        proof = hmac.digest(self._key, header.encode("utf-8", "surrogateescape"), "sha256")
        identities = security.identities
        known = self._recall(proof, identities)
        if known is not None:
            return known._replace(address=given.address)
        check = self._check_password if auth == "basic" else self._check_token
        address, lost = given.address, given.lost
        try:
            with self._place(address):
                verdict = await check(address, value.strip(), identities)
                del given, header, value  # 24 KB, which the delay would keep
                if verdict is None:
                    return None
                seconds = self._delay_seconds(address, verdict, identities)
                if not await _delay(seconds, lost) or verdict.found is None:
                    return None
                return self._accept(address, verdict, verdict.found, proof, identities)
        except CheckUnavailableError as error:
            # Without the reason: the caller has not proven who it is.
            is_flood = isinstance(error, TooManyChecksError)
            level = logging.DEBUG if is_flood else logging.INFO
            logger.log(level, "a caller at %s is not verified: %s", address, error)
            raise refused(
                503,
                "Busy",
                "The identity of the caller cannot be verified now.",
                "Nothing was done: repeat it in a moment.",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            ) from error

    def _recall(self, proof: bytes, identities: Identities) -> Caller | None:
        """Return the caller of a proof that was verified and holds still."""
        known = self._remembered.get(proof)
        if known is None:
            return None
        is_old = self._clock.monotonic() >= known.until
        if is_old or (known.user and identities.password_version(known.user) != known.version):
            del self._remembered[proof]
            return None
        return known.caller

    def may_describe(self, caller: Caller, api: str = "") -> bool:
        """Whether the caller may see metrics and the state of the broker.

        A denial is logged as one of `api`; without a name it only hides something.
        """
        security = self._security()
        if security is None:
            return not self._has_authorizer
        authorizer, operation = security.authorizer, Operation.DESCRIBE
        if authorizer is None or authorizer.allows(
            caller.principal, caller.address, operation, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return True
        if api:
            peer = Peer(caller.address, caller.principal, ADMIN, caller.mechanism)
            security.audit.denied_over_http(peer, api, operation)
        return False

    def _by_certificate(self, given: Credentials) -> Caller | None:
        if given.certificate is None:
            return None
        from penstock.security.certificates.principal_mapping import PrincipalMapper

        rules = self._settings.principal_mapping_rules
        try:
            principal = PrincipalMapper(rules).principal(given.certificate)
        except PenstockError:
            return None
        return Caller(principal, given.address, "mTLS")

    async def _check_password(
        self, address: str, value: str, identities: Identities
    ) -> _Verdict | None:
        """Return None if the header cannot hold a password."""
        pair = _user_and_password(value)
        if pair is None:
            return None
        name, password = pair
        # Before the check: a change during it must not be missed.
        version = identities.password_version(name)
        async with self._turn(address):
            found = await identities.verify_password(name, password)
        return _Verdict(PLAIN, name, found, version=version)

    async def _check_token(self, _address: str, value: str, identities: Identities) -> _Verdict:
        found = await identities.verify_token(Secret(value))
        if found is None or found.lifetime_seconds <= 0:
            return _Verdict(OAUTHBEARER, "", None)
        until = self._clock.monotonic() + found.lifetime_seconds
        return _Verdict(OAUTHBEARER, "", found.principal_name, until)

    @contextmanager
    def _place(self, address: str) -> Iterator[None]:
        """Count a request as pending; bounded for its address, and in all."""
        host, pending = host_of(address), self._pending
        count, in_all = pending.get(host, 0), sum(pending.values())
        if count >= PENDING_PER_ADDRESS_MAX or in_all >= PENDING_MAX:
            raise TooManyChecksError(
                f"{count} requests of this address wait for the check of their identity (at most "
                f"{PENDING_PER_ADDRESS_MAX}), {in_all} in all (at most {PENDING_MAX})"
            )
        pending[host] = count + 1
        try:
            yield
        finally:
            pending[host] -= 1
            if not pending[host]:
                del pending[host]

    @asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[None]:
        """Wait for the turn of this address, among the logins of all doors."""
        turns = self._turns()
        await _begin_in(turns, address)
        try:
            yield
        finally:
            turns.leave(address)

    def _delay_seconds(self, address: str, verdict: _Verdict, identities: Identities) -> float:
        """Return how long the answer waits; a failure is counted and logged."""
        if verdict.found is not None:
            # After many failures a good answer waits as long as a bad one: its speed shows nothing.
            return identities.success_delay_ms(address, verdict.found) / 1000
        peer, why = Peer(address, listener=ADMIN), "wrong credentials over HTTP"
        delay_ms = identities.failed(peer, verdict.mechanism, verdict.given, why)
        return max(delay_ms, self._delay_ms_min) / 1000

    def _accept(
        self, address: str, verdict: _Verdict, name: str, proof: bytes, identities: Identities
    ) -> Caller:
        """Remember and return the caller."""
        peer = Peer(address, user(name), ADMIN, verdict.mechanism)
        identities.log.logged_in(peer, is_again=False)
        caller = Caller(peer.principal, address, verdict.mechanism)
        until = min(verdict.until, self._clock.monotonic() + REMEMBERED_SECONDS)
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[proof] = _Remembered(caller, until, verdict.given, verdict.version)
        return caller


async def _delay(seconds: float, lost: asyncio.Event | None) -> bool:
    """Wait; return early, and False, if the connection is gone before the end."""
    if lost is None or seconds <= 0:
        await asyncio.sleep(seconds)
        return True
    try:
        async with asyncio.timeout(seconds):
            await lost.wait()
    except TimeoutError:
        return True
    return False


async def _begin_in(turns: CheckTurns, address: str) -> None:
    """Wait until a check of this address may begin; `turns.leave` must follow."""
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin() -> bool:
        if begun.done():
            return False
        begun.set_result(None)
        return True

    turns.join(address, begin)
    try:
        await begun
    except asyncio.CancelledError:
        if begun.done() and not begun.cancelled():
            turns.leave(address)  # it had begun already
        raise


def _user_and_password(value: str) -> tuple[str, Secret] | None:
    """Return the content of a header `Basic`; None if it cannot be a user and a password."""
    try:
        given = base64.b64decode(value, validate=True)
        name, colon, password = given.decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    if not (colon and name and password):
        return None
    name_bytes = len(name.encode())
    if name_bytes > USER_NAME_BYTES_MAX or len(given) - name_bytes - 1 > PASSWORD_BYTES_MAX:
        return None
    return name, Secret(password)
