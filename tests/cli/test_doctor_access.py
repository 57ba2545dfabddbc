"""Exposure, users, access rules and the services of logins in `penstock doctor`."""

import json
import shlex
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from penstock.cli.doctor.access_judging import (
    FINDINGS_SHOWN_MAX,
    judge_access,
    judge_exposure,
    judge_rules,
    judge_source,
    judge_super_users,
)
from penstock.cli.doctor.facts import AccessFacts, SourceFacts
from penstock.cli.doctor.judging import FINDING, FINE, NOTE, Judgement
from penstock.cli.doctor.source_probe import file_rules, probe_sources
from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings
from penstock.security.acls.findings import rule_findings
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.cli.conftest import Penstock
from tests.oracle.slapd import PEOPLE, SEARCH_NAME, SEARCH_PASSWORD, slapd

OUTSIDE = "192.0.2.1"
PLACE = "broker.example:9093"
RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
DENY = RULE._replace(operation=Operation.ALL, permission=Permission.DENY, name="*")
EVERYONE = RULE._replace(
    resource_type=ResourceType.CLUSTER, name="kafka-cluster", principal="User:*"
)


def listener(host: str = OUTSIDE, protocol: str = "PLAINTEXT", more: str = "") -> str:
    return f"""
        [[listeners]]
        name = "CLIENTS"
        host = "{host}"
        port = 9093
        protocol = "{protocol}"
        {more}
    """


TLS = 'tls = { certificate = "server.crt", key = "server.key" }'
GUARDED = '[security]\nauthorizer = "acl"\nallow_insecure = true\nsuper_users = "User:admin"\n'


def settings_from(*parts: str) -> Settings:
    return load_settings("\n".join(parts), {}, {}).settings


def findings(judgements: Iterable[Judgement]) -> list[Judgement]:
    """All findings; each has a remedy."""
    found = [one for one in judgements if one.level == FINDING]
    assert all(one.remedy for one in found)
    return found


# --- Exposure ---


def test_defaults_and_loopback_are_fine() -> None:
    assert list(judge_exposure(Settings())) == []
    login = 'mechanisms = ["PLAIN"]'
    for host in ("127.0.0.1", "localhost", "::1"):
        settings = settings_from(listener(host, "SASL_PLAINTEXT", login))
        assert list(judge_exposure(settings)) == []


def test_tls_and_an_authorizer_are_fine() -> None:
    settings = settings_from(GUARDED, listener(protocol="SSL", more=TLS))
    assert list(judge_exposure(settings)) == []


@pytest.mark.parametrize(
    ("protocol", "more", "words"),
    [
        ("PLAINTEXT", "", "with PLAINTEXT on 192.0.2.1 has no TLS: records cross"),
        ("SASL_PLAINTEXT", 'mechanisms = ["SCRAM-SHA-256"]', "has no TLS: records cross"),
        (
            "SASL_PLAINTEXT",
            'mechanisms = ["PLAIN"]',
            "and PLAIN on 192.0.2.1 has no TLS: passwords",
        ),
    ],
)
def test_listeners_without_tls(protocol: str, more: str, words: str) -> None:
    settings = settings_from(GUARDED, listener(protocol=protocol, more=more))
    (found,) = findings(judge_exposure(settings))
    assert found.check == "listener"
    assert found.words.startswith("listener CLIENTS with ")
    assert words in found.words
    assert "listener CLIENTS" in found.remedy


def test_tokens_are_credentials_too() -> None:
    oidc = '[oidc]\nissuer = "i"\naudience = "a"\njwks = "https://issuer.example/keys"\n'
    more = 'mechanisms = ["OAUTHBEARER"]'
    settings = settings_from(GUARDED, oidc, listener(protocol="SASL_PLAINTEXT", more=more))
    (found,) = findings(judge_exposure(settings))
    assert "tokens and records cross the network" in found.words


def test_no_authorizer_off_loopback() -> None:
    (found,) = findings(judge_exposure(settings_from(listener(protocol="SSL", more=TLS))))
    assert found.check == "authorizer"
    assert "1 listener (CLIENTS)" in found.words
    assert 'security.authorizer = "acl"' in found.remedy


def test_the_address_of_the_listener_section_counts() -> None:
    settings = settings_from(
        "[security]\nallow_insecure = true\n",
        '[listener]\nhost = "0.0.0.0"\nadvertised_host = "b"\n',
    )
    assert [one.check for one in findings(judge_exposure(settings))] == ["listener", "authorizer"]


