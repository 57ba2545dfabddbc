"""`WebCallers`: the identity of clients of the HTTP port; `edge.gateways.web_ports.GatewayDoor`.

The identity is that of the listener whose security push uses: its principal, a client certificate,
or the header `Authorization`, `Basic` for PLAIN and `Bearer` for OAUTHBEARER. Guarantees:

- logins are checked in turns, delayed, counted and logged as those of push;
- a proven header is remembered for `REMEMBERED_SECONDS` as a keyed hash, and forgotten at once when
  the password of the user changes;
- a request outlives its connection, so the checks in progress are bounded, for one address and in
  all;
- a session ends when its credentials expire.
"""

import asyncio
import base64
import binascii
import hmac
import secrets
from collections import Counter as Multiset
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from penstock.broker.connections.check_turns import CheckTurns
from penstock.broker.connections.entrance import Entrance
from penstock.broker.peer import Peer
from penstock.core.client_host import host_of
from penstock.core.errors import PenstockError
from penstock.core.security_limits import USER_NAME_BYTES_MAX
from penstock.edge.gateways.gateway_problems import GatewayRefusedError
from penstock.edge.gateways.web_limits import RETRY_AFTER_SECONDS
from penstock.edge.gateways.web_ports import Identified, Proof
from penstock.edge.push.ports import Admitted, PushDoor, PushRefusedError
from penstock.node.push.push_door import PLAIN, ListenerDoor
from penstock.protocol.push.payloads import Credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

DOOR: Final = "http"
HEADER_BYTES_MAX: Final = 65_536
PASSWORD_BYTES_MAX: Final = 255
REMEMBERED_SECONDS: Final = 5.0
REMEMBERED_MAX: Final = 1_000
PENDING_PER_ADDRESS_MAX: Final = 64
"""Checks of one address that are in progress or delayed: many clients share one router."""
PENDING_MAX: Final = 1_024
_REALM: Final = 'realm="penstock", charset="UTF-8"'

PasswordVersion = Callable[[str], object]
"""Returns a value that changes with the password of a user."""


class _Remembered(NamedTuple):
    """A header that was proven."""

    client: object
    until: float
    expires_at: float | None
    user: str
    """Empty for a token."""
    version: object


