"""The users file: what is written is read, everything else names its line and hides its content."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.security.sasl.password_file import (
    FILE_BYTES_MAX,
    USERS_MAX,
    PasswordHash,
    format_user,
    format_users,
    hash_password,
    parse_users,
    password_matches,
)
from penstock.security.secret import Secret

HASHES = st.builds(
    PasswordHash, st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32)
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
STORED = PasswordHash(bytes(range(16)), bytes(range(32)))
LINE = format_user("alice", STORED)


@given(st.dictionaries(NAMES, HASHES, max_size=5))
def test_a_written_file_is_read_back(users: dict[str, PasswordHash]) -> None:
    text = format_users(users)
    assert parse_users(text) == users
    assert text.count("\n") == len(users)


def test_the_form_of_a_line() -> None:
    assert LINE == (
        "alice:$scrypt$ln=14,r=8,p=1$AAECAwQFBgcICQoLDA0ODw"
        "$AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    )
    assert format_user("a:b~ä@c", STORED).startswith("a%3Ab%7E%C3%A4@c:$")


def test_comments_and_blank_lines_are_ignored() -> None:
    text = f"# users\n\n  {LINE}  \r\n\t# another\n{format_user('bob', STORED)}"
    assert list(parse_users(text)) == ["alice", "bob"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("alice", "line 1: missing ':'"),
        (f"# x\n\nalice:canary\n{LINE}", "line 3: the hash of 'alice' does not begin"),
        ("alice:$scrypt$ln=20,r=8,p=1$canary$canary", "does not begin"),
        ("alice:$scrypt$ln=14,r=8,p=1$canary$canary", "damaged"),
        ("alice:$scrypt$ln=14,r=8,p=1$canary", "damaged"),
        (LINE + "A", "damaged"),
        (LINE[:-1] + "9", "damaged"),
        (LINE.replace("AAECAwQ", "AAEC!wQ", 1), "damaged"),
        (f"{LINE}\n{LINE}", "line 2: the user 'alice' occurs twice"),
        (LINE.replace("alice", "al ice"), "not in its one form"),
        (LINE.replace("alice", "%61lice"), "not in its one form"),
        (LINE.replace("alice", "%c3%a4"), "not in its one form"),
        (LINE.replace("alice", "%FF"), "not in its one form"),
        (LINE.replace("alice", "%"), "not in its one form"),
        (LINE.replace("alice", ""), "not in its one form"),
        (LINE.replace("alice", "ä"), "not in its one form"),
        (LINE.replace("alice", "a" * 256), "not in its one form"),
        ("x" * (FILE_BYTES_MAX + 1), "at most 4,194,304"),
    ],
)
def test_a_bad_line_is_named_and_not_shown(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_users(text)
    assert words in str(raised.value)
    assert raised.value.hint
    assert "canary" not in f"{raised.value}{raised.value.hint}"


def test_the_number_of_users_is_bounded() -> None:
    lines = [LINE.replace("alice", f"u{number}") for number in range(USERS_MAX + 1)]
    assert len(parse_users("\n".join(lines[:-1]))) == USERS_MAX
    with pytest.raises(ConfigError, match="more than 10,000 users"):
        parse_users("\n".join(lines))


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_name_of_a_wrong_length_is_not_written(name: str) -> None:
    with pytest.raises(ConfigError, match="bytes"):
        format_user(name, STORED)


@given(st.text(max_size=200))
def test_no_text_causes_another_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert parse_users(text) == {}


def test_a_password_is_verified() -> None:
    stored = hash_password(Secret("grün"), bytes(16))
    assert password_matches(stored, Secret("grün"))
    assert not password_matches(stored, Secret("grun"))
    assert not password_matches(None, Secret("grün"))
    assert repr(stored) == "PasswordHash([hidden])"


def test_the_hash_of_a_password_does_not_change() -> None:
    """Files of earlier versions stay valid."""
    stored = hash_password(Secret("pleaseletmein"), b"SodiumChloride!!")
    expected = "5266323433bf611b859ac800e892b96da335a93270d5b16f5f66ab7b50f63817"
    assert stored.digest.hex() == expected
