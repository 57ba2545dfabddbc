"""`ClientLogin` and `Gate` under attack: memory, order, races, ends; without sockets or time."""

import asyncio
import gc
import logging
import warnings
from collections.abc import Callable, Coroutine

import pytest

from penstock.broker.answers import Answer, WaitingAnswer
from penstock.broker.connections.check_turns import CHECKS_PER_ADDRESS_MAX
from penstock.broker.connections.login_ports import ChecksBusyError
from penstock.broker.connections.login_refusals import illegal_state
from penstock.broker.peer import Peer
from penstock.core.errors import PenstockError
from penstock.core.security_limits import UNPROVEN_BYTES_MAX
from penstock.core.settings.tree import ListenerSettings
from penstock.protocol import codec
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.headers import write_request_head
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.protocol.response_errors import error_codes
from penstock.security.principal import user
from penstock.security.sasl.exchange import EXCHANGE_SECONDS_MAX
from penstock.security.sasl_client import PlainClient, ScramClient
from penstock.security.secret import Secret
from tests.broker.login_scene import (
    ADDRESS,
    LATER_SECONDS,
    Line,
    LoginScene,
    decoded,
    framed,
)
from tests.oracle.secured_kafka import HARD_USER, PASSWORDS, PLAIN, SCRAM_256, USER

SESSION_MS = 60_000
NONCE = "fyko+d2lbbFgONRv9qkxdawL"
LARGE_BYTES = 500_000
"""Near the largest frame with a token."""
HANDSHAKE, AUTHENTICATE, GROUPS = 17, 36, 16


def handshake(line: Line, mechanism: str = PLAIN, version: int = 1) -> bytes:
    return line.request(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(line: Line, token: bytes, version: int = 2) -> bytes:
    return line.request(SaslAuthenticateRequest(auth_bytes=token), version)


def plain(password: str = PASSWORDS[PLAIN][USER], name: str = USER) -> bytes:
    return PlainClient(name, Secret(password)).first()


def groups(line: Line) -> bytes:
    return line.request(ListGroupsRequest(), 4)


def logged_in(scene: LoginScene) -> Line:
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain()))
    assert line.is_logged_in()
    line.frames()
    return line


def codes(line: Line, *expected: tuple[int, int]) -> list[int]:
    """The error codes of the answers, which are of these APIs and versions."""
    frames = line.frames()
    assert len(frames) == len(expected), f"{len(frames)} answers"
    return [
        int(decoded(api_key, version, frame).error_code)
        for (api_key, version), frame in zip(expected, frames, strict=True)
    ]


# --- What waits holds no memory ---


def test_a_malformed_request_for_versions_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    """Guards the decoding in `_serve_versions`: the dispatcher decodes long ones on a thread."""
    scene = LoginScene()
    line = scene.connect()
    line.send(framed(write_request_head(ApiKey.API_VERSIONS, 3, 1, None) + b"\xff" * 6_000))
    assert line.is_closed()
    scene.check_no_failure()
    scene.check_empty()
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", ["token", "other API"])
def test_a_refused_frame_is_freed_before_the_delay(kind: str) -> None:
    """Guards `_wait`: two thousand refused frames of 500 KB, held for 5 s, are a gigabyte."""
    scene = LoginScene(failure_delay_ms=5_000)
    line = scene.connect()
    line.send(handshake(line))
    if kind == "token":
        line.send(authenticate(line, b"x" * LARGE_BYTES))
    else:
        content = line.request(ListGroupsRequest(states_filter=("x" * 30_000,) * 16), 4)
        line.send(content)
    line.frames()
    assert not line.is_closed()
    login = line.protocol.session.login
    assert login is not None
    assert login._request is not None
    assert len(login._request.body) == 0
    line.later(6)
    assert line.is_closed()


def test_every_api_has_an_answer_during_a_login() -> None:
    """As in Kafka, and without decoding the request or importing its handler."""
    scene = LoginScene()
    for api_key, handler in scene.handlers.items():
        for version in range(handler.versions.lowest, handler.versions.highest + 1):
            answer = illegal_state(api_key, version)
            if api_key == ApiKey.PRODUCE:
                assert answer is None
                continue
            assert answer is not None
            again = codec.decode_response(api_key, version, codec.encode_response(answer, version))
            assert set(error_codes(again)) <= {ErrorCode.ILLEGAL_SASL_STATE}
    line = scene.connect()
    line.send(handshake(line))
    line.frames()
    line.send(line.request(ApiVersionsRequest(), 0))
    line.later(1)
    assert codes(line, (ApiKey.API_VERSIONS, 0)) == [ErrorCode.ILLEGAL_SASL_STATE]
    assert line.is_closed()
    assert not scene.reached


