"""`LoginMemory`: credentials that were proven a moment ago and are not checked for each call.

Guarantees: it keeps no credential, only a keyed hash of it together with the address; an entry ends
after `seconds_max`, with the token, or when the password changes; calls that come together wait for
one check; a failed check is not remembered; the number of entries is bounded, and the oldest ones
make room. A check outlives its call, so the checks in progress are bounded, for an address and in
all.
"""

import asyncio
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from penstock.core.client_host import host_of
from penstock.edge.grpc_gateway.gateway_limits import (
    CHECKS_MAX,
    CHECKS_PER_ADDRESS_MAX,
    LOGIN_MEMORY_MAX,
    LOGIN_MEMORY_SECONDS,
)
from penstock.edge.grpc_gateway.gateway_statuses import RESOURCE_EXHAUSTED, GatewayRefusalError
from penstock.edge.push.ports import Admitted, Start

Check = Callable[[], Awaitable[Admitted]]
Version = Callable[[], object]
"""Returns a value that changes with the password of the user."""


def _no_version() -> object:
    return None


class _Proven(NamedTuple):
    ends_at: float
    expires_at: float | None
    """When the credentials expire."""
    client: object
    version: object


class LoginMemory:
    """Proven credentials by address."""

    def __init__(
        self,
        now: Callable[[], float],
        start: Start,
        *,
        seconds_max: float = LOGIN_MEMORY_SECONDS,
        count_max: int = LOGIN_MEMORY_MAX,
    ) -> None:
        self._now = now
        self._start = start
        self._seconds_max = seconds_max
        self._count_max = count_max
        self._salt = secrets.token_bytes(32)
        self._proven: OrderedDict[bytes, _Proven] = OrderedDict()
        self._checks: dict[bytes, asyncio.Future[Admitted]] = {}
        self._by_host: Counter[str] = Counter()
        """Checks in progress."""

    def __len__(self) -> int:
        return len(self._proven)

    def _key(self, address: str, authorization: str) -> bytes:
        text = f"{address}\n{authorization}".encode("utf-8", "surrogateescape")
        return hashlib.blake2b(text, key=self._salt, digest_size=32).digest()

    async def prove(
        self, address: str, authorization: str, check: Check, version: Version = _no_version
    ) -> Admitted:
        """Return the proven client; `check` is called if it is not known."""
        key, now, known_by = self._key(address, authorization), self._now(), version()
        found = self._proven.get(key)
        if found is not None:
            if now < found.ends_at and found.version == known_by:
                left = None if found.expires_at is None else found.expires_at - now
                return Admitted(found.client, left)
            del self._proven[key]
        result = self._checks.get(key)
        if result is None:
            host = host_of(address)
            if (
                len(self._checks) >= CHECKS_MAX
                or self._by_host.get(host, 0) >= CHECKS_PER_ADDRESS_MAX
            ):
                raise GatewayRefusalError(
                    RESOURCE_EXHAUSTED,
                    "too many credentials are being checked; nothing was done, retry in a moment",
                    retriable=True,
                )
            self._by_host[host] += 1
            result = self._checks[key] = asyncio.get_running_loop().create_future()
            # The version before the check: a change during it must not be missed.
            self._start(self._check(key, host, check, known_by, result))
        # A call that is cancelled does not end the check that others wait for.
        return await asyncio.shield(result)

    async def _check(
        self,
        key: bytes,
        host: str,
        check: Check,
        version: object,
        result: "asyncio.Future[Admitted]",
    ) -> None:
        try:
            admitted = await check()
        except Exception as error:  # noqa: BLE001 (passed on)
            result.set_exception(error)
            result.exception()  # Its caller may be gone.
        else:
            result.set_result(admitted)
            self._remember(key, admitted, version)
        finally:
            if not result.done():
                result.cancel()
            del self._checks[key]
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]

    def _remember(self, key: bytes, admitted: Admitted, version: object) -> None:
        now = self._now()
        expires_at = None
        ends_at = now + self._seconds_max
        if admitted.lifetime_seconds is not None:
            expires_at = now + admitted.lifetime_seconds
            ends_at = min(ends_at, expires_at)
        self._proven[key] = _Proven(ends_at, expires_at, admitted.client, version)
        while len(self._proven) > self._count_max:
            self._proven.popitem(last=False)
