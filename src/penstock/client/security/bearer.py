"""Tokens for OAUTHBEARER from an identity provider, by the client credentials grant (RFC 6749).

A token is requested once and used by all connections of the process until four fifths of its
lifetime are over. The request goes to the configured endpoint only: redirects are refused, because
they could send the client's secret elsewhere. The answer is bounded in size and time.

A refusal by the provider raises `AuthenticationError`. A provider that does not answer raises
`BrokerUnreachableError`, which is retried: nothing was sent to a broker.
"""

import base64
import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
import urllib.parse
from collections import OrderedDict
from typing import Any, Final

from penstock.client.security.options import TlsOptions, TokenSource
from penstock.client.security.tls import new_context
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import (
    AuthenticationError,
    BrokerUnreachableError,
    TlsHandshakeError,
)
from penstock.core.quantities import printable
from penstock.security.secret import Secret

ANSWER_BYTES_MAX: Final = 1_048_576
TOKEN_BYTES_MAX: Final = 65_536
REQUEST_SECONDS_MAX: Final = 10.0
KEPT_TOKENS_MAX: Final = 64
LIFETIME_SECONDS_MAX: Final = 86_400
USED_SHARE: Final = 0.8
"""Part of a token's lifetime in which it is used for new logins."""

_RETRIED: Final = frozenset({408, 429})
"""Request timeout and too many requests; besides every error of the server."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


class _Kept:
    """The token of one source; the lock is held while a token is requested."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token: Secret | None = None
        self.use_until_seconds = 0.0


class TokenCache:
    """The tokens of one process; threads may share it. A slow provider delays only its own."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[TokenSource, TlsOptions | None], _Kept] = OrderedDict()

    def token(self, source: TokenSource, tls: TlsOptions | None) -> Secret:
        """Return a token of this source; request one if none is fresh enough."""
        with self._lock:
            kept = self._kept.setdefault((source, tls), _Kept())
            self._kept.move_to_end((source, tls))
            if len(self._kept) > KEPT_TOKENS_MAX:
                self._kept.popitem(last=False)
        with kept.lock:
            begun = self._clock.monotonic()
            if kept.token is None or begun >= kept.use_until_seconds:
                kept.token, lifetime_seconds = request_token(source, tls)
                kept.use_until_seconds = begun + lifetime_seconds * USED_SHARE
            return kept.token

    def forget(self, source: TokenSource, tls: TlsOptions | None) -> None:
        """Request a new token at the next login: a broker refused this one. Does not wait."""
        with self._lock:
            self._kept.pop((source, tls), None)


TOKENS: Final = TokenCache()
"""The tokens of this process."""


def request_token(source: TokenSource, tls: TlsOptions | None) -> tuple[Secret, float]:
    """Request a token; return it and its lifetime in seconds, 0 when the provider names none."""
    try:
        status, body = _post(source, tls)
    except ssl.SSLCertVerificationError as error:
        raise TlsHandshakeError(
            f"the certificate of the token endpoint {source.place} is not trusted: "
            f"{error.verify_message}.",
            hint="Give the authority that signed it: ssl.ca.location or ssl.truststore.location.",
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise _no_answer(source, type(error).__name__) from error
    if status in _RETRIED or status >= http.client.INTERNAL_SERVER_ERROR:
        raise _no_answer(source, f"HTTP {status}")
    if status != http.client.OK:
        raise _refusal(source, status, body)
    answer = _document(body)
    token = answer.get("access_token")
    if (
        not isinstance(token, str)
        or len(token) > TOKEN_BYTES_MAX
        or _TOKEN.fullmatch(token) is None
    ):
        raise AuthenticationError(
            f"the token endpoint {source.place} returned no usable access_token."
        )
    return Secret(token), _lifetime_seconds(answer)


def _no_answer(source: TokenSource, reason: str) -> BrokerUnreachableError:
    return BrokerUnreachableError(
        f"the token endpoint {source.place} does not answer: {reason}.",
        hint="Check sasl.oauthbearer.token.endpoint.url and the network.",
    )


def _post(source: TokenSource, tls: TlsOptions | None) -> tuple[int, bytes]:
    parts = urllib.parse.urlsplit(source.endpoint)
    host = parts.hostname or ""
    connection: http.client.HTTPConnection
    # The port is always given: without it, `http.client` looks for one in an IPv6 address.
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            host, parts.port or 443, timeout=REQUEST_SECONDS_MAX, context=_context(tls)
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port or 80, timeout=REQUEST_SECONDS_MAX)
    form = {"grant_type": "client_credentials"}
    if source.scope:
        form["scope"] = source.scope
    # Not encoded as a form: Kafka's clients send it so, and providers expect that.
    credential = f"{source.client_id}:{source.client_secret.reveal()}".encode()
    headers = {
        "Accept": "application/json",
        "Authorization": "Basic " + base64.b64encode(credential).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
    }
    path = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
    # The time limit of a socket is for each read; this one is for all of them.
    limit = threading.Timer(REQUEST_SECONDS_MAX, _cut, [connection])
    limit.daemon = True
    limit.start()
    try:
        connection.request("POST", path, urllib.parse.urlencode(form), headers)
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX + 1)
        is_cut = limit.finished.is_set()
    finally:
        limit.cancel()
        connection.close()
    if is_cut:
        raise TimeoutError
    if len(body) > ANSWER_BYTES_MAX:
        raise http.client.HTTPException(f"its answer has more than {ANSWER_BYTES_MAX} bytes")
    return answer.status, body


def _cut(connection: http.client.HTTPConnection) -> None:
    """End the connection of a request that took too long: its reads then fail."""
    opened = connection.sock
    if opened is not None:
        with contextlib.suppress(OSError):
            opened.shutdown(socket.SHUT_RDWR)


def _context(tls: TlsOptions | None) -> ssl.SSLContext:
    """The system's authorities, and those of the brokers: a provider may have either."""
    if tls is None or tls.trust is None:
        return ssl.create_default_context()
    # Nothing else of the brokers' options: the endpoint gets the secret, so its name is checked.
    context = new_context(TlsOptions(trust=tls.trust))
    context.load_default_certs()
    return context


def _refusal(source: TokenSource, status: int, body: bytes) -> AuthenticationError:
    """The provider's error code; its texts may repeat the request."""
    code = _document(body).get("error")
    reason = f": {printable(code)[:100]}" if isinstance(code, str) else ""
    return AuthenticationError(
        f"the token endpoint {source.place} refused client {source.client_id!r} "
        f"(HTTP {status}{reason}).",
        hint="Check sasl.oauthbearer.client.credentials.client.id and its secret.",
    )


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _lifetime_seconds(answer: dict[str, Any]) -> float:
    """Return the lifetime; 0 for one that cannot be read, so that the token is used once."""
    seconds = answer.get("expires_in")
    if isinstance(seconds, str) and len(seconds) <= 10 and seconds.isdecimal():
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return 0.0
    if not 0 < seconds < float("inf"):  # NaN is neither
        return 0.0
    return float(min(seconds, LIFETIME_SECONDS_MAX))
