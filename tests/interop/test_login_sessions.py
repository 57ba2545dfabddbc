"""Sessions with an end, and renewals: the same answers and ends from Apache Kafka and Penstock.

At the end are the places where Penstock differs on purpose.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.response_errors import error_codes
from tests.interop.login_cases import (
    AUTHENTICATE,
    CLOSED,
    GROUPS,
    HANDSHAKE,
    ON_BOTH,
    SHORT_MS,
    Brokers,
    groups,
    handshake,
    outcome,
    versions,
)
from tests.interop.login_wire import LoginWire, answered, request_bytes
from tests.oracle.secured_kafka import PLAIN, PLAINTEXT, SCRAM_256, USER
from tests.security.sasl.conversations import ClosedError, Talk

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

TOPIC = "empty"
FETCH = (ApiKey.FETCH, 12)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with ExitStack() as stack:
        made = Brokers(stack, tmp_path_factory)
        yield made
        made.check_logs()


# --- Sessions that end ---


@contextmanager
def session(brokers: Brokers, name: str) -> Iterator[Talk]:
    """A client that has logged in and whose session ends after `SHORT_MS`."""
    with LoginWire(brokers.short(name)) as wire:
        talk = Talk(wire)
        talk.login(SCRAM_256)
        talk.lines.clear()
        yield talk


def lines(talk: Talk, *steps: Callable[[Talk], None]) -> list[str]:
    try:
        for step in steps:
            step(talk)
    except ClosedError:
        pass
    return talk.lines


def after_the_end(talk: Talk) -> None:
    talk.wait(SHORT_MS / 1000 + 0.5)


CHALLENGED = "SaslAuthenticate v2 -> 0, '', 0 ms, challenge i=4096"
RENEWED = [
    "SaslHandshake v1 SCRAM-SHA-256 -> 0, [OAUTHBEARER PLAIN SCRAM-SHA-256 SCRAM-SHA-512]",
    CHALLENGED,
    "SaslAuthenticate v2 -> 0, '', about 0 s, signature",
]
"""The lifetime of the session is not a multiple of ten seconds."""


@ON_BOTH
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param(
            (Talk.groups, after_the_end, Talk.groups),
            ["ListGroups v4 -> 0", "ListGroups v4 -> closed"],
            id="a request after the end",
        ),
        pytest.param(
            (after_the_end, Talk.versions),
            ["ApiVersions v3 -> closed"],
            id="versions after the end",
        ),
        pytest.param(
            (after_the_end, lambda talk: talk.authenticate(b"x")),
            ["SaslAuthenticate v2 -> closed"],
            id="a token after the end",
        ),
        pytest.param(
            (after_the_end, lambda talk: talk.login(SCRAM_256), Talk.groups),
            [*RENEWED, "ListGroups v4 -> 0"],
            id="a renewal after the end",
        ),
        pytest.param(
            (
                after_the_end,
                lambda talk: talk.login(SCRAM_256),
                lambda talk: talk.handshake(SCRAM_256),
                Talk.groups,
            ),
            [*RENEWED, "SaslHandshake v1 SCRAM-SHA-256 -> 34, []", "ListGroups v4 -> 0"],
            id="a second renewal within a second",
        ),
        pytest.param(
            (
                after_the_end,
                lambda talk: talk.handshake(PLAIN),
                lambda talk: talk.authenticate(b""),
            ),
            [RENEWED[0].replace("v1 SCRAM-SHA-256", "v1 PLAIN"), "SaslAuthenticate v2 -> closed"],
            id="another mechanism after the end",
        ),
        pytest.param(
            (lambda talk: talk.handshake("GSSAPI"),),
            ["SaslHandshake v1 -> closed"],
            id="an unknown mechanism",
        ),
    ],
)
def test_a_session_ends(
    brokers: Brokers, name: str, steps: tuple[Callable[[Talk], None], ...], expected: list[str]
) -> None:
    with session(brokers, name) as talk:
        assert lines(talk, *steps) == expected


@ON_BOTH
def test_many_sessions_one_after_the_other(brokers: Brokers, name: str) -> None:
    with session(brokers, name) as talk:
        for _ in range(4):
            talk.wait(1.05)
            talk.login(SCRAM_256)
            talk.groups()
        assert talk.lines == [*RENEWED, "ListGroups v4 -> 0"] * 4


@ON_BOTH
def test_requests_around_a_renewal_are_answered_in_order(brokers: Brokers, name: str) -> None:
    """Those before it with the old session, those behind it with the new one."""
    with LoginWire(brokers.short(name)) as wire:
        Talk(wire).login(SCRAM_256)
        wire.send_bytes(groups(1) + groups(2) + handshake(SCRAM_256, 3) + groups(4))
        expected = [(1, 0), (2, 0), (3, 0), (4, 34), CLOSED]
        assert outcome(wire, GROUPS, GROUPS, HANDSHAKE, GROUPS) == expected


# --- Ours ---


def fetch(wait_ms: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topic = FetchTopic(topic=TOPIC, topic_id=None, partitions=(partition,))
    return request_bytes(FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=(topic,)), 12)


def wait_for_topic(wire: LoginWire) -> None:
    """Kafka's broker learns of a topic a moment after its controller has created it."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        wire.send_bytes(fetch(0))
        answer = answered(wire.receive(), *FETCH)
        if answer is not None and not error_codes(answer[1]):
            return
    raise AssertionError("the topic is not there")