def test_bytes_behind_a_login_that_waits_are_few() -> None:
    """Guards `get_buffer`: the arena of a read is 256 KiB, and a check may take seconds."""
    scene = LoginScene()
    scene.checks.is_slow = True
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain()) + b"x" * 300_000)
    reader = line.protocol._reader
    assert len(reader._pending) <= 4_096
    assert scene.state._unproven_bytes == 4_096
    scene.checks.is_slow = False
    scene.tasks.resume()
    assert line.is_logged_in()
    assert scene.state._unproven_bytes == 0


def test_a_frame_that_is_announced_has_no_memory_yet() -> None:
    """Guards `bound_frames`: a thousand connections that announce 500 KB were 500 MB."""
    scene = LoginScene()
    line = scene.connect()
    line.send(handshake(line))
    data = authenticate(line, b"x" * LARGE_BYTES)
    for sent, held_max in ((100, 8_192), (20_000, 40_000), (200_000, 400_000)):
        line.send(data[:sent])
        data = data[sent:]
        assert len(line.protocol.get_buffer(-1)) < held_max
        assert len(line.protocol._reader._frame) < held_max + 20_100
    line.send(data)
    line.later(1)
    assert codes(line, (HANDSHAKE, 1), (AUTHENTICATE, 2)) == [0, 58]


def test_a_failed_login_is_counted_once() -> None:
    """Guards `is_over`: its answer may wait for the client, and for the deadline of the login."""
    scene = LoginScene()
    line = scene.connect()
    line.transport.close = lambda: None  # type: ignore[method-assign]
    line.send(handshake(line) + authenticate(line, plain("wrong")))
    line.later(LATER_SECONDS)
    assert codes(line, (HANDSHAKE, 1), (AUTHENTICATE, 2)) == [0, 58]
    counted = {key: value for key, value in scene.audit._logins.items() if value}
    assert counted == {("CLIENTS", PLAIN, "failure"): 1}


def test_partial_frames_share_one_budget_and_the_oldest_end() -> None:
    scene = LoginScene()
    lines = []
    for _ in range(40):
        line = scene.connect()
        line.send(handshake(line))
        line.send(authenticate(line, b"x" * LARGE_BYTES)[: LARGE_BYTES // 2])
        lines.append(line)
        assert scene.state._unproven_bytes <= UNPROVEN_BYTES_MAX
    open_lines = [line for line in lines if not line.is_closed()]
    assert open_lines == lines[-len(open_lines) :]
    assert 30 <= len(open_lines) < 40
    assert scene.state.endings.refused["login_memory"].value == 40 - len(open_lines)
    for line in open_lines:
        line.later()
        assert line.is_closed(), "a login without an end"
    scene.check_empty()
    scene.check_no_failure()


def test_a_flood_of_partial_frames_ends_no_login_that_holds_nothing() -> None:
    """Guards `count_unproven`: to end these frees nothing, and their clients did nothing wrong."""
    scene = LoginScene()
    victim = scene.connect()
    victim.send(handshake(victim, SCRAM_256))
    for _ in range(60):
        line = scene.connect()
        line.send(handshake(line))
        line.send(authenticate(line, b"x" * LARGE_BYTES)[:-1])
    assert not victim.is_closed()
    client = ScramClient(SCRAM_256, USER, Secret(PASSWORDS[SCRAM_256][USER]), NONCE)
    victim.frames()
    victim.send(authenticate(victim, client.first()))
    answer = victim.answer(AUTHENTICATE, 2)
    proof = client.respond(bytes(answer.auth_bytes))
    assert proof is not None
    victim.send(authenticate(victim, proof))
    assert victim.is_logged_in()


# --- Order ---


def test_requests_behind_the_last_token_wait_for_the_check() -> None:
    scene = LoginScene()
    scene.checks.is_slow = True
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain()) + groups(line) + groups(line))
    assert codes(line, (HANDSHAKE, 1)) == [0]
    assert not scene.reached
    assert line.transport.is_paused
    scene.tasks.resume()
    line.deliver()
    assert codes(line, (AUTHENTICATE, 2)) == [0]
    assert scene.reached[GROUPS] == 2
    assert line.protocol.session.peer.principal == user(USER)


def test_requests_behind_a_handshake_are_not_handled() -> None:
    scene = LoginScene()
    line = scene.connect()
    line.send(handshake(line) + groups(line) + authenticate(line, plain()))
    line.later(1)
    assert codes(line, (HANDSHAKE, 1), (GROUPS, 4)) == [0, ErrorCode.ILLEGAL_SASL_STATE]
    assert line.is_closed()
    assert not scene.reached


