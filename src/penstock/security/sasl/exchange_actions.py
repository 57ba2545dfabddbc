"""The actions that a `SaslExchange` asks of its owner, as plain values (pure).

The owner carries the actions of a list out in order, and handles no further request of the
connection meanwhile. After a question (`VerifyPassword`, `LookUpScram`, `VerifyToken`) it calls the
method of the exchange that takes the answer.

No `repr` shows a password, a token or a challenge.
"""

from enum import Enum
from typing import NamedTuple

from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeResponse
from penstock.security.secret import HIDDEN, Secret


class Answer(NamedTuple):
    """Send this answer to the last request."""

    message: SaslHandshakeResponse | SaslAuthenticateResponse
    version: int


class AnswerRaw(NamedTuple):
    """Send these bytes behind their length, without a header (SaslHandshake version 0)."""

    token: bytes

    def __repr__(self) -> str:
        return f"AnswerRaw({HIDDEN})"


class ServeVersions(NamedTuple):
    """Answer ApiVersions as usual, then call `versions_served` with the answer's error code."""


class Serve(NamedTuple):
    """Handle the last request as usual: the login is complete."""


class RefuseIllegalState(NamedTuple):
    """Answer the last request with ILLEGAL_SASL_STATE; the form is its API's."""


class VerifyPassword(NamedTuple):
    """Verify this password, then call `password_verified`."""

    user: str
    password: Secret


class LookUpScram(NamedTuple):
    """Look up the credential of a user, then call `scram_found` with it and a new nonce."""

    mechanism: str
    user: str


class VerifyToken(NamedTuple):
    """Verify this token of an identity provider, then call `token_verified`."""

    token: Secret


class Established(NamedTuple):
    """The client has this identity. The answer follows."""

    principal_name: str
    """The name of a principal of the kind `User`."""
    mechanism: str
    session_expires_at_seconds: float | None
    """On the owner's monotonic clock; None for a session without an end."""
    is_renewal: bool
    """Whether the client authenticated again on an open connection."""


class LoginFailed(NamedTuple):
    """A login failed: count it, throttle the client, and write it to the audit log."""

    mechanism: str
    """A mechanism that is enabled, or empty: a client's own text is not a label of a metric."""
    user: str
    """The name that the client claimed, unverified; empty if it is not known."""
    reason: str
    is_renewal: bool


class Delay(NamedTuple):
    """Read nothing of the connection for this time, then continue with the next action."""

    delay_ms: int


class CloseReason(Enum):
    """The reason of the end of a connection, for metrics and the log."""

    NOT_SASL = "not a login"
    FAILED = "failed login"
    EXPIRED = "expired session"


class Close(NamedTuple):
    """Close the connection when everything before it was sent."""

    reason: CloseReason


Question = VerifyPassword | LookUpScram | VerifyToken
Action = (
    Answer
    | AnswerRaw
    | ServeVersions
    | Serve
    | RefuseIllegalState
    | Question
    | Established
    | LoginFailed
    | Delay
    | Close
)