def test_rules_that_are_open_by_default_are_noted() -> None:
    settings = settings_from(GUARDED, "allow_everyone_if_no_acl_found = true")
    (note,) = judge_exposure(settings)
    assert (note.check, note.level) == ("authorizer", NOTE)


@pytest.mark.parametrize(
    ("admin", "words"),
    [
        ("", 'admin.auth is "none"'),
        ('auth = "basic"', "has no TLS"),
        ('auth = "basic"\ncertificate = "c"\nkey = "k"', ""),
        ("enabled = false", ""),
    ],
)
def test_the_admin_port(admin: str, words: str) -> None:
    settings = settings_from(GUARDED, f'[admin]\nhost = "0.0.0.0"\n{admin}\n')
    found = findings(judge_exposure(settings))
    assert [words in one.words for one in found] == ([True] if words else [])


# --- Super users ---


@pytest.mark.parametrize(
    ("mechanisms", "users", "noted"),
    [
        ('["SCRAM-SHA-512"]', {"admin"}, []),
        ('["SCRAM-SHA-512"]', {"alice"}, ["admin"]),
        ('["PLAIN"]', set(), ["admin"]),
        ('["SCRAM-SHA-512"]', None, []),
    ],
)
def test_super_users_without_a_credential(
    mechanisms: str, users: set[str] | None, noted: list[str]
) -> None:
    text = GUARDED.replace("User:admin", "User:admin;User:ANONYMOUS")
    own = listener(protocol="SASL_PLAINTEXT", more=f"mechanisms = {mechanisms}")
    known = None if users is None else frozenset(users)
    judged = list(judge_super_users(settings_from(text, own), AccessFacts(PLACE, users=known)))
    assert [one.level for one in judged] == [NOTE] * len(noted)
    assert all(
        f"super user User:{name} " in one.words
        and f"`penstock user add {name} --bootstrap-server {PLACE}`" in one.words
        for name, one in zip(noted, judged, strict=True)
    )


def test_super_users_of_certificates_need_no_credential() -> None:
    settings = settings_from(GUARDED, listener(protocol="SSL", more=TLS))
    assert list(judge_super_users(settings, AccessFacts(PLACE, users=frozenset()))) == []
    clients = TLS.replace(" }", ', client_ca = "ca", client_auth = "requested" }')
    settings = settings_from(
        GUARDED.replace("User:admin", "User:CN=admin,O=x"),
        listener(protocol="SASL_SSL", more=f'{clients}\nmechanisms = ["SCRAM-SHA-256"]'),
    )
    assert list(judge_super_users(settings, AccessFacts(PLACE, users=frozenset()))) == []


# --- Access rules ---


def test_rules_without_a_contradiction_are_fine() -> None:
    facts = AccessFacts(PLACE, (RULE,), existing={ResourceType.TOPIC: ("orders",)})
    (judged,) = judge_access(facts, is_remote=True)
    assert (judged.level, judged.words) == (FINE, "1 access rule without a contradiction")


def test_a_cluster_without_rules_is_fine() -> None:
    (judged,) = judge_access(AccessFacts(PLACE, ()), is_remote=False)
    assert (judged.level, judged.words) == (FINE, "there are no access rules")


@pytest.mark.parametrize(
    ("rules", "words", "command"),
    [
        ((EVERYONE,), "every user has a permission", "--resource Cluster:kafka-cluster --host '*'"),
        ((RULE, DENY), "DENY rules take back", "--operation Read --resource Topic:orders"),
        ((RULE._replace(host="a.example"),), "not host names or networks", "--permission allow"),
        ((RULE._replace(principal="Role:x"),), "principal is not a User", "--principal Role:x"),
        (
            (EVERYONE._replace(host="10.0.0.7"),),
            "every user",
            "--resource Cluster:kafka-cluster --host 10.0.0.7",
        ),
        (
            (RULE._replace(host="a b", name="o r", pattern_type=PatternType.PREFIXED),),
            "no client",
            "'Topic:o r*' --permission",
        ),
        ((RULE._replace(host="x", name="o*"),), "no client", "'Topic:o*' --pattern literal"),
    ],
)
def test_rules_that_will_hurt(rules: tuple[AclBinding, ...], words: str, command: str) -> None:
    facts = AccessFacts(PLACE, rules, existing={ResourceType.TOPIC: ("o*", "o r", "orders")})
    judged = list(judge_access(facts, is_remote=False))
    assert FINE not in {one.level for one in judged}
    (found,) = findings(judged)
    assert words in found.words
    assert command in found.remedy
    words_of_command = shlex.split(found.remedy.strip("`"))
    assert words_of_command[:3] == ["penstock", "acl", "remove"]
    assert words_of_command[-2:] == ["--bootstrap-server", PLACE]


