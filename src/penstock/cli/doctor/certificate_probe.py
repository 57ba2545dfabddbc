"""Collects the facts of certificates for `penstock doctor`: files, names, dates, keys and chains.

It only reads files, and keeps no key. The broker's own code decides whether a broker would start
with them. The package `cryptography` (extra `security`) reads the certificates; without it, only
the files themselves are examined.
"""

import stat
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli.doctor.facts import CertificateFacts, ChainLink
from penstock.client.security.options import TlsOptions
from penstock.core.errors import ConfigError
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import Settings
from penstock.security.certificates.certificate_names import certificate_fields
from penstock.security.certificates.der import CertificateError
from penstock.security.certificates.pem import PemBlock, pem_blocks, validity
from penstock.security.secret import Secret

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes

FILE_BYTES_MAX: Final = 4_194_304
"""The authorities of a whole system have about 250 KiB."""
PASSWORD_BYTES_MAX: Final = 4_096
CHAIN_MAX: Final = 20
"""Certificates of a file that are examined; OpenSSL accepts chains of 10 by default."""
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::", "*"})  # noqa: S104 (compared only)


def probe_certificates(settings: Settings, client: TlsOptions | None) -> list[CertificateFacts]:
    """Return the facts of each TLS listener and of the admin port.

    Known authorities are those of the system, of all clients' certificates, and of the client's
    settings.
    """
    trusted = _trusted(client)
    for listener in settings.all_listeners:
        if listener.tls is not None and listener.tls.client_ca is not None:
            trusted += _certificates(listener.tls.client_ca)[0]
    found = [_of_listener(one, trusted) for one in settings.all_listeners if one.has_tls]
    admin = settings.admin
    if admin.enabled and admin.certificate is not None and admin.key is not None:
        host = "" if admin.host in _WILDCARDS else admin.host
        facts = CertificateFacts("", admin.certificate, admin.key, host)
        ca_file = admin.client_ca if admin.auth == "mtls" else None
        found.append(_examined(facts, None, ca_file, trusted))
    return found


def first_certificate(path: str) -> bytes | None:
    """Return the first certificate of a file in DER; None if there is none."""
    ders, _ = _certificates(path)
    return ders[0] if ders else None


def _of_listener(listener: NamedListener, trusted: list[bytes]) -> CertificateFacts:
    tls = listener.tls
    assert tls is not None, "settings of a TLS listener without a certificate are refused"
    facts = CertificateFacts(
        listener.name, tls.certificate, tls.key, listener.advertised_host or listener.host
    )
    ca_file = tls.client_ca if tls.client_auth != "none" else None
    return _examined(facts, tls.key_password_file, ca_file, trusted)


def _examined(
    facts: CertificateFacts,
    password_file: str | None,
    client_ca_file: str | None,
    trusted: list[bytes],
) -> CertificateFacts:
    ders, problem = _certificates(facts.certificate_file)
    facts = _with_key_file(replace(facts, problem=problem))
    authorities: list[bytes] = []
    if client_ca_file is not None:
        authorities, problem = _certificates(client_ca_file)
        facts = replace(
            facts,
            client_ca_file=client_ca_file,
            client_ca_problem=problem,
            client_ca_last_valid_ms=_last_valid_ms(authorities),
        )
    password, problem = _password(password_file)
    if problem and not facts.key_problem:
        facts = replace(facts, key_problem=problem)
    facts = _with_refusal(facts, password)
    try:
        import cryptography  # noqa: F401 (an extra: it may be missing)
    except ImportError:
        return replace(facts, is_examined=False)
    with warnings.catch_warnings():
        # Certificates with unusual fields are a matter of their authorities.
        warnings.simplefilter("ignore")
        if ders:
            facts = _with_certificates(facts, ders[:CHAIN_MAX], [*authorities, *trusted])
        if not facts.key_problem:
            facts = _with_key(facts, ders, password)
    return facts


