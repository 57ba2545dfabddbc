"""PLAIN (RFC 4616): parse the one token of the client (pure).

Guarantees: a parsed token has exactly three parts, and neither user nor password is empty or longer
than `PART_BYTES_MAX`. Each refusal has Kafka's text. A name or password that cannot exist (not
UTF-8, too long) is refused with the text of a wrong password.

It does NOT verify the password: a port of the owner does, because that takes milliseconds or a
directory. As in Kafka, the identity to act for is compared after the password was verified.
"""

from typing import Final, NamedTuple

from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.secret import Secret

PART_BYTES_MAX: Final = 255
"""Bytes of a user name and of a password: RFC 4616 requires servers to accept this length."""

WRONG_PASSWORD: Final = "Authentication failed: Invalid username or password"  # noqa: S105
NO_USER: Final = "Authentication failed: username not specified"
NO_PASSWORD: Final = "Authentication failed: password not specified"  # noqa: S105
OTHER_IDENTITY: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
NOT_VERIFIED: Final = "Authentication failed: credentials for user could not be verified"

_PARTS: Final = 3
_COUNTED_PARTS_MAX: Final = 4
"""Kafka stops counting here."""


class PlainMessage(NamedTuple):
    """The parts of a token."""

    authorization_id: str
    """The identity to act for; empty for the user's own."""
    user: str
    password: Secret


def parse_plain(token: bytes) -> PlainMessage:
    """Return the parts of a token; raise `RefusedLoginError` if the token is malformed."""
    count = min(token.count(b"\0") + 1, _COUNTED_PARTS_MAX)
    if count != _PARTS:
        raise RefusedLoginError(
            f"a PLAIN token has {count} parts in place of {_PARTS}",
            f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {count}",
        )
    authorization_id, user, password = token.split(b"\0")
    if not user:
        raise RefusedLoginError("a PLAIN token has no user name", NO_USER)
    if not password:
        raise RefusedLoginError("a PLAIN token has no password", NO_PASSWORD)
    if max(map(len, (authorization_id, user, password))) > PART_BYTES_MAX:
        raise RefusedLoginError(
            f"a part of a PLAIN token has more than {PART_BYTES_MAX} bytes", WRONG_PASSWORD
        )
    try:
        return PlainMessage(authorization_id.decode(), user.decode(), Secret(password.decode()))
    except UnicodeDecodeError:
        raise RefusedLoginError("a PLAIN token is not UTF-8", WRONG_PASSWORD) from None


def check_authorization_id(message: PlainMessage) -> None:
    """Raise `RefusedLoginError` unless the client acts for itself."""
    if message.authorization_id not in ("", message.user):
        raise RefusedLoginError("the client asked to act for another user", OTHER_IDENTITY)
