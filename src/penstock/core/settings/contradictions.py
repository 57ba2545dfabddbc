"""Settings that are valid alone and contradict each other (pure).

Each problem names the settings, their values and the remedies. Files are not read here.
"""

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Final

from penstock.core.settings.listener_declarations import SECTION, NamedListener
from penstock.core.settings.tree import Settings

_DEFAULT_SOURCE: Final = "default"
_WILDCARD_HOSTS: Final = frozenset({"", "0.0.0.0", "::", "*"})  # noqa: S104 (compared only)
_ADMIN_MECHANISMS: Final = {"basic": "PLAIN", "bearer": "OAUTHBEARER"}
"""By `admin.auth`: the mechanism whose credentials callers send."""
ADDRESS_KEYS: Final = (
    "listener.host",
    "listener.port",
    "listener.advertised_host",
    "listener.advertised_port",
)


def contradictions(settings: Settings, sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the contradictions between settings."""
    yield from _two_addresses(settings, sources)
    for listener in settings.all_listeners:
        yield from _unreachable(listener, settings, sources)
        yield from _insecure(listener, settings)
        is_test = settings.node.storage == "memory" or is_loopback(listener.host)
        if listener.principal is not None and not is_test:
            yield (
                f"the listener {listener.name} gives each client of {listener.host} the fixed "
                f'identity {listener.principal}. Use a loopback address, or storage = "memory".'
            )
    for mechanism, owner in _logins(settings):
        yield from _unverified(mechanism, owner, settings)
    yield from _users(settings)
    yield from _admin(settings)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _two_addresses(settings: Settings, sources: Mapping[str, str]) -> Iterator[str]:
    if not settings.listeners:
        return
    for key in ADDRESS_KEYS:
        source = sources.get(key, _DEFAULT_SOURCE)
        if source != _DEFAULT_SOURCE:
            yield (
                f"{key} ({source}) and [[{SECTION}]] both name addresses to listen on. Move the "
                f"address of {key} into a listener of [[{SECTION}]]."
            )


def _unreachable(
    listener: NamedListener, settings: Settings, sources: Mapping[str, str]
) -> Iterator[str]:
    if listener.host not in _WILDCARD_HOSTS or listener.advertised_host is not None:
        return
    if settings.listeners:
        yield (
            f"the listener {listener.name} has host = {listener.host!r}, which names no address "
            "that a client can connect to. Set its advertised_host to the name that clients use."
        )
    else:
        source = sources.get("listener.host", _DEFAULT_SOURCE)
        yield (
            f"listener.host = {listener.host!r} ({source}) names no address that a "
            "client can connect to. Set listener.advertised_host to the name that clients use."
        )


def _insecure(listener: NamedListener, settings: Settings) -> Iterator[str]:
    if listener.has_tls or is_loopback(listener.host) or settings.security.allow_insecure:
        return
    if settings.listeners:
        subject = f"the listener {listener.name} with {listener.protocol} on {listener.host!r}"
    else:
        subject = f"listener.host = {listener.host!r}"
    yield (
        f"{subject} is open to other machines without TLS: they can read and change all data on "
        f'its way. Declare a listener in [[{SECTION}]] with protocol = "SSL" or "SASL_SSL" and a '
        "certificate, or accept the risk with security.allow_insecure = true."
    )


def _logins(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each mechanism in use, with its user for messages."""
    for listener in settings.all_listeners:
        for mechanism in listener.mechanisms:
            yield mechanism, f"the listener {listener.name} with {mechanism}"
    admin = settings.admin
    if admin.enabled and admin.auth in _ADMIN_MECHANISMS:
        yield _ADMIN_MECHANISMS[admin.auth], f'admin.auth = "{admin.auth}"'


def _unverified(mechanism: str, owner: str, settings: Settings) -> Iterator[str]:
    """Yield the settings without which nothing can verify the credentials of a mechanism."""
    security, oidc, ldap = settings.security, settings.oidc, settings.ldap
    if mechanism == "OAUTHBEARER":
        for key, value in (
            ("oidc.issuer", oidc.issuer),
            ("oidc.audience", oidc.audience),
            ("oidc.jwks", oidc.jwks),
        ):
            if value is None:
                yield f"{owner} needs {key}. Set it."
    if mechanism != "PLAIN":
        return
    if security.plain_verifier == "file" and security.users_file is None:
        yield (
            f'{owner} needs security.users_file, because security.plain_verifier is "file". Set it.'
        )
    if security.plain_verifier == "ldap":
        if ldap.url is None:
            yield f"{owner} needs ldap.url. Set it."
        if ldap.user_dn_template is None and ldap.search_base is None:
            yield (
                "the directory has neither ldap.user_dn_template nor ldap.search_base. Set one of "
                "them, so that the broker finds the entries of users."
            )


def _users(settings: Settings) -> Iterator[str]:
    for text in super_users(settings):
        kind, colon, name = text.partition(":")
        if not (kind and colon and name) or ",User:" in name:
            yield (
                f"security.super_users has {text!r}, which is not a principal. Write User: and the "
                "name, and semicolons between several: User:admin;User:ops"
            )
    ldap = settings.ldap
    if ldap.url is None or settings.security.plain_verifier != "ldap":
        return
    if not ldap.url.startswith(("ldap://", "ldaps://")):
        yield f"ldap.url = {ldap.url!r} begins neither with ldap:// nor with ldaps://. Change it."


def _admin(settings: Settings) -> Iterator[str]:
    admin = settings.admin
    if not admin.enabled:
        return
    if (admin.certificate is None) != (admin.key is None):
        yield "admin.certificate and admin.key belong together. Set both, or none of them."
    if admin.auth == "mtls" and (admin.certificate is None or admin.client_ca is None):
        yield (
            'admin.auth = "mtls" needs admin.certificate, admin.key and admin.client_ca. Set them.'
        )
    yield from _two_identities(settings)
    if is_loopback(admin.host) or settings.security.allow_insecure:
        return
    if admin.auth == "none":
        yield (
            f"the admin port on {admin.host} is open to other machines, and each of them may "
            'administer this broker. Set admin.auth to "basic", "bearer" or "mtls", listen on '
            "127.0.0.1, or accept the risk with security.allow_insecure = true."
        )
    elif admin.certificate is None:
        yield (
            f"the admin port on {admin.host} receives credentials without TLS. Set "
            "admin.certificate and admin.key, or accept the risk with "
            "security.allow_insecure = true."
        )


def _two_identities(settings: Settings) -> Iterator[str]:
    """Yield listeners that map certificates to other principals than the admin port."""
    own = settings.admin.principal_mapping_rules
    if settings.admin.auth != "mtls":
        return
    for listener in settings.listeners:
        tls = listener.tls
        if tls is None or tls.client_auth == "none" or tls.principal_mapping_rules == own:
            continue
        yield (
            f"the listener {listener.name} maps client certificates by "
            f"{tls.principal_mapping_rules!r} and the admin port by {own!r}: one client would have "
            "two identities. Set admin.principal_mapping_rules to the same rules."
        )


def super_users(settings: Settings) -> tuple[str, ...]:
    """Return the super users of the settings, such as `User:admin`."""
    given = settings.security.super_users or ""
    return tuple(text.strip() for text in given.split(";") if text.strip())
