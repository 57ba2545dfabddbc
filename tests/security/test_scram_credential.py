"""Stored credentials: the example of RFC 7677, and nothing of a secret in a text."""

import base64
import hashlib
import hmac

from penstock.security.sasl_client import SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.scram_credential import (
    MECHANISM_NUMBERS,
    MECHANISMS,
    ScramCredential,
    credential_of,
    salted_password,
)
from penstock.security.secret import Secret

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SIGNED = (
    f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}"
).encode()
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_keys_verify_the_example_of_the_standard() -> None:
    salted = salted_password(SCRAM_SHA_256, Secret("pencil"), SALT, 4096)
    credential = credential_of(SCRAM_SHA_256, salted, SALT, 4096)
    signature = hmac.digest(credential.stored_key, SIGNED, "sha256")
    client_key = bytes(a ^ b for a, b in zip(PROOF, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    assert hmac.digest(credential.server_key, SIGNED, "sha256") == SIGNATURE
    assert (credential.salt, credential.iterations) == (SALT, 4096)


def test_mechanisms_have_keys_of_their_own() -> None:
    one, two = (
        credential_of(mechanism, b"salted", SALT, 4096)
        for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512)
    )
    assert (len(one.stored_key), len(two.stored_key)) == (32, 64)
    assert one.server_key != two.server_key[:32]
    assert {MECHANISMS[number]: number for number in (1, 2)} == MECHANISM_NUMBERS


def test_no_text_shows_a_credential() -> None:
    credential = ScramCredential(b"the salt", b"the stored key", b"the server key", 4096)
    for text in (repr(credential), str(credential), f"{credential}", f"{[credential]}"):
        assert "the" not in text
        assert "4096" in text
