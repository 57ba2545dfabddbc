"""Certificates for tests, created with `cryptography`: authorities, servers, clients.

The keys are ECDSA P-256, which takes no noticeable time to create. Nothing here is for production.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str = "", form: str = "PKCS8") -> str:
        """The key, encrypted if there is a password; the older form is TraditionalOpenSSL."""
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password.encode())
        return self.key.private_bytes(
            serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), encryption
        ).decode()

    def pkcs12(self, password: str, authorities: Sequence["Issued"] = ()) -> bytes:
        """A key store with the key, its certificate and its authorities."""
        return pkcs12.serialize_key_and_certificates(
            b"client",
            self.key,
            self.certificate,
            [one.certificate for one in authorities],
            serialization.BestAvailableEncryption(password.encode()),
        )

    def trust_pkcs12(self, password: str) -> bytes:
        """A trust store with this certificate alone."""
        return pkcs12.serialize_key_and_certificates(
            None,
            None,
            None,
            [self.certificate],
            serialization.BestAvailableEncryption(password.encode()),
        )


def issue(
    name: str,
    issuer: Issued | None = None,
    *,
    hosts: Sequence[str] = (),
    starts_in: timedelta = -DAY,
    ends_in: timedelta = DAY,
) -> Issued:
    """Return a certificate; without an issuer it is an authority that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + starts_in)
        .not_valid_after(now + ends_in)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if hosts:
        names = [_general_name(host) for host in hosts]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signer = key if issuer is None else issuer.key
    return Issued(builder.sign(signer, hashes.SHA256()), key)


def write(path: Path, *parts: str | bytes) -> str:
    """Write the parts to a file; return its path."""
    path.write_bytes(b"".join(part.encode() if isinstance(part, str) else part for part in parts))
    return str(path)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
