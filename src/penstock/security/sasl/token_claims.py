"""The claims of a token whose signature was verified: issuer, audience, times, principal (pure).

Guarantees: an accepted token is of the configured issuer, byte for byte, and for the configured
audience; it has an expiry, and now is between its times within the tolerated skew of the clocks;
and its principal is a text of 1 to 255 bytes without control characters. Reasons of refusals are
for the log: they name a claim and never contain the token.

It does NOT verify a signature: `jwt_keys` does that first. It reads no clock.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn

from penstock.security.sasl.refused_login import RefusedLoginError

SKEW_SECONDS_DEFAULT: Final = 30
PRINCIPAL_BYTES_MAX: Final = 255
TIME_SECONDS_MAX: Final = 253_402_300_799
"""The end of the year 9999: later times are mistakes, for example milliseconds."""
AUDIENCES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The settings for tokens of one identity provider."""

    issuer: str
    audience: str
    principal_claim: str = "sub"
    skew_seconds: int = SKEW_SECONDS_DEFAULT


class TokenIdentity(NamedTuple):
    """The identity of a token."""

    principal_name: str
    expires_at_seconds: float
    """Seconds since 1970."""


def check_claims(
    claims: Mapping[str, object], rules: ClaimRules, now_seconds: float
) -> TokenIdentity:
    """Return the identity in a token; raise `RefusedLoginError`. The time is since 1970."""
    if claims.get("iss") != rules.issuer:
        _refuse("it has another issuer (iss)")
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if rules.audience not in audiences[:AUDIENCES_MAX]:
        _refuse("it is for another audience (aud)")
    expires_at = _time(claims, "exp")
    if expires_at is None:
        _refuse("it has no expiry (exp)")
    if now_seconds >= expires_at + rules.skew_seconds:
        _refuse("it has expired (exp)")
    for name in ("nbf", "iat"):
        begins_at = _time(claims, name)
        if begins_at is not None and now_seconds < begins_at - rules.skew_seconds:
            _refuse(f"it is not valid yet ({name})")
    return TokenIdentity(_principal(claims.get(rules.principal_claim)), expires_at)


def is_principal_name(name: str) -> bool:
    """Whether a name from outside may be a principal's."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return 0 < size <= PRINCIPAL_BYTES_MAX and not any(map(_is_control, name))


def _is_control(character: str) -> bool:
    """Control characters, and the two separators that end a line in a log."""
    return ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 or character in "\u2028\u2029"


def _principal(value: object) -> str:
    if not isinstance(value, str) or not is_principal_name(value):
        _refuse(f"its principal is not a text of 1 to {PRINCIPAL_BYTES_MAX} bytes")
    return value


def _time(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None and name not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(f"its time {name} is not a number")
    # In this order: a large integer does not fit a float.
    if not -TIME_SECONDS_MAX <= value <= TIME_SECONDS_MAX or not math.isfinite(value):
        _refuse(f"its time {name} is out of range")
    return float(value)


def _refuse(reason: str) -> NoReturn:
    raise RefusedLoginError(f"the token is refused: {reason}")
