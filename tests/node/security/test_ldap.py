"""Passwords checked by a real directory, slapd: both ways, TLS, hostile names, silent servers.

The settings are checked without it.
"""

import contextlib
import dataclasses
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.node.security.check_threads import CheckUnavailableError
from penstock.node.security.ldap import LdapDirectory, LdapOptions
from penstock.security.secret import Secret
from tests.oracle.certificates import CertificateAuthority
from tests.oracle.running_broker import HOST, free_port
from tests.oracle.slapd import (
    BASE,
    PASSWORDS,
    PEOPLE,
    SEARCH_NAME,
    SEARCH_PASSWORD,
    TWO_NAMES,
    Slapd,
    slapd,
)

TEMPLATE = f"uid={{user}},{PEOPLE}"
WITH_SLAPD = pytest.mark.interop
WAYS = ["template", "template with TLS", "template with StartTLS", "search", "anonymous search"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slapd]:
    with slapd(tmp_path_factory.mktemp("slapd")) as running:
        yield running


def options(directory: Slapd, way: str) -> LdapOptions:
    chosen = {
        "template": LdapOptions(directory.url, user_dn_template=TEMPLATE),
        "template with TLS": LdapOptions(
            directory.tls_url, ca_file=directory.ca, user_dn_template=TEMPLATE
        ),
        "template with StartTLS": LdapOptions(
            directory.url, start_tls=True, ca_file=directory.ca, user_dn_template=TEMPLATE
        ),
        "search": LdapOptions(
            directory.tls_url,
            ca_file=directory.ca,
            search_base=PEOPLE,
            bind_dn=SEARCH_NAME,
            bind_password=Secret(SEARCH_PASSWORD),
        ),
        "anonymous search": LdapOptions(directory.url, search_base=PEOPLE),
    }[way]
    # A loaded machine is not a silent directory.
    return dataclasses.replace(chosen, timeout_seconds=20.0)


