"""`ProviderKeys`: the public keys of an identity provider, from an https address or a file.

Guarantees: the address is the one in the settings, never one in a token (CVE-2025-27817), and
redirects are not followed. The certificate and the host name are verified. An answer has at most
1 MiB and arrives within `FETCH_SECONDS_MAX`, on a thread. Keys are fetched again every
`REFRESH_SECONDS`, and for a token with an unknown key, together at most once in
`UNKNOWN_KEY_SECONDS` for all clients. If a fetch fails, the last keys are used for up to
`KEPT_SECONDS_MAX`, and the error is logged.

`OidcOptions` are the settings of a provider. `TokenVerifier` checks tokens with these keys.
"""

import asyncio
import contextlib
import http.client
import logging
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.node.security.check_threads import CheckUnavailableError
from penstock.security.sasl.jwt_keys import (
    KEY_SET_BYTES_MAX,
    NO_KEYS,
    JwtKeys,
    key_id_of,
    parse_keys,
)
from penstock.security.sasl.mechanism_logins import VerifiedToken
from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.sasl.token_claims import SKEW_SECONDS_DEFAULT, ClaimRules, check_claims
from penstock.security.secret import Secret

logger = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 600.0
UNKNOWN_KEY_SECONDS: Final = 30.0
KEPT_SECONDS_MAX: Final = 86_400.0
FETCH_SECONDS_MAX: Final = 5.0
"""Half of the time of a login, which waits for it after an unknown key."""


@dataclass(frozen=True, slots=True)
class OidcOptions:
    """The settings of an identity provider."""

    issuer: str
    audience: str
    jwks: str
    """An https address, or the path of a file."""
    ca_file: str | None = None
    """Certificate authorities for the https address; None: the system's."""
    principal_claim: str = "sub"
    skew_seconds: int = SKEW_SECONDS_DEFAULT


