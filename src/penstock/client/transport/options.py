"""`ClientOptions`: how to reach a cluster, from Kafka's own names of settings (pure).

Settings outside of `CLIENT_SETTINGS` are not read; the caller decides about them. Only unknown
settings of TLS and SASL are rejected instead of ignored, because otherwise the connection would
differ from the user's intent: see `penstock.client.security.options`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from penstock.client.security.options import (
    NO_SECURITY,
    SECURITY_SETTINGS,
    Security,
    parse_security,
)
from penstock.client.transport.addresses import Address, parse_addresses
from penstock.client.transport.versions import CLIENT_NAME
from penstock.core.errors import ConfigError, InvalidRequestError
from penstock.core.limits import CLIENT_ID_BYTES_MAX

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
CLIENT_ID: Final = "client.id"
REQUEST_TIMEOUT_MS: Final = "request.timeout.ms"
API_TIMEOUT_MS: Final = "default.api.timeout.ms"

CLIENT_SETTINGS: Final = SECURITY_SETTINGS | {
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    REQUEST_TIMEOUT_MS,
    API_TIMEOUT_MS,
}
"""The settings that this module reads."""

TIMEOUT_MS_MAX: Final = 3_600_000
"""An hour: a job that waits longer for one call should get an error instead."""


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Connection options of a cluster.

    They may be pickled, but their secrets are lost then; `for_task` keeps them.
    """

    bootstrap: tuple[Address, ...]
    client_id: str = CLIENT_NAME
    request_timeout_ms: int = 30_000
    """Timeout for one request and its answer."""
    retry_timeout_ms: int = 60_000
    """Timeout for a call with all its retries: Kafka's default.api.timeout.ms."""
    security: Security = NO_SECURITY
    """Encryption and login; the default has neither."""

    def for_task(self) -> Self:
        """Return the same options with secrets that survive pickling, for a task of Spark."""
        return replace(self, security=self.security.for_task())


def parse_client_options(settings: Mapping[str, str], *, prefix: str = "") -> ClientOptions:
    """Return the options from Kafka's settings; `prefix` is the prefix of each name in messages."""
    security = parse_security(settings, prefix=prefix)
    if BOOTSTRAP_SERVERS not in settings:
        raise ConfigError(
            f"{prefix}{BOOTSTRAP_SERVERS} is missing; give host:port, such as localhost:9092."
        )
    try:
        bootstrap = parse_addresses(settings[BOOTSTRAP_SERVERS])
    except InvalidRequestError as error:
        text = f"{error} {error.hint}".rstrip()
        raise ConfigError(f"{prefix}{BOOTSTRAP_SERVERS}: {text}") from error
    client_id = checked_client_id(settings.get(CLIENT_ID, CLIENT_NAME), prefix)
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
        security,
    )


def checked_client_id(client_id: str, prefix: str = "") -> str:
    """Return a client id that fits into a request."""
    try:
        size_bytes = len(client_id.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{prefix}{CLIENT_ID} is not valid Unicode.") from None
    if size_bytes > CLIENT_ID_BYTES_MAX:
        raise ConfigError(f"{prefix}{CLIENT_ID} is longer than {CLIENT_ID_BYTES_MAX} bytes.")
    return client_id


def _milliseconds(settings: Mapping[str, str], name: str, default: int, prefix: str) -> int:
    text = settings.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or not 0 < int(text) <= TIMEOUT_MS_MAX:
        raise ConfigError(
            f"{prefix}{name}={text}: give milliseconds as a whole number, 1 to {TIMEOUT_MS_MAX}."
        )
    return int(text)
