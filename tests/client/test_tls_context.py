"""Contexts verify brokers and prove clients in real handshakes; bad files are named."""

import builtins
import logging
import os
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.client.security import tls
from penstock.client.security.certificate_files import STORE_BYTES_MAX
from penstock.client.security.options import CertificateStore, Identity, TlsOptions
from penstock.client.security.tls import build_context, new_context
from penstock.client.security.tls_options import StoreKind
from penstock.core.errors import ConfigError
from penstock.security.certificates.pem import validity
from penstock.security.secret import Secret
from tests.client.certificates import DAY, Issued, issue, write

HOST = "broker.example"
PASSWORD = "canary-password"


@dataclass(frozen=True)
class Family:
    """An authority, a broker and a client of it; another authority."""

    authority: Issued
    broker: Issued
    client: Issued
    stranger: Issued


@pytest.fixture(scope="module")
def family() -> Family:
    authority = issue("authority")
    return Family(
        authority,
        issue("broker", authority, hosts=[HOST, "127.0.0.1"]),
        issue("client", authority),
        issue("stranger"),
    )


@pytest.fixture(autouse=True)
def _no_cache() -> None:
    tls._cached_context.cache_clear()
    tls._last_good.clear()


def trust(issued: Issued) -> CertificateStore:
    return CertificateStore(text=Secret(issued.certificate_pem))


def server_context(family: Family, tmp_path: Path, *, wants_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    path = write(tmp_path / "broker.pem", family.broker.certificate_pem, family.broker.key_pem())
    context.load_cert_chain(path)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=family.authority.certificate_pem)
    return context


