"""Contexts of listeners: good files, and every kind of bad ones, with its message."""

import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.broker.tls.contexts import CHAIN_CERTIFICATES_MAX, build_server_tls
from penstock.broker.tls.tls_files import FILE_BYTES_MAX, TlsFiles, read_files
from penstock.core.errors import ConfigError
from penstock.security.certificates.pem import validity
from penstock.security.secret import Secret
from tests.broker.tls.tls_stage import Stage, client_context, identities, now, server_files
from tests.oracle.certificates import EXPIRED, NOT_YET_VALID, CertificateAuthority, rsa_key


def build(files: TlsFiles) -> ssl.SSLContext:
    return build_server_tls(files, read_files(files), now()).context


def refusal(files: TlsFiles) -> ConfigError:
    with pytest.raises(ConfigError) as found:
        build(files)
    assert found.value.hint
    return found.value


def written(folder: Path, content: bytes, name: str = "file.pem") -> str:
    path = folder / name
    path.write_bytes(content)
    return str(path)


# --- Good files ---


def test_a_context_is_strict() -> None:
    context = build(server_files())
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.TLSv1_3
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.verify_mode is ssl.CERT_NONE
    assert context.num_tickets == 1
    names = {found["name"] for found in context.get_ciphers() if found["protocol"] == "TLSv1.2"}
    assert names
    assert all(
        name.startswith("ECDHE-") and ("GCM" in name or "CHACHA20" in name) for name in names
    )


def test_the_expiry_is_that_of_the_first_certificate() -> None:
    files = server_files()
    built = build_server_tls(files, read_files(files), now())
    expected = validity(ssl.PEM_cert_to_DER_cert(identities().server.certificate.read_text()))[1]
    assert built.expires_at == expected
    assert now() < built.expires_at < now() + timedelta(days=31)


def test_keys_and_chains_of_all_kinds(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "authority")
    intermediate = authority.intermediate()
    lower = intermediate.intermediate("Lower authority")
    own = lower.server()
    rsa = authority.server(new_key=rsa_key)
    root = authority.certificate.read_bytes()
    for files in (
        TlsFiles(str(own.chain), str(own.key)),
        TlsFiles(str(own.certificate), str(own.key)),
        TlsFiles(str(own.combined), str(own.combined)),
        TlsFiles(str(own.chain), str(own.encrypted_key), Secret(own.password)),
        TlsFiles(written(tmp_path, own.chain.read_bytes() + root), str(own.key)),
        TlsFiles(str(rsa.chain), str(rsa.key)),
        TlsFiles(written(tmp_path, b"a comment\n" + own.chain.read_bytes()), str(own.key)),
    ):
        build(files)


def test_an_intermediate_authority_is_trusted_alone(tmp_path: Path) -> None:
    """As in a trust store of Java."""
    intermediate = identities().authority.intermediate()
    client = intermediate.client()
    certificates = client.chain.read_text().split("-----BEGIN")
    path = written(tmp_path, ("-----BEGIN" + certificates[2]).encode())
    context = build(replace(server_files("required"), client_ca=path))
    stage = Stage(context=context)
    stage.secured(client_context(client))


def test_an_old_authority_beside_a_new_one_is_accepted(tmp_path: Path) -> None:
    expired = identities().authority.server(validity=EXPIRED)
    data = expired.certificate.read_bytes() + identities().authority.certificate.read_bytes()
    build(replace(server_files("required"), client_ca=written(tmp_path, data)))


def test_authorities_are_not_read_without_need() -> None:
    build(replace(server_files(), client_ca="/does/not/exist"))


# --- Bad files ---


def test_missing_files() -> None:
    files = server_files("required")
    for name, changed in (
        ("certificate", replace(files, certificate="/does/not/exist")),
        ("key", replace(files, key="/does/not/exist")),
        ("client_ca", replace(files, client_ca="/does/not/exist")),
    ):
        error = refusal(changed)
        assert "/does/not/exist" in str(error)
        assert f"tls.{name}" in str(error)
        assert "no such file" in str(error)


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = written(tmp_path, bytes(FILE_BYTES_MAX + 1))
    assert "too large" in str(refusal(replace(server_files(), certificate=path)))