def test_the_remedy_for_a_rule_of_the_file_is_the_file() -> None:
    facts = AccessFacts(PLACE, (EVERYONE,))
    (found,) = findings(
        judge_access(facts, is_remote=False, rules_file="rules.json", rules_in_file={EVERYONE})
    )
    assert found.remedy == "Delete the rule from rules.json."


def test_rules_for_missing_names_are_noted() -> None:
    facts = AccessFacts(PLACE, (RULE,), existing={ResourceType.TOPIC: ("other",)})
    note, fine = judge_access(facts, is_remote=False)
    assert (note.level, fine.level) == (NOTE, FINE)
    assert "no existing name matches" in note.words


def test_many_rules_are_counted() -> None:
    rules = [RULE._replace(name=f"gone-{number}") for number in range(FINDINGS_SHOWN_MAX + 3)]
    judged = list(judge_rules(rule_findings(rules, {ResourceType.TOPIC: ()}), len(rules)))
    assert [one.level for one in judged] == [NOTE] * (FINDINGS_SHOWN_MAX + 1) + [FINE]
    assert judged[-2].words == "3 more rules: no existing name matches this rule"
    assert judged[-1].words == "13 access rules without a contradiction"


@pytest.mark.parametrize(
    ("facts", "is_remote", "words"),
    [
        (AccessFacts(PLACE, (RULE,)), False, "the caller may not see all topics"),
        (
            AccessFacts(PLACE, problem="CLUSTER_AUTHORIZATION_FAILED (31)."),
            False,
            "FAILED (31). Give the",
        ),
        (AccessFacts(PLACE, problem="x", has_authorizer=False), True, "has no authorizer"),
        (AccessFacts(PLACE, problem="x", has_authorizer=False), False, ""),
    ],
)
def test_limits_of_the_look_are_notes(facts: AccessFacts, is_remote: bool, words: str) -> None:
    judged = [one for one in judge_access(facts, is_remote=is_remote) if one.level != FINE]
    assert [one.level for one in judged] == ([NOTE] if words else [])
    assert all(words in one.words for one in judged)


# --- Files and services ---


def sources(*parts: str) -> dict[str, SourceFacts]:
    return {one.check: one for one in probe_sources(settings_from(*parts))}


