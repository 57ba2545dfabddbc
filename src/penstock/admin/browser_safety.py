"""Protects the port from web pages in browsers: no change, and little to read (pure).

A web page can send requests to ports of its reader's machine. Three attacks are prevented, without
any settings:

- another name that resolves to this host (DNS rebinding): `Host` must be an address, `localhost`,
  or a name that the operator has allowed.
- a form or script of another site: a request from another origin that changes something is
  rejected, by `Sec-Fetch-Site` or by `Origin`.
- reading answers: there are no CORS headers, so a browser hides answers from other sites.

**One attack stays possible.** The `Host` of requests to `/health/` and `/metrics` is not checked,
because orchestrators and Prometheus send arbitrary names. A page whose own name resolves to this
host can therefore read them: names of topics and groups, paths of data directories, versions, and
the reasons why a broker is not ready. It cannot change anything with them.

Programs send none of these headers and are not affected. It is not authentication: `admin.auth`
is.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from penstock.admin.problems import RefusedError, refused

ANY_HOST: Final = "*"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_OPEN_PATHS: Final = ("/health/", "/metrics")


def allowed_names(setting: str | None, host: str) -> frozenset[str]:
    """Return the names in `admin.allowed_hosts`, and the name of the listener."""
    names = [] if setting is None else setting.split(",")
    return frozenset(name.strip().lower() for name in [*names, host] if name.strip())


def objection(
    method: str, path: str, headers: Mapping[str, str], names: frozenset[str]
) -> RefusedError | None:
    """Return the error of a rejected request; None when it is accepted."""
    host = headers.get("host", "")
    if not path.startswith(_OPEN_PATHS) and not _is_known(host, names):
        return refused(
            421,
            "Unknown host",
            f"This broker does not answer for the host {host!r}.",
            "Use its address or localhost, or add the name to admin.allowed_hosts.",
        )
    if method not in _SAFE_METHODS and _is_foreign(host, headers):
        return refused(
            403,
            "Another site",
            "A page of another site may not change anything here.",
            "Send the request from a program, or from a page of this host.",
        )
    return None


def _is_known(host: str, names: frozenset[str]) -> bool:
    if ANY_HOST in names:
        return True
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in names or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_foreign(host: str, headers: Mapping[str, str]) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in _OWN_SITES
    origin = headers.get("origin")
    return origin is not None and origin.partition("://")[2] != host
