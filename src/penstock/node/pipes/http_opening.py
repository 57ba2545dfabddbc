"""Opens the parent of a pipe over HTTP: URL, TLS and login of the client settings.

A user and a password become a Basic header; a token becomes a Bearer header. Guarantees: secrets
are sent over https, or to this machine.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from penstock.client.security.bearer import TOKENS
from penstock.client.security.options import Security, TlsOptions, parse_security
from penstock.client.security.tls import build_context
from penstock.core.errors import ConfigError
from penstock.core.loopback import is_loopback
from penstock.core.settings.pipe_declarations import PipeDeclaration
from penstock.edge.pipes.http.http_link import HttpLink
from penstock.edge.pipes.http.http_parent import HttpParent
from penstock.edge.pipes.http.http_ports import BYTES_MAX

CALL_SECONDS_MAX: Final = 10.0
"""Longest time for an answer, besides the time that the parent waits for records."""
ANSWER_BYTES_MAX: Final = 8 * BYTES_MAX
"""A batch may be larger than the bytes asked for: it comes alone."""


def open_http_parent(
    declaration: PipeDeclaration,
    settings: Callable[[], Mapping[str, str]],
    now: Callable[[], float],
) -> HttpParent:
    """Return the parent; nothing is sent yet. It reads files, so it is called on a thread."""
    security = parse_security(settings())
    parts = urlsplit(declaration.parent)
    is_tls = parts.scheme == "https"
    link = HttpLink(
        declaration.parent,
        build_context(security.tls or TlsOptions()) if is_tls else None,
        _authorization(security, is_safe=is_tls or is_loopback(parts.hostname or "")),
        seconds_max=CALL_SECONDS_MAX,
        answer_bytes_max=ANSWER_BYTES_MAX,
    )
    return HttpParent(link, declaration.topics, now)


def _authorization(security: Security, *, is_safe: bool) -> str | None:
    sasl = security.sasl
    if sasl is None:
        return None
    if not is_safe:
        raise ConfigError(
            "a login over http:// would send the password in the clear",
            hint="Use an https:// URL for the parent.",
        )
    if sasl.tokens is not None:
        return f"Bearer {TOKENS.token(sasl.tokens, security.tls).reveal()}"
    assert sasl.password is not None
    pair = f"{sasl.username}:{sasl.password.reveal()}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"