class ProviderKeys:
    """The keys of one provider; all methods belong to one event loop."""

    def __init__(
        self, options: OidcOptions, clock: Clock, fetch: Callable[[], JwtKeys] | None = None
    ) -> None:
        """`fetch` blocks; it raises `ConfigError` or `OSError`."""
        self._fetch = fetch or KeySource(options).fetch
        self._place = options.jwks.partition("?")[0]
        """Without the query, which may have a secret."""
        self._clock = clock
        self._keys = NO_KEYS
        self._keys_at = 0.0
        """The time of the last good fetch."""
        self._begun_at: float | None = None
        """The beginning of the last fetch."""
        self._fetching: asyncio.Future[None] | None = None
        self.failures = 0
        """Fetches in a row that failed."""

    @property
    def current(self) -> JwtKeys:
        """The keys; empty if the last good fetch is too long ago."""
        is_kept = self._clock.monotonic() - self._keys_at <= KEPT_SECONDS_MAX
        return self._keys if is_kept else NO_KEYS

    async def with_key(self, key_id: str) -> JwtKeys:
        """Return the keys; fetch them again if this one is unknown and that is allowed now."""
        if key_id not in self.current:
            if self._fetching is not None or self._may_fetch():
                await self.refresh()
            if not len(self.current):
                raise CheckUnavailableError(
                    "the keys of the identity provider are not available",
                    hint="Check oidc.jwks, and the log for the reason.",
                )
        return self.current

    async def keep_fresh(self) -> None:
        """Fetch the keys now and then again and again, until it is cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(UNKNOWN_KEY_SECONDS if self.failures else REFRESH_SECONDS)

    async def refresh(self) -> None:
        """Fetch the keys, or wait for the fetch in progress. A failure is logged."""
        if self._fetching is None:
            loop = asyncio.get_running_loop()
            self._fetching = loop.create_future()
            self._begun_at = self._clock.monotonic()
            threading.Thread(
                target=self._run, args=(loop,), name="provider-keys", daemon=True
            ).start()
        # Shielded: one client that goes away must not end the fetch for the others.
        await asyncio.shield(self._fetching)

    def _may_fetch(self) -> bool:
        begun_at = self._begun_at
        return begun_at is None or self._clock.monotonic() - begun_at >= UNKNOWN_KEY_SECONDS

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        """Fetch; on a thread."""
        keys, problem = None, ""
        try:
            keys = self._fetch()
        except ConfigError as error:
            problem = f"{error} {error.hint}"
        except (OSError, http.client.HTTPException) as error:
            problem = f"{type(error).__name__}: {error}"
        except Exception:
            logger.exception("the keys of the identity provider could not be fetched")
            problem = "a defect, see above"
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._fetched, keys, problem)

    def _fetched(self, keys: JwtKeys | None, problem: str) -> None:
        waiting, self._fetching = self._fetching, None
        if keys is not None:
            self._keys, self._keys_at = keys, self._clock.monotonic()
            self.failures = 0
        else:
            self.failures += 1
            logger.warning(
                "the keys of the identity provider cannot be fetched from %s (%s); the %d keys of "
                "the last answer are used for up to 24 hours. Check oidc.jwks and the network.",
                self._place,
                problem[:300],
                len(self.current),
            )
        assert waiting is not None
        if not waiting.done():
            waiting.set_result(None)


class TokenVerifier:
    """Checks tokens: signature, then claims."""

    def __init__(self, options: OidcOptions, keys: ProviderKeys, clock: Clock) -> None:
        self._rules = ClaimRules(
            options.issuer, options.audience, options.principal_claim, options.skew_seconds
        )
        self._keys = keys
        self._clock = clock

    async def verify(self, token: Secret) -> VerifiedToken | None:
        """Return the identity in a token; None for an invalid one, whose reason is logged."""
        try:
            keys = await self._keys.with_key(key_id_of(token))
            claims = keys.verify(token)
            now_seconds = self._clock.now_ms() / 1000
            identity = check_claims(claims, self._rules, now_seconds)
        except RefusedLoginError as refusal:
            logger.info("%s", refusal)
            return None
        return VerifiedToken(identity.principal_name, identity.expires_at_seconds - now_seconds)


class KeySource:
    """The address or the file of the keys; its calls block."""

    def __init__(self, options: OidcOptions) -> None:
        """Raise `ConfigError` for an address that is not safe."""
        self._place = options.jwks
        self._context: ssl.SSLContext | None = None
        if "://" not in options.jwks:
            return
        parts = _parts(options.jwks)
        if parts.scheme != "https" or not parts.hostname or parts.username is not None:
            shown = options.jwks if parts.username is None else "an address with a user name"
            raise ConfigError(
                f"oidc.jwks: {shown!r} is neither an https address nor the path of a file.",
                hint="Set it to the jwks_uri of the provider, which begins with https:// and has "
                "no user name.",
            )
        try:
            self._context = ssl.create_default_context(cafile=options.ca_file)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"oidc.ca_file: {options.ca_file} cannot be used: {type(error).__name__}.",
                hint="Name a PEM file with the certificates of the authorities.",
            ) from error
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2

    def fetch(self) -> JwtKeys:
        """Return the keys; raise `ConfigError`, `OSError` or `HTTPException`."""
        if self._context is None:
            with Path(self._place).open("rb") as file:
                return parse_keys(file.read(KEY_SET_BYTES_MAX + 1))
        return parse_keys(self._get(self._context))

    def _get(self, context: ssl.SSLContext) -> bytes:
        parts = _parts(self._place)
        path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port or 443, timeout=FETCH_SECONDS_MAX, context=context
        )
        # The time limit of a socket is for each read; this one is for all of them.
        limit = threading.Timer(FETCH_SECONDS_MAX, _cut, [connection])
        limit.daemon = True
        limit.start()
        try:
            connection.request("GET", path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            body = answer.read(KEY_SET_BYTES_MAX + 1)
            is_cut = limit.finished.is_set()
        finally:
            limit.cancel()
            connection.close()
        if is_cut:
            raise TimeoutError(f"no answer within {FETCH_SECONDS_MAX:.0f} s")
        if answer.status != http.client.OK:
            # A redirect too: the keys come from the configured address only.
            raise http.client.HTTPException(f"HTTP {answer.status}")
        return body


def _parts(address: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(address)
        _ = parts.port  # raises for one that is not a number
    except ValueError:
        return urllib.parse.urlsplit("")
    return parts


def _cut(connection: http.client.HTTPConnection) -> None:
    """End the connection of a request that took too long: its reads then fail."""
    opened = connection.sock
    if opened is not None:
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)
