"""Certificates in `penstock doctor`: each problem of a certificate, from facts and from files."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.doctor import certificate_probe
from penstock.cli.doctor.certificate_judging import (
    judge_certificate,
    judge_certificates,
    matches_host,
)
from penstock.cli.doctor.certificate_probe import probe_certificates
from penstock.cli.doctor.facts import CertificateFacts, ChainLink
from penstock.cli.doctor.judging import FINDING, FINE, NOTE, Judgement
from penstock.client.security.options import CertificateStore, TlsOptions
from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings
from tests.oracle.certificates import (
    CURRENT,
    EXPIRED,
    PASSWORD,
    CertificateAuthority,
    Identity,
    Validity,
    rsa_key,
)

HOST = "broker.example"
DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
LEAF = ChainLink("CN=broker", "CN=middle", NOW_MS - DAY_MS, NOW_MS + 90 * DAY_MS)
MIDDLE = ChainLink("CN=middle", "CN=root", NOW_MS - DAY_MS, NOW_MS + 900 * DAY_MS)
GOOD = CertificateFacts(
    "CLIENTS",
    "server.crt",
    "server.key",
    HOST,
    links=(LEAF, MIDDLE),
    dns_names=(HOST,),
    key_kind="ECDSA secp256r1",
)
LONG = Validity(-1, 90)


def finding(judgements: Iterable[Judgement]) -> Judgement:
    """The only finding, which has a remedy."""
    (found,) = [one for one in judgements if one.level == FINDING]
    assert found.remedy
    assert found.check == "certificate"
    return found


def test_a_sound_certificate_is_fine() -> None:
    (judged,) = judge_certificate(GOOD, NOW_MS)
    assert judged.level == FINE
    assert "listener CLIENTS: server.crt (2 certificates) is valid for broker.example until" in (
        judged.words
    )


@pytest.mark.parametrize(
    ("change", "words", "remedy"),
    [
        ({"problem": "cannot be read: no such file", "links": ()}, "no such file", "tls.certific"),
        ({"problem": "cannot be read: permission denied", "links": ()}, "denied", "chown"),
        ({"key_problem": "has no private key"}, "has no private key", "tls.key of listener CLI"),
        ({"key_mode": 0o644}, "has the mode 644", "`chmod 600 server.key`"),
        ({"key_mode": 0o640}, "has the mode 640", "chmod 600"),
        ({"key_mode": 0o660, "is_key_of_root": True}, "has the mode 660", "chmod 600"),
        ({"key_mode": 0o644, "key_file": "my key"}, "has the mode 644", "chmod 600 'my key'"),
        ({"is_key_fit": False}, "does not belong to the certificate", "tls.key"),
        ({"is_for_servers": False}, "not a certificate for servers", "serverAuth"),
        ({"dns_names": ()}, "no alternative names", HOST),
        ({"dns_names": ("a.example",)}, "is for a.example, not for broker", "advertised_host"),
        ({"dns_names": tuple("abcdefg")}, "is for a, b, c, d, e and 2 more, not", HOST),
        ({"is_issuer_known": False}, "does not contain the certificate of CN=root", "Append"),
        ({"client_ca_problem": "has no certificate", "client_ca_file": "ca"}, "ca: has", "client_"),
        ({"client_ca_last_valid_ms": NOW_MS - 1, "client_ca_file": "ca"}, "expired", "client_ca"),
        ({"refusal": "it is too weak.", "refusal_remedy": "Take P-256."}, "too weak", "P-256"),
    ],
)
def test_certificates_that_will_hurt(change: dict[str, object], words: str, remedy: str) -> None:
    found = finding(judge_certificate(replace(GOOD, **change), NOW_MS))  # type: ignore[arg-type]
    assert words in found.words
    assert remedy in found.remedy
    assert found.words.startswith("listener CLIENTS: ")


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (-1, "server.crt is valid starting at"),
        (0, ""),
        (59, ""),
        (61, "server.crt expires in 29 days"),
        (89.5, "server.crt expires in 0 days"),
        (91, "server.crt expired at"),
    ],
)
def test_dates_of_a_certificate(days: float, words: str) -> None:
    judged = list(judge_certificate(GOOD, NOW_MS - 1 + round(days * DAY_MS) - (days < 0) * DAY_MS))
    if not words:
        assert [one.level for one in judged] == [FINE]
    else:
        assert words in finding(judged).words


def test_the_certificate_of_an_authority_expires_too() -> None:
    middle = replace(MIDDLE, last_valid_ms=NOW_MS + 3 * DAY_MS)
    found = finding(judge_certificate(replace(GOOD, links=(LEAF, middle)), NOW_MS))
    assert "the certificate of CN=middle in server.crt expires in 3 days" in found.words


def test_a_chain_in_the_wrong_order() -> None:
    leaf = replace(LEAF, is_signed_by_next=False)
    # The last issuer is not reported as well: the order is the cause.
    facts = replace(GOOD, links=(leaf, MIDDLE), is_issuer_known=False)
    assert "CN=middle, which did not sign it" in finding(judge_certificate(facts, NOW_MS)).words


def test_a_broker_that_does_not_start_has_one_reason() -> None:
    facts = replace(GOOD, is_key_fit=False, refusal="the key does not belong to it")
    assert "server.key" in finding(judge_certificate(facts, NOW_MS)).words


def test_notes_are_no_findings() -> None:
    judged = list(judge_certificate(replace(GOOD, is_rsa=True, key_kind="2048 bits"), NOW_MS))
    assert [one.level for one in judged] == [NOTE, FINE]
    assert "RSA key (2048 bits)" in judged[0].words
    shared = replace(GOOD, key_mode=0o440, is_key_of_root=True)
    judged = list(judge_certificate(shared, NOW_MS))
    assert [one.level for one in judged] == [NOTE, FINE]
    assert "the group of server.key can read" in judged[0].words


def test_the_admin_port_has_its_own_settings() -> None:
    facts = replace(GOOD, listener="", dns_names=("other",), key_problem="is not PEM")
    judged = list(judge_certificate(facts, NOW_MS))
    assert all(one.words.startswith("admin port: ") for one in judged)
    assert ["admin.key" in judged[0].remedy, "admin.host" in judged[1].remedy] == [True, True]


def test_a_name_cannot_forge_a_line() -> None:
    facts = replace(GOOD, links=(replace(LEAF, issuer="CN=\n\x1b[1m" + "x" * 999),))
    found = finding(judge_certificate(replace(facts, is_issuer_known=False), NOW_MS))
    assert found.words.isprintable()
    assert len(found.words) < 500


def test_a_missing_package_is_noted_once() -> None:
    unknown = replace(GOOD, is_examined=False, links=())
    judged = list(judge_certificates([unknown, unknown], NOW_MS))
    assert [one.level for one in judged] == [NOTE]
    assert "pip install 'penstock[security]'" in judged[0].words


@pytest.mark.parametrize(
    ("host", "names", "is_match"),
    [
        ("broker.example", ["broker.example"], True),
        ("Broker.Example.", ["broker.example"], True),
        ("broker.example", ["*.example"], True),
        ("a.broker.example", ["*.example"], False),
        ("example", ["*.example"], False),
        (".example", ["*.example"], False),
        ("broker.example", ["b*.example"], False),
        ("broker.example", ["*"], False),
        ("bücher.example", ["xn--bcher-kva.example"], True),
        ("broker.example", ["other.example", "broker.example"], True),
        ("127.0.0.1", ["127.0.0.1"], True),
        ("::1", ["0:0:0:0:0:0:0:1"], True),
        ("fe80::1%eth0", ["fe80::1"], True),
        ("127.0.0.1", ["127.0.0.2"], False),
        ("x" * 64, ["y"], False),
    ],
)
def test_names_of_certificates(host: str, names: list[str], is_match: bool) -> None:
    is_address = names[0][0].isdigit() or ":" in names[0]
    assert matches_host(host, () if is_address else names, names if is_address else ()) == is_match


def test_a_name_is_not_an_address() -> None:
    assert not matches_host("127.0.0.1", ["127.0.0.1"], [])
    assert not matches_host("localhost", [], ["127.0.0.1"])


# --- Files ---


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def identity(authority: CertificateAuthority) -> Identity:
    found = authority.server([HOST, "127.0.0.1"], validity=LONG)
    for key in (found.key, found.encrypted_key, found.combined):
        key.chmod(0o600)
    return found


def settings_with(tls: dict[str, object], more: str = "") -> Settings:
    table = ", ".join(f'{name} = "{value}"' for name, value in tls.items())
    text = f"""
        {more}
        [[listeners]]
        name = "CLIENTS"
        port = 0
        advertised_host = "{HOST}"
        protocol = "SSL"
        tls = {{ {table} }}
    """
    return load_settings(text, {}, {"admin.port": 0}).settings


def trust_in(authority: CertificateAuthority) -> TlsOptions:
    return TlsOptions(trust=CertificateStore(str(authority.certificate)))


def judged(
    settings: Settings, client: TlsOptions | None = None, *, hours_ago: float = 0
) -> list[Judgement]:
    now_ms = time.time_ns() // 1_000_000 - round(hours_ago * 3_600_000)
    return list(judge_certificates(probe_certificates(settings, client), now_ms))


def test_good_files_are_fine(authority: CertificateAuthority, identity: Identity) -> None:
    settings = settings_with({"certificate": identity.chain, "key": identity.key})
    (one,) = judged(settings, trust_in(authority))
    assert one.level == FINE
    # A trusted authority of clients is a known one, too.
    settings = settings_with(
        {
            "certificate": identity.chain,
            "key": identity.key,
            "client_ca": authority.certificate,
            "client_auth": "required",
        }
    )
    (one,) = judged(settings)
    assert one.level == FINE


def test_encrypted_keys(
    authority: CertificateAuthority, identity: Identity, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    files: dict[str, object] = {"certificate": identity.chain, "key": identity.encrypted_key}
    trust = trust_in(authority)
    assert "is encrypted" in finding(judged(settings_with(files), trust)).words
    files["key_password_file"] = password
    assert [one.level for one in judged(settings_with(files), trust)] == [FINE]
    password.write_text("wrong")
    assert "the password is wrong" in finding(judged(settings_with(files), trust)).words
    password.unlink()
    assert "its password file" in finding(judged(settings_with(files), trust)).words


def test_an_unknown_authority(authority: CertificateAuthority, identity: Identity) -> None:
    settings = settings_with({"certificate": identity.chain, "key": identity.key})
    found = finding(judged(settings))
    assert "does not contain the certificate of CN=Penstock test authority" in found.words
    # An authority of the same name did not sign it.
    other = CertificateAuthority(identity.key.parent / "other")
    assert "does not contain" in finding(judged(settings, trust_in(other))).words
    assert [one.level for one in judged(settings, trust_in(authority))] == [FINE]


def test_an_authority_of_the_system_is_known(
    authority: CertificateAuthority, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_with({"certificate": identity.chain, "key": identity.key})
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    certificate_probe._system_authorities.cache_clear()
    try:
        assert [one.level for one in judged(settings)] == [FINE]
    finally:
        certificate_probe._system_authorities.cache_clear()


def test_a_missing_intermediate_and_a_wrong_order(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    middle = authority.intermediate()
    own = middle.server([HOST], validity=LONG)
    own.key.chmod(0o600)
    trust = trust_in(authority)
    files: dict[str, object] = {"certificate": own.chain, "key": own.key}
    # The authority of these tests is valid for 30 days: twelve hours ago it was more than that.
    assert [one.level for one in judged(settings_with(files), trust, hours_ago=12)] == [FINE]
    files["certificate"] = own.certificate
    found = finding(judged(settings_with(files), trust, hours_ago=12))
    assert "does not contain the certificate of CN=Penstock test intermediate" in found.words
    mixed = tmp_path / "mixed.pem"
    mixed.write_bytes(own.certificate.read_bytes() + authority.certificate.read_bytes())
    files["certificate"] = mixed
    found = finding(judged(settings_with(files), trust, hours_ago=12))
    assert "CN=Penstock test authority,O=Penstock, which did not sign it" in found.words


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda ca: ca.server([HOST], validity=EXPIRED), "expired at"),
        (lambda ca: ca.server([HOST], validity=CURRENT), "expires in 29 days"),
        (lambda ca: ca.server(["other.example"], validity=LONG), "is for other.example, not for"),
        (lambda ca: ca.client(validity=LONG), "not a certificate for servers"),
    ],
    ids=["expired", "expires soon", "another name", "a client's"],
)
def test_certificates_that_clients_refuse(
    authority: CertificateAuthority,
    make: Callable[[CertificateAuthority], Identity],
    words: str,
) -> None:
    own = make(authority)
    own.key.chmod(0o600)
    settings = settings_with({"certificate": own.chain, "key": own.key})
    found = [one for one in judged(settings, trust_in(authority)) if one.level == FINDING]
    assert words in found[0].words


def test_an_rsa_key_is_noted(authority: CertificateAuthority) -> None:
    own = authority.server([HOST], validity=LONG, new_key=rsa_key)
    own.key.chmod(0o600)
    settings = settings_with({"certificate": own.chain, "key": own.key})
    note, fine = judged(settings, trust_in(authority))
    assert (note.level, fine.level) == (NOTE, FINE)
    assert "RSA key (2048 bits)" in note.words


def test_keys_that_cannot_be_used(
    authority: CertificateAuthority, identity: Identity, tmp_path: Path
) -> None:
    trust = trust_in(authority)
    other = authority.server([HOST], validity=LONG)
    other.key.chmod(0o600)
    files: dict[str, object] = {"certificate": identity.chain, "key": other.key}
    found = finding(judged(settings_with(files), trust))
    assert f"the key in {other.key} does not belong to the certificate" in found.words
    copy = tmp_path / "copy.key"
    copy.write_bytes(identity.key.read_bytes())
    copy.chmod(0o644)
    files["key"] = copy
    found = finding(judged(settings_with(files), trust))
    assert found.remedy == f"`chmod 600 {copy}`"
    for text, words in [
        ("nothing", "is not PEM"),
        (identity.chain.read_text(), "has no private key"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "the key is damaged"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n", "is damaged: a PEM block has no last line"),
    ]:
        copy.write_text(text)
        copy.chmod(0o600)
        assert words in finding(judged(settings_with(files), trust)).words
    copy.unlink()
    assert "no such file" in finding(judged(settings_with(files), trust)).words


def test_certificates_that_cannot_be_read(identity: Identity, tmp_path: Path) -> None:
    bad = tmp_path / "bad.crt"
    files: dict[str, object] = {"certificate": bad, "key": identity.key}
    assert "no such file" in finding(judged(settings_with(files))).words
    for text, words in [
        ("", "is not PEM"),
        (identity.key.read_text(), "has no certificate"),
        ("-----BEGIN CERTIFICATE-----\nAAA\n-----END CERTIFICATE-----\n", "is not base64"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
    ]:
        bad.write_text(text)
        assert words in finding(judged(settings_with(files))).words


def test_authorities_of_clients(identity: Identity, tmp_path: Path) -> None:
    files: dict[str, object] = {
        "certificate": identity.chain,
        "key": identity.key,
        "client_ca": tmp_path / "ca.pem",
        "client_auth": "requested",
    }
    found = [one.words for one in judged(settings_with(files)) if one.level == FINDING]
    assert any("ca.pem: cannot be read: no such file" in words for words in found)


def test_the_certificate_of_the_admin_port(
    authority: CertificateAuthority, identity: Identity
) -> None:
    more = f'[admin]\ncertificate = "{identity.chain}"\nkey = "{identity.key}"\n'
    settings = settings_with({"certificate": identity.chain, "key": identity.key}, more)
    listener, admin = judged(settings, trust_in(authority))
    assert (listener.level, admin.level) == (FINE, FINE)
    assert admin.words.startswith("admin port: ")
    assert "is valid for 127.0.0.1" in admin.words


def test_without_cryptography_the_files_are_still_read(
    authority: CertificateAuthority, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    settings = settings_with({"certificate": identity.chain, "key": identity.key})
    (one,) = judged(settings)
    assert one.level == NOTE
    assert "penstock[security]" in one.words
    other = authority.certificate
    settings = settings_with({"certificate": other, "key": identity.key})
    found = next(one for one in judged(settings) if one.level == FINDING)
    assert "does not belong" in found.words


def test_root_may_share_a_key_with_a_group(identity: Identity, tmp_path: Path) -> None:
    copy = tmp_path / "copy.key"
    copy.write_bytes(identity.key.read_bytes())
    copy.chmod(0o640)
    settings = settings_with({"certificate": identity.chain, "key": copy})
    (facts,) = probe_certificates(settings, None)
    assert facts.key_mode == 0o640
    assert facts.is_key_of_root == (os.stat(copy).st_uid == 0)
