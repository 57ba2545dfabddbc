"""Keywords of `BrokerConfig` that need a rule: TLS, one port under two names, groups (pure).

Guarantees: TLS files never belong to a listener without TLS, and contradictory keywords are
problems with a remedy. It is NOT the check of values: `core.settings.setting_layers` checks each.
"""

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from penstock.core.settings.listener_declarations import SSL, NamedListener, TlsFileSettings

FilePath = str | PurePath
_LISTENER_NAME: Final = "CLIENTS"
MOVED: Final = (
    "listener.host",
    "listener.port",
    "listener.advertised_host",
    "listener.advertised_port",
)
"""Settings of the listener without TLS that become those of the one with TLS."""


class TlsKeywords(NamedTuple):
    """The keywords about TLS of one listener."""

    is_enabled: bool | None
    """None: TLS is on if a file is given."""
    certificate: FilePath | None
    key: FilePath | None
    client_ca: FilePath | None

    @property
    def is_on(self) -> bool:
        """Whether the listener has TLS."""
        return self.has_files if self.is_enabled is None else self.is_enabled

    @property
    def has_files(self) -> bool:
        """Whether a file is given; an empty name is one, and wrong."""
        return any(file is not None for file in self[1:])


def keyword_problems(
    tls: TlsKeywords,
    admin_port: int | None,
    metrics_port: int | None,
    *,
    has_listeners: bool,
    enable_consumer_groups: bool,
) -> Iterator[str]:
    """Yield the contradictions between keywords, each with a remedy."""
    if None not in (admin_port, metrics_port) and admin_port != metrics_port:
        yield (
            f"BrokerConfig: admin_port={admin_port} and metrics_port={metrics_port} name one port. "
            "Pass one of them."
        )
    if not enable_consumer_groups:
        yield (
            "BrokerConfig: enable_consumer_groups=False: a broker always serves groups. Leave the "
            "keyword out."
        )
    if tls.is_enabled is False and tls.has_files:
        yield (
            "BrokerConfig: enable_tls=False with files of TLS: the listener would be readable on "
            "its way. Leave enable_tls out, or leave tls_cert, tls_key and tls_ca out."
        )
    if tls.is_on and has_listeners:
        yield (
            "BrokerConfig: the settings declare listeners, and keywords ask for TLS. Set tls of a "
            "listener in [[listeners]], and leave the keywords out."
        )
    if tls.is_on and not (tls.certificate and tls.key):
        missing = "tls_key" if tls.certificate else "tls_cert"
        yield f"BrokerConfig: TLS needs tls_cert and tls_key, and {missing} is missing. Pass it."
    if tls.client_ca is not None and not str(tls.client_ca):
        yield "BrokerConfig: tls_ca names no file. Pass one, or leave tls_ca out."


def acl_problems(enable_acl: object, acl_config: object, authorizer: object) -> Iterator[str]:
    """Yield the contradictions about access; rules without an authorizer would allow everything."""
    if enable_acl is not None and not isinstance(enable_acl, bool):
        yield f"BrokerConfig: enable_acl={enable_acl!r} is neither True nor False."
    elif acl_config is not None and (
        authorizer == "none" if enable_acl is None else not enable_acl
    ):
        yield (
            "BrokerConfig: acl_config names a file of access rules, and without enable_acl=True "
            "everything is allowed. Pass enable_acl=True, or leave acl_config out."
        )


def tls_listener(tls: TlsKeywords, values: Mapping[str, object]) -> NamedListener:
    """Return the listener of keywords without problems; clients need a certificate with a CA."""
    assert tls.certificate is not None
    assert tls.key is not None
    files = TlsFileSettings(
        certificate=str(tls.certificate),
        key=str(tls.key),
        client_ca=None if tls.client_ca is None else str(tls.client_ca),
        client_auth="none" if tls.client_ca is None else "required",
    )
    moved = {key.partition(".")[2]: values[key] for key in MOVED}
    return NamedListener.model_validate(
        {"name": _LISTENER_NAME, "protocol": SSL, "tls": files, **moved}
    )
