"""`build_context`: the TLS context of a client from its options (reads files).

Guarantees: the broker's certificate is verified, TLS 1.2 is the lowest version, renegotiation and
compression are off. Each file that cannot be used is a `ConfigError` that names it: unreadable,
wrong password, a key that does not fit, an expired certificate. A private key is never written to a
disk: OpenSSL reads it from memory, or, on a system without that, from a file that only this user
can read and that is deleted at once.

Contexts are cached, because loading the system's authorities takes milliseconds. A changed file
gives a new context, so new connections use renewed certificates and open ones keep theirs. While
a renewed certificate waits for its key, the last good pair is used, with a warning. Callers
must NOT change a cached context: other connections share it. `new_context` returns one that is not
shared.
"""

import contextlib
import functools
import logging
import os
import ssl
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.client.security.certificate_files import (
    OpenedStore,
    open_store,
    shown_store,
    store_stamp,
)
from penstock.client.security.cipher_suites import TLS_1_2, TLS_1_3
from penstock.client.security.options import CertificateStore, Identity, TlsOptions
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import ConfigError
from penstock.security.certificates.pem import certificate_text, validity
from penstock.security.secret import Secret

CONTEXTS_MAX: Final = 32
"""Sets of options in one process: one for each cluster that it uses."""
LOGGER: Final = logging.getLogger(__name__)
_VERSIONS: Final = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_MISMATCHES: Final = frozenset(
    {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}
)