@ON_BOTH
def test_a_fetch_that_waits_at_the_end_of_its_session(brokers: Brokers, name: str) -> None:
    """Kafka lets it wait for as long as its client wants; here it ends with the session."""
    wait_ms = SHORT_MS * 3
    broker = brokers.short(name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap(PLAINTEXT)})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(10)
    with LoginWire(broker, PLAINTEXT) as other:
        wait_for_topic(other)
    with session(brokers, name) as talk:
        wire = talk.wire
        assert isinstance(wire, LoginWire)
        begun = time.monotonic()
        wire.send_bytes(fetch(wait_ms))
        answer = answered(wire.receive(), *FETCH)
        seconds = time.monotonic() - begun
        assert answer is not None
        if name == "kafka":
            assert seconds > wait_ms / 1000 - 0.1
        else:
            assert SHORT_MS / 1000 - 0.5 < seconds < wait_ms / 1000 - 1
        assert lines(talk, Talk.groups) == ["ListGroups v4 -> closed"]


def test_frames_before_the_handshake_are_small(brokers: Brokers) -> None:
    """Kafka accepts 512 KiB of anything; a client that is not logged in gets 16 KiB here."""
    for name, size, expected in (
        ("penstock", 16_384, True),
        ("penstock", 16_385, False),
        ("kafka", 16_385, True),
    ):
        with LoginWire(brokers.named(name)) as wire:
            content = versions()[4:]
            wire.send(content + bytes(size - len(content)))
            assert (wire.receive() is not None) == expected, (name, size)


def test_unknown_users_look_like_known_ones(brokers: Brokers) -> None:
    """The same salt each time, another one for each user, and the failure comes with the proof."""
    seen: dict[str, set[bytes]] = {}
    for user, _ in itertools.product(("nobody", "somebody", USER), range(3)):
        with LoginWire(brokers.named("penstock")) as wire:
            wire.send_bytes(handshake(SCRAM_256))
            assert wire.receive() is not None
            first = f"n,,n={user},r=abc".encode()
            wire.send_bytes(request_bytes(SaslAuthenticateRequest(auth_bytes=first), 2))
            answer = answered(wire.receive(), *AUTHENTICATE)
            assert answer is not None
            token = getattr(answer[1], "auth_bytes", b"")
            seen.setdefault(user, set()).add(bytes(token).split(b",")[1])
    assert [len(salts) for salts in seen.values()] == [1, 1, 1]
    assert len(set.union(*seen.values())) == 3
