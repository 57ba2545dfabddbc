"""`SaslExchange`: the login of one connection as a state machine, without its socket (pure).

The owner passes each request, or each raw token, and the time; it gets a list of actions
(`exchange_actions`) and carries them out in order. The states, and the requests that each allows:

    VERSIONS       ApiVersions, SaslHandshake    a new connection
    HANDSHAKE      SaslHandshake                 ApiVersions was answered without an error
    AUTHENTICATE   SaslAuthenticate or tokens    the mechanism is chosen
    BAD_MECHANISM  none                          a renewal with another mechanism: closed
    COMPLETE       all                           until the session expires
    FAILED         none                          closed

SaslHandshake version 0 announces raw tokens: a length and the token, without a header
(`expects_raw_token`). With version 1 tokens are in SaslAuthenticate requests.

In COMPLETE a session with an end may be renewed by another SaslHandshake (KIP-368), at once for the
first time, then once a second. The mechanism and the principal must stay the same. The old identity
holds until the renewal is complete. An expired session accepts nothing but a renewal.

All texts, error codes and transitions are those of Apache Kafka 4.3.1. Ours are the bounds: before
COMPLETE a frame has at most `frame_bytes_max` bytes and `ELEMENTS_MAX` array elements, and the
exchange ends by `deadline_seconds`. The owner applies both.

It does NOT read requests ahead: the owner passes one and waits for its actions to be done. It
decodes no request of another API than SaslHandshake and SaslAuthenticate.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from penstock.core.errors import PeerError
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.security.sasl.exchange_actions import (
    Action,
    Answer,
    AnswerRaw,
    Close,
    CloseReason,
    Delay,
    Established,
    LoginFailed,
    Question,
    RefuseIllegalState,
    Serve,
    ServeVersions,
)
from penstock.security.sasl.mechanism_logins import (
    Accepted,
    BearerLogin,
    Challenge,
    Login,
    Outcome,
    PlainLogin,
    ScramLogin,
    VerifiedToken,
    new_login,
)
from penstock.security.sasl.refused_login import RefusedLoginError
from penstock.security.scram_credential import ITERATIONS_DEFAULT, ScramCredential
from penstock.security.secret import Secret

HANDSHAKE_FRAME_BYTES_MAX: Final = 16_384
"""A frame before a mechanism is chosen. ApiVersions and SaslHandshake need a hundred bytes."""
TOKEN_FRAME_BYTES_MAX: Final = 524_288
"""A frame with a token: Kafka's sasl.server.max.receive.size."""
ELEMENTS_MAX: Final = 100
"""Array elements of a request before the login is complete."""
EXCHANGE_SECONDS_MAX: Final = 10.0
"""The whole exchange, with the checks of the owner."""
VERSIONS_REQUESTS_MAX: Final = 10
"""ApiVersions requests with an error before the connection is closed. A client needs one more
attempt after a version that the broker does not know."""
RENEWAL_INTERVAL_SECONDS_MIN: Final = 1.0
"""Between the beginnings of two renewals, as in Kafka."""
FAILURE_DELAY_MS_DEFAULT: Final = 100
"""Kafka's connection.failed.authentication.delay.ms."""

_SECOND_LOGIN: Final = "SaslAuthenticate request received after successful authentication"


class SaslRequest(Protocol):
    """The part of `protocol.connection.Request` that the exchange uses."""

    @property
    def api_key(self) -> int:
        """The number of the API."""
        ...

    @property
    def api_version(self) -> int:
        """The version, one that the broker serves."""
        ...

    def decode(self, elements_max: int) -> Message:
        """Return the message; raise `PeerError` for bytes that are not one."""
        ...


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """The settings of a listener."""

    mechanisms: tuple[str, ...]
    """The enabled ones, of `mechanism_logins.MECHANISMS`, in the order of the answers."""
    false_key: Secret
    """Derives the salts of unknown users; all brokers of a cluster share it."""
    session_ms_max: Mapping[str, int] = field(default_factory=dict)
    """Kafka's connections.max.reauth.ms by mechanism; missing or 0: sessions end with their token.
    """
    failure_delay_ms: int = FAILURE_DELAY_MS_DEFAULT
    false_iterations: int = ITERATIONS_DEFAULT


