"""`ExchangeWire`: a `SaslExchange` behind frames, as a listener uses it, without sockets or time.

It carries out the actions of the exchange with the users of `tests.oracle.secured_kafka`, and
checks the promises to its owner on the way: one question at a time, nothing behind the end.
"""

from collections import deque
from typing import Final

from penstock.core.errors import PeerError
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.connection import Request
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from penstock.protocol.messages.list_groups import ListGroupsResponse
from penstock.security.sasl.exchange import ExchangeSettings, SaslExchange
from penstock.security.sasl.exchange_actions import (
    Action,
    Answer,
    AnswerRaw,
    Close,
    Delay,
    Established,
    LoginFailed,
    LookUpScram,
    RefuseIllegalState,
    Serve,
    ServeVersions,
    VerifyPassword,
    VerifyToken,
)
from penstock.security.sasl.mechanism_logins import MECHANISMS, VerifiedToken
from penstock.security.scram_credential import ScramCredential, credential_of, salted_password
from penstock.security.secret import Secret
from tests.oracle.secured_kafka import PASSWORDS, PLAIN, SCRAM_256, SCRAM_512
from tests.security.sasl.conversations import SESSION_MS

SERVED: Final = {
    int(ApiKey.LIST_GROUPS): (0, 5),
    int(ApiKey.SASL_HANDSHAKE): (0, 1),
    int(ApiKey.API_VERSIONS): (0, 4),
    int(ApiKey.SASL_AUTHENTICATE): (0, 2),
}
SKEW_SECONDS: Final = 30
SALT: Final = b"salt-of-a-test-with-26-byte"
SETTINGS: Final = ExchangeSettings(
    mechanisms=MECHANISMS, false_key=Secret("cluster secret"), session_ms_max={}
)


def scram_credential(mechanism: str, user: str) -> ScramCredential | None:
    password = PASSWORDS[mechanism].get(user)
    if password is None:
        return None
    salted = salted_password(mechanism, Secret(password), SALT, 4096)
    return credential_of(mechanism, salted, SALT, 4096)


CREDENTIALS: Final = {
    (mechanism, user): scram_credential(mechanism, user)
    for mechanism in (SCRAM_256, SCRAM_512)
    for user in PASSWORDS[mechanism]
}


