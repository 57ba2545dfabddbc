"""The login as a sequence of calls, without a broker."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client.security.options import NO_SECURITY
from penstock.client.transport.addresses import Address
from penstock.client.transport.login import (
    RENEWAL_SECONDS_MIN,
    TOKENS_MAX,
    closed_early,
    log_in,
    login_failure,
    renewal_at,
)
from penstock.core.errors import (
    AnswerLostError,
    AuthenticationError,
    BrokerUnreachableError,
    FrameError,
)
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from penstock.protocol.messages.sasl_handshake import SaslHandshakeResponse

ADDRESS = Address("broker", 9093)


class Exchange:
    """A mechanism with this many challenges."""

    mechanism = "TEST"

    def __init__(self, challenges: int) -> None:
        self.left = challenges
        self.seen: list[bytes] = []

    def first(self) -> bytes:
        return b"first"

    def respond(self, challenge: bytes, /) -> bytes | None:
        self.seen.append(challenge)
        self.left -= 1
        return b"next" if self.left else None


def carried(exchange: Exchange, answers: Iterator[Any]) -> tuple[int, list[Any]]:
    """The lifetime, and the requests."""
    calls = log_in(exchange, ADDRESS)
    requests = []
    call = next(calls)
    while True:
        requests.append(call.request)
        try:
            call = calls.send(next(answers))
        except StopIteration as finished:
            return finished.value, requests


def token(data: bytes = b"", *, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(auth_bytes=data, session_lifetime_ms=lifetime_ms)


def test_the_last_answer_has_the_lifetime() -> None:
    exchange = Exchange(2)
    answers = iter([SaslHandshakeResponse(), token(b"a"), token(b"b", lifetime_ms=5_000)])
    lifetime_ms, requests = carried(exchange, answers)
    assert lifetime_ms == 5_000
    assert exchange.seen == [b"a", b"b"]
    assert [request.auth_bytes for request in requests[1:]] == [b"first", b"next"]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (
            [
                SaslHandshakeResponse(
                    error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=("PLAIN", "X")
                )
            ],
            "does not offer the SASL mechanism TEST; it offers PLAIN, X",
        ),
        (
            [SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)],
            "does not expect a login",
        ),
        ([SaslHandshakeResponse(error_code=ErrorCode.NOT_CONTROLLER)], "NOT_CONTROLLER"),
        (
            [
                SaslHandshakeResponse(),
                SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                    error_message="Invalid username or password",
                    auth_bytes=b"",
                ),
            ],
            "refused the login with TEST: Invalid username or password.",
        ),
    ],
)
def test_a_refusal_is_named(answers: list[Any], words: str) -> None:
    with pytest.raises(AuthenticationError, match=words):
        carried(Exchange(1), iter(answers))


def test_the_number_of_tokens_is_bounded() -> None:
    answers = iter([SaslHandshakeResponse(), *[token(b"more")] * (TOKENS_MAX + 1)])
    with pytest.raises(AuthenticationError, match="more than 5 SASL tokens"):
        carried(Exchange(100), answers)


@pytest.mark.parametrize(
    ("lifetime_ms", "expected"),
    [(0, None), (-1, None), (1, 100 + RENEWAL_SECONDS_MIN), (1_000, 101.05), (10_000, 108.5)],
)
def test_sessions_are_renewed_before_their_end(lifetime_ms: int, expected: float | None) -> None:
    assert renewal_at(100, lifetime_ms) == expected


def test_a_lost_login_may_be_retried_and_a_refused_one_not() -> None:
    assert isinstance(login_failure(ADDRESS, AnswerLostError("gone")), BrokerUnreachableError)
    assert isinstance(login_failure(ADDRESS, FrameError("x")), BrokerUnreachableError)
    refused = AuthenticationError("no")
    assert login_failure(ADDRESS, refused) is refused


def test_a_connection_that_is_closed_at_its_first_request_may_need_a_login() -> None:
    assert "sasl.mechanism" in closed_early(ADDRESS, NO_SECURITY, is_fresh=True).hint
    assert not closed_early(ADDRESS, NO_SECURITY, is_fresh=False).hint
