"""`open_cluster_store`: connects to the etcd of `[cluster]`.

Guarantees: wrong addresses, a missing package, an unreadable password file and an etcd that does
not answer are errors with a remedy, before anything is written. It is imported only by a broker of
a cluster.
"""

import importlib.util
import logging
from contextlib import AsyncExitStack

from penstock.cluster.etcd.etcd_options import EtcdOptions, parse_endpoint
from penstock.cluster.stores.port import MetadataStore
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, StoreError
from penstock.core.settings.tree import Settings
from penstock.node.security.credential_checks import password_in

logger = logging.getLogger(__name__)


def etcd_options(settings: Settings) -> EtcdOptions:
    """Return the options of etcd; raise `ConfigError` for wrong ones."""
    given = settings.cluster
    endpoints = tuple(map(parse_endpoint, given.etcd))
    options = EtcdOptions(
        endpoints,
        user=given.etcd_user or "",
        password=password_in(given.etcd_password_file, "cluster.etcd_password_file"),
        ca_file=given.etcd_ca_file or "",
        certificate_file=given.etcd_certificate_file or "",
        key_file=given.etcd_key_file or "",
        # Brokers begin with different members.
        first_member=settings.node.id % max(1, len(endpoints)),
    )
    if importlib.util.find_spec("grpc") is None:
        raise ConfigError(
            "cluster.etcd needs the package grpcio, which is not installed.",
            hint="pip install 'penstock[cluster]'",
        )
    return options


async def open_cluster_store(
    settings: Settings, clock: Clock, stack: AsyncExitStack
) -> MetadataStore:
    """Connect to etcd; leaving `stack` closes the connections."""
    options = etcd_options(settings)
    if options.has_credentials and not options.has_tls:
        logger.warning(
            "the password of etcd crosses the network readable: write the addresses of "
            "cluster.etcd with https://"
        )
    from penstock.cluster.etcd.etcd_store import EtcdMetadataStore  # imports gRPC

    try:
        store = await EtcdMetadataStore.open(options, root=settings.cluster.root, clock=clock)
    except StoreError as error:
        raise ConfigError(
            f"etcd at {', '.join(settings.cluster.etcd)} does not answer: {error}.",
            hint="Check cluster.etcd, and that the members of etcd run.",
        ) from error
    stack.push_async_callback(store.close)
    return store