class ExchangeWire:
    """One connection to the exchange."""

    def __init__(self, settings: ExchangeSettings = SETTINGS, *, is_endless: bool = True) -> None:
        if not is_endless:
            settings = ExchangeSettings(
                mechanisms=settings.mechanisms,
                false_key=settings.false_key,
                session_ms_max=dict.fromkeys(MECHANISMS, SESSION_MS),
            )
        self.now = 1_000.0
        self.exchange = SaslExchange(settings, self.now)
        self.is_closed = False
        self.actions: list[Action] = []
        """All of them, in order."""
        self.served: list[int] = []
        """The APIs that were handled as usual."""
        self.tokens: dict[str, VerifiedToken] = {}
        self._answers: deque[bytes] = deque()
        self._nonces = 0

    @property
    def session(self) -> Established | None:
        found = [action for action in self.actions if isinstance(action, Established)]
        return found[-1] if found else None

    @property
    def failures(self) -> list[LoginFailed]:
        return [action for action in self.actions if isinstance(action, LoginFailed)]

    def receive(self) -> bytes | None:
        if self._answers:
            return self._answers.popleft()
        assert self.is_closed, "no answer, and the connection is open"
        return None

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def token(self, subject: str, lifetime_seconds: float) -> str:
        name = f"token-{len(self.tokens)}"
        if subject:
            self.tokens[name] = VerifiedToken(subject, self.now + lifetime_seconds)
        return name

    def send(self, frame: bytes) -> None:
        """Pass one frame to the exchange, as the listener does."""
        if self.is_closed:
            return
        exchange = self.exchange
        assert not exchange.is_waiting
        bytes_max = exchange.frame_bytes_max
        if bytes_max is not None and len(frame) > bytes_max:
            self.is_closed = True
            return
        if exchange.expects_raw_token:
            self._carry_out(exchange.receive_token(frame, self.now), None)
            return
        try:
            request = self._request(frame)
            self._carry_out(exchange.receive_request(request, self.now), request)
        except PeerError:
            self.is_closed = True

    def _request(self, frame: bytes) -> Request:
        view = memoryview(frame)
        head = headers.read_request_head(view)
        lowest, highest = SERVED.get(head.api_key, (0, -1))
        is_unsupported = not lowest <= head.api_version <= highest
        if is_unsupported and head.api_key != ApiKey.API_VERSIONS:
            raise PeerError("not served")
        return Request(head, view, is_version_unsupported=is_unsupported)

    def _carry_out(self, actions: list[Action], request: Request | None) -> None:
        assert actions or not self.exchange.is_waiting
        for action in actions:
            assert not self.is_closed, "an action behind the end"
            self.actions.append(action)
            match action:
                case Answer(message, version):
                    self._answer(request, message, version)
                case AnswerRaw(token):
                    self._answers.append(token)
                case ServeVersions():
                    assert request is not None
                    answer = _versions(request)
                    self._answer(request, answer, request.api_version)
                    self._carry_out(self.exchange.versions_served(answer.error_code), None)
                case Serve():
                    assert request is not None
                    assert self.exchange.is_complete
                    self.served.append(request.api_key)
                    self._answer(request, _served(request), request.api_version)
                case RefuseIllegalState():
                    assert request is not None
                    refusal = _served(request, ErrorCode.ILLEGAL_SASL_STATE)
                    self._answer(request, refusal, request.api_version)
                case VerifyPassword() | LookUpScram() | VerifyToken():
                    assert action is actions[-1]
                    assert self.exchange.is_waiting
                    self._carry_out(self.answered(action), request)
                case Close():
                    self.is_closed = True
                case Established() | LoginFailed() | Delay():
                    pass

    def answered(self, action: VerifyPassword | LookUpScram | VerifyToken) -> list[Action]:
        """The answer to a question."""
        exchange = self.exchange
        if isinstance(action, VerifyPassword):
            is_right = PASSWORDS[PLAIN].get(action.user) == action.password.reveal()
            return exchange.password_verified(action.user if is_right else None, self.now)
        if isinstance(action, LookUpScram):
            self._nonces += 1
            credential = CREDENTIALS.get((action.mechanism, action.user))
            return exchange.scram_found(credential, f"server-{self._nonces}", self.now)
        token = self.tokens.get(action.token.reveal())
        if token is not None:
            token = token._replace(lifetime_seconds=token.lifetime_seconds - self.now)
            if token.lifetime_seconds < -SKEW_SECONDS:
                token = None
        return exchange.token_verified(token, self.now)

    def _answer(self, request: Request | None, message: Message, version: int) -> None:
        assert request is not None
        head = headers.write_response_frame_head(request.api_key, version, 7, 0)[4:]
        self._answers.append(head + codec.encode_response(message, version))


def _versions(request: Request, error: ErrorCode = ErrorCode.NONE) -> ApiVersionsResponse:
    if request.is_version_unsupported:
        versions = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(versions,))
    message = request.decode()
    assert isinstance(message, ApiVersionsRequest)
    if message.client_software_name.startswith("-"):
        error = ErrorCode.INVALID_REQUEST
    all_apis = tuple(ApiVersion(api_key=key, min_version=0, max_version=0) for key in range(20))
    return ApiVersionsResponse(error_code=error, api_keys=() if error else all_apis)


def _served(request: Request, error: ErrorCode = ErrorCode.NONE) -> Message:
    """The answer of another API."""
    if request.api_key == ApiKey.API_VERSIONS:
        return _versions(request, error)
    return ListGroupsResponse(error_code=error, groups=())
