"""Frames before the login is complete: whatever they are, no handler but ApiVersions is reached.

Each input is sent on a new connection in one of `STATES`, from a new connection to the renewal of a
session. Afterwards these must hold:

- no request reached a handler while the identity of its client was not proven, except ApiVersions;
- the connection is answered, waits for more bytes or is closed; 20 s later it is closed or logged
  in, and then nothing of it is left: no timer, no task, no byte of any budget;
- received bytes of clients that are not logged in are within their budget;
- nothing failed: no error in the log, no exception in the event loop;
- no log record has a password or a token.

`PENSTOCK_LOGIN_FRAMES` is the number of frames of `test_frames_before_the_login`. A seed and the
number of a frame reproduce a finding.
"""

import base64
import functools
import hashlib
import hmac
import logging
import os
import random
import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from penstock.core.limits import ELEMENTS_ON_LOOP_MAX
from penstock.core.security_limits import UNPROVEN_BYTES_MAX
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.sasl.exchange import HANDSHAKE_FRAME_BYTES_MAX, TOKEN_FRAME_BYTES_MAX
from penstock.security.sasl_client import BearerClient, PlainClient, ScramClient
from penstock.security.scram_credential import salted_password
from penstock.security.secret import Secret
from tests.broker.login_scene import GOOD_TOKEN, SALT, Line, LoginScene, decoded, framed
from tests.oracle.secured_kafka import OAUTHBEARER, PASSWORDS, PLAIN, SCRAM_256, SCRAM_512, USER
from tests.protocol.zero_bodies import zero_bodies

FRAMES: Final = int(os.environ.get("PENSTOCK_LOGIN_FRAMES", "3000"))
SEED: Final = int(os.environ.get("PENSTOCK_LOGIN_SEED", "1"))
SESSION_MS: Final = 3_600_000
CANARY: Final = "canary-7f3a"
SECRETS: Final = (
    CANARY,
    GOOD_TOKEN,
    *(one for each in PASSWORDS.values() for one in each.values()),
)
NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"
INTERESTING: Final = (0x00, 0x01, 0x7F, 0x80, 0xFF)
LENGTHS: Final = (-(2**31), -1, 0, 1, 9, 10, 16_384, 16_385, 524_288, 524_289, 2**31 - 1)
ENTRIES: Final = (b"\x7f\xff\xff\xff", b"\xff" * 4, b"\x00\x0f\xff\xff", b"\xff\xff\xff\xff\x0f")
"""Numbers of elements of an array, as in older and in flexible versions."""
CLAIMED: Final = re.compile(r'"event": "login_failed", "principal": "[^"]*"')
"""The audit log has the name that a client claims, and a mutation can put a password there."""
SECRET_CHECK_FRAMES: Final = 64
"""Log records are searched for secrets after so many frames."""


def plain_token(password: str = PASSWORDS[PLAIN][USER]) -> bytes:
    return PlainClient(USER, Secret(password)).first()


def versions(line: Line) -> None:
    message = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
    line.send(line.request(message, 3))


def handshake(line: Line, mechanism: str, version: int = 1) -> None:
    line.send(line.request(SaslHandshakeRequest(mechanism=mechanism), version))


def authenticate(line: Line, token: bytes, version: int = 2) -> None:
    line.send(line.request(SaslAuthenticateRequest(auth_bytes=token), version))


def challenged(line: Line) -> None:
    handshake(line, SCRAM_256)
    authenticate(line, ScramClient(SCRAM_256, USER, Secret(CANARY), NONCE).first())


def in_a_check(line: Line) -> None:
    line.scene.checks.is_slow = True
    handshake(line, PLAIN)
    authenticate(line, plain_token(CANARY))


def in_a_delay(line: Line) -> None:
    handshake(line, SCRAM_512)
    authenticate(line, b"n,,nothing")


