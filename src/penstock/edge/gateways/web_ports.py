"""Ports of the gateways: the identity of their clients, and the rules for browsers.

`node` fills them. A port has the methods that the gateways call and no more. Nothing here decides.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from penstock.edge.push.ports import Client, PushDoor

CLIENT: Final = "penstock.client"
"""The identified client in the scope of a request."""
CERTIFICATE: Final = "client_certificate"
"""The verified certificate of a client in the state of a request, in DER."""
LOST: Final = "lost"
"""In the state of a request: an event that is set when its connection is gone."""
IDENTIFIED: Final = "identified"
"""In the state of a request: a function to call when its client is identified."""
STREAMS: Final = "streams"
"""In the state of a request: a function to call when its answer is a stream without an end."""


class Proof(NamedTuple):
    """How a client of HTTP proves its identity."""

    address: str
    authorization: str | None = None
    """The header of that name; None: there is none, or more than one."""
    certificate: bytes | None = None
    """The client certificate that TLS has verified, in DER."""
    lost: asyncio.Event | None = None
    """Set when the connection is gone: nothing waits for the client any more."""


class Identified(NamedTuple):
    """A client with its identity."""

    client: Client
    expires_at: float | None = None
    """When its credentials expire, on the clock of the event loop; None: never."""


class GatewayDoor(Protocol):
    """The address of the gateways, and how its clients prove their identity."""

    @property
    def challenge(self) -> str | None:
        """The header `WWW-Authenticate` of a refusal; None if a header would not help."""
        ...

    async def identify(self, proof: Proof) -> Identified | None:
        """Return the client; None if the proof is missing or wrong."""
        ...

    def session_door(self, identified: Identified | None) -> PushDoor:
        """Return the door of a push session.

        Without an identity, the first SUBSCRIBE of the session has the credentials.
        """
        ...


class BrowserRules(Protocol):
    """Which pages may use the gateways: `origins.BrowserRules`."""

    def objection(self, headers: Mapping[str, str]) -> tuple[int, str, str] | None:
        """Return status, detail and remedy of a rejected request; None when it is accepted."""
        ...

    def allowed_origin(self, headers: Mapping[str, str]) -> str | None:
        """Return the origin of another site that may read the answer; None without one."""
        ...