def test_no_source_is_read_without_need(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    unused = f'[oidc]\njwks = "{absent}"\n[security]\nacl_file = "{absent}"\n'
    assert sources(unused) == {}
    assert file_rules(settings_from(unused)) == ()


def test_the_rules_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    settings = GUARDED + f'acl_file = "{file}"\n'
    judged = judge_source(sources(settings)["rules"])
    assert (judged.level, "cannot be read" in judged.words) == (FINDING, True)
    assert judged.remedy.startswith("Restore the file")
    file.write_text(
        '{"rules": [{"principal": "User:a", "operation": "Eat", "resource": "Topic:a"}]}'
    )
    judged = judge_source(sources(settings)["rules"])
    assert "rules[0].operation 'Eat' is unknown" in judged.words
    assert file_rules(settings_from(settings)) == ()
    file.write_text(
        '{"rules": [{"principal": "User:a", "operation": "Read", "resource": "Topic:a"}]}'
    )
    judged = judge_source(sources(settings)["rules"])
    assert (judged.level, judged.words) == (FINE, f"security.acl_file {file}: 1 rule")
    assert len(file_rules(settings_from(settings))) == 1


def test_rules_of_the_file_are_judged_without_a_broker(penstock: Penstock, tmp_path: Path) -> None:
    file, config = tmp_path / "rules.json", tmp_path / "penstock.toml"
    rule = {"principal": "User:*", "operation": "Alter", "resource": "Cluster:kafka-cluster"}
    file.write_text(json.dumps({"rules": [rule]}))
    memory = '[node]\nstorage = "memory"\n[listener]\nport = 0\n'
    config.write_text(f'{memory}{GUARDED}acl_file = "{file}"\n')
    done = penstock("doctor", "--config", str(config))
    assert done.code == 1
    assert "every user has a permission on the whole cluster" in done.output
    assert f"Delete the rule from {file}." in done.output


def test_files_of_users(tmp_path: Path) -> None:
    users, administrator = tmp_path / "users", tmp_path / "admin.txt"
    users.write_text("alice:secret\n")
    administrator.write_text("admin:secret\n")
    administrator.chmod(0o644)
    security = f'[security]\nplain_verifier = "file"\nusers_file = "{users}"\n'
    login = listener("127.0.0.1", "SASL_PLAINTEXT", 'mechanisms = ["PLAIN"]')
    judged = judge_source(sources(security, login)["users"])
    assert judged.level == FINDING
    assert "secret" not in judged.words + judged.remedy
    judged = judge_source(
        sources(f'[security]\nbootstrap_admin_file = "{administrator}"\n')["users"]
    )
    assert "has the mode 644" in judged.words
    assert judged.remedy == f"chmod 600 {administrator}"


def oidc(jwks: str) -> str:
    login = listener("127.0.0.1", "SASL_PLAINTEXT", 'mechanisms = ["OAUTHBEARER"]')
    return f'[oidc]\nissuer = "i"\naudience = "a"\njwks = "{jwks}"\n{login}'


def test_keys_of_a_provider(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    judged = judge_source(sources(oidc(str(file)))["jwks"])
    assert judged.level == FINDING
    assert f"oidc.jwks {file}: no such file" in judged.words
    assert "oidc.jwks" in judged.remedy
    file.write_text("{}")
    judged = judge_source(sources(oidc(str(file)))["jwks"])
    assert (judged.level, "'keys'" in judged.words) == (FINDING, True)
    from joserfc.jwk import ECKey

    key = ECKey.import_key(ec.generate_private_key(ec.SECP256R1())).as_dict(private=False)
    file.write_text(json.dumps({"keys": [{**key, "kid": "1"}]}))
    judged = judge_source(sources(oidc(str(file)))["jwks"])
    assert (judged.level, judged.words) == (FINE, f"oidc.jwks {file}: 1 key")


def test_a_provider_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    judged = judge_source(sources(oidc(f"https://127.0.0.1:{port}/keys"))["jwks"])
    assert judged.level == FINDING
    assert "connection refused" in judged.words
    judged = judge_source(sources(oidc("http://issuer.example/keys"))["jwks"])
    assert "neither an https address nor the path of a file" in judged.words


def ldap(url: str, more: str = "") -> str:
    login = listener("127.0.0.1", "SASL_PLAINTEXT", 'mechanisms = ["PLAIN"]')
    template = "" if more else f'user_dn_template = "uid={{user}},{PEOPLE}"'
    return (
        f'[security]\nplain_verifier = "ldap"\n[ldap]\nurl = "{url}"\n{template}\n{more}\n{login}'
    )


def test_a_directory_out_of_reach(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    judged = judge_source(sources(ldap(f"ldap://127.0.0.1:{port}"))["ldap"])
    assert judged.level == FINDING
    assert f"ldap://127.0.0.1:{port} does not decide" in judged.words
    assert "[ldap]" in judged.remedy
    search = f'search_base = "{PEOPLE}"\nbind_dn = "cn=x"\nbind_password_file = "{tmp_path}/no"'
    judged = judge_source(sources(ldap(f"ldap://127.0.0.1:{port}", search))["ldap"])
    assert "ldap.bind_password_file" in judged.words
    assert judged.level == FINDING


def test_packages_that_are_missing_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ldap3", None)
    monkeypatch.delitem(sys.modules, "penstock.node.security.ldap", raising=False)
    judged = judge_source(sources(ldap("ldap://127.0.0.1:1"))["ldap"])
    assert judged.level == NOTE
    assert "`pip install 'penstock[security]'`" in judged.words


@pytest.mark.interop
def test_a_directory_that_decides(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(f"{SEARCH_PASSWORD}\n")
    search = (
        f'search_base = "{PEOPLE}"\nbind_dn = "{SEARCH_NAME}"\nbind_password_file = "{password}"'
    )
    with slapd(tmp_path / "slapd") as running:
        url = running.url
        for settings in (ldap(url), ldap(url, search)):
            judged = judge_source(sources(settings)["ldap"])
            assert (judged.level, judged.words) == (
                FINE,
                f"ldap.url {url}: it decides about logins",
            )
        password.write_text("wrong")
        judged = judge_source(sources(ldap(url, search))["ldap"])
        assert "it refuses the account of ldap.bind_dn" in judged.words
