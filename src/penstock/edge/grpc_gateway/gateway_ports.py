"""Ports of the gRPC gateway: the broker behind it, and the identities of its clients.

`node` fills them; nothing here decides.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.edge.grpc_gateway.gateway_messages import TopicState
from penstock.edge.push.ports import Client, PushBroker


class GatewayBroker(PushBroker, Protocol):
    """The broker, with the rights of a client."""

    def topic_states(self, client: Client, names: list[str]) -> list[TopicState]:
        """Return topics; one that the client may not describe has an error."""
        ...

    def produce_wait_seconds(self, client: Client, size_bytes: int) -> float:
        """Charge the produce quota of a client; return how long its answer waits."""
        ...

    def fetch_wait_seconds(self, client: Client, size_bytes: int) -> float:
        """Charge the fetch quota of a client; return how long its answer waits."""
        ...


class ServerPem(NamedTuple):
    """The TLS files of the gateway, in PEM."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None
    """Clients need a certificate of these authorities; None: they need none."""


class Proven(NamedTuple):
    """A client that proved its identity."""

    client: Client
    address: str
    lifetime_seconds: float | None
    """Until its credentials expire; None: never."""
    principal: str | None = None
    """The proven identity, whose sessions are counted; None without one."""


class GatewayDoor(Protocol):
    """How clients of the gateway prove their identity."""

    async def prove(
        self, address: str, certificate: Callable[[], bytes | None], authorization: str | None
    ) -> Proven:
        """Return the identity of a call; raise `PushRefusedError` or `GatewayRefusalError`.

        `certificate` returns the certificate of the client in DER.
        """
        ...