def test_nothing_behind_a_refusal_is_handled() -> None:
    """Guards `is_over`: the answer to the refused login must not be lost."""
    scene = LoginScene()
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain("wrong")) + groups(line) * 3)
    line.later(1)
    assert codes(line, (HANDSHAKE, 1), (AUTHENTICATE, 2)) == [0, 58]
    assert line.is_closed()
    assert not line.transport.is_aborted
    assert not scene.reached
    scene.check_empty()


class _Patient:
    def __init__(self) -> None:
        self.hurried = 0

    def abandon(self) -> None:
        pass

    def hurry(self) -> None:
        self.hurried += 1


def in_flight(
    scene: LoginScene, line: Line, waiter: _Patient | None = None
) -> Callable[[Answer], None]:
    """Send a request that is not answered until the returned function is called."""
    waiting = WaitingAnswer(waiter or _Patient())
    handler = scene.handlers[GROUPS]
    usual = handler.function
    handler.function = lambda _message, _context: waiting
    line.send(groups(line))
    handler.function = usual
    return waiting.set


def test_requests_in_flight_are_answered_before_a_refused_renewal() -> None:
    """Guards `Gate.login_close`: requests behind the renewal once ended the connection at once."""
    scene = LoginScene(session_ms=SESSION_MS)
    line = logged_in(scene)
    finish = in_flight(scene, line)
    line.send(handshake(line) + authenticate(line, plain("wrong")) + groups(line) * 2)
    line.later(1)
    assert not line.frames(), "an answer before its turn"
    assert not line.is_closed()
    finish(ListGroupsResponse(groups=()))
    line.later(1)
    assert codes(line, (GROUPS, 4), (HANDSHAKE, 1), (AUTHENTICATE, 2)) == [0, 0, 58]
    assert line.is_closed()
    assert not line.transport.is_aborted
    assert not scene.reached[GROUPS]
    scene.check_empty()


def test_requests_behind_a_renewal_wait_for_its_check() -> None:
    scene = LoginScene(session_ms=SESSION_MS)
    line = logged_in(scene)
    scene.checks.is_slow = True
    line.send(handshake(line) + authenticate(line, plain()) + groups(line))
    assert codes(line, (HANDSHAKE, 1)) == [0]
    assert not scene.reached
    scene.tasks.resume()
    line.deliver()
    assert codes(line, (AUTHENTICATE, 2)) == [0]
    assert scene.reached[GROUPS] == 1


def test_a_renewal_keeps_the_identity() -> None:
    scene = LoginScene(session_ms=SESSION_MS)
    line = logged_in(scene)
    other = plain(PASSWORDS[PLAIN][HARD_USER], HARD_USER)
    line.send(handshake(line) + authenticate(line, other) + groups(line))
    line.later(1)
    assert codes(line, (HANDSHAKE, 1), (AUTHENTICATE, 2)) == [0, 58]
    assert line.protocol.session.peer.principal == user(USER)
    assert line.is_closed()
    assert not scene.reached


def test_an_expired_session_is_not_kept_open_by_raw_handshakes() -> None:
    scene = LoginScene(session_ms=SESSION_MS)
    line = logged_in(scene)
    line.send(handshake(line, version=0))
    assert codes(line, (HANDSHAKE, 0)) == [ErrorCode.ILLEGAL_SASL_STATE]
    scene.loop.advance(SESSION_MS / 1000 + 1)
    line.send(handshake(line, version=0))
    assert line.is_closed()
    assert scene.audit.expired.value == 1


def test_an_expired_session_may_be_renewed_and_nothing_else() -> None:
    scene = LoginScene(session_ms=SESSION_MS)
    first, second = logged_in(scene), logged_in(scene)
    scene.loop.advance(SESSION_MS / 1000 + 1)
    first.send(groups(first))
    assert first.is_closed()
    assert not scene.reached
    second.send(handshake(second) + authenticate(second, plain()) + groups(second))
    second.later(1)
    assert codes(second, (HANDSHAKE, 1), (AUTHENTICATE, 2)) == [0, 0]
    assert scene.reached[GROUPS] == 1


# --- Ends ---


@pytest.mark.parametrize("is_renewal", [False, True])
def test_a_connection_that_goes_away_during_a_check(is_renewal: bool) -> None:
    scene = LoginScene(session_ms=SESSION_MS)
    line = logged_in(scene) if is_renewal else scene.connect()
    scene.checks.is_slow = True
    line.send(handshake(line) + authenticate(line, plain()))
    line.disconnect()
    line.frames()
    scene.tasks.resume()
    scene.loop.run_ready()
    assert not line.frames()
    scene.check_no_failure()
    scene.check_empty()


