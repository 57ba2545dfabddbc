"""Signatures of tokens: every algorithm, and every forgery that is known."""

import base64
import functools
import hashlib
import hmac
import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwk, jws

from penstock.core.errors import ConfigError
from penstock.security.sasl.jwt_keys import (
    ALGORITHMS,
    KEYS_MAX,
    NO_KEYS,
    JwtKeys,
    key_id_of,
    parse_keys,
)
from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.secret import Secret

CLAIMS = {"sub": "alice", "exp": 1}
DEEP = b'{"a":' * 1_200
KINDS: dict[str, Callable[[], Any]] = {
    "rsa": lambda: jwk.RSAKey.generate_key(2048),
    "p256": lambda: jwk.ECKey.generate_key("P-256"),
    "p384": lambda: jwk.ECKey.generate_key("P-384"),
    "p521": lambda: jwk.ECKey.generate_key("P-521"),
    "ed25519": lambda: jwk.OKPKey.generate_key("Ed25519"),
}
KIND_OF = {
    "RS": "rsa",
    "PS": "rsa",
    "ES256": "p256",
    "ES384": "p384",
    "ES512": "p521",
    "Ed": "ed25519",
}


@functools.cache
def private_key(kind: str) -> Any:  # noqa: ANN401 - a key of any kind
    return KINDS[kind]()


def kind_of(algorithm: str) -> str:
    return next(kind for prefix, kind in KIND_OF.items() if algorithm.startswith(prefix))


def public(kind: str, **changed: object) -> dict[str, Any]:
    document = private_key(kind).as_dict(private=False) | {"kid": kind, "use": "sig"} | changed
    return {name: value for name, value in document.items() if value is not None}


def key_set(*members: dict[str, Any]) -> bytes:
    return json.dumps({"keys": members}).encode()


@functools.cache
def keys() -> JwtKeys:
    return parse_keys(key_set(*(public(kind) for kind in KINDS)))


