"""The listener for the other brokers of the cluster: its own limits, its own table of APIs.

It serves the APIs that brokers send to each other and no others. Its callers are brokers, so access
rules and quotas do not apply; the same requests of clients are judged by the access rules of their
listeners. Guarantees:

- Clients cannot take its places: connections, requests in flight, fetch sessions and unsent answers
  have their own limits.
- With `cluster.tls_ca`, each caller has proven a certificate of these authorities. An authority
  that also signs certificates of clients would make brokers of them.
- No answer to a client shows its address.

Without TLS, each process that reaches the port can act as a broker: it can read and append records
and end transactions. A log line says so, unless only this machine or a private network reaches it.
"""

import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from ssl import SSLContext
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.server import Listener, WrapConnection
from penstock.broker.context import BrokerServices
from penstock.broker.dispatch import Dispatcher, Handler
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.handlers import HANDLERS
from penstock.broker.pacing.budget import MemoryBudget
from penstock.broker.quotas.quotas import Quotas
from penstock.client.security.options import (
    NO_SECURITY,
    CertificateStore,
    Identity,
    Security,
    TlsOptions,
)
from penstock.cluster.image import Endpoint
from penstock.core.errors import ConfigError
from penstock.core.limits import UNSENT_ANSWER_BYTES_MAX
from penstock.core.loopback import is_loopback
from penstock.core.metrics import Family, Registry, Row
from penstock.core.settings.cluster_settings import ClusterSettings
from penstock.core.settings.tree import ListenerSettings
from penstock.core.types import CLUSTER_LISTENER, PLAINTEXT
from penstock.node.peers.peer_limits import (
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    REQUESTS_MAX,
    SESSION_PARTITIONS_MAX,
    SESSIONS_MAX,
)
from penstock.node.security.credential_checks import password_in
from penstock.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from penstock.broker.connections.login_ports import LoginChecks

logger = logging.getLogger(__name__)

SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SESSION_ID_BITS: Final = 31

PEER_HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {
        key: HANDLERS[key]
        for key in (
            ApiKey.API_VERSIONS,
            ApiKey.PRODUCE,
            ApiKey.FETCH,
            ApiKey.LIST_OFFSETS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.WRITE_TXN_MARKERS,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        )
    }
)
"""The APIs that brokers send to each other."""
LOGIN_HANDLERS: Final[Mapping[int, Handler]] = MappingProxyType(
    {key: HANDLERS[key] for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)}
)
"""The APIs of logins, for workers of one supervisor."""


def bind_peers(
    services: BrokerServices,
    settings: ClusterSettings,
    metrics: Registry,
    stack: AsyncExitStack,
    *,
    context_source: Callable[[], SSLContext] | None = None,
    logins: "LoginChecks | None" = None,
    wrap_connection: WrapConnection | None = None,
) -> tuple[Listener, Endpoint]:
    """Return the bound listener for brokers, which accepts none yet, and its advertised address.

    `services` are those of the clients' listeners. `context_source` returns the TLS context for a
    new connection (`CertificatesInUse.context_source(CLUSTER_LISTENER)`); None without TLS.
    With `logins`, each connection begins with one. Leaving `stack` closes the sockets of a listener
    that was not started.
    """
    if context_source is None and logins is None:
        _warn_without_tls(settings.listen_host)
    own_metrics = Registry()
    handlers = PEER_HANDLERS if logins is None else {**PEER_HANDLERS, **LOGIN_HANDLERS}
    entrance = Entrance(
        name=CLUSTER_LISTENER,
        is_declared=True,
        host=settings.listen_host,
        port=settings.listen_port or 0,
        context_source=context_source,
        logins=logins,
    )
    listener = Listener(
        _listener_settings(settings),
        [entrance],
        Dispatcher(peer_services(services, handlers), handlers, own_metrics),
        own_metrics,
        wrap_connection,
    )
    try:
        listener.bind()
    except ConfigError as error:
        raise ConfigError(
            str(error),
            hint="Choose another address with cluster.listen_host and cluster.listen_port.",
        ) from error
    stack.callback(listener.close_sockets)
    _show(metrics, own_metrics, entrance)
    return listener, Endpoint(
        CLUSTER_LISTENER,
        settings.advertised_host or settings.listen_host,
        settings.advertised_port or entrance.port,
        _protocol(has_tls=context_source is not None, has_login=logins is not None),
    )


def _protocol(*, has_tls: bool, has_login: bool) -> str:
    if has_login:
        return SASL_PLAINTEXT
    return SSL if has_tls else PLAINTEXT


def peer_services(
    services: BrokerServices, handlers: Mapping[int, Handler] = PEER_HANDLERS
) -> BrokerServices:
    """Return the services for requests of brokers: without access rules and quotas."""
    return replace(
        services,
        access=None,
        records_all_changes=False,
        quotas=Quotas(),
        api_ranges={int(key): handler.versions for key, handler in handlers.items()},
        unsent_answers=MemoryBudget(UNSENT_ANSWER_BYTES_MAX),
        fetch_sessions=FetchSessionCache(
            lambda: secrets.randbits(SESSION_ID_BITS),
            sessions_max=SESSIONS_MAX,
            partitions_max=SESSION_PARTITIONS_MAX,
        ),
    )


def peer_security(settings: ClusterSettings) -> Security:
    """Return the client's side of connections to other brokers. The password file is read."""
    certificate, key, authorities = settings.tls_certificate, settings.tls_key, settings.tls_ca
    if certificate is None or key is None or authorities is None:
        return NO_SECURITY
    password = password_in(settings.tls_key_password_file, "cluster.tls_key_password_file")
    return Security(
        SSL,
        TlsOptions(
            trust=CertificateStore(authorities),
            identity=Identity(
                CertificateStore(certificate), CertificateStore(key, password=password)
            ),
        ),
    )


def _listener_settings(settings: ClusterSettings) -> ListenerSettings:
    return ListenerSettings(
        host=settings.listen_host,
        port=settings.listen_port or 0,
        connections_max=CONNECTIONS_MAX,
        connections_per_address_max=CONNECTIONS_MAX,
        request_bytes_in_flight_max=REQUEST_BYTES_MAX,
        requests_in_flight_max=REQUESTS_MAX,
    )


def _warn_without_tls(host: str) -> None:
    try:
        is_private = ip_address(host.partition("%")[0]).is_private
    except ValueError:
        is_private = is_loopback(host)
    if not is_private or host in ("0.0.0.0", "::"):  # noqa: S104 (compared only)
        logger.warning(
            "connections between brokers on %s have no TLS: each process that reaches the port can "
            "read and append records and end transactions. Set cluster.tls_certificate, "
            "cluster.tls_key and cluster.tls_ca",
            host,
        )


def _show(metrics: Registry, own: Registry, entrance: Entrance) -> None:
    """Register the numbers of this listener beside those of the clients' listeners."""

    def rows(name: str) -> list[Row]:
        return next((list(one.rows) for one in own.collect() if one.name == name), [])

    metrics.gauge(
        "peer_connections",
        "Open connections of other brokers.",
        lambda: entrance.connection_count,
    )
    for name, help_text, labels in (
        ("requests_total", "Requests of other brokers.", ("api",)),
        ("received_bytes_total", "Bytes received from other brokers.", ()),
        ("sent_bytes_total", "Bytes of answers to other brokers.", ()),
        ("request_errors_total", "Error codes in answers to other brokers.", ("api", "code")),
    ):
        metrics.family(f"peer_{name}", Family(help_text, labels, partial(rows, name)))
