"""Opens certificate stores: PEM files and texts with Python alone, PKCS12 with `cryptography`.

Guarantees: each problem is a `ConfigError` that names the file and the problem: unreadable, too
large, another format, a wrong password. Messages have no part of a text or a password. It does NOT
check dates, nor that a key fits its certificate: `penstock.client.security.tls` does.
"""

import os
from dataclasses import dataclass
from typing import Final

from penstock.client.security.options import CertificateStore
from penstock.client.security.tls_options import PKCS12, jks_remedy
from penstock.core.errors import ConfigError
from penstock.security.certificates.pem import pem_blocks
from penstock.security.secret import Secret

STORE_BYTES_MAX: Final = 4_194_304
"""The authorities of a whole system have about 250 KiB."""
_JKS_START: Final = b"\xfe\xed\xfe\xed"
_JCEKS_START: Final = b"\xce\xce\xce\xce"


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """The content of a store."""

    certificates: tuple[bytes, ...]
    """In DER, in the order of the store."""
    key: Secret | None
    """The private key in PEM."""
    key_is_encrypted: bool = False


def shown_store(store: CertificateStore) -> str:
    """Return the name of a store for messages."""
    return f"'{store.location}'" if store.location else "the PEM text of the settings"


def store_stamp(store: CertificateStore) -> tuple[int, ...]:
    """Return values that change when the file changes; empty for a text."""
    if not store.location:
        return ()
    try:
        found = os.stat(store.location)
    except (OSError, ValueError) as error:
        raise _unreadable(store, error) from error
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def open_store(store: CertificateStore) -> OpenedStore:
    """Return the content of a store; raise `ConfigError` if it cannot be read."""
    if store.text is not None:
        return _open_pem(store, store.text)
    data = _read(store)
    if data.startswith((_JKS_START, _JCEKS_START)):
        raise ConfigError(
            f"{shown_store(store)} is a Java key store (JKS), which is not supported. "
            f"{jks_remedy(store.location)}"
        )
    if store.kind == PKCS12:
        return _open_pkcs12(store, data)
    # Text between the blocks may have any encoding; the blocks themselves are ASCII.
    return _open_pem(store, Secret(data.decode("latin-1")))


def _read(store: CertificateStore) -> bytes:
    try:
        with open(store.location, "rb") as file:
            data = file.read(STORE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(store, error) from error
    if len(data) > STORE_BYTES_MAX:
        raise ConfigError(
            f"{shown_store(store)} is too large (limit {STORE_BYTES_MAX} bytes). "
            "Name the file of certificates or of the key."
        )
    return data


def _unreadable(store: CertificateStore, error: OSError | ValueError) -> ConfigError:
    reason = (error.strerror if isinstance(error, OSError) else None) or "the path is invalid"
    return ConfigError(
        f"{shown_store(store)} cannot be read: {reason.lower()}. "
        "Check the path and the permissions of the file."
    )


def _open_pem(store: CertificateStore, text: Secret) -> OpenedStore:
    try:
        blocks = pem_blocks(text)
        certificates = tuple(block.der() for block in blocks if block.is_certificate)
    except ValueError as error:
        raise ConfigError(
            f"{shown_store(store)} is damaged: {error}. Create the file again."
        ) from error
    keys = [block for block in blocks if block.is_key]
    if len(keys) > 1:
        raise ConfigError(
            f"{shown_store(store)} has {len(keys)} private keys (limit 1). Remove the others."
        )
    if not blocks:
        raise ConfigError(
            f"{shown_store(store)} is not PEM: it has no line '-----BEGIN ...'. "
            "Convert it to PEM, or set the type PKCS12 if it is that."
        )
    if not keys:
        return OpenedStore(certificates, None)
    return OpenedStore(certificates, keys[0].text(), keys[0].is_encrypted)


def _open_pkcs12(store: CertificateStore, data: bytes) -> OpenedStore:
    try:
        # Imported late: it is an extra, and most clients have PEM files.
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ConfigError(
            f"{shown_store(store)} is PKCS12, which needs the package cryptography.",
            hint="Install it with `pip install 'penstock[security]'`, or convert the file to PEM.",
        ) from error
    password = None if store.password is None else store.password.reveal().encode()
    try:
        opened = pkcs12.load_pkcs12(data, password)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        missing = " (none is set)" if store.password is None else ""
        raise ConfigError(
            f"{shown_store(store)} cannot be opened: the password is wrong{missing}, or the file "
            "is not PKCS12. Check the password and the type of the store."
        ) from error
    found = [] if opened.cert is None else [opened.cert]
    found += opened.additional_certs
    key = None
    if opened.key is not None:
        key = opened.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
    return OpenedStore(
        tuple(one.certificate.public_bytes(serialization.Encoding.DER) for one in found),
        None if key is None else Secret(key),
    )