def signed(
    algorithm: str, kind: str, header: dict[str, Any] | None = None, claims: object = None
) -> str:
    fields = {"alg": algorithm, "kid": kind} | (header or {})
    fields = {name: value for name, value in fields.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    body = json.dumps(CLAIMS if claims is None else claims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jws.serialize_compact(fields, body, private_key(kind), registry=registry)


def encoded(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def refused(token: str, known: JwtKeys | None = None) -> str:
    with pytest.raises(RefusedLoginError) as raised:
        (keys() if known is None else known).verify(Secret(token))
    assert raised.value.text == ""
    return str(raised.value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_is_verified(algorithm: str) -> None:
    kind = kind_of(algorithm)
    token = signed(algorithm, kind)
    assert keys().verify(Secret(token)) == CLAIMS
    assert key_id_of(Secret(token)) == kind
    head, body, signature = token.split(".")
    assert "signature" in refused(f"{head}.{encoded(CLAIMS | {'sub': 'bob'})}.{signature}")
    changed = encoded({"alg": algorithm, "kid": kind, "x": 1})
    assert "signature" in refused(f"{changed}.{body}.{signature}")
    other = "A" if signature[5] != "A" else "B"
    assert "signature" in refused(f"{head}.{body}.{signature[:5]}{other}{signature[6:]}")
    assert "signature" in refused(f"{head}.{body}.")


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE", "", None, 5, ["RS256"]])
def test_a_token_without_a_signature_is_refused(algorithm: object) -> None:
    for signature in ("", "AAAA"):
        token = f"{encoded({'alg': algorithm, 'kid': 'rsa'})}.{encoded(CLAIMS)}.{signature}"
        assert "algorithm" in refused(token)
        # Before its key is looked up: it must not cause a fetch of keys.
        with pytest.raises(RefusedLoginError, match="algorithm"):
            key_id_of(Secret(token))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_not_a_secret_of_hmac(algorithm: str) -> None:
    """The forgery of many libraries: the public key, which is known, signs as an HMAC key."""
    key = private_key("rsa").public_key
    forms = [
        key.public_bytes(encoding, form)
        for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER)
        for form in (
            serialization.PublicFormat.SubjectPublicKeyInfo,
            serialization.PublicFormat.PKCS1,
        )
    ]
    start = f"{encoded({'alg': algorithm, 'kid': 'rsa'})}.{encoded(CLAIMS)}"
    digest = getattr(hashlib, f"sha{algorithm[2:]}")
    for form in [*forms, json.dumps(public("rsa")).encode(), b""]:
        signature = hmac.new(form, start.encode(), digest).digest()
        assert "algorithm" in refused(f"{start}.{encoded(signature)}")


def test_a_key_in_the_header_is_not_followed() -> None:
    attacker = jwk.RSAKey.generate_key(2048)
    headers: list[dict[str, Any]] = [
        {"jwk": attacker.as_dict(private=False)},
        {"jku": "https://attacker.test/jwks"},
        {"x5u": "https://attacker.test/chain"},
        {"x5c": ["AAAA"]},
    ]
    for header in headers:
        fields = {"alg": "RS256", "kid": "rsa"} | header
        registry = jws.JWSRegistry(algorithms=["RS256"])
        forged = jws.serialize_compact(fields, json.dumps(CLAIMS), attacker, registry=registry)
        assert "signature" in refused(forged)
        # The same headers do no harm in a token that the known key signed.
        assert keys().verify(Secret(signed("RS256", "rsa", header))) == CLAIMS


@pytest.mark.parametrize("header", [{"crit": ["exp"]}, {"crit": []}, {"b64": False}, {"b64": True}])
def test_critical_extensions_are_refused(header: dict[str, Any]) -> None:
    head = encoded({"alg": "RS256", "kid": "rsa"} | header)
    assert "crit" in refused(f"{head}.{encoded(CLAIMS)}.AAAA")


@pytest.mark.parametrize("key_id", ["unknown", "RSA", "rsa ", "../rsa", "", None, 5, "x" * 2_000])
def test_an_unknown_key_is_refused(key_id: object) -> None:
    head = encoded({"alg": "RS256", "kid": key_id})
    body = f"{encoded(CLAIMS)}.AAAA"
    assert "kid" in refused(f"{head}.{body}")


def test_a_key_is_used_with_its_own_algorithms_only() -> None:
    assert "not one of its key" in refused(signed("RS256", "rsa", {"kid": "p256"}))
    assert "not one of its key" in refused(signed("ES256", "p256", {"kid": "rsa"}))
    assert "not one of its key" in refused(signed("ES256", "p256", {"kid": "p384"}))
    pinned = parse_keys(key_set(public("rsa", alg="PS256")))
    assert pinned.verify(Secret(signed("PS256", "rsa"))) == CLAIMS
    assert "not one of its key" in refused(signed("RS256", "rsa"), pinned)


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "a.b.c.d.e",
        f"{encoded([])}.{encoded(CLAIMS)}.AAAA",
        f"{encoded('x')}.{encoded(CLAIMS)}.AAAA",
        f"{encoded(b'{')}.{encoded(CLAIMS)}.AAAA",
        f"{encoded(b'[' * 6000)}.{encoded(CLAIMS)}.AAAA",
        f"{encoded(DEEP)}.{encoded(CLAIMS)}.AAAA",
        "ä.b.c",
        "!!.b.c",
        f"{'A' * 9000}.b.c",
        "A" * 20_000,
        json.dumps({"payload": "x", "signatures": []}),
    ],
)
def test_a_malformed_token_is_refused(token: str) -> None:
    assert refused(token)
    with pytest.raises(RefusedLoginError):
        key_id_of(Secret(token))


def test_the_size_of_a_token_is_bounded() -> None:
    large = CLAIMS | {"groups": ["x" * 100] * 80}
    assert keys().verify(Secret(signed("RS256", "rsa", claims=large))) == large
    too_large = signed("RS256", "rsa", claims=CLAIMS | {"groups": ["x" * 100] * 120})
    assert "at most 16384" in refused(too_large)


@pytest.mark.parametrize("claims", ["text", [1], 5])
def test_claims_are_an_object(claims: object) -> None:
    assert "claims" in refused(signed("RS256", "rsa", claims=claims))


def test_claims_that_json_does_not_have_are_refused() -> None:
    registry = jws.JWSRegistry(algorithms=["RS256"])
    for body in ('{"exp": NaN}', '{"exp": Infinity}', "{", '{"a":' * 2_000, "\x00"):
        token = jws.serialize_compact(
            {"alg": "RS256", "kid": "rsa"}, body, private_key("rsa"), registry=registry
        )
        assert "claims" in refused(token)


def test_fields_of_providers_in_a_header_are_ignored() -> None:
    header = {"typ": "at+jwt", "x5t": "abc", "nonce": "n", "vendor": {"a": 1}}
    assert keys().verify(Secret(signed("RS256", "rsa", header))) == CLAIMS


def test_there_are_no_keys_at_first() -> None:
    assert len(NO_KEYS) == 0
    assert "kid" in refused(signed("RS256", "rsa"), NO_KEYS)


# --- Key sets ---


@pytest.mark.parametrize(
    "member",
    [
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "x", "alg": "HS256"},
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "x", "alg": "RS256"},
        {"kty": "OKP", "crv": "X25519", "x": "AAAA", "kid": "x"},
        {"kty": "EC", "crv": "secp256k1", "x": "AAAA", "y": "AAAA", "kid": "x"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA", "kid": "x"},
        {"kty": "EC", "crv": "P-256", "kid": "x"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "x"},
        {"kty": "RSA", "n": "!!", "e": "AQAB", "kid": "x"},
        {"kty": "RSA", "n": 5, "e": "AQAB", "kid": "x"},
        {"kty": "RSA", "n": "_" * 8_000, "e": "AQAB", "kid": "x"},
        {"kty": "RSA", "kid": "x"},
        {"kty": ["RSA"], "kid": "x"},
        {"kid": "x"},
        {},
        [],
        "text",
        None,
    ],
)
def test_unusable_keys_are_left_out(member: dict[str, Any]) -> None:
    found = parse_keys(key_set(member, public("p256")))
    assert len(found) == 1
    assert "p256" in found
    assert "x" not in found
    with pytest.raises(ConfigError, match="no key"):
        parse_keys(key_set(member))


