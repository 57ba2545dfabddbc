"""The checks of passwords and tokens that the settings choose, and the files behind them.

A check is created only if a listener or the admin port needs it, so a broker without logins imports
nothing for them. The users file is watched like the settings file: a bad file changes nothing.
"""

import asyncio
import importlib.util
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.core.file_watch import FileWatch
from penstock.core.settings.tree import Settings
from penstock.node.security.logins import CredentialLookUp, PasswordCheck, TokenCheck
from penstock.node.settings.file_look import look_at
from penstock.security.sasl_client import OAUTHBEARER, PLAIN
from penstock.security.secret import Secret

if TYPE_CHECKING:
    from penstock.node.security.ldap import LdapDirectory

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Time between two looks at the users file."""
PASSWORD_BYTES_MAX: Final = 4_096

Duty = Callable[[], Coroutine[object, object, None]]


@dataclass(slots=True)
class CredentialChecks:
    """The checks of one broker."""

    passwords: PasswordCheck | None = None
    tokens: TokenCheck | None = None
    duties: list[Duty] = field(default_factory=list)
    """They run as long as the broker."""
    problem: str | None = None
    """Why the changed users file is not in force; None if it is."""


def credential_checks(
    settings: Settings, credential: CredentialLookUp, clock: Clock
) -> CredentialChecks:
    """Return the checks that the settings need; raise `ConfigError`. It may read files."""
    checks = CredentialChecks()
    mechanisms = {one for listener in settings.listeners for one in listener.mechanisms}
    auth = settings.admin.auth if settings.admin.enabled else "none"
    if PLAIN in mechanisms or auth == "basic":
        _add_passwords(checks, settings, credential, clock)
    if OAUTHBEARER in mechanisms or auth == "bearer":
        _add_tokens(checks, settings, clock)
    return checks


def _add_passwords(
    checks: CredentialChecks, settings: Settings, credential: CredentialLookUp, clock: Clock
) -> None:
    from penstock.node.security.check_threads import (
        PASSWORD_THREADS,
        PASSWORDS_QUEUED_MAX,
        CheckThreads,
    )
    from penstock.node.security.password_checks import (
        DirectoryPasswords,
        FilePasswords,
        ScramPasswords,
        read_users_file,
    )

    security = settings.security
    if security.plain_verifier == "ldap":
        checks.passwords = DirectoryPasswords(_directory(settings), clock)
        return
    threads = CheckThreads(
        "password-check", threads_max=PASSWORD_THREADS, queued_max=PASSWORDS_QUEUED_MAX
    )
    if security.plain_verifier == "scram":
        checks.passwords = ScramPasswords(credential, threads)
        return
    path = security.users_file
    assert path is not None, "settings without a users file are refused"
    watch = FileWatch(look_at(path))
    users = FilePasswords(read_users_file(path), threads)
    checks.passwords = users

    async def follow_file() -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not watch.note(look_at(path)):
                continue
            try:
                users.users = await asyncio.to_thread(read_users_file, path)
            except ConfigError as error:
                checks.problem = str(error)
                logger.error("the users file is refused, the users stay as they were: %s", error)
            else:
                checks.problem = None
                logger.info("users file: %d users", len(users.users))

    checks.duties.append(follow_file)


def _add_tokens(checks: CredentialChecks, settings: Settings, clock: Clock) -> None:
    _need("joserfc", "OAUTHBEARER")
    from penstock.node.security.jwks import OidcOptions, ProviderKeys, TokenVerifier

    oidc = settings.oidc
    assert oidc.issuer is not None
    assert oidc.audience is not None
    assert oidc.jwks is not None
    options = OidcOptions(
        issuer=oidc.issuer,
        audience=oidc.audience,
        jwks=oidc.jwks,
        ca_file=oidc.ca_file,
        principal_claim=oidc.principal_claim,
        skew_seconds=oidc.clock_skew_seconds,
    )
    keys = ProviderKeys(options, clock)
    checks.tokens = TokenVerifier(options, keys, clock)
    checks.duties.append(keys.keep_fresh)


def _directory(settings: Settings) -> "LdapDirectory":
    _need("ldap3", 'security.plain_verifier = "ldap"')
    from penstock.node.security.ldap import LdapDirectory, LdapOptions

    ldap = settings.ldap
    assert ldap.url is not None
    return LdapDirectory(
        LdapOptions(
            url=ldap.url,
            start_tls=ldap.start_tls,
            ca_file=ldap.ca_file,
            user_dn_template=ldap.user_dn_template,
            search_base=ldap.search_base,
            search_filter=ldap.search_filter,
            bind_dn=ldap.bind_dn,
            bind_password=password_in(ldap.bind_password_file, "ldap.bind_password_file"),
            principal_attribute=ldap.principal_attribute,
            timeout_seconds=ldap.timeout_seconds,
        )
    )


def password_in(path: str | None, setting: str) -> Secret | None:
    """Return the password in a file; None without a file."""
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            data = file.read(PASSWORD_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{setting} {path} cannot be read: {error.strerror}.",
            hint="Check the path and its permissions.",
        ) from error
    if len(data) > PASSWORD_BYTES_MAX:
        raise ConfigError(
            f"{setting} {path} has more than {PASSWORD_BYTES_MAX:,} bytes, the limit of a password "
            "file.",
            hint="Name a file that has the password and nothing else.",
        )
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{setting} {path} is not UTF-8: byte {error.start} is wrong.",
            hint="Save the file as UTF-8.",
        ) from None
    return Secret(text.rstrip("\r\n"))


def _need(package: str, user: str) -> None:
    """Raise `ConfigError` if an optional package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise ConfigError(
            f"{user} needs the package {package}, which is not installed.",
            hint="pip install 'penstock[security]'",
        )
