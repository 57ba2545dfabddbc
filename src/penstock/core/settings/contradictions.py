"""Settings that are valid alone and contradict each other (pure).

Each problem names the settings, their values and the remedies. Files are not read here.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final

from penstock.core.loopback import is_loopback
from penstock.core.settings.cluster_settings import ClusterSettings
from penstock.core.settings.listener_declarations import SECTION, NamedListener
from penstock.core.settings.pipe_declarations import PipeDeclaration, is_overlapping
from penstock.core.settings.registry_settings import PARENT_OF_REGISTRY
from penstock.core.settings.tree import Settings
from penstock.core.types import CLUSTER_LISTENER

_DEFAULT_SOURCE: Final = "default"
_WILDCARD_HOSTS: Final = frozenset({"", "0.0.0.0", "::", "*"})  # noqa: S104 (compared only)
_ADMIN_MECHANISMS: Final = {"basic": "PLAIN", "bearer": "OAUTHBEARER"}
"""By `admin.auth`: the mechanism whose credentials callers send."""
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}=[^=]{0,255}")
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
        if listener.name == CLUSTER_LISTENER:
            yield (
                f"a listener in [[{SECTION}]] has the name {CLUSTER_LISTENER}, which is that of "
                "the listener for brokers (cluster.listen_port). Choose another name."
            )
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
    yield from _cluster(settings)
    yield from _push(settings)
    yield from _pipes(settings)
    yield from _registry(settings)


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


def _cluster(settings: Settings) -> Iterator[str]:
    cluster = settings.cluster
    if not cluster.is_set:
        return
    if settings.node.storage == "memory":
        yield (
            'cluster.etcd is set and node.storage is "memory": a broker that forgets its records '
            'cannot be a replica. Set node.storage = "disk", or remove cluster.etcd.'
        )
    if cluster.listen_port is None:
        yield "cluster.etcd needs cluster.listen_port, where other brokers connect. Set it."
    if cluster.listen_host in _WILDCARD_HOSTS and cluster.advertised_host is None:
        yield (
            f"cluster.listen_host = {cluster.listen_host!r} names no address that a broker can "
            "connect to. Set cluster.advertised_host to the name that other brokers use."
        )
    yield from _etcd(cluster)
    files = (cluster.tls_certificate, cluster.tls_key, cluster.tls_ca)
    if any(files) and not all(files):
        yield (
            "cluster.tls_certificate, cluster.tls_key and cluster.tls_ca belong together. Set all "
            "of them, or none."
        )
    is_open = not any(files) and not is_loopback(cluster.listen_host)
    if is_open and not settings.security.allow_insecure:
        yield (
            f"cluster.listen_host = {cluster.listen_host!r} is open to other machines without TLS: "
            "they can read and change all data on its way. Set cluster.tls_certificate, "
            "cluster.tls_key and cluster.tls_ca, or accept the risk with "
            "security.allow_insecure = true."
        )


def _etcd(cluster: ClusterSettings) -> Iterator[str]:
    """Yield the contradictions between the settings of etcd."""
    are_encrypted = {address.startswith("https://") for address in cluster.etcd}
    files = (cluster.etcd_ca_file, cluster.etcd_certificate_file, cluster.etcd_key_file)
    if len(are_encrypted) > 1:
        yield "cluster.etcd has addresses with and without TLS. Write all with https://."
    elif any(files) and are_encrypted == {False}:
        yield (
            "cluster.etcd_ca_file, cluster.etcd_certificate_file and cluster.etcd_key_file need "
            "addresses of cluster.etcd with https://. Change the addresses, or remove the files."
        )
    if (cluster.etcd_certificate_file is None) != (cluster.etcd_key_file is None):
        yield (
            "cluster.etcd_certificate_file and cluster.etcd_key_file belong together. Set both, or "
            "none of them."
        )
    if (cluster.etcd_user is None) != (cluster.etcd_password_file is None):
        yield (
            "cluster.etcd_user and cluster.etcd_password_file belong together. Set both, or none "
            "of them."
        )


def _push(settings: Settings) -> Iterator[str]:
    """Yield the contradiction between the address for push clients and their security."""
    edge = settings.edge
    is_open = any(one is not None for one in (edge.push_port, edge.grpc_port, edge.http_port))
    if not is_open or is_loopback(edge.host) or settings.security.allow_insecure:
        return
    used = [one for one in settings.all_listeners if edge.listener in (None, one.name)]
    if used and not used[0].has_tls:
        yield (
            f"edge.host = {edge.host!r} is open to other machines without TLS: they can read and "
            "change all data on its way. Name a listener with TLS in edge.listener, or accept the "
            "risk with security.allow_insecure = true."
        )


def _http_pipe(pipe: PipeDeclaration) -> Iterator[str]:
    """Yield what a pipe over HTTP cannot do."""
    scheme, _, rest = pipe.parent.partition("://")
    is_plain = pipe.parent.isascii() and pipe.parent.isprintable() and " " not in pipe.parent
    if scheme not in {"http", "https"} or not rest.strip("/") or "@" in rest or not is_plain:
        yield (
            f"the pipe {pipe.name} uses HTTP, and parent = {pipe.parent!r} is not a URL. Write the "
            "HTTP port of the parent, such as https://hq.example.com:8081."
        )
    if pipe.direction == "up" or pipe.groups:
        yield (
            f"the pipe {pipe.name} uses HTTP, which copies topics down and no groups. Remove "
            'groups and direction, or set transport = "kafka".'
        )


def _twice(pipes: Sequence[PipeDeclaration]) -> Iterator[str]:
    """Yield the up pipes that would send the same records to one parent as one site."""
    up = [pipe for pipe in pipes if pipe.direction == "up"]
    for one, other in combinations(up, 2):
        is_one_parent = not set(_addresses(one)).isdisjoint(_addresses(other))
        shared = (a for a in one.topics for b in other.topics if is_overlapping(a, b))
        if one.site == other.site and is_one_parent and (pattern := next(shared, None)):
            yield (
                f"the pipes {one.name} and {other.name} send topics of {pattern!r} to the same "
                "parent: each record would arrive twice. Name each topic in one of them."
            )


def _addresses(pipe: PipeDeclaration) -> list[str]:
    return [one.strip() for one in pipe.parent.split(",")]


def _pipes(settings: Settings) -> Iterator[str]:
    """Yield the contradictions between pipes and the registry of sites."""
    registry = settings.registry
    yield from _twice(settings.pipes)
    for pipe in settings.pipes:
        if pipe.parent == PARENT_OF_REGISTRY and registry.url is None:
            yield (
                f"the pipe {pipe.name} gets its parent from the registry, and registry.url is not "
                "set. Set it, or write the address of the parent."
            )
        if pipe.transport == "http":
            yield from _http_pipe(pipe)
        if pipe.direction == "up" and pipe.on_gap == "refresh":
            yield (
                f"the pipe {pipe.name} sends records up, and on_gap = 'refresh' replaces mirrors. "
                "Set on_gap to stop or skip."
            )
        if pipe.direction == "up" and pipe.site is None and registry.node_id is None:
            yield (
                f"the pipe {pipe.name} sends records up and has no site. Set site to a name that "
                "no other broker uses, or registry.node_id."
            )


def _registry(settings: Settings) -> Iterator[str]:
    """Yield the contradictions between the settings of the registry of sites."""
    registry = settings.registry
    if (registry.certificate is None) != (registry.key is None):
        yield "registry.certificate and registry.key belong together. Set both, or none of them."
    for text in registry.labels:
        if _LABEL.fullmatch(text) is None:
            yield (
                f"registry.labels has {text!r}, which is not a label. Write name=value with "
                "letters, digits, '.', '_' and '-' in the name, such as region=north."
            )
    yield from _registry_inside(settings)
    url = registry.url
    if url is None:
        return
    if settings.node.storage == "memory":
        yield (
            'registry.url is set and node.storage is "memory": a broker that forgets its topology '
            'cannot be part of a tree. Set node.storage = "disk", or remove registry.url.'
        )
    scheme, _, rest = url.partition("://")
    if scheme not in ("http", "https") or not rest or "@" in rest:
        yield f"registry.url = {url!r} is not a URL such as https://registry.example.com:8070."
        return
    from urllib.parse import urlsplit  # a broker without a registry starts without it

    host = urlsplit(url).hostname or ""
    if scheme == "http" and not is_loopback(host) and not settings.security.allow_insecure:
        yield (
            f"registry.url = {url!r} sends the key of this broker without TLS. Use https://, or "
            "accept the risk with security.allow_insecure = true."
        )


def _registry_inside(settings: Settings) -> Iterator[str]:
    """Yield the contradictions between the settings of a registry in this broker."""
    registry = settings.registry
    files = (registry.serve_certificate, registry.serve_key, registry.serve_client_ca)
    if registry.serve_port is None:
        if any(files) or registry.serve_allowed_hosts is not None:
            yield (
                "registry.serve_certificate, serve_key, serve_client_ca and serve_allowed_hosts "
                "need registry.serve_port. Set it, or remove them."
            )
        return
    if settings.node.storage == "memory":
        yield (
            'registry.serve_port is set and node.storage is "memory": the registry would forget '
            'its nodes. Set node.storage = "disk", or remove registry.serve_port.'
        )
    if (files[0] is None) != (files[1] is None) or (files[2] is not None and files[0] is None):
        yield (
            "registry.serve_certificate and registry.serve_key belong together, and "
            "registry.serve_client_ca needs both. Set the missing file."
        )
    is_open = files[0] is None and not is_loopback(registry.serve_host)
    if is_open and not settings.security.allow_insecure:
        yield (
            f"registry.serve_host = {registry.serve_host!r} would receive tokens without TLS. Set "
            "registry.serve_certificate and registry.serve_key, or accept the risk with "
            "security.allow_insecure = true."
        )
    if files[0] is not None and registry.url is None:
        yield (
            "registry.serve_certificate is set and registry.url is not: this broker is a node of "
            "its own registry too. Set registry.url to the URL whose name the certificate has."
        )


def super_users(settings: Settings) -> tuple[str, ...]:
    """Return the super users of the settings, such as `User:admin`."""
    given = settings.security.super_users or ""
    return tuple(text.strip() for text in given.split(";") if text.strip())