def build_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the context of these options and the present files. It is shared: do not change it."""
    # Looked at before the files are read: a file that changes in between is read again next time.
    stamps = tuple(store_stamp(store) for store in _stores(options))
    try:
        context = _cached_context(options, stamps)
    except _UnfitPairError as error:
        with _lock:
            last = _last_good.get(options)
        # Only while the trusted authorities are the same: they take effect at once.
        if last is None or (options.trust is not None and last.stamps[0] != stamps[0]):
            raise
        LOGGER.warning("a renewed certificate is not used yet: %s", error)
        return last.context
    with _lock:
        _last_good[options] = _Good(context, stamps)
        _last_good.move_to_end(options)
        if len(_last_good) > CONTEXTS_MAX:
            _last_good.popitem(last=False)
    return context


class _UnfitPairError(ConfigError):
    """A key that does not fit its certificate: both are renewed one after the other."""


class _Good(NamedTuple):
    context: ssl.SSLContext
    stamps: tuple[tuple[int, ...], ...]


_lock = threading.Lock()
_last_good: OrderedDict[TlsOptions, _Good] = OrderedDict()


def new_context(options: TlsOptions, clock: Clock | None = None) -> ssl.SSLContext:
    """Return a context that is not shared; the caller may add to it before its first use."""
    now = datetime.fromtimestamp((clock or SystemClock()).now_ms() / 1000, UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert context.verify_mode is ssl.CERT_REQUIRED
    context.check_hostname = options.checks_host_name
    if not options.checks_host_name:
        LOGGER.warning(
            "TLS connections do not check the broker's host name "
            "(ssl.endpoint.identification.algorithm is empty): any certificate of the trusted "
            "authorities is accepted. Remove the setting."
        )
    versions = [_VERSIONS[name] for name in options.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if options.cipher_suites:
        _set_ciphers(context, options.cipher_suites)
    if options.trust is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_trust(context, options.trust, now)
    if options.identity is not None:
        _load_identity(context, options.identity, now)
    return context


@functools.lru_cache(maxsize=CONTEXTS_MAX)
def _cached_context(
    options: TlsOptions,
    stamps: tuple[tuple[int, ...], ...],  # noqa: ARG001 (part of the cache's key)
) -> ssl.SSLContext:
    return new_context(options)


def _stores(options: TlsOptions) -> list[CertificateStore]:
    identity = options.identity
    stores = [options.trust]
    if identity is not None:
        stores += [identity.certificates, identity.key]
    return [store for store in stores if store is not None]


def _set_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError as error:
        raise ConfigError(
            f"ssl.cipher.suites: OpenSSL on this machine has none of {', '.join(names)}. "
            "Change or remove the setting."
        ) from error


def _load_trust(context: ssl.SSLContext, store: CertificateStore, now: datetime) -> None:
    opened = open_store(store)
    if not opened.certificates:
        raise ConfigError(
            f"{shown_store(store)} has no certificate. Name the file with the certificate of the "
            "authority that signs the brokers' certificates."
        )
    problems = [_date_problem(store, der, now) for der in opened.certificates]
    # A bundle keeps an old authority beside the new one for a while, so one valid one is enough.
    if all(problems):
        raise ConfigError(
            f"{shown_store(store)} has no usable certificate: {problems[-1]}. Renew the file."
        )
    try:
        context.load_verify_locations(cadata=b"".join(opened.certificates))
    except ssl.SSLError as error:
        raise _damaged(store) from error


def _load_identity(context: ssl.SSLContext, identity: Identity, now: datetime) -> None:
    opened = open_store(identity.certificates)
    if not opened.certificates:
        raise ConfigError(
            f"{shown_store(identity.certificates)} has no certificate. Name the file with the "
            "client's certificate."
        )
    problem = _date_problem(identity.certificates, opened.certificates[0], now)
    if problem:
        raise ConfigError(
            f"the client's certificate in {shown_store(identity.certificates)} cannot be used: "
            f"{problem}. Renew it."
        )
    key_store = identity.certificates if identity.key is None else identity.key
    key = _private_key(key_store, opened if identity.key is None else open_store(key_store))
    chain = "".join(certificate_text(der) for der in opened.certificates)
    # Never None: OpenSSL would ask for the password in the terminal.
    password = "" if key_store.password is None else key_store.password.reveal()
    try:
        with _private_file(Secret(chain + key.reveal())) as path:
            context.load_cert_chain(path, password=password)
    except (ssl.SSLError, ValueError) as error:
        raise _unusable_pair(identity.certificates, key_store, error) from error


def _private_key(store: CertificateStore, opened: OpenedStore) -> Secret:
    if opened.key is None:
        raise ConfigError(
            f"{shown_store(store)} has no private key. Name the file with the key of the client's "
            "certificate, such as by ssl.key.location."
        )
    if opened.key_is_encrypted and store.password is None:
        raise ConfigError(
            f"the private key in {shown_store(store)} is encrypted. Set ssl.key.password."
        )
    return opened.key


def _unusable_pair(
    certificates: CertificateStore, key: CertificateStore, error: ssl.SSLError | ValueError
) -> ConfigError:
    if isinstance(error, ssl.SSLError) and error.reason in _MISMATCHES:
        return _UnfitPairError(
            f"the private key in {shown_store(key)} does not fit the certificate in "
            f"{shown_store(certificates)}. Name a key and a certificate that belong together."
        )
    if key.password is not None:
        return ConfigError(
            f"the private key in {shown_store(key)} cannot be opened: the password is wrong, or "
            "the key is damaged. Check ssl.key.password."
        )
    return ConfigError(
        f"the private key in {shown_store(key)} or the certificate in "
        f"{shown_store(certificates)} is damaged or too weak. Create them again."
    )


def _date_problem(store: CertificateStore, der: bytes, now: datetime) -> str:
    """Return the reason why a certificate is not valid now; empty if it is."""
    try:
        first, last = validity(der)
    except ValueError as error:
        raise _damaged(store) from error
    if now > last:
        return f"it expired at {last:%Y-%m-%d %H:%M} UTC"
    if now < first:
        return f"it is valid starting at {first:%Y-%m-%d %H:%M} UTC"
    return ""


def _damaged(store: CertificateStore) -> ConfigError:
    return ConfigError(f"a certificate in {shown_store(store)} is damaged. Create the file again.")


@contextlib.contextmanager
def _private_file(content: Secret) -> Iterator[str]:
    """Yield the path of a file with this content, which no other user can read."""
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