def shake(client: ssl.SSLContext, server: ssl.SSLContext, host: str = HOST) -> ssl.SSLObject:
    """Run a handshake in memory, with the first bytes after it; return the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    steps: list[Callable[[], object]] = [near.do_handshake, far.do_handshake]
    for _ in range(10):
        waiting: list[Callable[[], object]] = []
        for step in steps:
            try:
                step()
            except ssl.SSLWantReadError:
                waiting.append(step)
        steps = waiting
        if not steps:
            near.write(b"ping")
            assert far.read(4) == b"ping"
            return far
    raise AssertionError("the handshake does not end")


# --- Handshakes ---


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("host", [HOST, "127.0.0.1"])
def test_the_right_authority_is_accepted(
    family: Family, tmp_path: Path, version: str, host: str
) -> None:
    options = TlsOptions(trust(family.authority), versions=(version,))
    far = shake(build_context(options), server_context(family, tmp_path), host)
    assert far.version() == version


def test_another_authority_is_refused(family: Family, tmp_path: Path) -> None:
    context = build_context(TlsOptions(trust(family.stranger)))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(context, server_context(family, tmp_path))


def test_the_system_does_not_trust_the_test(family: Family, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(build_context(TlsOptions()), server_context(family, tmp_path))


def test_another_host_name_is_refused(
    family: Family, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = TlsOptions(trust(family.authority))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake(build_context(options), server_context(family, tmp_path), "other.example")
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        lenient = build_context(replace(options, checks_host_name=False))
    assert "do not check the broker's host name" in caplog.text
    shake(lenient, server_context(family, tmp_path), "other.example")


def test_the_authority_is_checked_without_the_host_name(family: Family, tmp_path: Path) -> None:
    context = build_context(TlsOptions(trust(family.stranger), checks_host_name=False))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(context, server_context(family, tmp_path), "other.example")


def identities(family: Family, folder: Path) -> dict[str, Identity]:
    client = family.client
    certificate = write(folder / "client.crt", client.certificate_pem)
    key = write(folder / "client.key", client.key_pem())
    locked = write(folder / "locked.key", client.key_pem(PASSWORD))
    older = write(folder / "older.key", client.key_pem(PASSWORD, "TraditionalOpenSSL"))
    both = write(folder / "both.pem", client.key_pem(), "text: ä\n", client.certificate_pem)
    store = write(folder / "client.p12", client.pkcs12(PASSWORD, [family.authority]))
    in_one_line = " ".join(client.certificate_pem.split("\n"))
    secret = Secret(PASSWORD)
    return {
        "files": Identity(CertificateStore(certificate), CertificateStore(key)),
        "locked": Identity(
            CertificateStore(certificate), CertificateStore(locked, password=secret)
        ),
        "older": Identity(CertificateStore(certificate), CertificateStore(older, password=secret)),
        "one file": Identity(CertificateStore(both)),
        "texts": Identity(
            CertificateStore(text=Secret(client.certificate_pem)),
            CertificateStore(text=Secret(client.key_pem(PASSWORD)), password=secret),
        ),
        "one line": Identity(
            CertificateStore(text=Secret(in_one_line)),
            CertificateStore(text=Secret(" ".join(client.key_pem().split("\n")))),
        ),
        "pkcs12": Identity(CertificateStore(store, None, "PKCS12", secret)),
    }


FORMS = ["files", "locked", "older", "one file", "texts", "one line", "pkcs12"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("has_memory_files", [True, False])
def test_a_client_proves_itself(
    family: Family,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    has_memory_files: bool,
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    if not has_memory_files:
        monkeypatch.delattr(os, "memfd_create")
    identity = identities(family, tmp_path)[form]
    context = build_context(TlsOptions(trust(family.authority), identity))
    far = shake(context, server_context(family, tmp_path, wants_client=True))
    assert far.getpeercert()["subject"] == ((("commonName", "client"),),)  # type: ignore[index]
    assert not list(folder.iterdir()), "a key was left on the disk"


def test_a_key_on_the_disk_is_private(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with tls._private_file(Secret("key")) as path:
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
        assert Path(path).read_text() == "key"
    assert not list(tmp_path.iterdir())


def test_a_broker_refuses_a_client_without_a_certificate(family: Family, tmp_path: Path) -> None:
    context = build_context(TlsOptions(trust(family.authority)))
    with pytest.raises(ssl.SSLError):
        shake(context, server_context(family, tmp_path, wants_client=True))


@pytest.mark.parametrize("form", ["file", "bundle", "pkcs12"])
def test_forms_of_trust(family: Family, tmp_path: Path, form: str) -> None:
    expired = issue("old", starts_in=-2 * DAY, ends_in=-DAY)
    stores = {
        "file": CertificateStore(write(tmp_path / "ca", family.authority.certificate_pem)),
        "bundle": CertificateStore(
            write(
                tmp_path / "bundle",
                "# Autorité\n",
                family.authority.certificate_pem,
                expired.certificate_pem,
                family.authority.certificate_pem,
            )
        ),
        "pkcs12": CertificateStore(
            write(tmp_path / "ca.p12", family.authority.trust_pkcs12(PASSWORD)),
            None,
            "PKCS12",
            Secret(PASSWORD),
        ),
    }
    shake(build_context(TlsOptions(stores[form])), server_context(family, tmp_path))


# --- Settings of the context ---


def test_old_versions_and_risky_options_are_off() -> None:
    context = build_context(TlsOptions())
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.maximum_version == ssl.TLSVersion.TLSv1_3
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname


def test_chosen_ciphers_are_the_only_ones_of_tls_1_2(family: Family, tmp_path: Path) -> None:
    name = "ECDHE-ECDSA-AES256-GCM-SHA384"
    options = TlsOptions(trust(family.authority), cipher_suites=(name,), versions=("TLSv1.2",))
    far = shake(build_context(options), server_context(family, tmp_path))
    cipher = far.cipher()
    assert cipher is not None
    assert cipher[0] == name
    with pytest.raises(ConfigError, match=r"OpenSSL on this machine has none of NO-SUCH-CIPHER"):
        build_context(replace(options, cipher_suites=("NO-SUCH-CIPHER",)))


# --- The cache ---


def test_a_context_is_shared_until_a_file_changes(family: Family, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    options = TlsOptions(CertificateStore(write(path, family.stranger.certificate_pem)))
    first = build_context(options)
    assert build_context(replace(options)) is first
    assert new_context(options) is not first
    assert build_context(replace(options, versions=("TLSv1.3",))) is not first
    renewed = write(tmp_path / "renewed.pem", family.authority.certificate_pem)
    os.replace(renewed, path)
    shake(build_context(options), server_context(family, tmp_path))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(first, server_context(family, tmp_path))


def test_a_renewed_key_of_the_client_is_used(family: Family, tmp_path: Path) -> None:
    path = tmp_path / "client.pem"
    write(path, family.client.certificate_pem, family.client.key_pem())
    options = TlsOptions(trust(family.authority), Identity(CertificateStore(str(path))))
    build_context(options)
    renewed = issue("renewed", family.authority)
    write(path, renewed.certificate_pem, renewed.key_pem())
    far = shake(build_context(options), server_context(family, tmp_path, wants_client=True))
    assert far.getpeercert()["subject"] == ((("commonName", "renewed"),),)  # type: ignore[index]


def test_a_certificate_waits_for_its_key(family: Family, tmp_path: Path) -> None:
    """Files are renewed one after the other; a job that connects in between must not end."""
    ca, certificate, key = (tmp_path / name for name in ("ca.pem", "client.pem", "client.key"))
    write(ca, family.authority.certificate_pem)
    write(certificate, family.client.certificate_pem)
    write(key, family.client.key_pem())
    identity = Identity(CertificateStore(str(certificate)), CertificateStore(str(key)))
    options = TlsOptions(CertificateStore(str(ca)), identity)
    first = build_context(options)
    renewed = issue("renewed", family.authority)
    write(certificate, renewed.certificate_pem)
    assert build_context(options) is first
    write(ca, family.stranger.certificate_pem)
    with pytest.raises(ConfigError, match="does not fit"):
        build_context(options)
    write(ca, family.authority.certificate_pem)
    write(key, renewed.key_pem())
    far = shake(build_context(options), server_context(family, tmp_path, wants_client=True))
    assert far.getpeercert()["subject"] == ((("commonName", "renewed"),),)  # type: ignore[index]


def test_the_cache_is_bounded(family: Family) -> None:
    for number in range(tls.CONTEXTS_MAX + 5):
        suites = ("ECDHE-RSA-AES128-GCM-SHA256",) * (number + 1)
        build_context(TlsOptions(trust(family.authority), cipher_suites=suites))
    assert tls._cached_context.cache_info().currsize == tls.CONTEXTS_MAX
    assert len(tls._last_good) == tls.CONTEXTS_MAX


def test_a_failure_is_not_cached(family: Family, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    options = TlsOptions(CertificateStore(str(path)))
    with pytest.raises(ConfigError, match=r"ca\.pem' cannot be read: no such file"):
        build_context(options)
    write(path, family.authority.certificate_pem)
    shake(build_context(options), server_context(family, tmp_path))


# --- Files that cannot be used ---


def refusal(options: TlsOptions) -> str:
    with pytest.raises(ConfigError) as error:
        build_context(options)
    message = f"{error.value} {error.value.hint}".strip()
    assert PASSWORD not in message
    assert "_ssl.c" not in message
    return message


def trust_refusal(path: Path, *parts: str | bytes, kind: StoreKind = "PEM") -> str:
    store = CertificateStore(write(path, *parts), None, kind, Secret(PASSWORD))
    message = refusal(TlsOptions(store))
    assert str(path) in message
    return message


def test_trust_that_cannot_be_used(family: Family, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    good = family.authority.certificate_pem
    der = ssl.PEM_cert_to_DER_cert(good)
    expired = issue("old", starts_in=-2 * DAY, ends_in=-DAY)
    future = issue("new", starts_in=DAY, ends_in=2 * DAY)
    assert "is not PEM" in trust_refusal(path, "")
    assert "is not PEM" in trust_refusal(path, der)
    assert "has no certificate" in trust_refusal(path, family.authority.key_pem())
    assert "a PEM block has no last line" in trust_refusal(path, good[:200])
    assert "a PEM block is not base64" in trust_refusal(path, good.replace("MII", "M?I"))
    damaged = ssl.DER_cert_to_PEM_cert(der[:100])
    assert "a certificate in" in trust_refusal(path, damaged)
    unparsable = ssl.DER_cert_to_PEM_cert(der.replace(b"\x30\x59\x30\x13", b"\x31\x59\x30\x13"))
    assert "is damaged" in trust_refusal(path, unparsable)
    assert "it expired at 20" in trust_refusal(path, expired.certificate_pem)
    assert "it is valid starting at 20" in trust_refusal(path, future.certificate_pem)
    assert "is too large" in trust_refusal(path, b"x" * (STORE_BYTES_MAX + 1))
    command = f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12"
    assert command in trust_refusal(path, b"\xfe\xed\xfe\xed\0\0\0\2")
    assert command in trust_refusal(path, b"\xfe\xed\xfe\xed\0\0\0\2", kind="PKCS12")
    wrong = family.authority.trust_pkcs12("other")
    assert "the password is wrong, or the file" in trust_refusal(path, wrong, kind="PKCS12")
    assert "is not PKCS12" in trust_refusal(path, good, kind="PKCS12")
    unlocked = TlsOptions(CertificateStore(write(path, wrong), None, "PKCS12"))
    assert "wrong (none is set)" in refusal(unlocked)


@pytest.mark.parametrize(
    ("location", "reason"),
    [("", "is a directory"), ("no/such/file", "no such file"), ("a\0b", "path is invalid")],
)
def test_paths_that_cannot_be_read(tmp_path: Path, location: str, reason: str) -> None:
    path = f"{tmp_path}/{location}"
    assert reason in refusal(TlsOptions(CertificateStore(path)))


def test_an_identity_that_cannot_be_used(family: Family, tmp_path: Path) -> None:
    def check(certificate: str, key: str | None, password: str | None = None) -> str:
        secret = None if password is None else Secret(password)
        path = write(tmp_path / "client.crt", certificate)
        key_path = None if key is None else write(tmp_path / "client.key", key)
        if key_path is None:
            return refusal(TlsOptions(identity=Identity(CertificateStore(path, password=secret))))
        key_store = CertificateStore(key_path, password=secret)
        return refusal(TlsOptions(identity=Identity(CertificateStore(path), key_store)))

    client = family.client
    good, key = client.certificate_pem, client.key_pem()
    locked, older = client.key_pem("right"), client.key_pem("right", "TraditionalOpenSSL")
    expired = issue("old", family.authority, starts_in=-2 * DAY, ends_in=-DAY)
    key_path, path = f"'{tmp_path}/client.key'", f"'{tmp_path}/client.crt'"
    mismatch = check(good, family.broker.key_pem())
    assert f"key in {key_path} does not fit the certificate in {path}" in mismatch
    for encrypted in (locked, older):
        assert f"key in {key_path} is encrypted. Set ssl.key.password" in check(good, encrypted)
        wrong = check(good, encrypted, PASSWORD)
        assert f"key in {key_path} cannot be opened: the password is wrong" in wrong
        assert "the password is wrong" in check(good, encrypted, "x" * 2_000)
    assert f"{path} has no private key" in check(good, None)
    assert f"{key_path} has no private key" in check(good, good)
    assert f"{path} has no certificate" in check(key, key)
    assert "has 2 private keys (limit 1)" in check(good, key + key)
    assert f"in {path} cannot be used: it expired" in check(
        expired.certificate_pem, expired.key_pem()
    )
    damaged = key.replace("\n", "\nAAAA", 2)
    assert f"key in {key_path} or the certificate in {path} is damaged" in check(good, damaged)


def test_problems_of_texts_have_no_text(family: Family) -> None:
    text = Secret(f"{PASSWORD} -----BEGIN PRIVATE KEY----- {PASSWORD}")
    identity = Identity(trust(family.client), CertificateStore(text=text))
    assert "the PEM text of the settings is damaged" in refusal(TlsOptions(identity=identity))


def test_pkcs12_needs_the_extra(
    family: Family, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.p12", family.authority.trust_pkcs12(PASSWORD))
    pem = write(tmp_path / "a.pem", family.authority.certificate_pem)
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 (as the builtin)
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr("builtins.__import__", without)
    message = refusal(TlsOptions(CertificateStore(path, None, "PKCS12", Secret(PASSWORD))))
    assert "pip install 'penstock[security]'" in message
    build_context(TlsOptions(CertificateStore(pem)))


# --- Dates ---


def test_dates_of_certificates() -> None:
    for years in (1, 20, 40, 200):
        issued = issue("a", ends_in=timedelta(days=366 * years))
        der = ssl.PEM_cert_to_DER_cert(issued.certificate_pem)
        certificate = issued.certificate
        assert validity(der) == (certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def test_the_clock_decides(family: Family) -> None:
    class Later:
        def now_ms(self) -> int:
            return round((datetime.now(UTC) + 3 * DAY).timestamp() * 1000)

        def monotonic(self) -> float:
            return 0.0

    with pytest.raises(ConfigError, match="it expired at"):
        new_context(TlsOptions(trust(family.authority)), Later())


def test_damaged_certificates_raise_one_error(family: Family) -> None:
    der = ssl.PEM_cert_to_DER_cert(family.authority.certificate_pem)
    for length in range(len(der)):
        with pytest.raises(ValueError, match="the certificate"):
            validity(der[:length])
    for position in range(min(len(der), 200)):
        changed = bytearray(der)
        changed[position] ^= 0xFF
        try:
            validity(bytes(changed))
        except ValueError:
            continue


def test_files_of_javas_keytool(tmp_path: Path, family: Family) -> None:
    """A trust store of Java has entries without a key, and its own attributes."""
    certificate = write(tmp_path / "ca.crt", family.authority.certificate_pem)
    store = tmp_path / "ca.p12"
    command = f"keytool -importcert -noprompt -alias a -file {certificate} -keystore {store}"
    try:
        words = [*command.split(), "-storetype", "PKCS12", "-storepass", PASSWORD]
        subprocess.run(words, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs Java's keytool")
    options = TlsOptions(CertificateStore(str(store), None, "PKCS12", Secret(PASSWORD)))
    shake(build_context(options), server_context(family, tmp_path))
