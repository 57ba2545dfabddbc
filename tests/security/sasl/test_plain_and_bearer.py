"""The messages of PLAIN and OAUTHBEARER: right ones, hostile ones, bounds."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.sasl.bearer_server import (
    EXTENSIONS_MAX,
    MESSAGE_BYTES_MAX,
    TOKEN_BYTES_MAX,
    parse_bearer,
)
from penstock.security.sasl.plain_server import (
    NO_PASSWORD,
    NO_USER,
    OTHER_IDENTITY,
    PART_BYTES_MAX,
    WRONG_PASSWORD,
    check_authorization_id,
    parse_plain,
)
from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.sasl_client import BearerClient, PlainClient
from penstock.security.secret import Secret

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(user=TEXTS, password=TEXTS)
def test_the_token_of_our_client_is_parsed(user: str, password: str) -> None:
    token = PlainClient(user, Secret(password)).first()
    if max(len(user.encode()), len(password.encode())) > PART_BYTES_MAX:
        with pytest.raises(RefusedLoginError):
            parse_plain(token)
    else:
        assert parse_plain(token) == ("", user, Secret(password))


def plain_refusal(token: bytes) -> str:
    with pytest.raises(RefusedLoginError) as raised:
        check_authorization_id(parse_plain(token))
    assert "canary" not in f"{raised.value}{raised.value.text}"
    return raised.value.text


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0canary", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0canary\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 100_000, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0canary", NO_USER),
        (b"\0\0", NO_USER),
        (b"\0alice\0", NO_PASSWORD),
        (b"bob\0alice\0canary", OTHER_IDENTITY),
        (b"ALICE\0alice\0canary", OTHER_IDENTITY),
        (b"\0al\xffice\0canary", WRONG_PASSWORD),
        (b"\0alice\0canary\xff", WRONG_PASSWORD),
        (b"\xff\0alice\0canary", WRONG_PASSWORD),
        (b"\0" + b"a" * 256 + b"\0canary", WRONG_PASSWORD),
        (b"\0alice\0" + b"a" * 256, WRONG_PASSWORD),
        (b"a" * 256 + b"\0alice\0canary", WRONG_PASSWORD),
    ],
)
def test_a_bad_plain_token_has_kafkas_text(token: bytes, text: str) -> None:
    assert plain_refusal(token) == text


def test_the_longest_plain_token_is_accepted() -> None:
    part = "ä" * 127 + "x"
    message = parse_plain(f"{part}\0{part}\0{part}".encode())
    check_authorization_id(message)
    assert message.user == part


def test_no_plain_secret_is_shown() -> None:
    assert "canary" not in repr(parse_plain(b"\0alice\0canary"))


@given(st.binary(max_size=2_000))
def test_no_plain_token_causes_another_error(token: bytes) -> None:
    with suppress(RefusedLoginError):
        message = parse_plain(token)
        assert message.user
        assert message.password.reveal()


def bearer(body: str, header: str = "n,,") -> bytes:
    return f"{header}\x01{body}\x01".encode()


def test_the_message_of_our_client_is_parsed() -> None:
    client = BearerClient(Secret("abc.def~+/-_=="), (("team", "x y"), ("trace", "1")))
    message = parse_bearer(client.first())
    assert message.token == Secret("abc.def~+/-_==")
    assert message.extensions == (("team", "x y"), ("trace", "1"))
    assert message.authorization_id == ""
    assert "abc" not in repr(message)


def test_an_authorization_id_is_unescaped() -> None:
    message = parse_bearer(bearer("auth=Bearer x\x01", "n,a=a=2Cb=3D,"))
    assert message.authorization_id == "a,b="


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "header"),
        (b"n,,", "separated"),
        (b"n,,\x01", "separated"),
        (b"n,,\x01\x01", "no token"),
        (b"n,,auth=Bearer canary\x01\x01", "separated"),
        (b"n,,\x01auth=Bearer canary\x01", "not ended"),
        (bearer("auth=Bearer canary\x01", "p=x,,"), "header"),
        (bearer("auth=Bearer canary\x01", "y,,"), "header"),
        (bearer("auth=Bearer canary\x01", ",,"), "header"),
        (bearer("auth=Bearer canary\x01", "n,bob,"), "authorization id"),
        (bearer("auth=Bearer canary\x01", "n,a=,"), "authorization id"),
        (bearer("auth=Bearer canary\x01", "n,a=a=b,"), "authorization id"),
        (bearer("auth=Bearer canary\x01", "n,a=a\tb,"), "authorization id"),
        (bearer("auth=Bearer canary\x01", f"n,a={'x' * 256},"), "authorization id"),
        (bearer("auth=Bearer\x01"), "token is malformed"),
        (bearer("auth=Bearer \x01"), "token is malformed"),
        (bearer("auth=Basic canary\x01"), "token is malformed"),
        (bearer("auth=Bearer can ary\x01"), "token is malformed"),
        (bearer("auth=Bearer can=ary\x01"), "token is malformed"),
        (bearer("auth=Bearer canary!\x01"), "token is malformed"),
        (bearer("auth=Bearer canary\x01auth=Bearer canary\x01"), "twice"),
        (bearer("auth=Bearer canary\x01x=\x01"), "a pair"),
        (bearer("auth=Bearer canary\x01x\x01"), "a pair"),
        (bearer("auth=Bearer canary\x01x1=y\x01"), "a pair"),
        (bearer("auth=Bearer canary\x01x=\x02\x01"), "a pair"),
        (bearer("auth=Bearer canary\x01x=1\x01x=2\x01"), "twice"),
        (bearer("auth=Bearer canary\x01\x01"), "a pair"),
        (bearer("x=1\x01" * (EXTENSIONS_MAX + 2)), "more than 32 extensions"),
        ("n,,\x01auth=Bearer cänary\x01\x01".encode(), "not ASCII"),
        (bearer(f"auth=Bearer {'x' * (TOKEN_BYTES_MAX + 1)}\x01"), "at most 16384"),
        (b"x" * (MESSAGE_BYTES_MAX + 1), "at most 20480"),
    ],
)
def test_a_bad_bearer_message_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(RefusedLoginError) as raised:
        parse_bearer(message)
    assert reason in str(raised.value)
    assert raised.value.text == ""
    assert "canary" not in str(raised.value)


def test_the_longest_token_is_accepted() -> None:
    token = "x" * TOKEN_BYTES_MAX
    assert parse_bearer(bearer(f"auth=Bearer {token}\x01")).token.reveal() == token


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: b"n,,\x01auth=" + tail))
def test_no_bearer_message_causes_another_error(message: bytes) -> None:
    with suppress(RefusedLoginError):
        assert parse_bearer(message).token.reveal()
