"""Which web pages may use the gateways. Pure.

A page can send requests to any host that the browser reaches, with the certificate and the stored
passwords of its reader, and it can open WebSockets, for which browsers check nothing themselves.
Guarantees:

- `Host` is an address, `localhost`, or a name that the operator allowed: another name that resolves
  to this host (DNS rebinding) reaches nothing;
- a request with `Origin` is accepted from a page of this host, or from an origin in the allow-list;
  all others are rejected with 403. This includes `null`, which sandboxed pages send;
- a page of another site that sends no `Origin` (an image, a form with GET) is rejected by
  `Sec-Fetch-Site`; a navigation to the address itself is accepted;
- answers have CORS headers for origins in the allow-list only.

Programs send neither header. It is not authentication.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

ANY: Final = "*"
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def origin_problem(text: str) -> str | None:
    """Return why a text is not an origin for the allow-list; None if it is."""
    if text == ANY:
        return None
    try:
        parts = urlsplit(text)
        is_origin = bool(parts.scheme and parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_origin = False
    if not is_origin or text != f"{parts.scheme}://{parts.netloc}" or parts.username is not None:
        return "is not an origin such as https://shop.example.com or http://localhost:8000"
    return None


class BrowserRules:
    """The rules of one address."""

    def __init__(self, allowed_origins: Iterable[str], allowed_hosts: Iterable[str]) -> None:
        self._origins = frozenset(one.lower().rstrip("/") for one in allowed_origins)
        self._hosts = frozenset(one.lower() for one in allowed_hosts)

    def objection(self, headers: Mapping[str, str]) -> tuple[int, str, str] | None:
        """Return status, detail and remedy of a rejected request; None when it is accepted."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._is_known(host):
            return (
                421,
                f"This broker does not answer for the host {host[:256]!r}.",
                "Use its address or localhost, or add the name to edge.allowed_hosts.",
            )
        if origin is None:
            site = headers.get("sec-fetch-site")
            if site is None or site in _OWN_SITES or headers.get("sec-fetch-mode") == "navigate":
                return None
            return (
                403,
                f"A page of another site ({site[:64]!r}) may not use this address.",
                "Add the origin of the page to edge.allowed_origins, and send the request with it.",
            )
        if self._is_allowed(origin) or _is_own(origin, host):
            return None
        return (
            403,
            f"Pages of the origin {origin[:256]!r} may not use this address.",
            "Add the origin to edge.allowed_origins.",
        )

    def allowed_origin(self, headers: Mapping[str, str]) -> str | None:
        """Return the origin of another site that may read the answer; None without one."""
        origin = headers.get("origin")
        return origin if origin is not None and self._is_allowed(origin) else None

    def _is_allowed(self, origin: str) -> bool:
        return ANY in self._origins or origin.lower() in self._origins

    def _is_known(self, host: str) -> bool:
        if ANY in self._hosts:
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name in self._hosts or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _is_own(origin: str, host: str) -> bool:
    """Whether an origin is this host, which is a known one."""
    scheme, separator, rest = origin.partition("://")
    return bool(separator) and scheme in ("http", "https") and rest.lower() == host.lower()