@WITH_SLAPD
@pytest.mark.parametrize("user", PASSWORDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_user_is_accepted_with_its_password_only(directory: Slapd, way: str, user: str) -> None:
    checks = LdapDirectory(options(directory, way))
    assert checks.check(user, Secret(PASSWORDS[user])) == user
    for wrong in ("wrong", PASSWORDS[user] + " ", PASSWORDS[user].upper(), "\0"):
        assert checks.check(user, Secret(wrong)) is None


@WITH_SLAPD
@pytest.mark.parametrize("typed", ["ALICE", " alice", "alice ", "  alice  ", "aLiCe"])
@pytest.mark.parametrize("way", WAYS)
def test_the_principal_is_the_name_in_the_directory(directory: Slapd, way: str, typed: str) -> None:
    """The directory accepts other spellings; a rule about `User:alice` must apply to all."""
    checks = LdapDirectory(options(directory, way))
    assert checks.check(typed, Secret(PASSWORDS["alice"])) == "alice"


@WITH_SLAPD
@pytest.mark.parametrize("password", ["", "\u00ad", "\u200b\ufeff"])
@pytest.mark.parametrize("way", WAYS)
def test_an_empty_password_is_no_login(directory: Slapd, way: str, password: str) -> None:
    """This directory accepts a bind with an empty password: it is an anonymous one.

    The other two are empty when they are prepared by SASLprep, as ldap3 does with a text.
    """
    checks = LdapDirectory(options(directory, way))
    for user in ("alice", "searcher", "nobody"):
        assert checks.check(user, Secret(password)) is None


@WITH_SLAPD
@pytest.mark.parametrize(
    "user",
    [
        "",
        "*",
        "a*",
        "alice)(uid=*",
        "*)(objectClass=*",
        "alice,ou=people",
        f"alice,{PEOPLE}",
        "alice+cn=x",
        "alice\\",
        "\\61lice",
        "#616c696365",
        "alice\0",
        "\0alice",
        "ali\nce",
        "nobody",
        "x" * 256,
        "ä" * 128,
        "a\ud800",
        "{user}",
    ],
)
@pytest.mark.parametrize("way", ["template", "search"])
def test_no_name_selects_another_entry(directory: Slapd, way: str, user: str) -> None:
    checks = LdapDirectory(options(directory, way))
    assert checks.check(user, Secret(PASSWORDS["alice"])) is None


@WITH_SLAPD
@pytest.mark.parametrize("way", WAYS)
def test_a_user_with_two_names_is_refused(
    directory: Slapd, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert LdapDirectory(options(directory, way)).check(TWO_NAMES, Secret("carolpw")) is None
    assert "2 values of uid" in caplog.text
    assert "carolpw" not in caplog.text


@WITH_SLAPD
def test_a_search_that_finds_two_entries_is_refused(
    directory: Slapd, caplog: pytest.LogCaptureFixture
) -> None:
    checks = LdapDirectory(LdapOptions(directory.url, search_base=BASE))
    with caplog.at_level(logging.WARNING):
        assert checks.check("twin", Secret("twinpw")) is None
    assert "two entries" in caplog.text
    # Below one of the two folders there is one.
    assert LdapDirectory(options(directory, "search")).check("twin", Secret("twinpw")) == "twin"


@WITH_SLAPD
def test_a_user_that_cannot_read_its_entry_is_refused(
    directory: Slapd, caplog: pytest.LogCaptureFixture
) -> None:
    template = f"uid={{user}},ou=closed,{BASE}"
    checks = LdapDirectory(LdapOptions(directory.url, user_dn_template=template))
    with caplog.at_level(logging.WARNING):
        assert checks.check("dave", Secret("davepw")) is None
    assert "read its own" in caplog.text


@WITH_SLAPD
def test_a_user_without_a_password_is_refused(directory: Slapd) -> None:
    for way in WAYS:
        assert LdapDirectory(options(directory, way)).check("locked", Secret("x")) is None


@WITH_SLAPD
def test_another_attribute_may_be_the_principal(directory: Slapd) -> None:
    checks = LdapDirectory(
        LdapOptions(directory.url, user_dn_template=TEMPLATE, principal_attribute="cn")
    )
    assert checks.check("alice", Secret(PASSWORDS["alice"])) == "x"


@WITH_SLAPD
def test_a_wrong_service_account_is_a_trouble_and_not_a_wrong_password(directory: Slapd) -> None:
    checks = LdapDirectory(
        LdapOptions(
            directory.url,
            search_base=PEOPLE,
            bind_dn=SEARCH_NAME,
            bind_password=Secret("canary"),
        )
    )
    with pytest.raises(CheckUnavailableError, match=r"ldap\.bind_dn") as raised:
        checks.check("alice", Secret(PASSWORDS["alice"]))
    assert "canary" not in f"{raised.value}{raised.value.hint}"


@WITH_SLAPD
@pytest.mark.parametrize("way", ["template with TLS", "template with StartTLS"])
def test_another_certificate_is_refused_before_the_password_is_sent(
    directory: Slapd, way: str, tmp_path: Path
) -> None:
    known = options(directory, way)
    other = str(CertificateAuthority(tmp_path).certificate)
    for ca_file in (other, None):
        checks = LdapDirectory(
            LdapOptions(known.url, known.start_tls, ca_file=ca_file, user_dn_template=TEMPLATE)
        )
        with pytest.raises(CheckUnavailableError):
            checks.check("alice", Secret(PASSWORDS["alice"]))


@WITH_SLAPD
def test_another_host_name_is_refused(directory: Slapd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is right, but for another name."""
    found = socket.getaddrinfo

    def resolved(host: str, *given: object, **named: object) -> object:
        chosen = HOST if host == "ldap.example.test" else host
        return found(chosen, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    for name, is_right in (("ldap.example.test", False), ("localhost", True)):
        address = f"ldaps://{name}:{directory.tls_port}"
        checks = LdapDirectory(
            LdapOptions(address, ca_file=directory.ca, user_dn_template=TEMPLATE)
        )
        if is_right:
            assert checks.check("alice", Secret(PASSWORDS["alice"])) == "alice"
        else:
            with pytest.raises(CheckUnavailableError):
                checks.check("alice", Secret(PASSWORDS["alice"]))


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A server that accepts connections and answers nothing."""
    held: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                held.append(listening.accept()[0])

    with socket.create_server((HOST, 0)) as listening:
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for one in held:
                one.close()


@WITH_SLAPD
@pytest.mark.parametrize(
    ("scheme", "start_tls"), [("ldap", False), ("ldaps", False), ("ldap", True)]
)
def test_a_silent_directory_ends_the_check(scheme: str, start_tls: bool) -> None:
    with silent_server() as port:
        checks = LdapDirectory(
            LdapOptions(
                f"{scheme}://{HOST}:{port}",
                start_tls,
                user_dn_template=TEMPLATE,
                timeout_seconds=1.0,
            )
        )
        begun = time.monotonic()
        with pytest.raises(CheckUnavailableError, match="does not decide") as raised:
            checks.check("alice", Secret("canary"))
        assert time.monotonic() - begun < 5
        assert "canary" not in str(raised.value)


def test_an_unreachable_directory_ends_the_check() -> None:
    checks = LdapDirectory(LdapOptions(f"ldap://{HOST}:{free_port()}", user_dn_template=TEMPLATE))
    with pytest.raises(CheckUnavailableError, match="does not decide") as raised:
        checks.check("alice", Secret("canary"))
    assert raised.value.hint


# --- Settings ---


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (LdapOptions("ldap://ldap.example.org", user_dn_template=TEMPLATE), "unencrypted"),
        (LdapOptions("ldap://10.0.0.1", user_dn_template=TEMPLATE), "unencrypted"),
        (LdapOptions("http://localhost", user_dn_template=TEMPLATE), "not the address"),
        (LdapOptions("ldap://", user_dn_template=TEMPLATE), "not the address"),
        (LdapOptions("ldaps://h:99999", user_dn_template=TEMPLATE), "not the address"),
        (LdapOptions("ldaps://h/dc=x", user_dn_template=TEMPLATE), "not the address"),
        (LdapOptions("ldaps://h", start_tls=True, user_dn_template=TEMPLATE), "has TLS already"),
        (LdapOptions("ldaps://h"), "neither"),
        (LdapOptions("ldaps://h", user_dn_template="uid=alice"), "does not contain"),
        (LdapOptions("ldaps://h", search_base="x", search_filter="(uid=a)"), "does not contain"),
        (LdapOptions("ldaps://h", search_base="x", bind_dn="cn=x"), "need each other"),
        (LdapOptions("ldaps://h", search_base="x", bind_password=Secret("x")), "need each other"),
        (
            LdapOptions("ldaps://h", search_base="x", bind_dn="cn=x", bind_password=Secret("")),
            "is empty",
        ),
        (LdapOptions("ldaps://h", ca_file="missing", user_dn_template=TEMPLATE), "ldap.ca_file"),
    ],
)
def test_settings_that_are_not_safe_are_refused(given: LdapOptions, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        LdapDirectory(given)
    assert raised.value.hint


@pytest.mark.parametrize(
    "url", ["ldap://127.0.0.1", "ldap://localhost:1389", "ldap://[::1]", "ldaps://ldap.example.org"]
)
def test_safe_addresses_are_accepted(url: str) -> None:
    LdapDirectory(LdapOptions(url, user_dn_template=TEMPLATE))
    LdapDirectory(LdapOptions("ldap://ldap.example.org", start_tls=True, user_dn_template=TEMPLATE))


def test_options_hide_the_password() -> None:
    given = LdapOptions("ldaps://h", search_base="x", bind_dn="x", bind_password=Secret("canary"))
    assert "canary" not in repr(given)