def test_authorities_that_are_not_set() -> None:
    assert "tls.client_ca is not set" in str(
        refusal(replace(server_files("requested"), client_ca=None))
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"text", b"\x30\x82\x01\x00", b"-----BEGIN NOTHING-----\n-----END NOTHING-----\n"],
    ids=["empty", "text", "der", "other"],
)
def test_files_without_certificates(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content)
    files = server_files("required")
    assert "no certificate" in str(refusal(replace(files, certificate=path)))
    assert "no certificate" in str(refusal(replace(files, client_ca=path)))
    assert "0 private keys" in str(refusal(replace(files, key=path)))


@pytest.mark.parametrize("cut", [30, 300, 600])
def test_files_that_are_cut_short(tmp_path: Path, cut: int) -> None:
    own = identities().server
    files = server_files("required")
    certificate = own.certificate.read_bytes()[:cut]
    refusal(replace(files, certificate=written(tmp_path, certificate)))
    refusal(replace(files, key=written(tmp_path, own.key.read_bytes()[: cut // 3])))
    authority = identities().authority.certificate.read_bytes()[:cut]
    refusal(replace(files, client_ca=written(tmp_path, authority)))


def test_damaged_content(tmp_path: Path) -> None:
    own = identities().server
    lines = own.certificate.read_text().splitlines()
    lines[2] = "A" * 64
    path = written(tmp_path, "\n".join(lines).encode())
    assert "damaged" in str(refusal(replace(server_files(), certificate=path)))
    assert "damaged" in str(refusal(replace(server_files("required"), client_ca=path)))
    key = own.key.read_text().splitlines()
    key[1] = "A" * 64
    error = refusal(replace(server_files(), key=written(tmp_path, "\n".join(key).encode())))
    assert "damaged" in str(error)
    assert key[2] not in str(error)


def test_a_key_of_another_certificate() -> None:
    other = identities().authority.server()
    assert "does not belong" in str(refusal(replace(server_files(), key=str(other.key))))
    rsa = identities().authority.server(new_key=rsa_key)
    assert "does not belong" in str(refusal(replace(server_files(), key=str(rsa.key))))


def test_passwords() -> None:
    own = identities().server
    files = replace(server_files(), key=str(own.encrypted_key))
    assert "is encrypted" in str(refusal(files))
    error = refusal(replace(files, key_password=Secret("canary")))
    assert "password is wrong" in str(error)
    assert "canary" not in f"{error} {error.hint} {error.__cause__}"


def test_dates() -> None:
    authority = identities().authority
    assert "expired at" in str(refusal(server_files(server=authority.server(validity=EXPIRED))))
    assert "is not valid before" in str(
        refusal(server_files(server=authority.server(validity=NOT_YET_VALID)))
    )
    expired = str(authority.server(validity=EXPIRED).certificate)
    assert "no valid certificate" in str(
        refusal(replace(server_files("required"), client_ca=expired))
    )


def test_a_chain_in_the_wrong_order(tmp_path: Path) -> None:
    own = CertificateAuthority(tmp_path / "one").intermediate("A").intermediate("B").server()
    first, second, third = (
        f"-----BEGIN{part}" for part in own.chain.read_text().split("-----BEGIN")[1:]
    )
    path = written(tmp_path, (first + third + second).encode())
    error = refusal(TlsFiles(path, str(own.key)))
    assert "number 1 is not issued by number 2" in str(error)


def test_a_chain_with_a_false_authority(tmp_path: Path) -> None:
    """Its name is right, and its key is another one."""
    own = CertificateAuthority(tmp_path / "one").server()
    false = CertificateAuthority(tmp_path / "two")
    path = written(tmp_path, own.certificate.read_bytes() + false.certificate.read_bytes())
    error = refusal(TlsFiles(path, str(own.key)))
    assert "clients would not accept" in str(error)


def test_a_certificate_of_a_client() -> None:
    own = identities().client
    error = refusal(TlsFiles(str(own.chain), str(own.key)))
    assert "clients would not accept" in str(error)
    assert "purpose" in str(error)


def test_too_many_certificates(tmp_path: Path) -> None:
    own = identities().server
    data = own.certificate.read_bytes() * (CHAIN_CERTIFICATES_MAX + 1)
    error = refusal(replace(server_files(), certificate=written(tmp_path, data)))
    assert f"limit {CHAIN_CERTIFICATES_MAX}" in str(error)


def test_two_keys(tmp_path: Path) -> None:
    data = identities().server.key.read_bytes() * 2
    assert "2 private keys" in str(refusal(replace(server_files(), key=written(tmp_path, data))))


def test_a_key_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on systems without files in memory."""
    import os
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create")
    build(server_files())
    assert not list(tmp_path.iterdir())