def test_a_connection_that_goes_away_during_a_delay() -> None:
    scene = LoginScene()
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain("wrong")))
    line.disconnect()
    scene.check_empty()
    scene.loop.advance(LATER_SECONDS)
    scene.check_no_failure()


@pytest.mark.parametrize("is_renewal", [False, True])
def test_a_check_that_takes_too_long(is_renewal: bool) -> None:
    scene = LoginScene(session_ms=SESSION_MS)
    line = logged_in(scene) if is_renewal else scene.connect()
    scene.checks.is_slow = True
    line.send(handshake(line) + authenticate(line, plain()))
    scene.loop.advance(EXCHANGE_SECONDS_MAX - 0.1)
    assert not line.is_closed()
    scene.loop.advance(0.2)
    assert line.is_closed()
    scene.tasks.resume()
    scene.check_no_failure()
    scene.check_empty()


@pytest.mark.parametrize("error", [PenstockError("no directory"), RuntimeError("a defect")])
def test_a_check_that_fails_is_a_failed_login(error: Exception) -> None:
    scene = LoginScene()
    scene.checks.error = error
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain()))
    line.later(1)
    assert codes(line, (HANDSHAKE, 1), (AUTHENTICATE, 2)) == [0, 58]
    assert line.is_closed()
    scene.check_no_failure()


@pytest.mark.parametrize("moment", ["check", "delay"])
def test_a_defect_behind_a_wait_ends_one_connection(
    moment: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards `_run_late`: an error of a task ends the broker."""
    scene = LoginScene()
    scene.checks.is_slow = True
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain()))
    line.frames()

    def broken(*_: object, **__: object) -> int:
        raise RuntimeError("a defect")

    if moment == "check":
        monkeypatch.setattr(scene.logins, "logged_in", broken)
        scene.tasks.resume()
    else:
        monkeypatch.setattr(type(scene.logins), "success_delay_ms", lambda *_: 500)
        scene.tasks.resume()
        monkeypatch.setattr(scene.logins, "logged_in", broken)
        scene.loop.advance(1)
    assert line.is_closed()
    assert not line.frames()
    scene.loop.run_ready()
    scene.check_no_failure()
    scene.check_empty()
    assert "failed by a defect" in caplog.text


def test_a_stop_during_a_check_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled before its first step must not hold a coroutine that never ran."""
    scene = LoginScene()
    line = scene.connect()
    started: list[Coroutine[object, object, None]] = []
    monkeypatch.setattr(scene.tasks, "start", started.append)
    line.send(handshake(line) + authenticate(line, plain()))
    line.protocol.finish()
    scene.loop.run_ready()
    assert line.is_closed()
    (coroutine,) = started
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(asyncio.CancelledError):
            coroutine.throw(asyncio.CancelledError())
        started.clear()
        del coroutine
        gc.collect()
    assert not scene.state.connections


@pytest.mark.parametrize("moment", ["begin", "handshake", "check", "delay"])
def test_a_stop_of_the_broker_during_a_login(moment: str) -> None:
    scene = LoginScene()
    scene.checks.is_slow = moment == "check"
    line = scene.connect()
    if moment != "begin":
        line.send(handshake(line))
    if moment in ("check", "delay"):
        line.send(authenticate(line, plain("wrong")))
    line.protocol.finish()
    scene.loop.run_ready()
    assert line.is_closed()
    scene.tasks.resume()
    scene.loop.advance(LATER_SECONDS)
    scene.check_no_failure()
    scene.check_empty()


def test_a_stop_of_the_broker_waits_for_a_renewal() -> None:
    scene = LoginScene(session_ms=SESSION_MS)
    line = logged_in(scene)
    scene.checks.is_slow = True
    line.send(handshake(line) + authenticate(line, plain()))
    line.protocol.finish()
    assert not line.is_closed()
    scene.tasks.resume()
    scene.loop.run_ready()
    assert codes(line, (HANDSHAKE, 1), (AUTHENTICATE, 2)) == [0, 0]
    assert line.is_closed()
    scene.check_empty()


def test_the_end_of_the_session_is_set_anew_by_a_renewal() -> None:
    scene = LoginScene(session_ms=SESSION_MS)
    line = logged_in(scene)
    for _ in range(5):
        scene.loop.advance(SESSION_MS / 2000)
        line.send(handshake(line) + authenticate(line, plain()))
    line.frames()
    waiter = _Patient()
    in_flight(scene, line, waiter)
    scene.loop.advance(SESSION_MS / 1000 - 0.1)
    assert waiter.hurried == 0
    scene.loop.advance(0.2)
    assert waiter.hurried == 1
    line.disconnect()
    scene.check_empty()


# --- Checks of passwords ---


def from_address(scene: LoginScene, address: str) -> Line:
    line = scene.connect()
    login = line.protocol.session.login
    assert login is not None
    login.peer = login.peer._replace(address=address)
    return line


def test_one_address_leaves_places_to_the_others() -> None:
    """Guards `CheckTurns`: bad logins of one address once filled the queue of all."""
    scene = LoginScene()
    scene.checks.is_slow = True
    lines = [scene.connect() for _ in range(50)]
    for line in lines:
        line.send(handshake(line) + authenticate(line, plain()))
    assert scene.checks.checked == CHECKS_PER_ADDRESS_MAX
    other = from_address(scene, "192.0.2.8")
    other.send(handshake(other) + authenticate(other, plain()))
    assert scene.checks.checked == CHECKS_PER_ADDRESS_MAX + 1
    while scene.tasks.waiting:
        scene.tasks.resume()
        assert len(scene.tasks.waiting) <= CHECKS_PER_ADDRESS_MAX
    assert all(line.is_logged_in() for line in (*lines, other))
    assert scene.state.check_turns.hosts == 0


def test_logins_that_have_ended_are_not_checked() -> None:
    scene = LoginScene()
    scene.checks.is_slow = True
    lines = [scene.connect() for _ in range(50)]
    for line in lines:
        line.send(handshake(line) + authenticate(line, plain()))
    for line in lines[:-1]:
        line.disconnect()
    while scene.tasks.waiting:
        scene.tasks.resume()
    assert scene.checks.checked == CHECKS_PER_ADDRESS_MAX + 1
    assert lines[-1].is_logged_in()
    assert scene.state.check_turns.hosts == 0
    lines[-1].disconnect()
    scene.check_no_failure()
    scene.check_empty()


def test_a_login_that_finds_no_place_may_be_tried_again() -> None:
    """Closed without an answer: clients give up after SASL_AUTHENTICATION_FAILED."""
    scene = LoginScene()
    scene.checks.error = ChecksBusyError("64 checks wait")
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain()))
    assert line.is_closed()
    assert codes(line, (HANDSHAKE, 1)) == [0]
    assert not scene.audit._logins, "it is no failure of the client"
    scene.check_no_failure()
    scene.check_empty()


