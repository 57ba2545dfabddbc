"""`EtcdOptions`: addresses, certificates and user of an etcd cluster, checked (pure).

Guarantees: every address has a host and a port; all of them use TLS, or none. A wrong value is a
`ConfigError` that names the setting, the value and the remedy, before anything is connected.

It opens no file: `etcd_channels` reads the certificates for each new connection, so renewed files
are used without a restart.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from penstock.cluster.etcd.etcd_limits import ENDPOINTS_MAX
from penstock.core.errors import ConfigError
from penstock.security.secret import Secret

_PORT: Final = 2379
"""etcd's port for clients."""
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The client address of one member."""

    host: str
    port: int
    has_tls: bool

    @property
    def target(self) -> str:
        """As gRPC writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """How to reach etcd."""

    endpoints: tuple[Endpoint, ...]
    user: str = ""
    """Empty: no password. With client certificates the common name is the user."""
    password: Secret | None = None
    ca_file: str = ""
    """PEM. Empty: the authorities that gRPC trusts by default."""
    certificate_file: str = ""
    """PEM: the client's certificate."""
    key_file: str = ""
    """PEM: its private key."""
    first_member: int = 0
    """The member to begin with, so that brokers do not all use the first one."""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigError("`cluster.etcd` has no address: name every etcd member")
        if len(self.endpoints) > ENDPOINTS_MAX:
            raise ConfigError(
                f"`cluster.etcd` has {len(self.endpoints)} addresses, at most {ENDPOINTS_MAX}: "
                "name each member once"
            )
        if len({endpoint.has_tls for endpoint in self.endpoints}) > 1:
            raise ConfigError(
                "`cluster.etcd` has addresses with and without TLS: write all with `https://`"
            )
        files = (self.ca_file, self.certificate_file, self.key_file)
        if any(files) and not self.has_tls:
            raise ConfigError(
                "certificates for etcd are set, and `cluster.etcd` has addresses without TLS: "
                "write them with `https://`"
            )
        if bool(self.certificate_file) != bool(self.key_file):
            raise ConfigError(
                "a client certificate for etcd needs both its certificate and its key file"
            )
        if bool(self.user) != (self.password is not None):
            raise ConfigError(
                "a user of etcd needs both `cluster.etcd_user` and `cluster.etcd_password_file`"
            )

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.endpoints[0].has_tls

    @property
    def has_credentials(self) -> bool:
        """Whether there is a user with a password."""
        return bool(self.user)


def parse_endpoint(text: str) -> Endpoint:
    """Read an address: `https://host:port`, `http://host:port` or `host:port`."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        port = _PORT if parts.port is None else parts.port
    except ValueError:
        port = 0
    is_plain = not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain or not port:
        raise ConfigError(
            f"`cluster.etcd` has {text!r}: write `https://host:{_PORT}` or `http://host:{_PORT}`, "
            f"with a port up to {_PORT_MAX}"
        )
    return Endpoint(parts.hostname, port, parts.scheme == "https")
