"""The keys of nodes and operators: tokens and certificates (pure).

A node is its key, not its name: the first key that registers an id has this id from then on. Only
digests of tokens are stored, and they are compared in constant time. SHA-256 without a salt is
enough, because tokens are random texts of at least `TOKEN_CHARACTERS_MIN` characters.
"""

import hashlib
import hmac
from typing import Final

TOKEN_CHARACTERS_MIN: Final = 32
TOKEN_CHARACTERS_MAX: Final = 512
_BEARER: Final = "bearer "


def token_problem(token: str) -> str | None:
    """Return why a text is not a token; None if it is one."""
    if not TOKEN_CHARACTERS_MIN <= len(token) <= TOKEN_CHARACTERS_MAX:
        return (
            f"has {len(token)} characters (at least {TOKEN_CHARACTERS_MIN}, at most "
            f"{TOKEN_CHARACTERS_MAX})"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        return "has a space or a character that is not printable ASCII"
    return None


def bearer_token(authorization: str | None) -> str | None:
    """Return the token of a header `Authorization`; None without a valid one."""
    if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
        return None
    token = authorization[len(_BEARER) :].strip()
    return token if token_problem(token) is None else None


def token_identity(token: str) -> str:
    """Return the identity of the owner of a token."""
    return f"token:{hashlib.sha256(token.encode()).hexdigest()}"


def certificate_identity(distinguished_name: str) -> str:
    """Return the identity of a verified certificate: its subject, which survives a renewal."""
    return f"certificate:{distinguished_name}"


def is_same(stored: str, shown: str) -> bool:
    """Compare identities in constant time."""
    return hmac.compare_digest(stored.encode(), shown.encode())