# --- Who is asked ---


def test_a_connection_of_this_process_needs_no_login() -> None:
    scene = LoginScene()
    line = scene.connect(Peer(ADDRESS, user("admin"), "CLIENTS"))
    line.send(groups(line) + handshake(line) + authenticate(line, plain()))
    assert scene.reached[GROUPS] == 1
    assert scene.reached[HANDSHAKE] == scene.reached[AUTHENTICATE] == 1
    assert line.protocol.session.peer.principal == user("admin")
    line.disconnect()
    scene.check_empty()


def test_a_good_login_is_answered_late_after_many_bad_ones() -> None:
    """Its requests wait as well: the delay would tell nothing otherwise."""
    scene = LoginScene()
    for _ in range(30):
        line = scene.connect()
        line.send(handshake(line) + authenticate(line, plain("wrong")))
        line.disconnect()
    line = scene.connect()
    line.send(handshake(line) + authenticate(line, plain()) + groups(line))
    assert codes(line, (HANDSHAKE, 1)) == [0]
    assert not line.is_logged_in()
    line.later(6)
    assert codes(line, (AUTHENTICATE, 2)) == [0]
    assert scene.reached[GROUPS] == 1


def test_bytes_of_a_frame_may_wait_for_a_check() -> None:
    """Guards the time limit of a frame: this side has stopped to read it."""
    settings = ListenerSettings(frame_completion_seconds_max=2)
    scene = LoginScene(settings=settings)
    scene.checks.is_slow = True
    line = scene.connect()
    behind = groups(line)
    line.send(handshake(line) + authenticate(line, plain()) + behind[:7])
    scene.loop.advance(5)
    assert not line.is_closed()
    scene.checks.is_slow = False
    scene.tasks.resume()
    line.send(behind[7:])
    assert scene.reached[GROUPS] == 1


def test_no_version_request_without_end() -> None:
    scene = LoginScene()
    line = scene.connect()
    for number in range(20):
        if line.is_closed():
            break
        line.send(line.request(ApiVersionsRequest(client_software_name="-"), 3))
        assert number < 10
    assert line.is_closed()
