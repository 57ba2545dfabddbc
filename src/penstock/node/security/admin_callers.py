"""`AdminCallers`: verifies the identity of HTTP callers of the admin port (`admin.auth`).

`basic` and `bearer` verify the same credentials as the mechanisms PLAIN and OAUTHBEARER of the
listeners, with the same delay after failures. `mtls` takes the identity from the certificate that
TLS has verified. With `none` each caller is `User:ANONYMOUS`: settings allow that on loopback
addresses only. Access rules judge each caller by its own identity.

A right password is remembered for `REMEMBERED_SECONDS` as a keyed hash, because each HTTP request
carries it and its verification takes milliseconds.
"""

import asyncio
import base64
import binascii
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from penstock.admin.ports import Caller, Credentials
from penstock.broker.peer import Peer
from penstock.core.clock import Clock
from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.core.settings.admin_settings import AdminSettings
from penstock.node.security.logins import Identities
from penstock.node.security.node_security import NodeSecurity
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from penstock.security.principal import user
from penstock.security.sasl_client import OAUTHBEARER, PLAIN
from penstock.security.secret import Secret

HEADER_BYTES_MAX: Final = 24_576
REMEMBERED_SECONDS: Final = 5.0
REMEMBERED_MAX: Final = 1_000
LISTENER: Final = "ADMIN"
"""The name of the admin port in the audit log."""
_REALM: Final = 'realm="penstock", charset="UTF-8"'


class AdminCallers:
    """`admin.ports.CallerCheck`."""

    def __init__(
        self, settings: AdminSettings, clock: Clock, security: Callable[[], NodeSecurity | None]
    ) -> None:
        """`security` returns None until the broker is started."""
        self._settings = settings
        self._clock = clock
        self._security = security
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, tuple[Caller, float]] = {}

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
        known = self._remembered.get(proof)
        now = self._clock.monotonic()
        if known is not None and now < known[1]:
            return known[0]._replace(address=given.address)
        identities = security.identities
        if auth == "basic":
            caller = await self._by_password(given.address, value.strip(), identities)
            until = now + REMEMBERED_SECONDS
        else:
            caller, until = await self._by_token(given.address, value.strip(), identities)
        if caller is not None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[proof] = (caller, min(until, now + REMEMBERED_SECONDS))
        return caller

    def may_describe(self, caller: Caller) -> bool:
        """Whether the caller may see metrics and the state of the broker."""
        security = self._security()
        authorizer = None if security is None else security.authorizer
        return authorizer is None or authorizer.allows(
            caller.principal,
            caller.address,
            Operation.DESCRIBE,
            ResourceType.CLUSTER,
            CLUSTER_NAME,
        )

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

    async def _by_password(self, address: str, value: str, identities: Identities) -> Caller | None:
        try:
            name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None
        if not (colon and name and password):
            return None
        found = await identities.verify_password(name, Secret(password))
        if found is None:
            await self._refuse(address, PLAIN, name, identities)
            return None
        return await self._accept(address, PLAIN, found, identities)

    async def _by_token(
        self, address: str, value: str, identities: Identities
    ) -> tuple[Caller | None, float]:
        found = await identities.verify_token(Secret(value))
        if found is None or found.lifetime_seconds <= 0:
            await self._refuse(address, OAUTHBEARER, "", identities)
            return None, 0.0
        until = self._clock.monotonic() + found.lifetime_seconds
        caller = await self._accept(address, OAUTHBEARER, found.principal_name, identities)
        return caller, until

    async def _accept(
        self, address: str, mechanism: str, name: str, identities: Identities
    ) -> Caller:
        # After many failures a good answer waits as long as a bad one: its speed shows nothing.
        await asyncio.sleep(identities.success_delay_ms(address, name) / 1000)
        peer = Peer(address, user(name), LISTENER, mechanism)
        identities.log.logged_in(peer, is_again=False)
        return Caller(peer.principal, address, mechanism)

    async def _refuse(
        self, address: str, mechanism: str, name: str, identities: Identities
    ) -> None:
        peer = Peer(address, listener=LISTENER)
        delay_ms = identities.failed(peer, mechanism, name, "wrong credentials over HTTP")
        await asyncio.sleep(delay_ms / 1000)
