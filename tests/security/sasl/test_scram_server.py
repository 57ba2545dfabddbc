"""The server's side of SCRAM: vectors, independent clients, hostile clients, unknown users."""

import base64
import hashlib
import hmac
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient as OtherClient

from penstock.core.errors import AuthenticationError
from penstock.security.sasl.plain_server import OTHER_IDENTITY
from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.sasl.scram_server import (
    MESSAGE_BYTES_MAX,
    ScramServer,
    password_matches,
    user_password_matches,
)
from penstock.security.sasl_client import ScramClient
from penstock.security.scram_credential import (
    ITERATIONS_DEFAULT,
    SALT_BYTES,
    ScramCredential,
    credential_of,
    salted_password,
)
from penstock.security.secret import Secret

SCRAM_256 = "SCRAM-SHA-256"
SCRAM_512 = "SCRAM-SHA-512"
MECHANISMS = pytest.mark.parametrize("mechanism", [SCRAM_256, SCRAM_512])
FALSE_KEY = Secret("a secret of the cluster")
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PASSWORD = Secret("pencil")


def credential(
    mechanism: str = SCRAM_256, password: Secret = PASSWORD, salt: bytes = SALT
) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, 4096), salt, 4096)


RIGHT = credential()


def server(mechanism: str = SCRAM_256) -> ScramServer:
    return ScramServer(mechanism, FALSE_KEY)


def challenged(known: ScramCredential | None = RIGHT, header: str = "n,,") -> ScramServer:
    """A server that waits for the final message of RFC 7677."""
    exchange = server()
    exchange.read_first(f"{header}n=user,r={NONCE}".encode())
    exchange.challenge(known, SERVER_NONCE)
    return exchange


FINAL = f"c=biws,r={NONCE}{SERVER_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()


def test_the_exchange_of_rfc_7677() -> None:
    exchange = server()
    assert exchange.read_first(f"n,,n=user,r={NONCE}".encode()) == "user"
    assert exchange.challenge(RIGHT, SERVER_NONCE) == (
        f"r={NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    )
    assert exchange.verify(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


NAMES = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1, max_size=80)
PASSWORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@MECHANISMS
@given(user=NAMES, password=PASSWORDS)
def test_our_client_is_accepted(mechanism: str, user: str, password: str) -> None:
    known = credential(mechanism, Secret(password))
    exchange = server(mechanism)
    client = ScramClient(mechanism, user, Secret(password), NONCE)
    assert exchange.read_first(client.first()) == user
    proof = client.respond(exchange.challenge(known, SERVER_NONCE))
    assert proof is not None
    assert client.respond(exchange.verify(proof)) is None


@MECHANISMS
@given(password=PASSWORDS, other=PASSWORDS)
def test_another_password_is_refused(mechanism: str, password: str, other: str) -> None:
    exchange = server(mechanism)
    client = ScramClient(mechanism, "user", Secret(other + "x"), NONCE)
    exchange.read_first(client.first())
    known = credential(mechanism, Secret(password + "y"))
    proof = client.respond(exchange.challenge(known, SERVER_NONCE))
    assert proof is not None
    with pytest.raises(RefusedLoginError) as raised:
        exchange.verify(proof)
    assert raised.value.text == ""


PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40)


@MECHANISMS
@given(user=PRINTABLE, password=PRINTABLE)
def test_an_independent_client_is_accepted(mechanism: str, user: str, password: str) -> None:
    client = OtherClient([mechanism], user, password)
    exchange = server(mechanism)
    assert exchange.read_first(client.get_client_first().encode()) == user
    known = credential(mechanism, Secret(password))
    client.set_server_first(exchange.challenge(known, SERVER_NONCE).decode())
    client.set_server_final(exchange.verify(client.get_client_final().encode()).decode())


