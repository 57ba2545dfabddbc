"""The login of a connection as a sequence of calls, for both transports (pure).

`log_in` is a generator: it yields a call, gets its answer, and returns the lifetime of the session.
The transport carries the calls; it has requested the versions of the broker before. The same
sequence authenticates again on an open connection (KIP-368).

A refused login raises `AuthenticationError`, which is not retried: the next attempt would fail in
the same way, and a broker counts failed logins.
"""

from collections.abc import Generator
from typing import Any, Final

from penstock.client.security.options import Security
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.core.errors import (
    AnswerLostError,
    AuthenticationError,
    BrokerUnreachableError,
    ClientError,
    PenstockError,
)
from penstock.core.quantities import printable
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from penstock.security.sasl_client import SaslClient

FOREIGN_CHARACTERS_MAX: Final = 300
"""Of a broker's text in a message."""
TOKENS_MAX: Final = 5
"""Tokens of one exchange: SCRAM has two, a refused OAUTHBEARER two."""
RENEWAL_SHARE: Final = 0.85
"""Part of a session's lifetime after which the client authenticates again, as Kafka's client."""

RENEWAL_SECONDS_MIN: Final = 1.05
"""Kafka refuses to authenticate a connection again within a second of the last time."""

LoginCalls = Generator[Call[Any], Any, int]
"""Yields calls, gets their answers, returns the session's lifetime in ms; 0: without an end."""


def log_in(client: SaslClient, address: Address) -> LoginCalls:
    """Choose the mechanism, then exchange tokens until the login is complete."""
    yield from _choose_mechanism(client.mechanism, address)
    token: bytes | None = client.first()
    for _ in range(TOKENS_MAX):
        assert token is not None
        answer: SaslAuthenticateResponse = yield Call(
            SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, _whole
        )
        if answer.error_code != ErrorCode.NONE:
            raise _refused(client.mechanism, address, answer)
        token = client.respond(answer.auth_bytes)
        if token is None:
            return answer.session_lifetime_ms
    raise AuthenticationError(f"{address} asked for more than {TOKENS_MAX} SASL tokens.")


def renewal_at(begun_seconds: float, lifetime_ms: int) -> float | None:
    """Return the time to authenticate again; None for a session without an end."""
    if lifetime_ms <= 0:
        return None
    return begun_seconds + max(lifetime_ms / 1000 * RENEWAL_SHARE, RENEWAL_SECONDS_MIN)


def login_failure(address: Address, error: PenstockError) -> ClientError:
    """Return the error of a login that failed; a lost connection may be retried."""
    if isinstance(error, ClientError) and not isinstance(error, AnswerLostError):
        return error
    return BrokerUnreachableError(f"the login at {address} was interrupted: {error}")


def closed_early(address: Address, security: Security, *, is_fresh: bool) -> AnswerLostError:
    """Return the error of a connection that the broker closed without an answer.

    A listener that expects a login closes a connection at its first other request.
    """
    expects_login = is_fresh and not security.uses_sasl
    return AnswerLostError(
        f"{address} closed the connection before it answered.",
        hint="If the listener expects a login, set security.protocol and sasl.mechanism."
        if expects_login
        else "",
    )


def _choose_mechanism(mechanism: str, address: Address) -> Generator[Call[Any], Any, None]:
    answer: SaslHandshakeResponse = yield Call(
        SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, _whole, version_min=1
    )
    if answer.error_code == ErrorCode.NONE:
        return
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = printable(", ".join(answer.mechanisms))[:FOREIGN_CHARACTERS_MAX] or "none"
        raise AuthenticationError(
            f"{address} does not offer the SASL mechanism {mechanism}; it offers {offered}.",
            hint="Set sasl.mechanism to one that the listener offers.",
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            f"{address} does not expect a login.",
            hint="Set security.protocol to PLAINTEXT, or to SSL for a listener with TLS.",
        )
    raise AuthenticationError(f"{address} refused the SASL handshake: {answer.error_code.name}.")


def _refused(
    mechanism: str, address: Address, answer: SaslAuthenticateResponse
) -> AuthenticationError:
    text = printable(answer.error_message or answer.error_code.name)[:FOREIGN_CHARACTERS_MAX]
    return AuthenticationError(
        f"{address} refused the login with {mechanism}: {text.rstrip('.')}.",
        hint="Check the user and the credential, and that the user exists for this mechanism.",
    )


def _whole(answer: Any) -> Any:  # noqa: ANN401 - the answer itself is the result
    return answer
