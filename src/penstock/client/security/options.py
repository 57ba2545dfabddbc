"""`Security`: how a client encrypts its connections and logs in, from Kafka's names (pure).

`parse_security` reads the settings of Kafka's Java client and of librdkafka. Guarantees: a setting
that would have no effect is rejected, because the connection would differ from the user's intent.
So are unknown names that start with `security.`, `ssl.` or `sasl.`, and settings that contradict
each other. No message has the value of a secret setting. Other settings are not read.

The values are hashable. Their secrets are lost in a pickle, except after `for_task`. No file is
read here, and no connection is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from penstock.client.security.given_settings import GivenSettings
from penstock.client.security.sasl_options import (
    SASL_SECRET_SETTINGS,
    SASL_SETTINGS,
    SaslOptions,
    TokenSource,
    parse_sasl,
)
from penstock.client.security.tls_options import (
    TLS_SECRET_SETTINGS,
    TLS_SETTINGS,
    CertificateStore,
    Identity,
    TlsOptions,
    parse_tls,
)
from penstock.core.errors import ConfigError

__all__ = [
    "NO_SECURITY",
    "SECRET_SETTINGS",
    "SECURITY_SETTINGS",
    "CertificateStore",
    "Identity",
    "SaslOptions",
    "Security",
    "TlsOptions",
    "TokenSource",
    "parse_security",
]

SECURITY_PROTOCOL: Final = "security.protocol"
VERIFICATION: Final = "enable.ssl.certificate.verification"
PLAINTEXT: Final = "PLAINTEXT"
TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})
SASL_PROTOCOLS: Final = frozenset({"SASL_PLAINTEXT", "SASL_SSL"})
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")

SECURITY_SETTINGS: Final = TLS_SETTINGS | SASL_SETTINGS | {SECURITY_PROTOCOL, VERIFICATION}
"""All names that `parse_security` reads. `enable.ssl.certificate.verification` is one of them and
always rejected: without it in this set, a caller that selects by name would ignore it."""
SECRET_SETTINGS: Final = TLS_SECRET_SETTINGS | SASL_SECRET_SETTINGS
"""Names whose values must not be shown."""

SECURITY_PARTS: Final = ("security.", "ssl.", "sasl.")
"""A name with one of these parts is meant as a setting of the connection's security."""


@dataclass(frozen=True, slots=True)
class Security:
    """The security protocol of a client, with its options."""

    protocol: str = PLAINTEXT
    tls: TlsOptions | None = None
    """The options of TLS, exactly if the protocol has it."""
    sasl: SaslOptions | None = None
    """The options of SASL, exactly if the protocol has it."""

    def __post_init__(self) -> None:
        assert self.protocol in PROTOCOLS
        assert self.uses_tls == (self.tls is not None)
        assert self.uses_sasl == (self.sasl is not None)

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol in TLS_PROTOCOLS

    @property
    def uses_sasl(self) -> bool:
        """Whether connections log in."""
        return self.protocol in SASL_PROTOCOLS

    def for_task(self) -> Self:
        """Return the same options with secrets that survive pickling, for a task of Spark."""
        return replace(
            self,
            tls=None if self.tls is None else self.tls.for_task(),
            sasl=None if self.sasl is None else self.sasl.for_task(),
        )


NO_SECURITY: Final = Security()
"""Connections without encryption and login, Kafka's default."""


def parse_security(settings: Mapping[str, str], *, prefix: str = "") -> Security:
    """Return the options from Kafka's settings; `prefix` is the prefix of each name in messages."""
    for name in settings:
        # Anywhere in the name: a prefix, a space or a byte order mark before it, or capitals, would
        # leave the connection without the security that the user asked for.
        is_own = any(part in name.lower() for part in SECURITY_PARTS)
        if is_own and name not in SECURITY_SETTINGS:
            raise _unknown(name, prefix)
    given = GivenSettings(settings, prefix, SECURITY_SETTINGS)
    given.refuse(
        (VERIFICATION,),
        "cannot be set: the broker's certificate is always verified. Remove it, and set "
        f"{prefix}ssl.ca.location to the authority that signed the certificate.",
    )
    protocol = _protocol(given)
    if protocol not in TLS_PROTOCOLS:
        _refuse_unused(given, "ssl.", "TLS", protocol)
    if protocol not in SASL_PROTOCOLS:
        _refuse_unused(given, "sasl.", "SASL", protocol)
    return Security(
        protocol,
        parse_tls(given) if protocol in TLS_PROTOCOLS else None,
        parse_sasl(given) if protocol in SASL_PROTOCOLS else None,
    )


def _protocol(given: GivenSettings) -> str:
    text = given.text(SECURITY_PROTOCOL, PLAINTEXT)
    if text.upper() not in PROTOCOLS:
        raise ConfigError(
            f"{given.shown(SECURITY_PROTOCOL)}={text} is unknown. "
            f"Set one of {', '.join(PROTOCOLS)}."
        )
    return text.upper()


def _refuse_unused(given: GivenSettings, family: str, kind: str, protocol: str) -> None:
    origin = "" if given.has(SECURITY_PROTOCOL) else ", the default"
    protocols = " or ".join(name for name in PROTOCOLS if family[:-1].upper() in name)
    given.refuse(
        (name for name in given.names() if name.startswith(family)),
        f"needs {kind}, but {given.shown(SECURITY_PROTOCOL)} is {protocol}{origin}. "
        f"Set it to {protocols}, or remove the setting.",
    )


def _unknown(name: str, prefix: str) -> ConfigError:
    known = sorted(SECURITY_SETTINGS - {VERIFICATION})
    import difflib  # keeps the start of a broker fast

    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.8)
    remedy = f"Did you mean '{prefix}{close[0]}'?" if close else "Remove it."
    return ConfigError(f"{prefix}{name} is unknown or not supported. {remedy}")
