"""The client's side of SASL: vectors of the standards, an independent server, hostile servers."""

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramMechanism

from penstock.core.errors import AuthenticationError
from penstock.security.sasl_client import (
    CHALLENGE_BYTES_MAX,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    BearerClient,
    PlainClient,
    ScramClient,
)
from penstock.security.secret import Secret

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="


def scram(mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> ScramClient:
    return ScramClient(mechanism, "user", Secret(password), NONCE)


def test_the_exchange_of_rfc_7677() -> None:
    client = scram()
    assert client.first() == f"n,,n=user,r={NONCE}".encode()
    assert client.respond(f"r={SERVER_NONCE},s={SALT},i=4096".encode()) == (
        f"c=biws,r={SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    )
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


NAMES = st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40
)  # scramp prepares other names with SASLprep, as Kafka does not


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@given(user=NAMES, password=NAMES)
def test_an_independent_server_accepts_the_proof(mechanism: str, user: str, password: str) -> None:
    server_mechanism = ScramMechanism(mechanism)
    credential = server_mechanism.make_auth_info(password, iteration_count=ITERATIONS_MIN)
    server = server_mechanism.make_server({user: credential}.__getitem__)
    client = ScramClient(mechanism, user, Secret(password), NONCE)
    server.set_client_first(client.first().decode())
    proof = client.respond(server.get_server_first().encode())
    assert proof is not None
    server.set_client_final(proof.decode())
    assert client.respond(server.get_server_final().encode()) is None


def first_challenge(**changed: str) -> bytes:
    fields = {"r": SERVER_NONCE, "s": SALT, "i": "4096"} | changed
    return ",".join(f"{name}={value}" for name, value in fields.items()).encode()


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        (first_challenge(r="other"), "does not continue"),
        (first_challenge(r=NONCE), "does not continue"),
        (first_challenge(i=str(ITERATIONS_MIN - 1)), "4095 SCRAM iterations"),
        (first_challenge(i=str(ITERATIONS_MAX + 1)), "1000001 SCRAM iterations"),
        (first_challenge(i="99999999999999"), "not a number"),
        (first_challenge(i="-1"), "not a number"),
        (first_challenge(i="²"), "not a number"),
        (first_challenge(s=""), "salt has 0 bytes"),
        (first_challenge(s="!"), "invalid base64"),
        (b"m=ext," + first_challenge(), "extension"),
        (b"nonsense", "malformed"),
        (b"", "malformed"),
        (b"\xff", "not UTF-8"),
        (b"r=" + b"x" * CHALLENGE_BYTES_MAX, "bytes"),
    ],
)
def test_a_wrong_first_challenge_is_refused(challenge: bytes, words: str) -> None:
    with pytest.raises(AuthenticationError, match=words):
        scram().respond(challenge)


@pytest.mark.parametrize(
    "final",
    [b"v=" + base64.b64encode(bytes(32)), b"v=", b"e=invalid-proof", b"x=1", b"", b"v=AAAA="],
)
def test_a_server_without_the_password_is_refused(final: bytes) -> None:
    client = scram()
    assert client.respond(first_challenge()) is not None
    with pytest.raises(AuthenticationError):
        client.respond(final)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_challenge_causes_another_error(first: bytes, second: bytes) -> None:
    client = scram()
    with suppress(AuthenticationError):
        client.respond(first)
    with pytest.raises(AuthenticationError):
        client.respond(second)


def test_a_name_cannot_add_fields() -> None:
    client = ScramClient("SCRAM-SHA-256", "a,r=b=c", Secret("x"), NONCE)
    assert client.first() == f"n,,n=a=2Cr=3Db=3Dc,r={NONCE}".encode()


def test_plain_has_one_token() -> None:
    client = PlainClient("alice", Secret("geheim ä"))
    assert client.first() == b"\0alice\0geheim \xc3\xa4"
    assert client.respond(b"") is None


def test_bearer_sends_the_token_and_acknowledges_an_error() -> None:
    client = BearerClient(Secret("abc"), (("logicalCluster", "l"),))
    assert client.first() == b"n,,\x01auth=Bearer abc\x01logicalCluster=l\x01\x01"
    assert client.respond(b"") is None
    assert client.respond(b'{"status":"invalid_token"}') == b"\x01"
