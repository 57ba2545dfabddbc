"""`build_server_tls`: the TLS context of a listener, from the bytes of its files.

Guarantees of a context that is returned:

- TLS 1.2 and 1.3 only; in TLS 1.2 only ECDHE with AES-GCM or CHACHA20; no renegotiation, no
  compression;
- the key belongs to the certificate. The certificates of the chain sign each other in their order,
  none is expired, and the first one may be used by a server: a client in memory has completed a
  handshake with it;
- clients' certificates are verified against `tls.client_ca` and nothing else. An authority in this
  file is trusted whether it signs itself or not, as in Java;
- the private key is never written to a disk.

Anything else is a `ConfigError` with the file and the remedy. A context is NEVER changed later: a
failed change would leave a part of it behind. A reload builds a new one.
"""

import contextlib
import itertools
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from penstock.broker.tls.tls_files import TlsFiles, TlsSnapshot
from penstock.core.errors import ConfigError
from penstock.security.certificates.certificate_names import certificate_fields
from penstock.security.certificates.der import CertificateError
from penstock.security.certificates.pem import PemBlock, certificate_text, pem_blocks, validity
from penstock.security.secret import Secret

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2. All ciphers of TLS 1.3 are good ones."""
TICKETS: Final = 1
"""Session tickets that a client gets in TLS 1.3. Each costs 20 µs of the handshake, and resuming
saves half of one with an RSA key."""
CHAIN_CERTIFICATES_MAX: Final = 10
_MISMATCHES: Final = frozenset(
    {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}
)
"""The last one is the error for a key of another algorithm."""
_FLIGHTS_MAX: Final = 6
"""Messages of a handshake in memory; TLS 1.3 has three."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A context, and the expiry of its certificate."""

    context: ssl.SSLContext
    expires_at: datetime
    """When the first certificate of the chain expires."""


def build_server_tls(files: TlsFiles, snapshot: TlsSnapshot, now: datetime) -> ServerTls:
    """Return a new context for these files; raise `ConfigError` if they cannot be used."""
    chain = _certificates(snapshot.certificate, files.certificate, "tls.certificate")
    if len(chain) > CHAIN_CERTIFICATES_MAX:
        raise ConfigError(
            f"{_shown(files.certificate)} has {len(chain)} certificates (limit "
            f"{CHAIN_CERTIFICATES_MAX}).",
            hint="Keep the broker's certificate and the intermediate authorities only.",
        )
    for der in chain:
        _check_dates(der, files.certificate, now)
    _check_order(chain, files.certificate)
    context = _new_context()
    _load_pair(context, files, chain, _private_key(files, snapshot.key))
    if files.client_auth != "none":
        assert files.client_ca is not None
        assert snapshot.client_ca is not None
        _load_authorities(context, files.client_ca, snapshot.client_ca, now)
        is_required = files.client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    _check_handshake(context, chain, files.certificate)
    return ServerTls(context, validity(chain[0])[1])


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = TICKETS
    return context


# --- Certificates ---


def _certificates(data: bytes, path: str, setting: str) -> list[bytes]:
    """Return the certificates of a file in DER; raise `ConfigError` if it has none."""
    blocks = _blocks(Secret(data.decode("latin-1")), path)
    try:
        found = [block.der() for block in blocks if block.is_certificate]
    except ValueError as error:
        raise _damaged(path) from error
    if not found:
        raise ConfigError(
            f"{_shown(path)} has no certificate.",
            hint=f"Set {setting} to a file in PEM, which has a line -----BEGIN CERTIFICATE-----.",
        )
    return found


def _blocks(text: Secret, path: str) -> list[PemBlock]:
    try:
        return pem_blocks(text)
    except ValueError as error:
        raise _damaged(path) from error


def _check_dates(der: bytes, path: str, now: datetime) -> None:
    problem = _date_problem(der, path, now)
    if problem:
        is_early = now < validity(der)[0]
        hint = "Wait until then, or correct the clock of this machine." if is_early else "Renew it."
        raise ConfigError(f"a certificate in {_shown(path)} {problem}.", hint=hint)


def _date_problem(der: bytes, path: str, now: datetime) -> str:
    """Return the reason why a certificate is not valid now; empty if it is."""
    try:
        first, last = validity(der)
    except ValueError as error:
        raise _damaged(path) from error
    if now > last:
        return f"expired at {last:%Y-%m-%d %H:%M} UTC"
    if now < first:
        return f"is not valid before {first:%Y-%m-%d %H:%M} UTC"
    return ""


