"""Collects the facts of the files and services behind logins and access rules.

Files: access rules, users, the first administrator. Services: the keys of an identity provider
(JWKS) and an LDAP directory. It reads each one as a broker does, and only if the settings use it.
The directory gets one bind for a user that does not exist.
"""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from penstock.cli.doctor.facts import SourceFacts
from penstock.client.transport.blocking import reason
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.quantities import count_text, printable
from penstock.core.settings.tree import Settings
from penstock.security.acls.values import AclBinding
from penstock.security.secret import Secret

UNKNOWN_USER: Final = "penstock-doctor"
"""The directory is asked for this user: its refusal shows that the directory decides."""
PASSWORD_BYTES_MAX: Final = 4_096
_INSTALL: Final = "pip install 'penstock[security]'"


def probe_sources(settings: Settings) -> Iterator[SourceFacts]:
    """Return the facts of each file and service that the settings use."""
    security = settings.security
    mechanisms = {one for listener in settings.all_listeners for one in listener.mechanisms}
    auth = settings.admin.auth if settings.admin.enabled else "none"
    has_passwords = "PLAIN" in mechanisms or auth == "basic"
    if security.acl_file is not None and security.authorizer == "acl":
        yield _probe("rules", f"security.acl_file {security.acl_file}", lambda: _rules(settings))
    yield from _refusals(settings)
    if has_passwords and security.plain_verifier == "file":
        name = f"security.users_file {security.users_file}"
        yield _probe("users", name, lambda: _users(settings))
    if security.bootstrap_admin_file is not None:
        name = f"security.bootstrap_admin_file {security.bootstrap_admin_file}"
        yield _probe("users", name, lambda: _administrator(settings))
    if "OAUTHBEARER" in mechanisms or auth == "bearer":
        yield _probe("jwks", f"oidc.jwks {settings.oidc.jwks}", lambda: _keys(settings))
    if has_passwords and security.plain_verifier == "ldap":
        yield _probe("ldap", f"ldap.url {settings.ldap.url}", lambda: _directory(settings))


def _refusals(settings: Settings) -> Iterator[SourceFacts]:
    """Return the settings without a file that end the start of a broker."""
    from penstock.node.security.start_rules import check_access, check_mapping_rules
    from penstock.node.start_check import may_have_rules

    has_rules = bool(file_rules(settings)) or may_have_rules(settings)
    decisions: tuple[tuple[str, Callable[[], None]], ...] = (
        ("rules", lambda: check_access(settings, has_rules=has_rules)),
        ("certificate", lambda: check_mapping_rules(settings)),
    )
    for check, decide in decisions:
        try:
            decide()
        except ConfigError as error:
            problem = printable(str(error).rstrip("."))
            yield SourceFacts(check, "", problem=problem, remedy=error.hint)


def file_rules(settings: Settings) -> tuple[AclBinding, ...]:
    """Return the rules of `security.acl_file`; none if there is no file, or a bad one."""
    security = settings.security
    if security.acl_file is None or security.authorizer != "acl":
        return ()
    from penstock.node.security.rules_reload import read_rules

    try:
        return read_rules(security.acl_file)
    except ConfigError:
        return ()


def _probe(check: str, name: str, read: Callable[[], str]) -> SourceFacts:
    """Return the facts of one source; `read` returns its content for people."""
    from http.client import HTTPException  # it imports ssl, which takes time

    try:
        return SourceFacts(check, name, content=read())
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package == "penstock":
            raise
        problem = f"the package {package} is not installed: `{_INSTALL}`"
        return SourceFacts(check, name, problem=problem, is_unchecked=True)
    except PenstockError as error:
        # Also `CheckUnavailableError` of the directory.
        problem = str(error).rstrip(".")
        return SourceFacts(check, name, problem=printable(problem), remedy=error.hint)
    except OSError as error:
        return SourceFacts(check, name, problem=printable(reason(error)))
    except HTTPException as error:
        problem = f"{type(error).__name__} {error}".strip()
        return SourceFacts(check, name, problem=printable(problem))


def _rules(settings: Settings) -> str:
    from penstock.node.security.rules_reload import read_rules

    assert settings.security.acl_file is not None
    return count_text(len(read_rules(settings.security.acl_file)), "rule")


def _users(settings: Settings) -> str:
    from penstock.node.security.password_checks import read_users_file

    assert settings.security.users_file is not None
    return count_text(len(read_users_file(settings.security.users_file)), "user")


def _administrator(settings: Settings) -> str:
    from penstock.node.security.node_security import read_administrator

    assert settings.security.bootstrap_admin_file is not None
    name, _ = read_administrator(settings.security.bootstrap_admin_file)
    return f"the user {printable(name)}"


def _keys(settings: Settings) -> str:
    from penstock.node.security.jwks import KeySource, OidcOptions

    oidc = settings.oidc
    assert oidc.jwks is not None
    options = OidcOptions(oidc.issuer or "", oidc.audience or "", oidc.jwks, oidc.ca_file)
    return count_text(len(KeySource(options).fetch()), "key")


def _directory(settings: Settings) -> str:
    from penstock.node.security.ldap import LdapDirectory, LdapOptions

    ldap = settings.ldap
    assert ldap.url is not None
    directory = LdapDirectory(
        LdapOptions(
            url=ldap.url,
            start_tls=ldap.start_tls,
            ca_file=ldap.ca_file,
            user_dn_template=ldap.user_dn_template,
            search_base=ldap.search_base,
            search_filter=ldap.search_filter,
            bind_dn=ldap.bind_dn,
            bind_password=_password_in(ldap.bind_password_file),
            principal_attribute=ldap.principal_attribute,
            timeout_seconds=ldap.timeout_seconds,
        )
    )
    directory.check(UNKNOWN_USER, Secret(secrets.token_urlsafe()))
    return "it decides about logins"


def _password_in(path: str | None) -> Secret | None:
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            return Secret(file.read(PASSWORD_BYTES_MAX).decode().rstrip("\r\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"ldap.bind_password_file {path} cannot be read: {reason(error)}.",
            hint="Set ldap.bind_password_file to a file with the password of ldap.bind_dn.",
        ) from error