def _with_refusal(facts: CertificateFacts, password: Secret | None) -> CertificateFacts:
    """Load the files as a broker does when it starts."""
    from penstock.broker.tls.contexts import build_server_tls
    from penstock.broker.tls.tls_files import TlsFiles, read_files

    files = TlsFiles(
        facts.certificate_file,
        facts.key_file,
        password,
        facts.client_ca_file or None,
        "required" if facts.client_ca_file else "none",
    )
    try:
        build_server_tls(files, read_files(files), datetime.now(UTC))
    except ConfigError as error:
        return replace(facts, refusal=str(error), refusal_remedy=error.hint)
    return facts


# --- Files ---


def _certificates(path: str) -> tuple[list[bytes], str]:
    """Return the certificates of a file in DER, and its problem."""
    blocks, problem = _blocks(path)
    try:
        ders = [block.der() for block in blocks if block.is_certificate]
    except ValueError as error:
        return [], f"is damaged: {error}"
    return ders, problem or ("" if ders else "has no certificate")


def _blocks(path: str) -> tuple[list[PemBlock], str]:
    """Return the PEM blocks of a file, and its problem."""
    data, problem = _read(path, FILE_BYTES_MAX)
    if problem:
        return [], problem
    try:
        blocks = pem_blocks(Secret(data.decode("latin-1")))
    except ValueError as error:
        return [], f"is damaged: {error}"
    return (blocks, "") if blocks else ([], "is not PEM: it has no line '-----BEGIN ...'")


