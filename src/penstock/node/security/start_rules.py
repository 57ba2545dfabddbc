"""Decisions about settings of security that end a start, beside those of `core.settings`.

They need parts above `core.settings`: the language of mapping rules, and the number of access
rules. `penstock serve` and `penstock config check` ask the same functions, so both refuse the same
settings with the same words. No file is read here.
"""

from collections.abc import Iterator

from penstock.core.errors import ConfigError
from penstock.core.settings.contradictions import super_users
from penstock.core.settings.tree import Settings


def check_access(settings: Settings, *, has_rules: bool) -> None:
    """Raise `ConfigError` if access rules are in force and let no client in."""
    security = settings.security
    if security.authorizer != "acl" or has_rules:
        return
    if super_users(settings) or security.allow_everyone_if_no_acl_found:
        return
    raise ConfigError(
        'security.authorizer = "acl" has neither a super user nor an access rule: no client could '
        "do anything, nor change that.",
        hint="Set security.super_users, such as User:admin, or security.acl_file.",
    )


def check_mapping_rules(settings: Settings) -> None:
    """Raise `ConfigError` for rules that cannot map the names of client certificates."""
    for place, rules in _mapping_rules(settings):
        from penstock.security.certificates.principal_mapping import PrincipalMapper

        try:
            PrincipalMapper(rules)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}", hint=error.hint) from error


def _mapping_rules(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the rules in use, each with its place."""
    for listener in settings.listeners:
        tls = listener.tls
        # With a login, the certificate is not the identity.
        if tls is not None and tls.client_auth != "none" and not listener.has_sasl:
            place = f"the listener {listener.name}, principal_mapping_rules"
            yield place, tls.principal_mapping_rules
    if settings.admin.enabled and settings.admin.auth == "mtls":
        yield "admin.principal_mapping_rules", settings.admin.principal_mapping_rules