def _check_order(chain: list[bytes], path: str) -> None:
    """Check that each certificate is issued by the next one."""
    try:
        fields = [certificate_fields(der) for der in chain]
    except CertificateError as error:
        raise _damaged(path) from error
    for number, (issued, issuer) in enumerate(itertools.pairwise(fields), 1):
        if issued.issuer.encoded != issuer.subject.encoded:
            raise ConfigError(
                f"the certificates in {_shown(path)} are not a chain: number {number} is not "
                f"issued by number {number + 1}.",
                hint="Write the broker's certificate first, then the authority that signed it, "
                "then the authority of that one.",
            )


def _load_authorities(context: ssl.SSLContext, path: str, data: bytes, now: datetime) -> None:
    authorities = _certificates(data, path, "tls.client_ca")
    problems = [_date_problem(der, path, now) for der in authorities]
    # A bundle keeps an old authority beside the new one for a while, so one valid one is enough.
    if all(problems):
        raise ConfigError(
            f"{_shown(path)} (tls.client_ca) has no valid certificate: the last one "
            f"{problems[-1]}.",
            hint="Renew the file.",
        )
    try:
        context.load_verify_locations(cadata=b"".join(authorities))
    except ssl.SSLError as error:
        raise _damaged(path) from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _damaged(path: str) -> ConfigError:
    return ConfigError(f"{_shown(path)} is damaged.", hint="Create the file again.")


def _shown(path: str) -> str:
    return f"the file {path!r}"


# --- The private key ---


def _private_key(files: TlsFiles, text: Secret) -> Secret:
    keys = [block for block in _blocks(text, files.key) if block.is_key]
    if len(keys) != 1:
        raise ConfigError(
            f"{_shown(files.key)} (tls.key) has {len(keys)} private keys instead of one.",
            hint="Set tls.key to a file in PEM with the key of the certificate.",
        )
    if keys[0].is_encrypted and files.key_password is None:
        raise ConfigError(
            f"the private key in {_shown(files.key)} is encrypted.",
            hint="Set tls.key_password_file.",
        )
    return keys[0].text()


def _load_pair(context: ssl.SSLContext, files: TlsFiles, chain: list[bytes], key: Secret) -> None:
    certificates = "".join(certificate_text(der) for der in chain)
    # Never None: OpenSSL would ask for the password in the terminal.
    password = "" if files.key_password is None else files.key_password.reveal()
    try:
        with _private_file(Secret(certificates + key.reveal())) as path:
            context.load_cert_chain(path, password=password)
    except (ssl.SSLError, ValueError) as error:
        raise _unusable_pair(files, error) from None


def _unusable_pair(files: TlsFiles, error: ssl.SSLError | ValueError) -> ConfigError:
    if isinstance(error, ssl.SSLError) and error.reason in _MISMATCHES:
        return ConfigError(
            f"the private key in {_shown(files.key)} does not belong to the certificate in "
            f"{_shown(files.certificate)}.",
            hint="Set tls.certificate and tls.key to files that were created together.",
        )
    if files.key_password is not None:
        return ConfigError(
            f"the private key in {_shown(files.key)} cannot be opened: the password is wrong, or "
            "the key is damaged.",
            hint="Check the file of tls.key_password_file.",
        )
    return ConfigError(
        f"the private key in {_shown(files.key)} or the certificate in "
        f"{_shown(files.certificate)} is damaged or too weak.",
        hint="Create both again, with an ECDSA key (P-256) or an RSA key of 2048 bits.",
    )


@contextlib.contextmanager
def _private_file(content: Secret) -> Iterator[str]:
    """Yield the path of a file with this content in memory, or in a folder of this user."""
    data = content.reveal().encode()
    try:
        descriptor = os.memfd_create("penstock-key", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        with tempfile.TemporaryDirectory(prefix="penstock-") as folder:  # mode 0700
            path = os.path.join(folder, "key")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
            yield path
        return
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


# --- A handshake in memory ---


def _check_handshake(context: ssl.SSLContext, chain: list[bytes], path: str) -> None:
    """Let a client verify the chain up to its last certificate: signatures, dates and purposes."""
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.load_verify_locations(cadata=chain[-1])
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(_FLIGHTS_MAX):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
                # The server may go on to ask for a certificate; that is not the question here.
                return
            with contextlib.suppress(ssl.SSLWantReadError):
                server.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"clients would not accept the certificates in {_shown(path)}: {error.verify_message}.",
            hint="Create a certificate for servers, with the chain of authorities behind it.",
        ) from None
    except ssl.SSLError as error:
        reason = (error.reason or "unknown reason").lower().replace("_", " ")
        raise ConfigError(
            f"a handshake with the certificates in {_shown(path)} failed: {reason}.",
            hint="Create them again, with an ECDSA key (P-256) or an RSA key of 2048 bits.",
        ) from None
    raise AssertionError("a handshake in memory has no end")