class _State(Enum):
    VERSIONS = 0
    HANDSHAKE = 1
    AUTHENTICATE = 2
    BAD_MECHANISM = 3
    COMPLETE = 4
    FAILED = 5


class SaslExchange:
    """The login of one connection, and its renewals."""

    __slots__ = (
        "_failed_versions",
        "_is_raw",
        "_login",
        "_question",
        "_renewed_at_seconds",
        "_session",
        "_settings",
        "_state",
        "_version",
        "deadline_seconds",
    )

    def __init__(self, settings: ExchangeSettings, now_seconds: float) -> None:
        """Begin with a new connection. Times are on one monotonic clock."""
        self._settings = settings
        self._state = _State.VERSIONS
        self.deadline_seconds: float | None = now_seconds + EXCHANGE_SECONDS_MAX
        """The owner closes the connection at this time; None when the login is complete."""
        self._login: Login | None = None
        self._question: Question | None = None
        self._is_raw = False
        self._version = 0
        """The version of the SaslAuthenticate request to answer."""
        self._failed_versions = 0
        self._session: Established | None = None
        """The last complete login; a renewal keeps it until it is complete."""
        self._renewed_at_seconds: float | None = None
        """The beginning of the last renewal."""

    @property
    def is_complete(self) -> bool:
        """Whether requests of all APIs may be handled."""
        return self._state is _State.COMPLETE

    @property
    def is_waiting(self) -> bool:
        """Whether the owner has to answer a question before the next request."""
        return self._question is not None

    @property
    def expects_raw_token(self) -> bool:
        """Whether the next frame is a token without a header, for `receive_token`."""
        return self._is_raw and self._state in (_State.AUTHENTICATE, _State.BAD_MECHANISM)

    @property
    def frame_bytes_max(self) -> int | None:
        """The largest next frame, of any API; None when the login is complete."""
        if self._state is _State.COMPLETE:
            return None
        if self._state in (_State.VERSIONS, _State.HANDSHAKE):
            return HANDSHAKE_FRAME_BYTES_MAX
        return TOKEN_FRAME_BYTES_MAX

    @property
    def has_session(self) -> bool:
        """Whether there was a login; its session may have expired, or be in a renewal."""
        return self._session is not None

    @property
    def session_expires_at_seconds(self) -> float | None:
        """The end of the session; None for a session without an end, or without a login."""
        return None if self._session is None else self._session.session_expires_at_seconds

    def is_expired(self, now_seconds: float) -> bool:
        """Whether the session is over: every request but a renewal closes the connection."""
        expires_at = self.session_expires_at_seconds
        return expires_at is not None and now_seconds >= expires_at

    def receive_request(self, request: SaslRequest, now_seconds: float) -> list[Action]:
        """Return the actions for the next request."""
        assert not self.is_waiting, "a question is not answered"
        assert not self.expects_raw_token, "the next frame is a raw token"
        try:
            if self._state is _State.COMPLETE:
                return self._serve(request, now_seconds)
            if self._state is _State.AUTHENTICATE:
                return self._authenticate(request, now_seconds)
            if self._state in (_State.VERSIONS, _State.HANDSHAKE):
                return self._begin(request)
            if self._state is _State.BAD_MECHANISM:
                return self._end("a renewal asks for another mechanism", None)
        except PeerError:
            pass
        return self._close_at_once()

    def receive_token(self, token: bytes, now_seconds: float) -> list[Action]:
        """Return the actions for the next raw token."""
        assert not self.is_waiting, "a question is not answered"
        assert self.expects_raw_token, "the next frame is a request"
        login = self._login
        if self._state is _State.BAD_MECHANISM or login is None:
            return self._end("a renewal asks for another mechanism", None)
        return self._advance(lambda: login.receive(token), now_seconds)

    def versions_served(self, error_code: int) -> list[Action]:
        """Continue after the answer to ApiVersions; after an error the client may try again."""
        if error_code == ErrorCode.NONE:
            self._state = _State.HANDSHAKE
            return []
        self._failed_versions += 1
        return self._close_at_once() if self._failed_versions >= VERSIONS_REQUESTS_MAX else []

    def password_verified(self, principal_name: str | None, now_seconds: float) -> list[Action]:
        """Answer `VerifyPassword` with the name of the principal; None for a wrong password."""
        login = self._answered()
        assert isinstance(login, PlainLogin)
        return self._advance(lambda: login.password_verified(principal_name), now_seconds)

    def scram_found(
        self, credential: ScramCredential | None, server_nonce: str, now_seconds: float
    ) -> list[Action]:
        """Answer `LookUpScram`; None for an unknown user. The nonce is new and unpredictable."""
        login = self._answered()
        assert isinstance(login, ScramLogin)
        return self._advance(lambda: login.credential_found(credential, server_nonce), now_seconds)

    def token_verified(self, token: VerifiedToken | None, now_seconds: float) -> list[Action]:
        """Answer `VerifyToken`; None for an invalid token."""
        login = self._answered()
        assert isinstance(login, BearerLogin)
        return self._advance(lambda: login.token_verified(token), now_seconds)

    def not_verified(self, reason: str) -> list[Action]:
        """Answer any question: it cannot be decided now, for example without the directory."""
        return self._refuse(RefusedLoginError(reason, self._answered().unavailable_text))

    def _answered(self) -> Login:
        assert self._question is not None, "no question was asked"
        assert self._login is not None
        self._question = None
        return self._login

    def _begin(self, request: SaslRequest) -> list[Action]:
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            return self._choose(request)
        if request.api_key == ApiKey.API_VERSIONS:
            return [ServeVersions()] if self._state is _State.VERSIONS else self._close_at_once()
        return self._end("a request came before the login", None)

    def _choose(self, request: SaslRequest) -> list[Action]:
        """Answer SaslHandshake."""
        message = request.decode(ELEMENTS_MAX)
        assert isinstance(message, SaslHandshakeRequest)
        mechanisms = self._settings.mechanisms
        self._is_raw = request.api_version == 0
        if message.mechanism not in mechanisms:
            refusal = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
            )
            # Kafka does not answer this in a renewal.
            answer = Answer(refusal, request.api_version) if self._session is None else None
            return self._end("the mechanism is not enabled", answer)
        if self._session is not None and self._session.mechanism != message.mechanism:
            self._state = _State.BAD_MECHANISM
        else:
            self._state = _State.AUTHENTICATE
            self._login = new_login(
                message.mechanism, self._settings.false_key, self._settings.false_iterations
            )
        return [Answer(SaslHandshakeResponse(mechanisms=mechanisms), request.api_version)]

    def _authenticate(self, request: SaslRequest, now_seconds: float) -> list[Action]:
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            return self._end("SaslHandshake came twice", _illegal_handshake(request))
        if request.api_key != ApiKey.SASL_AUTHENTICATE:
            return self._end("a request came during the login", RefuseIllegalState())
        message = request.decode(ELEMENTS_MAX)
        assert isinstance(message, SaslAuthenticateRequest)
        self._version = request.api_version
        login = self._login
        assert login is not None
        return self._advance(lambda: login.receive(bytes(message.auth_bytes)), now_seconds)

    def _serve(self, request: SaslRequest, now_seconds: float) -> list[Action]:
        """Handle a request of a client that has logged in."""
        if request.api_key == ApiKey.SASL_HANDSHAKE and self._may_renew(now_seconds):
            self._renewed_at_seconds = now_seconds
            self.deadline_seconds = now_seconds + EXCHANGE_SECONDS_MAX
            self._state = _State.HANDSHAKE
            return self._choose(request)
        if self.is_expired(now_seconds):
            self._state = _State.FAILED
            return [Close(CloseReason.EXPIRED)]
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            return [_illegal_handshake(request)]
        if request.api_key == ApiKey.SASL_AUTHENTICATE:
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_SECOND_LOGIN, auth_bytes=b""
            )
            return [Answer(refusal, request.api_version)]
        return [Serve()]

    def _may_renew(self, now_seconds: float) -> bool:
        if self.session_expires_at_seconds is None:
            return False
        last = self._renewed_at_seconds
        return last is None or now_seconds - last >= RENEWAL_INTERVAL_SECONDS_MIN

    def _advance(self, step: Callable[[], Outcome], now_seconds: float) -> list[Action]:
        try:
            outcome = step()
            if isinstance(outcome, Accepted):
                return self._accept(outcome, now_seconds)
        except RefusedLoginError as refusal:
            return self._refuse(refusal)
        if isinstance(outcome, Challenge):
            return [self._token_answer(outcome.token)]
        self._question = outcome
        return [outcome]

    def _accept(self, accepted: Accepted, now_seconds: float) -> list[Action]:
        previous, login = self._session, self._login
        assert login is not None
        if previous is not None and previous.principal_name != accepted.principal_name:
            raise RefusedLoginError(
                "a renewal has another principal",
                "Cannot change principals during re-authentication from "
                f"User.{previous.principal_name}: User.{accepted.principal_name}",
            )
        lifetime_ms = self._lifetime_ms(login.mechanism, accepted.lifetime_seconds)
        expires_at = None if lifetime_ms is None else now_seconds + lifetime_ms / 1000
        self._session = Established(
            accepted.principal_name, login.mechanism, expires_at, is_renewal=previous is not None
        )
        self._state = _State.COMPLETE
        self._login = None
        self.deadline_seconds = None
        return [self._session, self._token_answer(accepted.token, lifetime_ms or 0)]

    def _lifetime_ms(self, mechanism: str, credential_seconds: float | None) -> int | None:
        """Return the time until the session ends; None for a session without an end."""
        bounds = []
        if credential_seconds is not None:
            bounds.append(int(credential_seconds * 1000))
        if (session_ms_max := self._settings.session_ms_max.get(mechanism, 0)) > 0:
            bounds.append(session_ms_max)
        return max(0, min(bounds)) if bounds else None

    def _token_answer(self, token: bytes, lifetime_ms: int = 0) -> Answer | AnswerRaw:
        if self._is_raw:
            return AnswerRaw(token)
        message = SaslAuthenticateResponse(
            error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms
        )
        return Answer(message, self._version)

    def _refuse(self, refusal: RefusedLoginError) -> list[Action]:
        """End a login that was refused."""
        assert self._login is not None
        kind = "authentication" if self._session is None else "re-authentication"
        text = refusal.text or (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism "
            f"{self._login.mechanism}"
        )
        message = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text, auth_bytes=b""
        )
        answer = None if self._is_raw else Answer(message, self._version)
        return self._end(str(refusal), answer)

    def _end(self, reason: str, answer: Answer | RefuseIllegalState | None) -> list[Action]:
        """Fail: the answer, if any, leaves after the delay, and then the connection is closed."""
        login = self._login
        self._state = _State.FAILED
        failed = LoginFailed(
            "" if login is None else login.mechanism,
            "" if login is None else login.user,
            reason,
            is_renewal=self._session is not None,
        )
        actions: list[Action] = [failed, Delay(self._settings.failure_delay_ms)]
        if answer is not None:
            actions.append(answer)
        return [*actions, Close(CloseReason.FAILED)]

    def _close_at_once(self) -> list[Action]:
        self._state = _State.FAILED
        return [Close(CloseReason.NOT_SASL)]


def _illegal_handshake(request: SaslRequest) -> Answer:
    refusal = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return Answer(refusal, request.api_version)
