"""The push address, TLS and login of a consumer, from its options. Pure but for certificate files.

The settings have the names that the Kafka transport uses, so a consumer changes its transport
without other changes. A setting that push does not have raises `ConfigError`: ignored settings of
security would be a surprise.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import ConfigError
from penstock.protocol.push.payloads import Credentials

PORT_DEFAULT: Final = 9095
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_KNOWN: Final = frozenset(
    {
        "security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username",
        "sasl.password", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
        "ssl.key.password",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PushAddress:
    """Where a consumer connects, and how it proves its identity."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    credentials: Credentials | None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def push_address(server: str, settings: Mapping[str, str]) -> PushAddress:
    """Return the address of a consumer; raise `ConfigError`."""
    unknown = sorted(settings.keys() - _KNOWN)
    if unknown:
        raise ConfigError(
            f"@penstock.consumer: setting {unknown[0]!r} is not possible with the push transport.",
            hint='Remove it, or use transport="kafka".',
        )
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "PLAIN")).upper()
    if protocol not in _PROTOCOLS or mechanism != "PLAIN":
        raise ConfigError(
            f"@penstock.consumer: push has the protocols {', '.join(_PROTOCOLS)} with the "
            f"mechanism PLAIN, not {protocol} with {mechanism}.",
            hint='Use transport="kafka" for other mechanisms.',
        )
    host, port = _split(server)
    credentials = None
    if protocol.startswith("SASL"):
        user, password = settings.get("sasl.username"), settings.get("sasl.password")
        if not user or not password:
            raise ConfigError(
                "@penstock.consumer: sasl.username or sasl.password is missing in settings."
            )
        credentials = Credentials(user=user, password=password)
    return PushAddress(host, port, _context(settings) if "SSL" in protocol else None, credentials)


def _split(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(PORT_DEFAULT)
    if not host or not port.isdigit() or not 0 < int(port) <= 65_535:
        raise ConfigError(
            f"@penstock.consumer: push_server {server!r} is not an address.",
            hint="Write HOST:PORT, such as localhost:9095.",
        )
    return host.strip("[]"), int(port)


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.get("ssl.ca.location"))
        certificate = settings.get("ssl.certificate.location")
        if certificate is not None:
            context.load_cert_chain(
                certificate, settings.get("ssl.key.location"), settings.get("ssl.key.password")
            )
    except (OSError, ValueError) as error:
        raise ConfigError(f"@penstock.consumer: the TLS files cannot be used: {error}") from error
    return context