def _read(path: str, bytes_max: int) -> tuple[bytes, str]:
    try:
        with Path(path).open("rb") as file:
            data = file.read(bytes_max + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "the path is invalid"
        return b"", f"cannot be read: {reason.lower()}"
    if len(data) > bytes_max:
        return b"", f"is too large (limit {bytes_max:,} bytes)"
    return data, ""


def _last_valid_ms(ders: Iterable[bytes]) -> int | None:
    """Return the time at which the last of these certificates expires."""
    try:
        ends = [validity(der)[1].timestamp() for der in ders]
    except ValueError:
        return None
    return round(max(ends) * 1000) if ends else None


def _with_key_file(facts: CertificateFacts) -> CertificateFacts:
    try:
        status = Path(facts.key_file).stat()
    except (OSError, ValueError):
        status = None
    blocks, problem = _blocks(facts.key_file)
    if not problem and not any(block.is_key for block in blocks):
        problem = "has no private key"
    if status is None:
        return replace(facts, key_problem=problem or "cannot be read")
    return replace(
        facts,
        key_problem=problem,
        key_mode=stat.S_IMODE(status.st_mode),
        is_key_of_root=status.st_uid == 0,
    )


# --- Certificates ---


def _with_certificates(
    facts: CertificateFacts, ders: list[bytes], authorities: list[bytes]
) -> CertificateFacts:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import rsa

    try:
        chain = [x509.load_der_x509_certificate(der) for der in ders]
        links = tuple(_links(chain))
        own = chain[0]
        public_key = own.public_key()
        names = _alternative_names(own)
        is_for_servers = _is_for_servers(own)
    except (
        *(ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion),
        *(x509.DuplicateExtension, x509.UnsupportedGeneralNameType),
    ):
        return replace(facts, problem="has a certificate that cannot be read")
    return replace(
        facts,
        links=links,
        dns_names=tuple(names.get_values_for_type(x509.DNSName)) if names else (),
        addresses=tuple(map(str, names.get_values_for_type(x509.IPAddress))) if names else (),
        key_kind=_key_kind(public_key),
        is_rsa=isinstance(public_key, rsa.RSAPublicKey),
        is_for_servers=is_for_servers,
        is_issuer_known=links[-1].is_self_signed or _is_signed_by_known(chain[-1], authorities),
    )


def _links(chain: list["x509.Certificate"]) -> Iterator[ChainLink]:
    for number, one in enumerate(chain):
        yield ChainLink(
            subject=one.subject.rfc4514_string(),
            issuer=one.issuer.rfc4514_string(),
            first_valid_ms=round(one.not_valid_before_utc.timestamp() * 1000),
            last_valid_ms=round(one.not_valid_after_utc.timestamp() * 1000),
            is_self_signed=_is_signed_by(one, one),
            is_signed_by_next=number + 1 == len(chain) or _is_signed_by(one, chain[number + 1]),
        )


def _is_signed_by(certificate: "x509.Certificate", issuer: "x509.Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
        return False
    return True


def _is_signed_by_known(certificate: "x509.Certificate", authorities: list[bytes]) -> bool:
    """Whether one of these authorities, or one of the system, signed the certificate."""
    from cryptography import x509

    wanted = certificate.issuer.public_bytes()
    for der in (*authorities, *_system_authorities()):
        try:
            # Compared before it is parsed as a whole: a system has some 150 of them.
            if certificate_fields(der).subject.encoded != wanted:
                continue
            issuer = x509.load_der_x509_certificate(der)
        except (CertificateError, ValueError):
            continue
        if _is_signed_by(certificate, issuer):
            return True
    return False


@cache
def _system_authorities() -> tuple[bytes, ...]:
    """Return the certificate authorities that this system trusts."""
    import ssl

    places = ssl.get_default_verify_paths()
    if places.cafile:
        return tuple(_certificates(places.cafile)[0])
    if not places.capath:
        return ()
    # OpenSSL finds an authority in this folder by a link with the hash of its name.
    files = sorted(Path(places.capath).glob("*.0"))
    return tuple(der for file in files for der in _certificates(str(file))[0])


def _trusted(client: TlsOptions | None) -> list[bytes]:
    if client is None or client.trust is None:
        return []
    from penstock.client.security.certificate_files import open_store

    try:
        return list(open_store(client.trust).certificates)
    except ConfigError:
        return []  # the connection with these settings fails, and reports it


def _alternative_names(certificate: "x509.Certificate") -> "x509.SubjectAlternativeName | None":
    from cryptography import x509

    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _is_for_servers(certificate: "x509.Certificate") -> bool:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    wanted = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    return not wanted.isdisjoint(usage)


def _key_kind(key: "CertificatePublicKeyTypes") -> str:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey):
        return f"{key.key_size} bits"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"ECDSA {key.curve.name}"
    return type(key).__name__.removesuffix("PublicKey").removeprefix("_")


# --- The private key ---


def _password(path: str | None) -> tuple[Secret | None, str]:
    """Return the password of the key, and the problem of its file."""
    if path is None:
        return None, ""
    data, problem = _read(path, PASSWORD_BYTES_MAX)
    if problem:
        return None, f"its password file {path} {problem}"
    return Secret(data.decode("latin-1").rstrip("\r\n")), ""


def _with_key(
    facts: CertificateFacts, ders: list[bytes], password: Secret | None
) -> CertificateFacts:
    """Return the facts with the problem of the key, or whether it belongs to the certificate."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_pem_private_key,
    )

    blocks, _ = _blocks(facts.key_file)
    block = next(block for block in blocks if block.is_key)
    if block.is_encrypted and password is None:
        return replace(facts, key_problem="is encrypted, and no key_password_file is set")
    secret = password.reveal().encode("latin-1") if password and block.is_encrypted else None
    try:
        key = load_pem_private_key(block.text().reveal().encode("latin-1"), secret)
        if not facts.links:
            return facts
        own = x509.load_der_x509_certificate(ders[0]).public_key()
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        is_fit = key.public_key().public_bytes(*form) == own.public_bytes(*form)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # Without the text of the error, which can have parts of the file.
        reason = "the password is wrong, or " if block.is_encrypted else ""
        return replace(facts, key_problem=f"cannot be used: {reason}the key is damaged")
    return replace(facts, is_key_fit=is_fit)