def refused(call: object, token: bytes) -> RefusedLoginError:
    with pytest.raises(RefusedLoginError) as raised:
        call(token)  # type: ignore[operator]
    return raised.value


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"", "no header"),
        (b"n", "no header"),
        (b"n,", "no header"),
        (b"n,,", "too few fields"),
        (b"n,,n=user", "too few fields"),
        (b"n,,r=abc,n=user", "no field 'n'"),
        (b"n,,n=user,s=abc", "no field 'r'"),
        (b"n,,n=,r=abc", "no field 'n'"),
        (b"n,,n=user,r=", "no field 'r'"),
        (b"n,,m=x,n=user,r=abc", "no field 'n'"),
        (b"n,,n=user,r=abc,m=x", "extension that does not exist"),
        (b"p=tls-server-end-point,,n=user,r=abc", "channel binding"),
        (b"x,,n=user,r=abc", "channel binding"),
        (b"n,user,n=user,r=abc", "no field 'a'"),
        (b"n,,n=us=er,r=abc", "name"),
        (b"n,,n=us=2cer,r=abc", "name"),
        (b"n,,n=us\0er,r=abc", "name"),
        (b"n,,n=\xc3\xa4,r=abc", "not ASCII"),
        (b"n,,n=\xff,r=abc", "not ASCII"),
        (b"n,,n=" + b"x" * 256 + b",r=abc", "more than 255"),
        (b"n,,n=user,r=a b", "nonce"),
        (b"n,,n=user,r=a\x7fb", "nonce"),
        (b"n,,n=user,r=abc,", "malformed"),
        (b"n,,n=user,r=abc,9=x", "malformed"),
        (b"n,,n=user,r=abc,x=", "malformed"),
        (b"n,,n=user,r=abc,tokenauth=true", "delegation"),
        (b"n,,n=user,r=abc,x=y,tokenauth=TRUE", "delegation"),
        (b"n,,n=user,r=" + b"x" * MESSAGE_BYTES_MAX, "bytes"),
    ],
)
def test_a_bad_first_message_is_refused(first: bytes, reason: str) -> None:
    error = refused(server().read_first, first)
    assert reason in str(error)
    assert error.text == "", "the client learns the mechanism only"


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (b"", "too few fields"),
        (FINAL.replace(b"c=biws", b"c=eSws"), "binding"),
        (FINAL.replace(b"c=biws", b"c=AAAA"), "binding"),
        (FINAL.replace(b"c=biws,", b""), "too few fields"),
        (FINAL.replace(b"r=rO", b"r=RO"), "nonce"),
        (FINAL.replace(b"r=rO", b"r=x"), "nonce"),
        (FINAL.replace(NONCE.encode(), b""), "nonce"),
        (FINAL.replace(SERVER_NONCE.encode(), b""), "nonce"),
        (FINAL.replace(b"p=dH", b"p=DH"), "proof is wrong"),
        (FINAL.replace(b"p=dH", b"p=!!"), "not base64"),
        (FINAL[:-4], "length"),
        (FINAL.partition(b",p=")[0] + b",p=", "no field 'p'"),
        (FINAL + b",x=y", "no field 'p'"),
        (FINAL.replace(b"dVQ=", b"dVR="), "not base64"),
        (FINAL.replace(b",p=", b",m=x,p="), "does not exist"),
        (FINAL.replace(b",p=", b",tokenauth=true,p="), "delegation"),
        (FINAL.replace(b",p=", b",x=y,p="), "proof is wrong"),
        (b"\xff", "not ASCII"),
    ],
)
def test_a_bad_final_message_is_refused(final: bytes, reason: str) -> None:
    error = refused(challenged().verify, final)
    assert reason in str(error)
    assert error.text == ""


