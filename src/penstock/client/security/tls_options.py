"""`TlsOptions`: certificates, versions and ciphers of a client, from Kafka's `ssl.*` names (pure).

Both families of names are accepted: those of Kafka's Java client (key stores, trust stores) and
those of librdkafka (files in PEM). Guarantees: the broker's certificate is always verified, TLS 1.2
is the lowest version, and a chosen cipher of TLS 1.2 has forward secrecy and authenticated
encryption. No file is read here: `penstock.client.security.tls` does that.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from penstock.client.security.cipher_suites import CIPHER_SETTINGS, VERSIONS, parse_ciphers
from penstock.client.security.given_settings import GivenSettings
from penstock.core.errors import ConfigError
from penstock.security.secret import Secret

StoreKind = Literal["PEM", "PKCS12"]
PEM: Final = "PEM"
PKCS12: Final = "PKCS12"

TRUST_SETTINGS: Final = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
)
CERTIFICATE_SETTINGS: Final = ("ssl.certificate.location", "ssl.certificate.pem")
KEY_SETTINGS: Final = ("ssl.key.location", "ssl.key.pem")
KEYSTORE_TEXTS: Final = ("ssl.keystore.certificate.chain", "ssl.keystore.key")
KEYSTORE_LOCATION: Final = "ssl.keystore.location"
KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105 (a name)
HOST_NAME_CHECK: Final = "ssl.endpoint.identification.algorithm"

TLS_SETTINGS: Final = frozenset(
    {
        *TRUST_SETTINGS,
        *CERTIFICATE_SETTINGS,
        *KEY_SETTINGS,
        *KEYSTORE_TEXTS,
        "ssl.truststore.type",
        "ssl.truststore.password",
        KEYSTORE_LOCATION,
        "ssl.keystore.type",
        "ssl.keystore.password",
        KEY_PASSWORD,
        HOST_NAME_CHECK,
        *CIPHER_SETTINGS,
    }
)
TLS_SECRET_SETTINGS: Final = frozenset(
    {
        "ssl.ca.pem",
        "ssl.truststore.certificates",
        "ssl.certificate.pem",
        "ssl.key.pem",
        *KEYSTORE_TEXTS,
        "ssl.truststore.password",
        "ssl.keystore.password",
        KEY_PASSWORD,
    }
)
"""Passwords, keys, and PEM texts: a text of certificates may have the key beside them."""

_KINDS: Final[Mapping[str, str]] = {
    "jks": "JKS",
    "p12": PKCS12,
    "pfx": PKCS12,
    "pkcs12": PKCS12,
    "pem": PEM,
    "crt": PEM,
    "cer": PEM,
    "key": PEM,
}


@dataclass(frozen=True, slots=True)
class CertificateStore:
    """Certificates, keys or both: a file, or a text in PEM."""

    location: str = ""
    text: Secret | None = None
    kind: StoreKind = PEM
    password: Secret | None = None

    def for_task(self) -> Self:
        """Return the same store for a task of Spark."""
        return replace(self, text=_for_task(self.text), password=_for_task(self.password))


@dataclass(frozen=True, slots=True)
class Identity:
    """The client's certificate chain and its private key, for mutual TLS."""

    certificates: CertificateStore
    key: CertificateStore | None = None
    """The store of the private key; None: the key is in the store of the certificates."""

    def for_task(self) -> Self:
        """Return the same identity for a task of Spark."""
        key = None if self.key is None else self.key.for_task()
        return replace(self, certificates=self.certificates.for_task(), key=key)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The TLS options of a client."""

    trust: CertificateStore | None = None
    """The certificate authorities that sign brokers' certificates; None: the system's."""
    identity: Identity | None = None
    checks_host_name: bool = True
    cipher_suites: tuple[str, ...] = ()
    """OpenSSL's names of ciphers for TLS 1.2; empty: the defaults of Python."""
    versions: tuple[str, ...] = VERSIONS

    def for_task(self) -> Self:
        """Return the same options for a task of Spark."""
        return replace(
            self,
            trust=None if self.trust is None else self.trust.for_task(),
            identity=None if self.identity is None else self.identity.for_task(),
        )


def parse_tls(given: GivenSettings) -> TlsOptions:
    """Return the options; raise `ConfigError` for the first wrong setting."""
    algorithm = given.text(HOST_NAME_CHECK, "https").lower()
    if algorithm not in {"https", "none", ""}:
        raise ConfigError(
            f"{given.shown(HOST_NAME_CHECK)}={algorithm} is not supported. Use https."
        )
    suites, versions = parse_ciphers(given)
    return TlsOptions(
        _trust(given),
        _identity(given),
        algorithm == "https",
        suites,
        versions,
    )


def jks_remedy(location: str) -> str:
    """Return the command that converts a Java key store."""
    source, target = shlex.quote(location), shlex.quote(f"{location}.p12")
    return (
        f"Convert it: keytool -importkeystore -srckeystore {source} -destkeystore {target} "
        "-deststoretype PKCS12"
    )


