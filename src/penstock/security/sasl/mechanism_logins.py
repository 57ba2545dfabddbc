"""One login with one mechanism: tokens of the client in, outcomes out (pure).

A login gets each token through `receive`. It asks one question in the course of it; the method
that takes the answer returns the next outcome. A refusal is a `RefusedLoginError`. A login is used
once, and the number of its tokens is fixed: PLAIN has one, SCRAM two, OAUTHBEARER one, or two after
a bad token.
"""

from typing import Final, NamedTuple

from penstock.security.sasl.bearer_server import (
    ACKNOWLEDGEMENT,
    INVALID_TOKEN,
    BearerMessage,
    parse_bearer,
)
from penstock.security.sasl.exchange_actions import (
    LookUpScram,
    Question,
    VerifyPassword,
    VerifyToken,
)
from penstock.security.sasl.plain_server import (
    NOT_VERIFIED,
    WRONG_PASSWORD,
    PlainMessage,
    check_authorization_id,
    parse_plain,
)
from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.sasl.scram_server import ScramServer
from penstock.security.sasl_client import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.scram_credential import ScramCredential
from penstock.security.secret import HIDDEN, Secret

MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


class Challenge(NamedTuple):
    """A token for the client, which answers with another."""

    token: bytes

    def __repr__(self) -> str:
        return f"Challenge({HIDDEN})"


class Accepted(NamedTuple):
    """The login is complete."""

    principal_name: str
    token: bytes = b""
    """The last token for the client."""
    lifetime_seconds: float | None = None
    """Until the credential expires, negative if it has; None for one that does not expire."""


class VerifiedToken(NamedTuple):
    """The identity in a token that was verified."""

    principal_name: str
    lifetime_seconds: float
    """Until the token expires; negative within the tolerated skew of the clocks."""


Outcome = Challenge | Accepted | Question


class PlainLogin:
    """A login with PLAIN."""

    mechanism = PLAIN
    unavailable_text = NOT_VERIFIED

    def __init__(self) -> None:
        self.user = ""
        self._message: PlainMessage | None = None

    def receive(self, token: bytes) -> Outcome:
        """Ask for a check of the password."""
        assert self._message is None, "PLAIN has one token"
        message = self._message = parse_plain(token)
        self.user = message.user
        return VerifyPassword(message.user, message.password)

    def password_verified(self, principal_name: str | None) -> Outcome:
        """Complete the login; `principal_name` is None for a wrong password."""
        assert self._message is not None
        if principal_name is None:
            raise RefusedLoginError("the user is unknown or the password is wrong", WRONG_PASSWORD)
        check_authorization_id(self._message)
        return Accepted(principal_name)


class ScramLogin:
    """A login with SCRAM-SHA-256 or SCRAM-SHA-512."""

    unavailable_text = ""

    def __init__(self, mechanism: str, false_key: Secret, false_iterations: int) -> None:
        self.mechanism = mechanism
        self.user = ""
        self._server = ScramServer(mechanism, false_key, false_iterations)
        self._is_challenged = False

    def receive(self, token: bytes) -> Outcome:
        """Ask for the credential, or check the proof."""
        if self._is_challenged:
            return Accepted(self.user, self._server.verify(token))
        self.user = self._server.read_first(token)
        return LookUpScram(self.mechanism, self.user)

    def credential_found(self, credential: ScramCredential | None, server_nonce: str) -> Outcome:
        """Challenge the client; `credential` is None for an unknown user."""
        self._is_challenged = True
        return Challenge(self._server.challenge(credential, server_nonce))


class BearerLogin:
    """A login with OAUTHBEARER."""

    mechanism = OAUTHBEARER
    unavailable_text = ""

    def __init__(self) -> None:
        self.user = ""
        self._message: BearerMessage | None = None
        self._is_refused = False

    def receive(self, token: bytes) -> Outcome:
        """Ask for a check of the token, or end a refused login."""
        if self._is_refused:
            is_acknowledged = token == ACKNOWLEDGEMENT
            raise RefusedLoginError(
                "the token is invalid", INVALID_TOKEN if is_acknowledged else ""
            )
        message = self._message = parse_bearer(token)
        return VerifyToken(message.token)

    def token_verified(self, token: VerifiedToken | None) -> Outcome:
        """Complete the login, or challenge the client if its token is invalid."""
        assert self._message is not None
        if token is None:
            self._is_refused = True
            return Challenge(INVALID_TOKEN.encode())
        self.user = token.principal_name
        wanted = self._message.authorization_id
        if wanted not in ("", token.principal_name):
            raise RefusedLoginError(
                "the client asked to act for another user",
                f"Authentication failed: Client requested an authorization id ({wanted}) that is "
                f"different from the token's principal name ({token.principal_name})",
            )
        return Accepted(token.principal_name, lifetime_seconds=token.lifetime_seconds)


Login = PlainLogin | ScramLogin | BearerLogin


def new_login(mechanism: str, false_key: Secret, false_iterations: int) -> Login:
    """Return a login with one of `MECHANISMS`."""
    if mechanism == PLAIN:
        return PlainLogin()
    if mechanism == OAUTHBEARER:
        return BearerLogin()
    return ScramLogin(mechanism, false_key, false_iterations)
