"""Mapping rules: Kafka's meaning, refused rules, alternative names, and time."""

import time

import pytest

from penstock.core.errors import ConfigError
from penstock.security.certificates.der import CertificateError
from penstock.security.certificates.principal_mapping import NameSource, PrincipalMapper
from penstock.security.principal import user
from tests.security.certificates.certificate_samples import (
    certificate_of,
    host,
    text_subject,
    uri,
)

NAME = "CN=Alice,OU=Dev,O=Example,C=DE"


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L", "alice@dev"),
        ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "ALICE"),
        ("RULE:^CN=(.*?),OU=Ops.*$/$1/,DEFAULT", NAME),
        ("RULE:^CN=([^,]+)(?:,OU=[^,]+)*,.*$/$1/", "Alice"),
        ("RULE:CN=.*/$0/", NAME),
        ("RULE:.*/all/", "allall"),
        ("RULE:^(.*)$/$1$2/", f"{NAME}$2"),
        ("RULE:^CN=(\\w+),.*$/\\$$1\\/x/", "$Alice/x"),
        ("RULE:CN=(Bob)?.*/[$1]/", "[]"),
        ("  RULE:CN=(.*),OU=.*/$1/  ,  DEFAULT ", "Alice"),
    ],
)
def test_rules(rules: str, principal: str) -> None:
    assert PrincipalMapper(rules).name_of(NAME) == principal


def test_the_first_rule_that_matches_wins() -> None:
    mapper = PrincipalMapper("RULE:CN=a/first/,RULE:CN=.*/second/,RULE:CN=b/third/")
    assert mapper.name_of("CN=a") == "first"
    assert mapper.name_of("CN=b") == "second"


def test_the_whole_name_must_match() -> None:
    mapper = PrincipalMapper("RULE:CN=Alice/x/")
    for name in (NAME, "OU=a,CN=Alice", "CN=Alice "):
        with pytest.raises(CertificateError, match="no mapping rule matches"):
            mapper.name_of(name)


@pytest.mark.parametrize(
    "rules",
    [
        "",
        " , ",
        "NONSENSE",
        "default",
        "DEFAULT,NONSENSE",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:a/b/LU",
        "RULE:(/b/",
        "RULE:)/b/",
        "RULE:*/b/",
        "RULE:a**/b/",
        "RULE:a{2}{3}/b/",
        "RULE:a{3,2}/b/",
        "RULE:a{2000}/b/",
        "RULE:a{,2}/b/",
        "RULE:{/b/",
        "RULE:[/b/",
        "RULE:[]/b/",
        "RULE:[z-a]/b/",
        "RULE:[a-\\d]/b/",
        "RULE:[\\d-a]/b/",
        "RULE:[a-c-e]/b/",
        "RULE:[[a]]/b/",
        "RULE:[a&&b]/b/",
        "RULE:(a*)*/b/",
        "RULE:(a|)+/b/",
        "RULE:(?:^)*/b/",
        "RULE:(?=a)/b/",
        "RULE:(?i)a/b/",
        "RULE:(?<n>a)/b/",
        "RULE:(a)\\1/b/",
        "RULE:\\bA/b/",
        "RULE:\\p{L}/b/",
        "RULE:\\Qa\\E/b/",
        "RULE:a*+/b/",
        "RULE:\\/b/",
        "RULE:a/$1/",
        "RULE:a/$/",
        "RULE:a/$x/",
        "RULE:(a)/$2$3/",
        "RULE:(a)/${n}/",
        "RULE:(a)/$99999999999999/",
        "RULE:(a)+/$1/",
        "RULE:(?:(a)b){2}/$1/",
        "RULE:a/b/\nDEFAULT",
        "RULE:" + "(" * 60 + ")" * 60 + "/b/",
        "RULE:a/" + "b" * 20_000 + "/",
        "RULE:((((a{100}){100}){100}){100})/b/",
    ],
)
def test_rules_that_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError):
        PrincipalMapper(rules)


def test_a_refusal_names_the_part() -> None:
    with pytest.raises(ConfigError, match="at character 5") as found:
        PrincipalMapper("RULE:abc\\1/x/")
    assert found.value.hint


def test_principals_are_never_empty_or_strange() -> None:
    with pytest.raises(CertificateError, match="to nothing"):
        PrincipalMapper("RULE:CN=(.*)//").name_of("CN=a")
    with pytest.raises(CertificateError, match="control character"):
        PrincipalMapper().name_of("CN=a\0b")
    long = PrincipalMapper("RULE:(.*)/$1$1$1$1$1/")
    with pytest.raises(CertificateError, match="limit 4096"):
        long.name_of("CN=" + "x" * 1_000)


# --- Certificates ---


def principal(names: bytes | None, source: NameSource, rules: str = "DEFAULT") -> object:
    certificate = certificate_of(text_subject("alice"), names)
    return PrincipalMapper(rules, source).principal(certificate)


def test_the_subject_is_the_source() -> None:
    assert principal(uri("spiffe://x"), "DN") == user("CN=alice")


def test_alternative_names_are_sources() -> None:
    names = uri("spiffe://example/alice") + host("a.example")
    assert principal(names, "SAN:URI") == user("spiffe://example/alice")
    assert principal(names, "SAN:DNS") == user("a.example")
    assert principal(names, "SAN:URI", "RULE:spiffe:\\/\\/example\\/(.*)/$1/") == user("alice")


def test_alternative_names_must_agree() -> None:
    names = host("a.example") + host("b.example")
    with pytest.raises(CertificateError, match="2 principals"):
        principal(names, "SAN:DNS")
    assert principal(names, "SAN:DNS", "RULE:b\\.(.*)/$1/") == user("example")
    assert principal(names, "SAN:DNS", "RULE:[ab]\\.(.*)/$1/") == user("example")
    with pytest.raises(CertificateError, match="no mapping rule matches one of the 2 names"):
        principal(names, "SAN:DNS", "RULE:c/x/")


def test_a_missing_alternative_name_is_refused() -> None:
    for names in (None, host("a.example")):
        with pytest.raises(CertificateError, match="no name of the kind SAN:URI"):
            principal(names, "SAN:URI")


def test_no_name_costs_much_time() -> None:
    """Java and Python need time that grows with the fifth power of this name's length."""
    mapper = PrincipalMapper("RULE:^.*OU=(.*),.*OU=(.*),.*OU=(.*),.*OU=(.*),X$/$1/,DEFAULT")
    name = "OU=," * 1_000
    begun = time.process_time()
    assert mapper.name_of(name) == name
    assert time.process_time() - begun < 1
