"""`CertificatesInUse`: the TLS contexts of all doors of a broker, and the parts that follow them.

The doors are the listeners with TLS, the listener for brokers and, as `ADMIN`, the admin port. The
files are loaded before
anything listens, because a broker does not start with files that it cannot use.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.core.clock import Clock
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.core.types import CLUSTER_LISTENER
from penstock.node.security.certificate_reload import CertificateReload, Reloaded
from penstock.node.security.credential_checks import password_in
from penstock.node.security.start_rules import check_mapping_rules

if TYPE_CHECKING:
    from penstock.broker.tls.tls_files import TlsFiles

ADMIN: Final = "ADMIN"
"""The name of the admin port beside those of listeners."""


class CertificatesInUse:
    """The contexts by the name of their door."""

    def __init__(self, files: "dict[str, TlsFiles]", clock: Clock, metrics: Registry) -> None:
        """Load the files; raise `ConfigError`."""
        self.followers: list[Reloaded] = []
        """Called after each reload, with the door's name and the problem, if there is one."""
        self._names = frozenset(files)
        self._reload = CertificateReload(files, clock, metrics, self._reloaded)

    @property
    def problem(self) -> str | None:
        """All states that an operator must change; None if all is well."""
        return self._reload.problem

    def context_source(self, name: str) -> Callable[[], ssl.SSLContext] | None:
        """Return the function that returns the context for a new connection; None without TLS."""
        return self._reload.context_source(name) if name in self._names else None

    @property
    def is_watching(self) -> bool:
        """Whether there are files to watch."""
        return bool(self._names)

    async def run(self) -> None:
        """Watch the files until cancelled."""
        await self._reload.run()

    def _reloaded(self, name: str, problem: str | None) -> None:
        for follow in self.followers:
            follow(name, problem)


async def load_certificates(
    settings: Settings, clock: Clock, metrics: Registry
) -> CertificatesInUse:
    """Return the certificates of a broker; raise `ConfigError` for files that cannot be used."""
    check_mapping_rules(settings)
    files = await asyncio.to_thread(tls_files, settings)
    return CertificatesInUse(files, clock, metrics)


def tls_files(settings: Settings) -> "dict[str, TlsFiles]":
    """Return the TLS files of each door by its name; passwords of keys are read."""
    admin = settings.admin
    is_admin_secured = admin.enabled and admin.certificate is not None and admin.key is not None
    has_peers = settings.cluster.is_set and settings.cluster.tls_certificate is not None
    has_listeners = any(one.tls is not None for one in settings.listeners)
    if not is_admin_secured and not has_listeners and not has_peers:
        return {}
    from penstock.broker.tls.tls_files import TlsFiles  # only TLS needs it

    found: dict[str, TlsFiles] = {}
    for listener in settings.listeners:
        tls = listener.tls
        if tls is not None:
            found[listener.name] = TlsFiles(
                certificate=tls.certificate,
                key=tls.key,
                key_password=password_in(tls.key_password_file, "tls.key_password_file"),
                client_ca=tls.client_ca,
                client_auth=tls.client_auth,
            )
    if admin.enabled and admin.certificate is not None and admin.key is not None:
        is_mutual = admin.auth == "mtls"
        found[ADMIN] = TlsFiles(
            certificate=admin.certificate,
            key=admin.key,
            client_ca=admin.client_ca if is_mutual else None,
            client_auth="required" if is_mutual else "none",
        )
    cluster = settings.cluster
    if cluster.is_set and cluster.tls_certificate is not None and cluster.tls_key is not None:
        found[CLUSTER_LISTENER] = TlsFiles(
            certificate=cluster.tls_certificate,
            key=cluster.tls_key,
            key_password=password_in(
                cluster.tls_key_password_file, "cluster.tls_key_password_file"
            ),
            client_ca=cluster.tls_ca,
            client_auth="required",
        )
    return found
