"""The entrances of a broker, from the listeners of its settings."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.connections.entrance import Entrance
from penstock.broker.tls.tls_limits import HandshakeLimits
from penstock.cluster.image import Endpoint
from penstock.core.errors import ConfigError
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.security_settings import TlsSettings
from penstock.core.settings.tree import Settings
from penstock.core.types import CLUSTER_LISTENER, PUSH_LISTENER
from penstock.node.security.node_security import NodeSecurity
from penstock.security.principal import ANONYMOUS, Principal, read_principal

if TYPE_CHECKING:
    from penstock.node.workers.worker_parts import WorkerParts


def entrances_of(
    settings: Settings, security: NodeSecurity, worker: "WorkerParts | None"
) -> list[Entrance]:
    """Return the entrances of all listeners, which are not bound yet.

    A worker accepts from the sockets of its supervisor too.
    """
    is_declared = bool(settings.listeners)
    found = []
    for one in settings.all_listeners:
        entrance = entrance_of(one, security, is_declared=is_declared)
        if worker is not None:
            entrance.shared_sockets = tuple(worker.shared.get(one.name, ()))
        found.append(entrance)
    return found


def entrance_of(declared: NamedListener, security: NodeSecurity, *, is_declared: bool) -> Entrance:
    """Return the entrance of a listener, of `[[listeners]]` or not; it is not bound yet."""
    if declared.name == CLUSTER_LISTENER:
        # Also for settings that nothing has checked: its clients would count as brokers.
        raise ConfigError(
            f"a listener for clients has the name {CLUSTER_LISTENER}, which is that of the "
            "listener for brokers.",
            hint="Choose another name for it in [[listeners]].",
        )
    fixed = declared.principal
    return Entrance(
        name=declared.name,
        is_declared=is_declared,
        host=declared.host,
        port=declared.port,
        connections_max=declared.connections_max,
        principal=ANONYMOUS if fixed is None else read_principal(fixed),
        context_source=security.certificates.context_source(declared.name),
        logins=security.logins_of(declared),
        principal_of=_mapping(declared),
    )


def _mapping(declared: NamedListener) -> Callable[[bytes], Principal] | None:
    """Return the mapping of certificates to principals; None if certificates are no identity."""
    tls = declared.tls
    if tls is None or tls.client_auth == "none" or declared.has_sasl:
        return None
    from penstock.security.certificates.principal_mapping import PrincipalMapper

    return PrincipalMapper(tls.principal_mapping_rules, tls.principal_source).principal


def endpoint_of(declared: NamedListener, entrance: Entrance) -> Endpoint:
    """Return the address that clients of this listener use; it must be bound."""
    return Endpoint(
        declared.name,
        declared.advertised_host or declared.host,
        declared.advertised_port or entrance.port,
        declared.protocol,
    )


def push_endpoints(settings: Settings, first: Endpoint) -> tuple[Endpoint, ...]:
    """Return the push address of this broker for clients of other brokers, if it is fixed."""
    edge = settings.edge
    if not edge.push_port:
        return ()
    host = first.host if edge.host in ("0.0.0.0", "::") else edge.host  # noqa: S104 (compared)
    return (Endpoint(PUSH_LISTENER, host, edge.push_port),)


def handshake_limits(settings: TlsSettings) -> HandshakeLimits:
    """Return the limits of unfinished handshakes."""
    return HandshakeLimits(
        handshakes_max=settings.handshakes_max,
        per_address_max=settings.handshakes_per_address_max,
        seconds_max=settings.handshake_seconds_max,
    )
