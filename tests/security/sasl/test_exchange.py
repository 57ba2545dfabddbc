"""`SaslExchange` beyond the golden conversations: bounds, secrets, hostile frames, any order."""

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import MalformedRequestError
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.sasl.exchange import (
    ELEMENTS_MAX,
    EXCHANGE_SECONDS_MAX,
    HANDSHAKE_FRAME_BYTES_MAX,
    TOKEN_FRAME_BYTES_MAX,
    VERSIONS_REQUESTS_MAX,
    ExchangeSettings,
    SaslExchange,
)
from penstock.security.sasl.exchange_actions import (
    Action,
    Answer,
    AnswerRaw,
    Close,
    CloseReason,
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
from penstock.security.sasl_client import BearerClient, ScramClient
from penstock.security.secret import Secret
from tests.oracle.secured_kafka import OAUTHBEARER, PASSWORDS, PLAIN, SCRAM_256, SCRAM_512, USER
from tests.security.sasl.exchange_wire import CREDENTIALS, SETTINGS, ExchangeWire

NOW = 500.0


@dataclasses.dataclass
class Sent:
    """A request that is decoded already."""

    message: Message
    api_version: int
    elements_max: int = -1

    @property
    def api_key(self) -> int:
        return int(self.message.API_KEY)  # type: ignore[attr-defined]

    def decode(self, elements_max: int) -> Message:
        self.elements_max = elements_max
        return self.message


@dataclasses.dataclass
class Sealed:
    """A request of another API, which must not be decoded."""

    api_key: int
    api_version: int = 0

    def decode(self, _elements_max: int) -> Message:
        raise AssertionError("decoded before the login is complete")


@dataclasses.dataclass
class Broken:
    """A request whose body is not its API's."""

    api_key: int
    api_version: int = 0

    def decode(self, _elements_max: int) -> Message:
        raise MalformedRequestError("broken")


def handshake(mechanism: str, version: int = 1) -> Sent:
    return Sent(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(token: bytes, version: int = 2) -> Sent:
    return Sent(SaslAuthenticateRequest(auth_bytes=token), version)


def exchange(**changed: object) -> SaslExchange:
    return SaslExchange(dataclasses.replace(SETTINGS, **changed), NOW)  # type: ignore[arg-type]


def chosen(mechanism: str, version: int = 1, **changed: object) -> SaslExchange:
    found = exchange(**changed)
    actions = found.receive_request(handshake(mechanism, version), NOW)
    assert [type(action) for action in actions] == [Answer]
    return found


def logged_in(**changed: object) -> SaslExchange:
    found = chosen(PLAIN, 1, **changed)
    found.receive_request(authenticate(b"\0alice\0secret"), NOW)
    found.password_verified("alice", NOW)
    assert found.is_complete
    return found


def kinds(actions: list[Action]) -> list[type]:
    return [type(action) for action in actions]


def test_a_login_with_plain() -> None:
    found = chosen(PLAIN)
    [question] = found.receive_request(authenticate(b"\0alice\0secret"), NOW)
    assert question == VerifyPassword("alice", Secret("secret"))
    assert found.is_waiting
    established, answer = found.password_verified("alice", NOW + 1)
    assert established == Established("alice", PLAIN, None, is_renewal=False)
    assert isinstance(answer, Answer)
    assert answer.version == 2
    assert found.is_complete
    assert found.receive_request(Sealed(ApiKey.PRODUCE), NOW + 2) == [Serve()]


def test_the_principal_is_the_one_that_was_verified() -> None:
    """A directory returns the name of the entry, not the one that was typed."""
    found = chosen(PLAIN)
    found.receive_request(authenticate(b"\0 Alice\0secret"), NOW)
    established = found.password_verified("alice", NOW)[0]
    assert isinstance(established, Established)
    assert established.principal_name == "alice"


def test_a_failure_is_delayed_answered_and_closed() -> None:
    found = chosen(PLAIN, failure_delay_ms=250)
    found.receive_request(authenticate(b"\0alice\0canary"), NOW)
    actions = found.password_verified(None, NOW)
    assert kinds(actions) == [LoginFailed, Delay, Answer, Close]
    failed, delay, answer, close = actions
    assert isinstance(failed, LoginFailed)
    assert (failed.mechanism, failed.user, failed.is_renewal) == (PLAIN, "alice", False)
    assert delay == Delay(250)
    assert isinstance(answer, Answer)
    assert answer.message.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert close == Close(CloseReason.FAILED)
    assert found.receive_request(handshake(PLAIN), NOW) == [Close(CloseReason.NOT_SASL)]
    assert not found.is_complete


def test_a_raw_failure_has_no_answer() -> None:
    found = chosen(SCRAM_256, version=0)
    assert found.expects_raw_token
    assert kinds(found.receive_token(b"nonsense", NOW)) == [LoginFailed, Delay, Close]


@pytest.mark.parametrize(
    ("mechanism", "token", "text"),
    [
        (PLAIN, b"\0a\0b", "Authentication failed: credentials for user could not be verified"),
        (SCRAM_256, b"n,,n=a,r=b", f"due to invalid credentials with SASL mechanism {SCRAM_256}"),
        (
            OAUTHBEARER,
            b"n,,\x01auth=Bearer x\x01\x01",
            f"due to invalid credentials with SASL mechanism {OAUTHBEARER}",
        ),
    ],
)
def test_a_check_that_is_not_possible_is_a_failure(mechanism: str, token: bytes, text: str) -> None:
    found = chosen(mechanism)
    found.receive_request(authenticate(token), NOW)
    actions = found.not_verified("the directory does not answer")
    assert kinds(actions) == [LoginFailed, Delay, Answer, Close]
    failed, _, answer, _ = actions
    assert isinstance(failed, LoginFailed)
    assert failed.reason == "the directory does not answer"
    assert isinstance(answer, Answer)
    assert text in (getattr(answer.message, "error_message", "") or "")


# --- Bounds ---


def test_frames_are_bounded_until_the_login_is_complete() -> None:
    found = exchange()
    assert found.frame_bytes_max == HANDSHAKE_FRAME_BYTES_MAX == 16_384
    assert found.receive_request(Sealed(ApiKey.API_VERSIONS), NOW) == [ServeVersions()]
    assert found.versions_served(0) == []
    assert found.frame_bytes_max == HANDSHAKE_FRAME_BYTES_MAX
    found.receive_request(handshake(PLAIN), NOW)
    assert found.frame_bytes_max == TOKEN_FRAME_BYTES_MAX == 524_288
    found.receive_request(authenticate(b"\0alice\0secret"), NOW)
    assert found.frame_bytes_max == TOKEN_FRAME_BYTES_MAX
    found.password_verified("alice", NOW)
    assert found.frame_bytes_max is None


def test_arrays_are_bounded() -> None:
    sent = handshake(PLAIN)
    exchange().receive_request(sent, NOW)
    assert sent.elements_max == ELEMENTS_MAX == 100


def test_the_exchange_has_a_deadline_and_so_has_a_renewal() -> None:
    found = exchange(session_ms_max={PLAIN: 60_000})
    deadlines = [found.deadline_seconds]
    found.receive_request(handshake(PLAIN), NOW + 5)
    found.receive_request(authenticate(b"\0alice\0secret"), NOW + 6)
    deadlines.append(found.deadline_seconds)
    found.password_verified("alice", NOW + 7)
    deadlines.append(found.deadline_seconds)
    found.receive_request(handshake(PLAIN), NOW + 20)
    deadlines.append(found.deadline_seconds)
    end = NOW + EXCHANGE_SECONDS_MAX
    assert deadlines == [end, end, None, end + 20], "not extended by activity"
    assert not found.is_complete


def test_versions_with_an_error_may_be_repeated_a_few_times() -> None:
    found = exchange()
    for number in range(VERSIONS_REQUESTS_MAX):
        assert found.receive_request(Sealed(ApiKey.API_VERSIONS), NOW) == [ServeVersions()]
        answer = found.versions_served(ErrorCode.UNSUPPORTED_VERSION)
        is_last = number + 1 == VERSIONS_REQUESTS_MAX
        assert answer == ([Close(CloseReason.NOT_SASL)] if is_last else [])


# --- Which requests are decoded ---


@pytest.mark.parametrize("api_key", [key for key in ApiKey if key not in (17, 18, 36)])
def test_no_other_api_is_reached_before_the_login(api_key: ApiKey) -> None:
    assert kinds(exchange().receive_request(Sealed(api_key), NOW)) == [LoginFailed, Delay, Close]
    during = chosen(PLAIN).receive_request(Sealed(api_key), NOW)
    assert kinds(during) == [LoginFailed, Delay, RefuseIllegalState, Close]
    renewed = logged_in(session_ms_max={PLAIN: 60_000})
    renewed.receive_request(handshake(PLAIN), NOW)
    again = renewed.receive_request(Sealed(api_key), NOW)
    assert kinds(again) == [LoginFailed, Delay, RefuseIllegalState, Close]


@pytest.mark.parametrize(
    ("prepared", "api_key"),
    [
        (exchange, ApiKey.SASL_HANDSHAKE),
        (lambda: chosen(PLAIN), ApiKey.SASL_AUTHENTICATE),
        (lambda: logged_in(session_ms_max={PLAIN: 60_000}), ApiKey.SASL_HANDSHAKE),
    ],
)
def test_a_broken_request_closes(prepared: Callable[[], SaslExchange], api_key: ApiKey) -> None:
    found = prepared()
    assert found.receive_request(Broken(api_key), NOW) == [Close(CloseReason.NOT_SASL)]
    assert found.receive_request(Broken(api_key), NOW) == [Close(CloseReason.NOT_SASL)]


def test_an_unknown_mechanism_is_not_a_label() -> None:
    failed = exchange().receive_request(handshake("x" * 10_000), NOW)[0]
    assert isinstance(failed, LoginFailed)
    assert failed.mechanism == ""
    assert len(failed.reason) < 100


def test_only_enabled_mechanisms_are_offered() -> None:
    found = exchange(mechanisms=(SCRAM_512, PLAIN))
    answer = found.receive_request(handshake(SCRAM_512), NOW)[0]
    assert isinstance(answer, Answer)
    assert getattr(answer.message, "mechanisms", None) == (SCRAM_512, PLAIN)
    refused = exchange(mechanisms=(SCRAM_512,)).receive_request(handshake(PLAIN), NOW)
    assert kinds(refused) == [LoginFailed, Delay, Answer, Close]


# --- Sessions ---


@pytest.mark.parametrize(
    ("token_seconds", "session_ms_max", "lifetime_ms"),
    [(300.0, 0, 300_000), (300.0, 60_000, 60_000), (30.0, 60_000, 30_000), (-5.0, 60_000, 0)],
)
def test_a_session_ends_with_the_token_or_before(
    token_seconds: float, session_ms_max: int, lifetime_ms: int
) -> None:
    found = chosen(OAUTHBEARER, session_ms_max={OAUTHBEARER: session_ms_max})
    found.receive_request(authenticate(BearerClient(Secret("x")).first()), NOW)
    session, answer = found.token_verified(VerifiedToken("alice", token_seconds), NOW)
    assert isinstance(session, Established)
    expires_at = NOW + lifetime_ms / 1000
    assert session.session_expires_at_seconds == found.session_expires_at_seconds == expires_at
    assert isinstance(answer, Answer)
    assert getattr(answer.message, "session_lifetime_ms", None) == lifetime_ms
    assert not found.is_expired(expires_at - 0.001)
    assert found.is_expired(expires_at)
    late = found.receive_request(Sealed(ApiKey.FETCH), expires_at)
    assert late == [Close(CloseReason.EXPIRED)]


def test_the_bound_of_another_mechanism_does_not_count() -> None:
    found = logged_in(session_ms_max={SCRAM_256: 1_000})
    assert found.session_expires_at_seconds is None


def test_the_old_session_holds_during_a_renewal() -> None:
    found = logged_in(session_ms_max={PLAIN: 60_000})
    found.receive_request(handshake(PLAIN), NOW + 30)
    assert found.session_expires_at_seconds == NOW + 60
    found.receive_request(authenticate(b"\0alice\0secret"), NOW + 30)
    renewed = found.password_verified("alice", NOW + 31)[0]
    assert renewed == Established("alice", PLAIN, NOW + 91, is_renewal=True)


def test_a_renewal_may_begin_a_second_after_the_last() -> None:
    found = logged_in(session_ms_max={PLAIN: 60_000})
    for begins_at in (NOW, NOW + 1.0, NOW + 2.0):
        assert kinds(found.receive_request(handshake(PLAIN), begins_at)) == [Answer]
        assert not found.is_complete
        found.receive_request(authenticate(b"\0alice\0secret"), begins_at)
        found.password_verified("alice", begins_at)
        early = found.receive_request(handshake(PLAIN), begins_at + 0.999)
        assert isinstance(early[0], Answer)
        assert early[0].message.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert found.is_complete


def test_a_failed_renewal_is_one() -> None:
    found = logged_in(session_ms_max={PLAIN: 60_000})
    found.receive_request(handshake(PLAIN), NOW)
    found.receive_request(authenticate(b"\0alice\0canary"), NOW)
    failed = found.password_verified(None, NOW)[0]
    assert isinstance(failed, LoginFailed)
    assert failed.is_renewal


# --- Secrets ---


def test_no_action_shows_a_secret() -> None:
    """Each action of each kind of login, good and bad, as a log would show it."""
    shown = ""
    for mechanism, token in (
        (PLAIN, b"\0alice\0canary"),
        (PLAIN, b"canary\0alice\0canary"),
        (SCRAM_256, b"n,,n=alice,r=canary"),
        (OAUTHBEARER, b"n,,\x01auth=Bearer canary\x01\x01"),
        (OAUTHBEARER, b"n,,\x01auth=Basic canary\x01\x01"),
    ):
        for version in (0, 1):
            found = chosen(mechanism, version)
            actions = (
                found.receive_token(token, NOW)
                if version == 0
                else found.receive_request(authenticate(token), NOW)
            )
            shown += repr(actions)
            if found.is_waiting:
                shown += repr(found._question)
            match actions[0]:
                case VerifyPassword():
                    shown += repr(found.password_verified("alice", NOW))
                case LookUpScram():
                    credential = CREDENTIALS[SCRAM_256, USER]
                    shown += repr(found.scram_found(credential, "canary", NOW))
                case VerifyToken():
                    shown += repr(found.token_verified(None, NOW))
    assert "canary" not in shown
    assert "[hidden]" in shown
    assert "cluster secret" not in repr(SETTINGS)


# --- Any frames in any order ---

REQUESTS: list[bytes] = [
    headers.write_request_head(int(message.API_KEY), version, 7, client_id)
    + codec.encode_request(message, version)
    for message, version, client_id in (
        (ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3, "a"),
        (ApiVersionsRequest(client_software_name="-", client_software_version="1"), 3, "a"),
        (SaslHandshakeRequest(mechanism=PLAIN), 0, None),
        (SaslHandshakeRequest(mechanism=PLAIN), 1, None),
        (SaslHandshakeRequest(mechanism=SCRAM_256), 1, "a"),
        (SaslHandshakeRequest(mechanism=OAUTHBEARER), 1, "a"),
        (SaslHandshakeRequest(mechanism="GSSAPI"), 1, "a"),
        (SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-plain"), 2, "a"),
        (SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 1, "a"),
        (SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2, "a"),
        (SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer token-0\x01\x01"), 2, "a"),
        (SaslAuthenticateRequest(auth_bytes=b"\x01"), 2, "a"),
        (ListGroupsRequest(), 4, "a"),
    )
]
FRAMES = (
    st.sampled_from(REQUESTS)
    | st.binary(max_size=100)
    | st.builds(
        lambda frame, position, byte: frame[:position] + byte + frame[position + 1 :],
        st.sampled_from(REQUESTS),
        st.integers(0, 60),
        st.binary(max_size=2),
    )
    | st.sampled_from([b"\0alice\0alice-plain", b"\0alice\0wrong", bytes(20_000)])
)


@settings(max_examples=300)
@given(st.lists(FRAMES | st.floats(0, 40), max_size=12), st.booleans())
def test_no_frames_in_any_order_reach_an_api_without_a_login(
    frames: list[bytes | float], is_endless: bool
) -> None:
    wire = ExchangeWire(is_endless=is_endless)
    wire.token("alice", 20.0)
    for frame in frames:
        if isinstance(frame, float):
            wire.wait(frame)
            continue
        before = wire.session
        served = len(wire.served)
        expires_at = wire.exchange.session_expires_at_seconds
        wire.send(frame)
        if len(wire.served) > served:
            assert before is not None
            assert expires_at is None or wire.now <= expires_at
    sessions = [action for action in wire.actions if isinstance(action, Established)]
    assert {session.principal_name for session in sessions} <= {"alice"}
    if wire.failures:
        assert wire.is_closed
        assert len(wire.failures) == 1


def good_exchange(mechanism: str) -> list[bytes]:
    """The frames of a login with our own client, recorded."""
    wire = ExchangeWire(is_endless=True)
    frames = [REQUESTS[0]]
    wire.send(frames[0])
    wire.receive()
    head = headers.write_request_head(ApiKey.SASL_HANDSHAKE, 1, 7, "a")
    frames.append(head + codec.encode_request(SaslHandshakeRequest(mechanism=mechanism), 1))
    wire.send(frames[-1])
    wire.receive()
    client = ScramClient(mechanism, USER, Secret(PASSWORDS[mechanism][USER]), "nonce")
    token: bytes | None = client.first()
    while token is not None:
        head = headers.write_request_head(ApiKey.SASL_AUTHENTICATE, 2, 7, "a")
        frames.append(head + codec.encode_request(SaslAuthenticateRequest(auth_bytes=token), 2))
        wire.send(frames[-1])
        answer = wire.receive()
        assert answer is not None
        response = codec.decode_response(ApiKey.SASL_AUTHENTICATE, 2, memoryview(answer)[5:])
        token = client.respond(getattr(response, "auth_bytes", b""))
    assert wire.exchange.is_complete
    return frames


@pytest.mark.parametrize("mechanism", [SCRAM_256, SCRAM_512])
def test_every_prefix_of_a_good_exchange(mechanism: str) -> None:
    """Cut after each frame and within each, and continued with another API's request."""
    frames = good_exchange(mechanism)
    for count in range(len(frames) + 1):
        for cut in (None, 0, 5, 12, 20):
            wire = ExchangeWire(is_endless=True)
            for frame in frames[:count]:
                wire.send(frame)
            if cut is not None and count < len(frames):
                wire.send(frames[count][:cut])
            wire.send(REQUESTS[-1])
            assert wire.served == ([16] if count == len(frames) else [])


def test_every_mechanism_has_a_login() -> None:
    for mechanism in MECHANISMS:
        assert not chosen(mechanism).is_complete


def test_raw_answers_have_no_header() -> None:
    found = chosen(PLAIN, version=0)
    found.receive_token(b"\0alice\0secret", NOW)
    assert found.password_verified("alice", NOW)[1] == AnswerRaw(b"")


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SETTINGS.failure_delay_ms = 0  # type: ignore[misc]
    assert isinstance(SETTINGS, ExchangeSettings)
