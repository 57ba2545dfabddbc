"""`ClientOptions`: how to reach a cluster, from Kafka's own names of settings (pure).

Settings outside of `CLIENT_SETTINGS` are not read; the caller decides about them. Two kinds are
rejected instead of ignored, because otherwise the connection would differ from the user's intent: a
security protocol other than PLAINTEXT, and every setting of TLS and SASL. Neither is supported yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.transport.addresses import Address, parse_addresses
from penstock.client.transport.versions import CLIENT_NAME
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.core.limits import CLIENT_ID_BYTES_MAX

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
CLIENT_ID: Final = "client.id"
REQUEST_TIMEOUT_MS: Final = "request.timeout.ms"
API_TIMEOUT_MS: Final = "default.api.timeout.ms"
SECURITY_PROTOCOL: Final = "security.protocol"

CLIENT_SETTINGS: Final = frozenset(
    {BOOTSTRAP_SERVERS, CLIENT_ID, REQUEST_TIMEOUT_MS, API_TIMEOUT_MS, SECURITY_PROTOCOL}
)
"""The settings that this module reads."""

PLAINTEXT: Final = "PLAINTEXT"
TIMEOUT_MS_MAX: Final = 3_600_000
"""An hour: a job that waits longer for one call should get an error instead."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Connection options of a cluster. They may be pickled and sent to another process."""

    bootstrap: tuple[Address, ...]
    client_id: str = CLIENT_NAME
    request_timeout_ms: int = 30_000
    """Timeout for one request and its answer."""
    retry_timeout_ms: int = 60_000
    """Timeout for a call with all its retries: Kafka's default.api.timeout.ms."""
    security_protocol: str = PLAINTEXT


def parse_client_options(settings: Mapping[str, str], *, prefix: str = "") -> ClientOptions:
    """Return the options from Kafka's settings; `prefix` is the prefix of each name in messages."""
    for name, value in settings.items():
        _refuse_security(name, value, prefix)
    if BOOTSTRAP_SERVERS not in settings:
        raise ConfigError(
            f"{prefix}{BOOTSTRAP_SERVERS} is missing; give host:port, such as localhost:9092."
        )
    try:
        bootstrap = parse_addresses(settings[BOOTSTRAP_SERVERS])
    except InvalidRequestError as error:
        text = f"{error} {error.hint}".rstrip()
        raise ConfigError(f"{prefix}{BOOTSTRAP_SERVERS}: {text}") from error
    client_id = settings.get(CLIENT_ID, CLIENT_NAME)
    if len(client_id.encode()) > CLIENT_ID_BYTES_MAX:
        raise ConfigError(f"{prefix}{CLIENT_ID} is longer than {CLIENT_ID_BYTES_MAX} bytes.")
    defaults = ClientOptions(bootstrap)
    request_timeout_ms = _milliseconds(
        settings, REQUEST_TIMEOUT_MS, defaults.request_timeout_ms, prefix
    )
    return ClientOptions(
        bootstrap,
        client_id,
        request_timeout_ms,
        _milliseconds(
            settings,
            API_TIMEOUT_MS,
            max(defaults.retry_timeout_ms, request_timeout_ms),
            prefix,
        ),
    )


def _refuse_security(name: str, value: str, prefix: str) -> None:
    if name == SECURITY_PROTOCOL and value.upper() != PLAINTEXT:
        raise ConfigError(
            f"{prefix}{name}={value}: only PLAINTEXT is built yet. "
            "Give the address of a PLAINTEXT listener."
        )
    if name.startswith(("ssl.", "sasl.")):
        kind = "TLS" if name.startswith("ssl.") else "SASL"
        raise ConfigError(
            f"{prefix}{name}: {kind} is not built yet. "
            "Leave it out and give the address of a PLAINTEXT listener."
        )


def _milliseconds(settings: Mapping[str, str], name: str, default: int, prefix: str) -> int:
    text = settings.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or not 0 < int(text) <= TIMEOUT_MS_MAX:
        raise ConfigError(
            f"{prefix}{name}={text}: give milliseconds as a whole number, 1 to {TIMEOUT_MS_MAX}."
        )
    return int(text)