@pytest.mark.parametrize(
    "changed",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"kid": None},
        {"kid": ""},
        {"kid": 5},
        {"kid": "x" * 2_000},
        {"alg": "RS256"},
        {"alg": "none"},
        {"alg": 5},
    ],
)
def test_keys_for_something_else_are_left_out(changed: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="no key"):
        parse_keys(key_set(public("p256", **changed)))
    assert "p256" in parse_keys(key_set(public("p256", key_ops=["verify"], use=None)))


def test_a_private_key_in_a_set_is_read_as_a_public_one() -> None:
    document = private_key("rsa").as_dict(private=True) | {"kid": "rsa"}
    found = parse_keys(key_set(document))
    assert found.verify(Secret(signed("RS256", "rsa"))) == CLAIMS
    assert not found._keys["rsa"].key.is_private


def test_small_rsa_keys_are_left_out() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = jwk.RSAKey.generate_key(1024, auto_kid=True)
    with pytest.raises(ConfigError, match="no key"):
        parse_keys(key_set(small.as_dict(private=False)))


def test_the_first_of_two_keys_with_one_id_counts() -> None:
    found = parse_keys(key_set(public("rsa", kid="k"), public("p256", kid="k")))
    assert found.verify(Secret(signed("RS256", "rsa", {"kid": "k"}))) == CLAIMS
    assert refused(signed("ES256", "p256", {"kid": "k"}), found)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no list"),
        (b"{}", "no list"),
        (b'{"keys": {}}', "no list"),
        (b'{"keys": []}', "no key"),
        (b'{"keys": [' + b"{}," * KEYS_MAX + b"{}]}", "101 keys"),
        (b" " * 1_048_577, "more than 1,048,576"),
    ],
)
def test_a_bad_key_set_is_an_error(document: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        parse_keys(document)
    assert raised.value.hint


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_key_set_causes_another_error(document: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_keys(document)


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=300))
def test_no_token_causes_another_error(token: str) -> None:
    assert refused(token)