def raw_challenge(line: Line) -> None:
    handshake(line, SCRAM_512, 0)
    line.send(framed(ScramClient(SCRAM_512, USER, Secret(CANARY), NONCE).first()))


def bad_token(line: Line) -> None:
    handshake(line, OAUTHBEARER)
    authenticate(line, BearerClient(Secret(CANARY)).first())


def renewing(line: Line) -> None:
    handshake(line, PLAIN)
    authenticate(line, plain_token())
    handshake(line, PLAIN)


@functools.cache
def client_key() -> bytes:
    """The key of the user's SCRAM password: it takes milliseconds."""
    password = Secret(PASSWORDS[SCRAM_256][USER])
    return hmac.digest(salted_password(SCRAM_256, password, SALT, 4096), b"Client Key", "sha256")


def proof_of(challenge: bytes) -> bytes:
    """The right final message of SCRAM."""
    without_proof = b"c=biws," + challenge.partition(b",")[0]
    signed = b"n=%s,r=%s,%s,%s" % (USER.encode(), NONCE.encode(), challenge, without_proof)
    signature = hmac.digest(hashlib.sha256(client_key()).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key(), signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def renewing_after_a_proof(line: Line) -> None:
    first = ScramClient(SCRAM_256, USER, Secret(CANARY), NONCE).first()
    for _ in range(2):
        handshake(line, SCRAM_256)
        line.frames()
        authenticate(line, first)
        if not line.is_logged_in():
            answer = line.answer(ApiKey.SASL_AUTHENTICATE, 2)
            authenticate(line, proof_of(bytes(answer.auth_bytes)))


def renewing_with_another_mechanism(line: Line) -> None:
    handshake(line, PLAIN)
    authenticate(line, plain_token())
    handshake(line, SCRAM_512)


STATES: Final[tuple[Callable[[Line], None], ...]] = (
    lambda _line: None,
    versions,
    lambda line: handshake(line, PLAIN),
    lambda line: handshake(line, SCRAM_256),
    lambda line: handshake(line, OAUTHBEARER),
    lambda line: handshake(line, PLAIN, 0),
    challenged,
    raw_challenge,
    bad_token,
    in_a_check,
    in_a_delay,
    renewing,
    renewing_after_a_proof,
    renewing_with_another_mechanism,
)


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if record.levelno >= logging.WARNING or record.exc_info:
            self.errors.append(logging.Formatter().format(record))


class Attack:
    """A scene, and the checks after each input."""

    def __init__(self) -> None:
        self.scene = LoginScene(session_ms=SESSION_MS)
        self.records = Records()
        self.frames = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the log."""
        logger = logging.getLogger("penstock")
        level, propagates = logger.level, logger.propagate
        logger.addHandler(self.records)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        try:
            yield
            self._check_secrets()
        finally:
            logger.removeHandler(self.records)
            logger.setLevel(level)
            logger.propagate = propagates

    def send(self, state: int, data: bytes, piece_bytes: int = 1 << 30) -> None:
        """Send these bytes on a new connection in this state."""
        prepare = STATES[state % len(STATES)]
        self.frames += 1
        if self.frames % SECRET_CHECK_FRAMES == 0:
            self._check_secrets()
        scene = self.scene
        line = scene.connect()
        prepare(line)
        was_proven = line.is_logged_in() and not is_renewing(line)
        assert not was_proven, "no state for a frame that is to be refused"
        scene.reached.clear()
        line.transport.written.clear()
        line.send(data, piece_bytes)
        scene.checks.is_slow = False
        scene.tasks.resume()
        line.deliver(piece_bytes)
        self._check_line(line)
        line.later()
        self._check_line(line)
        if not line.is_closed():
            assert line.is_logged_in(), "a login without an end"
            line.disconnect()
        scene.check_no_failure()
        scene.check_empty()
        assert not self.records.errors, self.records.errors[0]

    def _check_line(self, line: Line) -> None:
        state = self.scene.state
        assert state._unproven_bytes == sum(state._unproven.values())
        assert 0 <= state._unproven_bytes <= UNPROVEN_BYTES_MAX
        if line.is_closed() or is_renewing(line) or not line.is_logged_in():
            others = set(self.scene.reached) - {ApiKey.API_VERSIONS}
            assert not others, f"a client that is not logged in reached {others}"

    def _check_secrets(self) -> None:
        """No record has a secret."""
        text = CLAIMED.sub("", "\n".join(self.records.lines))
        self.records.lines.clear()
        for secret in SECRETS:
            assert secret not in text, f"{secret} in {text}"


def is_renewing(line: Line) -> bool:
    login = line.protocol.session.login
    return login is not None and not login.is_complete


@functools.cache
def attack() -> Attack:
    return Attack()


def fuzz_login_frames(data: bytes) -> None:
    """The first byte chooses the state, the second the size of pieces; the rest is sent."""
    if len(data) < 2:
        return
    with attack().watched():
        attack().send(data[0], data[2:], 1 << 30 if data[1] < 128 else data[1] - 127)


# --- Inputs ---


def head_of(api_key: int, version: int) -> bytes:
    return headers.write_request_head(api_key, version, 7, "fuzz")


@functools.cache
def good_frames() -> tuple[bytes, ...]:
    """Contents of frames of good logins."""
    scram = ScramClient(SCRAM_256, USER, Secret(PASSWORDS[SCRAM_256][USER]), NONCE)
    first = scram.first()
    tokens = (
        plain_token(),
        plain_token(CANARY),
        first,
        first.replace(b"n=alice", b"n=nobody"),
        b"c=biws,r=" + NONCE.encode() + b",p=" + CANARY.encode(),
        BearerClient(Secret(GOOD_TOKEN)).first(),
        BearerClient(Secret(CANARY)).first(),
        b"\x01",
        b"",
    )
    frames = list(tokens)
    for version in range(3):
        head = head_of(ApiKey.SASL_AUTHENTICATE, version)
        frames += (
            head + codec.encode_request(SaslAuthenticateRequest(auth_bytes=token), version)
            for token in tokens
        )
    for mechanism in (PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER, "GSSAPI"):
        message = SaslHandshakeRequest(mechanism=mechanism)
        for version in range(2):
            head = head_of(ApiKey.SASL_HANDSHAKE, version)
            frames.append(head + codec.encode_request(message, version))
    asked = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
    for version in range(5):
        head = head_of(ApiKey.API_VERSIONS, version)
        frames.append(head + codec.encode_request(asked, version))
    return tuple(frames)


def mutated(pick: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(pick.randrange(1, 5)):
        at = pick.randrange(len(data) + 1)
        kind = pick.randrange(6)
        if kind == 0 and data:
            data[at % len(data)] = pick.choice(INTERESTING)
        elif kind == 1 and data:
            data[at % len(data)] ^= 1 << pick.randrange(8)
        elif kind == 2:
            del data[at : at + pick.randrange(1, 17)]
        elif kind == 3:
            data[at:at] = pick.randbytes(pick.randrange(1, 9))
        elif kind == 4:
            data[at:at] = data[at : at + pick.randrange(1, 33)]
        else:
            entries = pick.choice(ENTRIES)
            data[at : at + len(entries)] = entries
    return bytes(data)


def any_request(pick: random.Random) -> bytes:
    """A request of any API: well-formed, with a random body, or of a version that is not served."""
    kind = pick.randrange(4)
    if kind == 0:
        api_key, version = pick.choice(list(zero_bodies()))
        return head_of(api_key, version) + zero_bodies()[api_key, version]
    if kind == 1:
        api_key, version = pick.choice(list(zero_bodies()))
        return head_of(api_key, version) + pick.randbytes(pick.randrange(64))
    if kind == 2:
        api_key, version = pick.choice(list(zero_bodies()))
        return head_of(api_key, version) + pick.choice(ENTRIES) + pick.randbytes(20)
    head = struct.pack(">hhih", pick.randrange(-2, 130), pick.randrange(-2, 20), 7, -1)
    return head + pick.randbytes(pick.randrange(32))


def large(pick: random.Random) -> bytes:
    """A frame at one of the bounds."""
    bounds = (ELEMENTS_ON_LOOP_MAX, HANDSHAKE_FRAME_BYTES_MAX, TOKEN_FRAME_BYTES_MAX)
    (bound,) = pick.choices(bounds, (4, 4, 1))
    size = bound + pick.randrange(-2, 3)
    head = pick.choice(good_frames())
    if pick.randrange(2):
        head = head[: pick.randrange(10, 24)]
    return head + bytes([pick.choice(INTERESTING)]) * max(0, size - len(head))


def stream(pick: random.Random) -> bytes:
    """The bytes of one attempt: mostly one frame, now and then several, or a part of one."""
    kind = pick.randrange(100)
    if kind < 45:
        data = framed(mutated(pick, pick.choice(good_frames())))
    elif kind < 70:
        data = framed(any_request(pick))
    elif kind < 80:
        data = framed(pick.randbytes(pick.randrange(64)))
    elif kind < 90:
        content = pick.choice(good_frames())
        data = struct.pack(">i", pick.choice((*LENGTHS, len(content) + 5))) + content
    elif kind < 92:
        data = framed(large(pick))
    else:
        data = b"".join(framed(pick.choice(good_frames())) for _ in range(pick.randrange(1, 6)))
    return data if pick.randrange(8) else data[: pick.randrange(len(data) + 1)]


CORPUS: Final[dict[str, list[bytes]]] = {
    "fuzz_login_frames": [
        bytes([state, pieces]) + framed(content)
        for state in range(len(STATES))
        for pieces in (0, 131)
        for content in good_frames()
    ]
}


def test_the_corpus_logs_in() -> None:
    """Good frames are good, so that those made of them come far."""
    outcomes = set()
    for content in good_frames():
        line = LoginScene().connect()
        handshake(line, PLAIN)
        line.send(framed(content))
        outcomes.add(line.is_logged_in())
        if content == good_frames()[-1]:
            assert not line.is_logged_in()
    assert outcomes == {False, True}
    assert len(zero_bodies()) > 100


def test_a_handler_that_is_reached_is_a_finding() -> None:
    """The check can fail: with a proven identity every API is reached."""
    scene = LoginScene()
    line = scene.connect()
    handshake(line, PLAIN)
    authenticate(line, plain_token())
    line.frames()
    for (api_key, version), body in zero_bodies().items():
        line.send(framed(head_of(api_key, version) + body))
        assert not line.is_closed()
    assert set(scene.reached) == {key for key, _ in zero_bodies()} - {
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
    assert decoded(ApiKey.API_VERSIONS, 0, line.frames()[0])


@pytest.mark.timeout(60 + FRAMES / 200)
def test_frames_before_the_login() -> None:
    """As many as `PENSTOCK_LOGIN_FRAMES` says, each in a state of its own."""
    pick = random.Random(SEED)
    attacked = Attack()
    begun = time.monotonic()
    with attacked.watched():
        for number in range(FRAMES):
            state = pick.randrange(len(STATES))
            piece_bytes = pick.choice((1 << 30, 1 << 30, 1 << 30, 1, 7))
            data = stream(pick)
            if len(data) > 5_000:
                piece_bytes = 1 << 30
            try:
                attacked.send(state, data, piece_bytes)
            except BaseException:
                print(f"seed {SEED}, frame {number}, state {state}: {data[:200].hex()}")
                raise
    seconds = time.monotonic() - begun
    print(f"frames before the login: {FRAMES} in {seconds:.1f} s, no finding")
