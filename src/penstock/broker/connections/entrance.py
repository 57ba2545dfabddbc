"""`Entrance`: one named listener of a broker: its address and what its clients must show.

All entrances of a broker share its budgets and limits (`ListenerState`); an entrance may have a
bound on connections of its own, so that a flood at one leaves room at the others. It decides
nothing.
"""

from asyncio import BaseTransport
from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext
from typing import TYPE_CHECKING, Final

from penstock.broker.peer import Peer
from penstock.core.types import PLAINTEXT
from penstock.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from socket import socket

    from penstock.broker.connections.login_ports import LoginChecks
    from penstock.broker.tls.tls_listener import TlsListener

LOOPBACK: Final = "127.0.0.1"


@dataclass(slots=True)
class Entrance:
    """One listener."""

    name: str = PLAINTEXT
    is_declared: bool = False
    """Whether `[[listeners]]` has its address, and not `[listener]`."""
    host: str = LOOPBACK
    port: int = 0
    """The port to bind; 0 takes a free one, and this is then that port."""
    connections_max: int | None = None
    principal: Principal = ANONYMOUS
    """The identity of its clients before they prove another one."""
    context_source: Callable[[], SSLContext] | None = None
    """For a listener with TLS: returns the context for a new connection; a reload replaces it."""
    logins: "LoginChecks | None" = None
    """For a listener with SASL."""
    principal_of: Callable[[bytes], Principal] | None = None
    """For a listener with client certificates: the identity in a certificate (DER); it raises
    `PenstockError` for a certificate that no rule maps."""
    shared_sockets: "tuple[socket, ...]" = ()
    """Listening sockets of another address, which other processes accept from too."""
    connection_count: int = 0
    """Its open connections."""
    tls: "TlsListener | None" = None
    """The state of its TLS connections; `Listener` creates it from `context_source`."""

    @property
    def is_full(self) -> bool:
        """Whether it has more connections than its own bound allows."""
        return self.connections_max is not None and self.connection_count > self.connections_max

    def peer_of(self, transport: BaseTransport) -> Peer:
        """Return the client of a new connection, before it proves an identity."""
        name = transport.get_extra_info("peername")
        return Peer(name[0] if isinstance(name, tuple) else "", self.principal, self.name)

    def identity_in(self, certificate: bytes | None) -> Principal:
        """Return the identity of a client with this certificate, or without one."""
        if certificate is None or self.principal_of is None:
            return self.principal
        return self.principal_of(certificate)
