"""Settings that `penstock serve` refuses: `config check` and `doctor` refuse them too.

`config check` read the settings file alone, so it approved files with which no broker started.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.cli.doctor.judging import FINDING
from penstock.cli.exits import FAILED, USAGE
from penstock.core.settings.config import load_settings
from penstock.testing import Broker
from tests.cli.conftest import Penstock
from tests.oracle.certificates import EXPIRED, NOT_YET_VALID, CertificateAuthority

LISTENER = """
[[listeners]]
name = "CLIENTS"
port = 0
"""
TLS = f'{LISTENER}protocol = "SSL"\n'
PLAIN = f'{LISTENER}protocol = "SASL_PLAINTEXT"\nmechanisms = ["PLAIN"]\n'
TOKENS = f'{LISTENER}protocol = "SASL_PLAINTEXT"\nmechanisms = ["OAUTHBEARER"]\n'
OIDC = """
[oidc]
issuer = "https://login.example.org/"
audience = "penstock"
"""
LDAP = """
[security]
plain_verifier = "ldap"
[ldap]
"""
ADMIN = """
[admin]
port = 0
"""


class Files:
    """Certificates and other files in the current directory."""

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority(folder / "authority")
        for name, made in (
            ("good", authority.server()),
            ("other", authority.server()),
            ("expired", authority.server(validity=EXPIRED)),
            ("future", authority.server(validity=NOT_YET_VALID)),
        ):
            Path(f"{name}.crt").write_bytes(made.chain.read_bytes())
            Path(f"{name}.key").write_bytes(made.key.read_bytes())
            Path(f"{name}.locked").write_bytes(made.encrypted_key.read_bytes())
        Path("ca.crt").write_bytes(authority.certificate.read_bytes())
        Path("empty.txt").write_text("")
        Path("latin.txt").write_bytes(b"p\xe4ssword")
        Path("long.txt").write_text("x" * 5_000)
        Path("norules.json").write_text('{"rules": []}')
        Path("badrules.json").write_text('{"rules": [{"principal": "alice"}]}')
        Path("users.txt").write_text("alice:not-a-hash\n")
        Path("first.txt").write_text("admin:secret")
        Path("first.txt").chmod(0o644)


class Case(NamedTuple):
    settings: str
    words: str
    """A part of the message."""


def tls(rest: str) -> str:
    return f"{TLS}tls = {{ {rest} }}\n"


def mutual(rules: str) -> str:
    more = f'client_ca = "ca.crt", client_auth = "required", principal_mapping_rules = "{rules}"'
    return tls(f'certificate = "good.crt", key = "good.key", {more}')


def admin(rest: str, certificate: str = "good", key: str = "good") -> str:
    return f'{ADMIN}certificate = "{certificate}.crt"\nkey = "{key}.key"\n{rest}'


CASES = {
    "no super user": Case('[security]\nauthorizer = "acl"', "neither a super user nor an access"),
    "no rule in the file": Case(
        '[security]\nauthorizer = "acl"\nacl_file = "norules.json"', "neither a super user nor"
    ),
    "bad rules": Case(
        '[security]\nauthorizer = "acl"\nacl_file = "badrules.json"', "has no key 'operation'"
    ),
    "no rules file": Case(
        '[security]\nauthorizer = "acl"\nacl_file = "gone.json"', "gone.json cannot be read"
    ),
    "http keys": Case(f'{OIDC}jwks = "http://login.example.org/keys"\n{TOKENS}', "https address"),
    "keys with a user": Case(f'{OIDC}jwks = "https://u@login.example.org/k"\n{TOKENS}', "https"),
    "no authorities of keys": Case(
        f'{OIDC}jwks = "https://a.example/k"\nca_file = "gone.crt"\n{TOKENS}', "oidc.ca_file"
    ),
    "no users file": Case(
        f'[security]\nplain_verifier = "file"\nusers_file = "gone.txt"\n{PLAIN}', "gone.txt"
    ),
    "bad users file": Case(
        f'[security]\nplain_verifier = "file"\nusers_file = "users.txt"\n{PLAIN}', "users.txt"
    ),
    "ldap without TLS": Case(
        f'{LDAP}url = "ldap://ldap.example"\nuser_dn_template = "uid={{user}}"\n{PLAIN}', "ldap"
    ),
    "no ldap password": Case(
        f'{LDAP}url = "ldaps://a"\nsearch_base = "o=a"\nbind_dn = "cn=b"\n'
        f'bind_password_file = "gone.txt"\n{PLAIN}',
        "ldap.bind_password_file",
    ),
    "first administrator": Case(
        '[security]\nbootstrap_admin_file = "first.txt"', "others can read the password"
    ),
    "no certificate": Case(tls('certificate = "gone.crt", key = "good.key"'), "gone.crt"),
    "an empty certificate": Case(tls('certificate = "empty.txt", key = "good.key"'), "empty.txt"),
    "no key": Case(tls('certificate = "good.crt", key = "gone.key"'), "gone.key"),
    "another key": Case(tls('certificate = "good.crt", key = "other.key"'), "does not belong"),
    "an expired certificate": Case(
        tls('certificate = "expired.crt", key = "expired.key"'), "expired at"
    ),
    "a future certificate": Case(
        tls('certificate = "future.crt", key = "future.key"'), "UTC. Wait until then, or correct"
    ),
    "a locked key": Case(tls('certificate = "good.crt", key = "good.locked"'), "is encrypted"),
    "no password of a key": Case(
        tls('certificate = "good.crt", key = "good.locked", key_password_file = "gone.txt"'),
        "gone.txt",
    ),
    "a wrong password of a key": Case(
        tls('certificate = "good.crt", key = "good.locked", key_password_file = "empty.txt"'),
        "password is wrong",
    ),
    "a password in another encoding": Case(
        tls('certificate = "good.crt", key = "good.locked", key_password_file = "latin.txt"'),
        "latin.txt is not UTF-8: byte 1",
    ),
    "a long password": Case(
        tls('certificate = "good.crt", key = "good.locked", key_password_file = "long.txt"'),
        "long.txt has more than 4,096 bytes",
    ),
    "no authorities of clients": Case(
        tls(
            'certificate = "good.crt", key = "good.key", client_ca = "gone.crt", '
            'client_auth = "required"'
        ),
        "gone.crt",
    ),
    "a bad mapping rule": Case(mutual("RULE:^CN=(.*$/$1/"), "the listener CLIENTS, principal_"),
    "an unknown mapping rule": Case(mutual("SHORTEN"), "principal_mapping_rules: "),
    "a bad mapping rule of the admin port": Case(
        admin('auth = "mtls"\nclient_ca = "ca.crt"\nprincipal_mapping_rules = "RULE:(/x/"'),
        "admin.principal_mapping_rules: ",
    ),
    "another key of the admin port": Case(admin("", key="other"), "does not belong"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("settings")


@pytest.fixture
def written(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], str]:
    """Write settings into the folder of the files; return the name of the file."""
    monkeypatch.chdir(folder)
    # The process of the tests stays as it is.
    monkeypatch.setattr("penstock.node.security.process_privacy.protect_memory", bool)
    monkeypatch.setenv("PENSTOCK_ADMIN__ENABLED", "true")
    if not Path("ca.crt").exists():
        Files(folder)

    def write(text: str) -> str:
        has_listener = "[[listeners]]" in text
        if "[admin]" not in text:
            text = f"[admin]\nport = 0\n{text}"
        if not has_listener:
            text = f"[listener]\nport = 0\n{text}"
        name = str(tmp_path / "penstock.toml")
        Path(name).write_text(f'[node]\ndata_dir = "{tmp_path}/data"\n{text}')
        return name

    return write


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_check_refuses_it_as_the_broker_does(
    penstock: Penstock, written: Callable[[str], str], case: Case
) -> None:
    file = written(case.settings)
    checked = penstock("config", "check", file)
    assert checked.code == FAILED, checked.output
    assert checked.output == ""
    served = penstock("serve", "--config", file)
    assert served.code == USAGE
    error, hint = served.errors.splitlines()[-2:]
    assert checked.errors == f"{error.removeprefix('error: ')} {hint.removeprefix('hint: ')}\n"
    assert case.words in checked.errors
    document = json.loads(penstock("config", "check", file, "--json").output)
    assert (document["valid"], document["problems"]) == (False, [checked.errors.strip()])


@pytest.mark.parametrize(
    "name",
    ["no super user", "a bad mapping rule", "a bad mapping rule of the admin port", "http keys"],
)
def test_the_doctor_reports_it(
    penstock: Penstock, written: Callable[[str], str], name: str
) -> None:
    found = penstock("doctor", "--config", written(CASES[name].settings), "--json")
    findings = [one for one in json.loads(found.output)["checks"] if one["level"] == FINDING]
    assert found.code == FAILED
    assert any(CASES[name].words in one["words"] for one in findings), findings


def test_all_problems_are_reported_at_once(
    penstock: Penstock, written: Callable[[str], str]
) -> None:
    text = '[security]\nauthorizer = "acl"\n' + tls('certificate = "gone.crt", key = "good.key"')
    checked = penstock("config", "check", written(text))
    assert len(checked.errors.splitlines()) == 2


def test_files_of_another_machine_are_not_read(
    penstock: Penstock, written: Callable[[str], str]
) -> None:
    file = written(tls('certificate = "gone.crt", key = "good.key"'))
    assert penstock("config", "check", file, "--no-files").code == 0


def test_good_files(penstock: Penstock, written: Callable[[str], str]) -> None:
    file = written(mutual("RULE:^CN=([^,]+).*$/$1/, DEFAULT") + "[security]\nallow_insecure = true")
    found = penstock("config", "check", file)
    assert (found.code, found.errors) == (0, "")


def test_rules_may_be_in_the_data_directory(
    penstock: Penstock, written: Callable[[str], str]
) -> None:
    file = written('[admin]\nenabled = false\n[security]\nauthorizer = "acl"')
    used = (
        Path(file)
        .read_text()
        .replace("[security]", "[security]\nallow_everyone_if_no_acl_found = true")
    )
    rule = ("--principal", "User:a", "--operation", "read", "--topic", "t")
    with Broker(load_settings(used, {}, {}).settings) as broker:
        # A running broker has the metadata for itself: the check cannot know.
        assert penstock("config", "check", file).code == 0
        asked = ("--bootstrap-server", broker.bootstrap_server)
        assert penstock("acl", "add", *rule, *asked).code == 0
    assert penstock("config", "check", file).code == 0
    with Broker(load_settings(used, {}, {}).settings) as broker:
        asked = ("--bootstrap-server", broker.bootstrap_server)
        assert penstock("acl", "remove", "--all", "--yes", *asked).code == 0
    assert penstock("config", "check", file).code == FAILED
