"""A small certificate authority for tests: servers, clients, and certificates that must fail.

Guarantees: every certificate has the extensions that strict checkers ask for (key usage, extended
key usage, key identifiers). `CertificateAuthority.server` and `.client` write the certificate as
PEM and as PKCS12, with the key in plain and encrypted, in a folder of its own below the authority's
folder. An intermediate authority adds its own certificate to each chain. Keys are ECDSA P-256,
so that an identity costs some milliseconds and a test can create as many as it needs.

It is NOT an authority for anything else: passwords are constants, and there is no revocation.
"""

import contextlib
import dataclasses
import datetime
import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID

PASSWORD: Final = "store-password"
"""Of encrypted keys and of PKCS12 files. Java takes six characters or more."""

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
ALIAS: Final = "penstock"

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclasses.dataclass(frozen=True)
class Validity:
    """The time in which a certificate is valid, in days from now."""

    from_days: float
    until_days: float


CURRENT: Final = Validity(-1, 30)
EXPIRED: Final = Validity(-30, -1)
NOT_YET_VALID: Final = Validity(10, 30)


@dataclasses.dataclass(frozen=True)
class Identity:
    """The files of one certificate and its private key."""

    subject: str
    """As in RFC 4514. Apache Kafka's principal is `User:` and this text, for plain attributes."""
    certificate: Path
    """PEM: this certificate only."""
    chain: Path
    """PEM: this certificate, then those of intermediate authorities; the root is not in it."""
    key: Path
    """PEM, PKCS8, not encrypted."""
    encrypted_key: Path
    """PEM, PKCS8, encrypted with `password`."""
    combined: Path
    """PEM: key and chain in one file, as Apache Kafka and librdkafka accept it."""
    keystore: Path
    """PKCS12 with key and chain, encrypted with `password`."""
    password: str = PASSWORD


def ecdsa_key() -> ec.EllipticCurvePrivateKey:
    """A new P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def rsa_key() -> rsa.RSAPrivateKey:
    """A new RSA key of 2048 bits: slow, for tests about RSA."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class CertificateAuthority:
    """Issues certificates into a folder; `certificate` and `truststore` are what peers trust."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str = "Penstock test authority",
        issuer: "CertificateAuthority | None" = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ecdsa_key()
        self._issued = 0
        subject = x509.Name.from_rfc4514_string(f"CN={name},O=Penstock")
        builder = _builder(subject, self._key, CURRENT)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        builder = builder.add_extension(_key_usage(is_authority=True), True)
        if issuer is None:
            self._own = _signed(builder, subject, self._key)
            self._intermediates: list[x509.Certificate] = []
        else:
            self._own = _signed(builder, issuer._own.subject, issuer._key)
            self._intermediates = [self._own, *issuer._intermediates]
        root = self._own if issuer is None else issuer._root
        self._root: x509.Certificate = root
        self.certificate = _written(folder / "authority.pem", _pem(root))
        """PEM: the root, also for an intermediate authority."""
        self.truststore = _written(
            folder / "truststore.p12",
            pkcs12.serialize_java_truststore(
                [pkcs12.PKCS12Certificate(root, b"authority")], _encryption()
            ),
        )
        """PKCS12 with the root, marked as trusted for Java, encrypted with `PASSWORD`."""

    def intermediate(self, name: str = "Penstock test intermediate") -> "CertificateAuthority":
        """An authority whose certificate this one signs, in a folder below this one's."""
        return CertificateAuthority(self._next_folder("intermediate"), name=name, issuer=self)

    def server(
        self,
        names: Sequence[str] = LOOPBACK,
        *,
        validity: Validity = CURRENT,
        new_key: Callable[[], PrivateKey] = ecdsa_key,
    ) -> Identity:
        """A server with these host names and IP addresses; the first one is its common name."""
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return self._identity(
            "server", f"CN={names[0]},O=Penstock", validity, new_key(), alternatives
        )

    def broker(self, names: Sequence[str] = LOOPBACK) -> Identity:
        """A broker of a cluster, which is a server for other brokers and a client of them."""
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return self._identity(
            "broker", f"CN={names[0]},O=Penstock", CURRENT, ecdsa_key(), alternatives
        )

    def client(
        self,
        subject: str = "CN=client,O=Penstock",
        *,
        validity: Validity = CURRENT,
        new_key: Callable[[], PrivateKey] = ecdsa_key,
    ) -> Identity:
        """A client with this subject, written as in RFC 4514."""
        return self._identity("client", subject, validity, new_key(), None)

    def _identity(
        self,
        kind: str,
        subject: str,
        validity: Validity,
        key: PrivateKey,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Identity:
        name = x509.Name.from_rfc4514_string(subject)
        builder = _builder(name, key, validity)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        builder = builder.add_extension(_key_usage(is_authority=False), True)
        usages = {
            "server": [ExtendedKeyUsageOID.SERVER_AUTH],
            "client": [ExtendedKeyUsageOID.CLIENT_AUTH],
            "broker": [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
        }
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages[kind]), False)
        if alternatives is not None:
            builder = builder.add_extension(alternatives, False)
        signed = _signed(builder, self._own.subject, self._key)
        return self._write(self._next_folder(kind), subject, signed, key)

    def _write(
        self, folder: Path, subject: str, signed: x509.Certificate, key: PrivateKey
    ) -> Identity:
        chain = _pem(signed, *self._intermediates)
        plain_key = _key_pem(key, serialization.NoEncryption())
        store = pkcs12.serialize_key_and_certificates(
            ALIAS.encode(), key, signed, self._intermediates, _encryption()
        )
        return Identity(
            subject=subject,
            certificate=_written(folder / "certificate.pem", _pem(signed)),
            chain=_written(folder / "chain.pem", chain),
            key=_written(folder / "key.pem", plain_key),
            encrypted_key=_written(folder / "encrypted_key.pem", _key_pem(key, _encryption())),
            combined=_written(folder / "combined.pem", plain_key + chain),
            keystore=_written(folder / "keystore.p12", store),
        )

    def _next_folder(self, kind: str) -> Path:
        self._issued += 1
        folder = self._folder / f"{kind}-{self._issued}"
        folder.mkdir()
        return folder


def _builder(subject: x509.Name, key: PrivateKey, validity: Validity) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=validity.from_days))
        .not_valid_after(now + datetime.timedelta(days=validity.until_days))
        .add_extension(identifier, critical=False)
    )


def _signed(
    builder: x509.CertificateBuilder, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    complete = builder.issuer_name(issuer).add_extension(identifier, critical=False)
    return complete.sign(key, hashes.SHA256())


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)


def _encryption() -> serialization.KeySerializationEncryption:
    return serialization.BestAvailableEncryption(PASSWORD.encode())


def _key_pem(key: PrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