def signed_final(nonce: str, binding: bytes = b"n,,") -> bytes:
    """A final message with a right proof over what it says."""
    salted = salted_password(SCRAM_256, PASSWORD, SALT, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    first = f"r={NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    without_proof = f"c={base64.b64encode(binding).decode()},r={nonce}"
    signed = f"n=user,r={NONCE},{first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def test_the_nonce_is_compared_whole() -> None:
    """CVE-2024-56128: a nonce that only ends like ours is refused, though the proof is right."""
    right = NONCE + SERVER_NONCE
    assert challenged().verify(signed_final(right))
    for wrong in ("x" + right, right + "x", SERVER_NONCE, NONCE, right.upper()):
        assert "nonce" in str(refused(challenged().verify, signed_final(wrong)))


def test_the_channel_binding_repeats_the_header() -> None:
    right = NONCE + SERVER_NONCE
    assert challenged(header="y,,").verify(signed_final(right, b"y,,"))
    assert challenged(header="n,a=user,").verify(signed_final(right, b"n,a=user,"))
    for header, binding in (("y,,", b"n,,"), ("n,,", b"y,,"), ("n,,", b"n,a=user,")):
        error = refused(challenged(header=header).verify, signed_final(right, binding))
        assert "binding" in str(error)


@pytest.mark.parametrize("name", ["bob", "User", "user=2C", "use"])
def test_a_client_acts_for_itself_only(name: str) -> None:
    error = refused(server().read_first, f"n,a={name},n=user,r=abc".encode())
    assert error.text == OTHER_IDENTITY


def test_names_are_unescaped() -> None:
    assert server().read_first(b"n,a=a=2Cb=3Dc,n=a=2Cb=3Dc,r=abc") == "a,b=c"
    assert server().read_first(b"n,,n==3D2C,r=abc") == "=2C"


# --- Unknown users ---


def challenge_fields(exchange: ScramServer, user: str) -> dict[str, str]:
    exchange.read_first(f"n,,n={user},r=abc".encode())
    text = exchange.challenge(None, "def").decode()
    return dict(part.split("=", 1) for part in text.split(","))


@MECHANISMS
def test_an_unknown_user_has_a_salt_of_its_own(mechanism: str) -> None:
    first = challenge_fields(server(mechanism), "nobody")
    assert first == challenge_fields(server(mechanism), "nobody"), "the same at each attempt"
    assert first["i"] == str(ITERATIONS_DEFAULT)
    assert len(base64.b64decode(first["s"])) == SALT_BYTES
    others = [
        challenge_fields(server(mechanism), "nobody2"),
        challenge_fields(server(SCRAM_256 if mechanism == SCRAM_512 else SCRAM_512), "nobody"),
        challenge_fields(ScramServer(mechanism, Secret("another cluster")), "nobody"),
    ]
    assert first["s"] not in [other["s"] for other in others]


@given(password=PASSWORDS)
def test_no_password_fits_an_unknown_user(password: str) -> None:
    client = ScramClient(SCRAM_256, "nobody", Secret(password), NONCE)
    exchange = server()
    exchange.read_first(client.first())
    proof = client.respond(exchange.challenge(None, SERVER_NONCE))
    assert proof is not None
    error = refused(exchange.verify, proof)
    assert error.text == ""
    assert str(error) == "the user is unknown"


def test_the_client_sees_no_difference_between_unknown_and_wrong() -> None:
    texts = set()
    for known in (None, RIGHT):
        client = ScramClient(SCRAM_256, "user", Secret("wrong"), NONCE)
        exchange = server()
        exchange.read_first(client.first())
        proof = client.respond(exchange.challenge(known, SERVER_NONCE))
        assert proof is not None
        texts.add(refused(exchange.verify, proof).text)
    assert len(texts) == 1


def test_a_proof_that_fits_does_not_help_an_unknown_user() -> None:
    """The last check is not the proof: a user that does not exist is refused in any case."""
    exchange = server()
    exchange.read_first(f"n,,n=nobody,r={NONCE}".encode())
    challenge = exchange.challenge(None, SERVER_NONCE).decode()
    client_key = bytes(32)
    fitting = hashlib.sha256(client_key).digest()
    assert exchange._credential is not None
    exchange._credential = exchange._credential._replace(stored_key=fitting)
    without_proof = f"c=biws,r={NONCE}{SERVER_NONCE}"
    signed = f"n=nobody,r={NONCE},{challenge},{without_proof}".encode()
    proof = hmac.digest(fitting, signed, "sha256")  # xor with zeros
    final = f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    assert str(refused(exchange.verify, final)) == "the user is unknown"


# --- Anything else ---


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_no_message_causes_another_error(first: bytes, final: bytes) -> None:
    exchange = server()
    try:
        exchange.read_first(first)
    except RefusedLoginError:
        exchange = challenged()
    else:
        exchange.challenge(RIGHT, SERVER_NONCE)
    refused(exchange.verify, final)


@given(st.integers(0, len(FINAL) - 1), st.binary(max_size=3))
def test_no_changed_final_message_is_accepted(position: int, inserted: bytes) -> None:
    changed = FINAL[:position] + inserted + FINAL[position + 1 :]
    if changed != FINAL:
        refused(challenged().verify, changed)


def test_the_client_detects_a_server_without_the_password() -> None:
    client = ScramClient(SCRAM_256, "user", PASSWORD, NONCE)
    exchange = server()
    exchange.read_first(client.first())
    assert client.respond(exchange.challenge(RIGHT, SERVER_NONCE))
    with pytest.raises(AuthenticationError):
        client.respond(b"v=" + base64.b64encode(bytes(32)))


@MECHANISMS
def test_a_password_is_compared_with_a_credential(mechanism: str) -> None:
    known = credential(mechanism)
    assert password_matches(mechanism, known, PASSWORD)
    assert not password_matches(mechanism, known, Secret("Pencil"))


def test_the_password_of_a_user_is_that_of_its_stronger_credential() -> None:
    strong, weak = credential(SCRAM_512), credential(SCRAM_256)
    other = Secret("Pencil")
    assert user_password_matches(strong, None, PASSWORD)
    assert user_password_matches(None, weak, PASSWORD)
    assert user_password_matches(strong, weak, PASSWORD)
    assert not user_password_matches(strong, weak, other)
    assert not user_password_matches(None, weak, other)
    assert not user_password_matches(None, None, PASSWORD)
    salted = salted_password(SCRAM_512, other, b"salt", 4_096)
    changed = credential_of(SCRAM_512, salted, b"salt", 4_096)
    assert not user_password_matches(changed, weak, PASSWORD), "the weaker one is not asked"


def test_the_work_for_a_password_is_the_same_for_every_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also for a user of one mechanism, with few iterations, and for an unknown one."""
    spent: Counter[str] = Counter()
    derive = hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        spent[name] += iterations
        return derive(name, password, salt, 1)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    few, usual = (
        ScramCredential(b"salt", b"", b"", count) for count in (4_096, ITERATIONS_DEFAULT)
    )
    work = []
    for strong, weak in ((None, None), (few, None), (None, few), (usual, few)):
        spent.clear()
        user_password_matches(strong, weak, PASSWORD)
        work.append(dict(spent))
    assert work == [{"sha512": ITERATIONS_DEFAULT, "sha256": ITERATIONS_DEFAULT}] * 4
