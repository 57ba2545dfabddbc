"""Versions and ciphers of TLS, from the names of Kafka, Java and OpenSSL (pure).

Guarantees: TLS 1.2 is the lowest version, and each chosen cipher of TLS 1.2 has forward secrecy and
authenticated encryption. OpenSSL's words for groups of ciphers, such as `HIGH`, are not accepted:
some of them include ciphers without a certificate.
"""

from collections.abc import Mapping
from typing import Final, NoReturn

from penstock.client.security.given_settings import GivenSettings
from penstock.core.errors import ConfigError

TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
VERSIONS: Final = (TLS_1_2, TLS_1_3)
CIPHER_SUITES: Final = "ssl.cipher.suites"
ENABLED_PROTOCOLS: Final = "ssl.enabled.protocols"
PROTOCOL: Final = "ssl.protocol"
CIPHER_SETTINGS: Final = frozenset({CIPHER_SUITES, ENABLED_PROTOCOLS, PROTOCOL})

_SUITES_1_2: Final[Mapping[str, str]] = {
    f"TLS_ECDHE_{key}_WITH_{java}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for java, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""Java's and OpenSSL's names. Other ciphers lack forward secrecy or authenticated encryption."""
_SUITES_1_3: Final = frozenset(
    {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
)


def parse_ciphers(given: GivenSettings) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ciphers for TLS 1.2, and the versions that the named ciphers allow.

    Ciphers of TLS 1.3 cannot be chosen one by one in Python, and all of them are strong. OpenSSL
    and librdkafka keep TLS 1.3 if a list names ciphers of TLS 1.2 only; so does this.
    """
    versions = _versions(given)
    named = _split(given.text(CIPHER_SUITES).replace(":", ","))
    if not named:
        return (), versions
    newest = _SUITES_1_3.intersection(named)
    if newest and newest != _SUITES_1_3:
        raise ConfigError(
            f"{given.shown(CIPHER_SUITES)} has only some ciphers of TLS 1.3, which cannot be "
            f"chosen one by one. Name all ({', '.join(sorted(_SUITES_1_3))}) or none."
        )
    older = dict.fromkeys(_SUITES_1_2.get(name, name) for name in named if name not in newest)
    for name in older:
        if name not in _SUITES_1_2.values():
            raise ConfigError(
                f"{given.shown(CIPHER_SUITES)}: cipher {name} is not supported. "
                f"Use ciphers of {', '.join(_SUITES_1_2.values())}."
            )
    if older and TLS_1_2 not in versions:
        raise ConfigError(
            f"{given.shown(CIPHER_SUITES)} has ciphers of TLS 1.2, but "
            f"{given.shown(ENABLED_PROTOCOLS)} excludes it. Change one of them."
        )
    if older:
        return tuple(older), versions
    if TLS_1_3 not in versions:
        raise ConfigError(
            f"{given.shown(CIPHER_SUITES)} has ciphers of TLS 1.3 only, but "
            f"{given.shown(ENABLED_PROTOCOLS)} excludes it. Change one of them."
        )
    return (), (TLS_1_3,)


def _versions(given: GivenSettings) -> tuple[str, ...]:
    """Return the enabled versions. As in Java, `ssl.protocol=TLSv1.2` excludes TLS 1.3."""
    protocol = given.text(PROTOCOL, "TLS")
    if protocol not in {"TLS", *VERSIONS}:
        _refuse_version(given, PROTOCOL, protocol)
    enabled = _split(given.text(ENABLED_PROTOCOLS, ",".join(VERSIONS)))
    for version in enabled:
        if version not in VERSIONS:
            _refuse_version(given, ENABLED_PROTOCOLS, version)
    if not enabled:
        _refuse_version(given, ENABLED_PROTOCOLS, "''")
    allowed = (TLS_1_2,) if protocol == TLS_1_2 else VERSIONS
    versions = tuple(version for version in allowed if version in enabled)
    if not versions:
        raise ConfigError(
            f"{given.shown(PROTOCOL)}={protocol} excludes every version of "
            f"{given.shown(ENABLED_PROTOCOLS)}. Change one of them."
        )
    return versions


def _refuse_version(given: GivenSettings, name: str, version: str) -> NoReturn:
    raise ConfigError(
        f"{given.shown(name)}: version {version} is not supported. Use {' or '.join(VERSIONS)}."
    )


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
