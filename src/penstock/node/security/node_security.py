"""`NodeSecurity`: identity and access of one broker, assembled from its settings.

It creates the authorizer with the rules of the store and of the rules file, the checks of
credentials, the audit log, and the first administrator. An authorizer that could let no client in
(no super user, no rule) ends the start: no client could ever change that.
"""

import asyncio
import logging
import secrets
import stat
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from penstock.broker.access import Access
from penstock.cluster.access.login_secret import login_secret
from penstock.cluster.link.lasting import last
from penstock.cluster.scram_changes import ScramUpsertion
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import MetadataStore
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.metrics import Registry
from penstock.core.settings.contradictions import super_users
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import Settings
from penstock.node.administration.acl_administration import AclChanges
from penstock.node.administration.user_administration import UserChanges
from penstock.node.security.audit_log import AuditLog
from penstock.node.security.certificates_in_use import CertificatesInUse
from penstock.node.security.credential_checks import CredentialChecks, credential_checks
from penstock.node.security.logins import Identities, ListenerLogins
from penstock.node.security.rules_reload import RulesReload
from penstock.node.security.start_rules import check_access
from penstock.security import audit
from penstock.security.acls.authorizer import AclAuthorizer, RuleOrigin
from penstock.security.audit import AuditEvent
from penstock.security.sasl_client import SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.scram_credential import (
    ITERATIONS_DEFAULT,
    SALT_BYTES,
    credential_of,
    salted_password,
)
from penstock.security.secret import Secret

logger = logging.getLogger(__name__)

BOOTSTRAP_BYTES_MAX: Final = 4_096


class NodeSecurity:
    """Identity and access of one broker."""

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataService,
        clock: Clock,
        metrics: Registry,
        users: UserChanges,
        checks: CredentialChecks,
        certificates: CertificatesInUse,
        false_key: Secret,
    ) -> None:
        self._settings = settings
        self._false_key = false_key
        self.audit = AuditLog(clock, metrics)
        self.users = users
        self.checks = checks
        self.authorizer: AclAuthorizer | None = None
        self.access: Access | None = None
        self.acls: AclChanges | None = None
        self.rules: RulesReload | None = None
        if settings.security.authorizer == "acl":
            self._authorize(settings, metadata, metrics)
        self.identities = Identities(
            users.credential, checks.passwords, checks.tokens, self.audit, clock
        )
        self.certificates = certificates
        certificates.followers.append(self._certificate_reloaded)

    def _authorize(self, settings: Settings, metadata: MetadataService, metrics: Registry) -> None:
        security = settings.security
        known = frozenset(super_users(settings))
        authorizer = AclAuthorizer(
            known, allow_everyone_if_no_acl_found=security.allow_everyone_if_no_acl_found
        )
        if security.acl_file is not None:
            self.rules = RulesReload(security.acl_file, authorizer, self.audit, metrics)
        self.acls = AclChanges(
            metadata,
            authorizer,
            file_rules=lambda: authorizer.rules(RuleOrigin.FILE),
            file_name=security.acl_file or "",
        )
        check_access(settings, has_rules=bool(self.acls.rules()))
        self.authorizer = authorizer
        self.access = Access(authorizer, self.audit)

    @property
    def has_identities(self) -> bool:
        """Whether clients of some door prove an identity."""
        settings = self._settings
        has_listener = any(
            one.has_sasl or (one.tls is not None and one.tls.client_auth != "none")
            for one in settings.listeners
        )
        return has_listener or (settings.admin.enabled and settings.admin.auth != "none")

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why files that were changed are not in force."""
        found = [
            self.checks.problem,
            None if self.rules is None else self.rules.problem,
            self.certificates.problem,
        ]
        return tuple(problem for problem in found if problem is not None)

    def _certificate_reloaded(self, name: str, problem: str | None) -> None:
        if problem is None:
            self.audit.write(AuditEvent(event=audit.CERTIFICATE_RELOADED, listener=name))

    def logins_of(self, listener: NamedListener) -> ListenerLogins | None:
        """Return the checks of a listener with SASL; None for one without."""
        if not listener.has_sasl:
            return None
        from penstock.security.sasl.exchange import ExchangeSettings  # only logins need it

        security = self._settings.security
        session_ms = listener.reauthentication_ms_max
        if session_ms is None:
            session_ms = security.reauthentication_ms_max
        return ListenerLogins(
            ExchangeSettings(
                mechanisms=listener.mechanisms,
                false_key=self._false_key,
                session_ms_max=dict.fromkeys(listener.mechanisms, session_ms),
                failure_delay_ms=security.failed_login_delay_ms,
            ),
            self.identities,
        )


async def open_security(
    settings: Settings,
    metadata: MetadataService,
    store: MetadataStore,
    certificates: CertificatesInUse,
    clock: Clock,
    metrics: Registry,
    tasks: asyncio.TaskGroup,
    stack: AsyncExitStack,
) -> NodeSecurity:
    """Return the security of a broker with loaded metadata; leaving `stack` stops its duties."""
    users = UserChanges(metadata, clock)
    checks = await asyncio.to_thread(credential_checks, settings, users.credential, clock)
    secret = await login_secret(store, metadata.root)
    security = NodeSecurity(settings, metadata, clock, metrics, users, checks, certificates, secret)
    await _add_administrator(settings, metadata, users)
    duties = [security.audit.run, *checks.duties]
    if certificates.is_watching:
        duties.append(certificates.run)
    if security.rules is not None:
        duties.append(security.rules.run)
    for duty in duties:
        stack.push_async_callback(_end, last(tasks, duty()))
    return security


async def _end(duty: asyncio.Task[None]) -> None:
    duty.cancel()
    await asyncio.wait([duty])


async def _add_administrator(
    settings: Settings, metadata: MetadataService, users: UserChanges
) -> None:
    """Create the user of `security.bootstrap_admin_file` if the cluster has no user yet."""
    path = settings.security.bootstrap_admin_file
    if path is None:
        return
    name, password = await asyncio.to_thread(read_administrator, path)
    if len(metadata.image.scram):
        return
    credentials = []
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        salt, iterations = secrets.token_bytes(SALT_BYTES), ITERATIONS_DEFAULT
        salted = await asyncio.to_thread(salted_password, mechanism, password, salt, iterations)
        credential = credential_of(mechanism, salted, salt, iterations)
        credentials.append(ScramUpsertion(name, mechanism, iterations, credential))
    try:
        is_created = await users.create_first(credentials)
    except PenstockError as error:
        raise ConfigError(f"{path}: the user {name!r} cannot be created: {error}") from error
    if not is_created:
        return
    logger.info("the first user %r was created from %s", name, path)


def read_administrator(path: str) -> tuple[str, Secret]:
    """Return user and password of a file that only its owner can read; raise `ConfigError`."""
    try:
        with Path(path).open("rb") as file:
            mode = stat.S_IMODE(Path(path).stat().st_mode)
            data = file.read(BOOTSTRAP_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"security.bootstrap_admin_file {path} cannot be read: {error.strerror}.",
            hint="Create it with one line, user:password, or remove the setting.",
        ) from error
    if mode & 0o077:
        raise ConfigError(
            f"security.bootstrap_admin_file {path} has the mode {mode:o}: others can read the "
            "password.",
            hint=f"chmod 600 {path}",
        )
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        text = ""
    name, _, password = text.partition(":")
    if not name or not password or "\n" in text or len(data) > BOOTSTRAP_BYTES_MAX:
        raise ConfigError(
            f"security.bootstrap_admin_file {path} is not one line of user:password.",
            hint="Write the name of the user, a colon and the password, on one line.",
        )
    return name, Secret(password)
