"""Claims of a token: one that is right, each one that is wrong, and the skew of the clocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.sasl.token_claims import (
    PRINCIPAL_BYTES_MAX,
    ClaimRules,
    TokenIdentity,
    check_claims,
    is_principal_name,
)

NOW = 1_700_000_000.5
RULES = ClaimRules(issuer="https://issuer.test", audience="kafka")
GOOD: dict[str, object] = {
    "iss": "https://issuer.test",
    "aud": "kafka",
    "sub": "alice",
    "exp": 1_700_000_300,
}
MISSING = object()


def with_claims(**changed: object) -> dict[str, object]:
    return {name: value for name, value in (GOOD | changed).items() if value is not MISSING}


def test_the_identity_of_a_token() -> None:
    assert check_claims(GOOD, RULES, NOW) == TokenIdentity("alice", 1_700_000_300.0)


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": ["kafka"]},
        {"aud": ["other", "kafka"]},
        {"nbf": NOW + 30},
        {"iat": NOW + 30, "nbf": NOW - 1e6},
        {"exp": NOW - 29.9},
        {"exp": 1_700_000_300.25},
        {"sub": "ä" * 127},
        {"sub": "a b"},
        {"extra": {"x": [1, 2]}},
    ],
)
def test_a_good_token_is_accepted(changed: dict[str, object]) -> None:
    check_claims(with_claims(**changed), RULES, NOW)


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        ({"iss": MISSING}, "iss"),
        ({"iss": "https://issuer.test/"}, "iss"),
        ({"iss": "HTTPS://issuer.test"}, "iss"),
        ({"iss": ["https://issuer.test"]}, "iss"),
        ({"aud": MISSING}, "aud"),
        ({"aud": "Kafka"}, "aud"),
        ({"aud": "kafka2"}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": ["kaf", "ka"]}, "aud"),
        ({"aud": {"kafka": 1}}, "aud"),
        ({"aud": ["x"] * 100 + ["kafka"]}, "aud"),
        ({"aud": [["kafka"]]}, "aud"),
        ({"exp": MISSING}, "exp"),
        ({"exp": None}, "exp"),
        ({"exp": NOW - 30}, "exp"),
        ({"exp": 0}, "exp"),
        ({"exp": "1700000300"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": 1_700_000_300_000}, "exp"),
        ({"exp": 10**400}, "exp"),
        ({"exp": float("inf")}, "exp"),
        ({"exp": float("nan")}, "exp"),
        ({"nbf": NOW + 30.1}, "nbf"),
        ({"nbf": "0"}, "nbf"),
        ({"nbf": None}, "nbf"),
        ({"iat": NOW + 30.1}, "iat"),
        ({"iat": float("nan")}, "iat"),
        ({"sub": MISSING}, "principal"),
        ({"sub": ""}, "principal"),
        ({"sub": 5}, "principal"),
        ({"sub": ["alice"]}, "principal"),
        ({"sub": "x" * 256}, "principal"),
        ({"sub": "ä" * 128}, "principal"),
        ({"sub": "a\nb"}, "principal"),
        ({"sub": "a\0"}, "principal"),
        ({"sub": "a\x7f"}, "principal"),
        ({"sub": "a\x85"}, "principal"),
        ({"sub": "a\u2028"}, "principal"),
        ({"sub": "a\ud800"}, "principal"),
    ],
)
def test_a_wrong_claim_is_refused_and_named(changed: dict[str, object], claim: str) -> None:
    with pytest.raises(RefusedLoginError) as raised:
        check_claims(with_claims(**changed), RULES, NOW)
    assert claim in str(raised.value)
    assert raised.value.text == ""


def test_the_claim_of_the_principal_is_a_setting() -> None:
    rules = ClaimRules("https://issuer.test", "kafka", principal_claim="client_id")
    assert check_claims(with_claims(client_id="svc"), rules, NOW).principal_name == "svc"
    with pytest.raises(RefusedLoginError):
        check_claims(GOOD, rules, NOW)


def test_the_skew_is_a_setting() -> None:
    rules = ClaimRules("https://issuer.test", "kafka", skew_seconds=0)
    check_claims(with_claims(exp=NOW + 0.1), rules, NOW)
    for changed in ({"exp": NOW}, {"nbf": NOW + 0.1}, {"iat": NOW + 0.1}):
        with pytest.raises(RefusedLoginError):
            check_claims(with_claims(**changed), rules, NOW)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["iss", "aud", "sub", "exp", "nbf", "iat"]), VALUES))
def test_no_claims_cause_another_error(changed: dict[str, object]) -> None:
    try:
        identity = check_claims(GOOD | changed, RULES, NOW)
    except RefusedLoginError:
        return
    assert is_principal_name(identity.principal_name)
    assert len(identity.principal_name.encode()) <= PRINCIPAL_BYTES_MAX
    assert identity.expires_at_seconds > NOW - 30