def _trust(given: GivenSettings) -> CertificateStore | None:
    name = given.only(TRUST_SETTINGS)
    if name == "ssl.truststore.location":
        return _store(given, "ssl.truststore")
    if name == "ssl.truststore.certificates":
        _require_pem_text(given, "ssl.truststore")
    else:
        given.refuse(
            ("ssl.truststore.type", "ssl.truststore.password"),
            f"needs {given.shown('ssl.truststore.location')}. Set both or remove it.",
        )
    return None if name is None else _pem(given, name)


def _identity(given: GivenSettings) -> Identity | None:
    ways = [
        given.first((KEYSTORE_LOCATION,)),
        given.first(KEYSTORE_TEXTS),
        given.first((*CERTIFICATE_SETTINGS, *KEY_SETTINGS)),
    ]
    found = [name for name in ways if name is not None]
    if len(found) > 1:
        raise given.contradiction(found[0], found[1])
    if ways[0] is not None:
        return _keystore(given)
    if ways[1] is not None:
        _require_pem_text(given, "ssl.keystore")
        return _separate(given, *KEYSTORE_TEXTS)
    given.refuse(
        ("ssl.keystore.type", "ssl.keystore.password"),
        f"needs {given.shown(KEYSTORE_LOCATION)}. Set both or remove it.",
    )
    if ways[2] is None:
        given.refuse((KEY_PASSWORD,), "is set without a key. Set ssl.key.location or remove it.")
        return None
    return _separate(given, given.only(CERTIFICATE_SETTINGS), given.only(KEY_SETTINGS))


def _separate(given: GivenSettings, certificate: str | None, key: str | None) -> Identity:
    """Return an identity from one setting for the certificates and one for the key."""
    password = given.secret(KEY_PASSWORD)
    if certificate is None or not given.has(certificate):
        assert key is not None
        wanted = certificate or CERTIFICATE_SETTINGS[0]
        raise ConfigError(
            f"{given.shown(key)} is set without a certificate. Set {given.shown(wanted)} too."
        )
    certificates = _pem(given, certificate)
    if key is None or not given.has(key):
        return Identity(replace(certificates, password=password))
    return Identity(certificates, replace(_pem(given, key), password=password))


def _keystore(given: GivenSettings) -> Identity:
    store = _store(given, "ssl.keystore")
    password = given.secret(KEY_PASSWORD)
    if password is None:
        return Identity(store)
    if store.kind == PKCS12 and store.password != password:
        raise ConfigError(
            f"{given.shown(KEY_PASSWORD)} differs from {given.shown('ssl.keystore.password')}. "
            "A PKCS12 file has one password: set only the second one."
        )
    return Identity(replace(store, password=password))


def _store(given: GivenSettings, family: str) -> CertificateStore:
    """Return the file of `ssl.truststore.*` or `ssl.keystore.*`."""
    location = given.text(f"{family}.location")
    kind = _kind(given, family, location)
    if kind == PEM:
        _refuse_store_password(given, family)
    return CertificateStore(location, None, kind, given.secret(f"{family}.password"))


def _kind(given: GivenSettings, family: str, location: str) -> StoreKind:
    extension = location.rpartition(".")[2].lower()
    name = f"{family}.type"
    kind = given.text(name).upper() or _KINDS.get(extension, "")
    if kind == PEM:
        return PEM
    if kind == PKCS12:
        return PKCS12
    if kind == "JKS":
        raise ConfigError(
            f"{given.shown(f'{family}.location')}={location} is a Java key store (JKS), which is "
            f"not supported. {jks_remedy(location)}"
        )
    if not kind:
        raise ConfigError(
            f"{given.shown(name)} is missing: the name '{location}' does not show the format. "
            "Set it to PEM or PKCS12."
        )
    raise ConfigError(f"{given.shown(name)}={kind} is not supported. Use PEM or PKCS12.")


def _require_pem_text(given: GivenSettings, family: str) -> None:
    kind = given.text(f"{family}.type", PEM)
    if kind.upper() != PEM:
        raise ConfigError(
            f"{given.shown(f'{family}.type')}={kind} does not fit certificates as text. "
            "Set it to PEM or remove it."
        )
    _refuse_store_password(given, family)


def _refuse_store_password(given: GivenSettings, family: str) -> None:
    given.refuse(
        (f"{family}.password",),
        f"does not fit PEM. Remove it; {given.shown(KEY_PASSWORD)} has the password of a key.",
    )


def _pem(given: GivenSettings, name: str) -> CertificateStore:
    """Return the store of a setting that has a file's path or a text, both in PEM."""
    if not name.endswith(".location"):
        return CertificateStore(text=given.secret(name))
    location = given.text(name)
    if location.lower().endswith(".jks"):
        raise ConfigError(
            f"{given.shown(name)}={location} is a Java key store (JKS), which is not supported. "
            f"{jks_remedy(location)}"
        )
    return CertificateStore(location)


def _for_task(secret: Secret | None) -> Secret | None:
    return None if secret is None else secret.for_task()