class WebCallers:
    """The identities of one port."""

    def __init__(
        self, entrance: Entrance, turns: CheckTurns, password_version: PasswordVersion
    ) -> None:
        self._entrance = entrance
        self._logins = ListenerDoor(entrance, turns)
        self._password_version = password_version
        self._loop = asyncio.get_running_loop()
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, _Remembered] = {}
        self._pending: Multiset[str] = Multiset()

    @property
    def challenge(self) -> str | None:
        """The header `WWW-Authenticate` of a refusal; None if a header would not help."""
        logins = self._entrance.logins
        if logins is None:
            return None
        kind = "Basic" if PLAIN in logins.settings.mechanisms else "Bearer"
        return f"{kind} {_REALM}"

    async def identify(self, proof: Proof) -> Identified | None:
        """Return the client; None if the proof is missing or wrong."""
        entrance = self._entrance
        peer = Peer(proof.address, entrance.principal, entrance.name, door=DOOR)
        if entrance.logins is None:
            try:
                return Identified(peer._replace(principal=entrance.identity_in(proof.certificate)))
            except PenstockError:
                return None
        header = proof.authorization
        if header is None or len(header) > HEADER_BYTES_MAX:
            return None
        hashed = hmac.digest(self._key, header.encode("utf-8", "surrogateescape"), "sha256")
        known = self._recall(hashed)
        if known is not None:
            client = cast("Peer", known.client)._replace(address=proof.address)
            return Identified(client, known.expires_at)
        credentials = credentials_in(header)
        if credentials is None:
            return None
        return await self._prove(peer, credentials, hashed, proof.lost)

    async def _prove(
        self, peer: Peer, credentials: Credentials, hashed: bytes, lost: asyncio.Event | None
    ) -> Identified | None:
        user = credentials.user or ""
        # Before the check: a change during it must not be missed.
        version = self._password_version(user) if user else None
        with self._place(peer.address):
            admitted = await self._check(peer, credentials, lost)
        if admitted is None:
            return None
        now = self._loop.time()
        expires_at = None
        if admitted.lifetime_seconds is not None:
            expires_at = now + admitted.lifetime_seconds
        until = now + REMEMBERED_SECONDS
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[hashed] = _Remembered(
            admitted.client,
            until if expires_at is None else min(until, expires_at),
            expires_at,
            user,
            version,
        )
        return Identified(admitted.client, expires_at)

    async def _check(
        self, peer: Peer, credentials: Credentials, lost: asyncio.Event | None
    ) -> Admitted | None:
        """Return the proven client; None if the proof is wrong, or the client is gone."""
        gone = lost or asyncio.Event()
        checking = self._loop.create_task(self._logins.check(peer, credentials))
        watching = self._loop.create_task(gone.wait())
        try:
            await asyncio.wait((checking, watching), return_when=asyncio.FIRST_COMPLETED)
            return checking.result() if checking.done() else None
        except PushRefusedError as error:
            if not error.refusal.retriable:
                return None
            raise _busy(error.refusal.error) from None
        finally:
            checking.cancel()
            watching.cancel()

    def _recall(self, hashed: bytes) -> _Remembered | None:
        known = self._remembered.get(hashed)
        if known is None:
            return None
        is_changed = bool(known.user) and self._password_version(known.user) != known.version
        if is_changed or self._loop.time() >= known.until:
            del self._remembered[hashed]
            return None
        return known

    @contextmanager
    def _place(self, address: str) -> "Iterator[None]":
        """Count a check in progress; bounded for its address, and in all."""
        host, pending = host_of(address), self._pending
        if pending[host] >= PENDING_PER_ADDRESS_MAX or pending.total() >= PENDING_MAX:
            raise _busy("too many credentials are being checked")
        pending[host] += 1
        try:
            yield
        finally:
            pending[host] -= 1
            if not pending[host]:
                del pending[host]

    def session_door(self, identified: Identified | None) -> PushDoor:
        """Return the door of a push session."""
        if identified is None:
            return self._logins
        return _KnownDoor(self._logins, identified, self._loop)


class _KnownDoor:
    """`PushDoor` of a client that has proven its identity with the request."""

    def __init__(
        self, logins: ListenerDoor, identified: Identified, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._logins = logins
        self._identified = identified
        self._loop = loop

    @property
    def needs_credentials(self) -> bool:
        """Whether the session asks `check`: it counts the sessions of an identity."""
        return self._logins.principal_of(self._identified.client) is not None

    def client_of(self, transport: asyncio.BaseTransport) -> tuple[object, str]:  # noqa: ARG002
        """Return the client and its address."""
        client = self._identified.client
        return client, cast("Peer", client).address

    def secured(self, client: object, certificate: bytes | None) -> object:  # noqa: ARG002
        """Return the same client: the request has proven its identity."""
        return client

    def principal_of(self, client: object) -> str | None:
        """Return the proven identity."""
        return self._logins.principal_of(client)

    async def check(self, client: object, credentials: Credentials | None) -> Admitted:  # noqa: ARG002
        """Return the client; credentials in SUBSCRIBE do not change its identity."""
        expires_at = self._identified.expires_at
        left = None if expires_at is None else max(0.0, expires_at - self._loop.time())
        return Admitted(self._identified.client, left)


def credentials_in(header: str) -> Credentials | None:
    """Return the credentials of a header `Authorization`; None if it has none of a known kind."""
    kind, _, value = header.partition(" ")
    value = value.strip()
    if kind.lower() == "bearer":
        return Credentials(token=value) if value else None
    if kind.lower() != "basic":
        return None
    try:
        given = base64.b64decode(value, validate=True)
        name, colon, password = given.decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    name_bytes = len(name.encode())
    if not (colon and name and password) or name_bytes > USER_NAME_BYTES_MAX:
        return None
    if len(given) - name_bytes - 1 > PASSWORD_BYTES_MAX:
        return None
    return Credentials(user=name, password=password)


def _busy(why: str) -> GatewayRefusedError:
    return GatewayRefusedError(
        503,
        "Busy",
        f"The identity of the client cannot be verified now: {why}.",
        "Nothing was done: repeat it in a moment.",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
