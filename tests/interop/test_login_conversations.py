"""Logins over sockets: the same answers from Apache Kafka and from Penstock, and the same ends.

The golden conversations of `tests.security.sasl` are carried on with a running Penstock; Kafka is
held against them there. What only a socket shows is here and runs on both: bytes in pieces, frames
sent before their turn, requests of every API.
"""

import random
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from penstock.protocol import headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.response_errors import error_codes
from tests.interop.login_cases import (
    AUTHENTICATE,
    CLOSED,
    GROUPS,
    HANDSHAKE,
    ON_BOTH,
    OPEN,
    VERSIONS,
    Brokers,
    Known,
    authenticate,
    groups,
    handshake,
    outcome,
    versions,
)
from tests.interop.login_wire import LoginWire, answered
from tests.oracle.secured_kafka import SCRAM_512
from tests.oracle.secured_penstock import SecuredBroker
from tests.protocol.zero_bodies import zero_bodies
from tests.security.sasl.conversations import CONVERSATIONS, ENDLESS, Talk, held
from tests.security.sasl.golden import GOLDEN, KAFKA, PENSTOCK, read_golden

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

CUTS = 40
CUTS_SEED = 4
THREADS = 8
LARGEST_BYTES = 524_288
"""Kafka's sasl.server.max.receive.size."""
OURS: dict[str, list[str]] = {
    # A client that does not know the version needs the list of all APIs, not of one.
    "unknown_version_of_versions": [
        "ApiVersions v99 -> 35, all APIs",
        "ApiVersions v98 -> 35, all APIs",
        "ApiVersions v3 -> 0, all APIs",
        "SaslHandshake v1 PLAIN -> 0, [OAUTHBEARER PLAIN SCRAM-SHA-256 SCRAM-SHA-512]",
        "SaslAuthenticate v2 -> 0, '', 60000 ms, no token",
    ],
    # Raw tokens between answers of other requests have no correlation id.
    "renewal_with_raw_tokens": [
        "SaslHandshake v1 PLAIN -> 0, [OAUTHBEARER PLAIN SCRAM-SHA-256 SCRAM-SHA-512]",
        "SaslAuthenticate v2 -> 0, '', 60000 ms, no token",
        "SaslHandshake v0 PLAIN -> 34, []",
        "token -> closed",
    ],
}
"""Conversations of a whole broker that differ from Kafka's, beside those of the exchange."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with ExitStack() as stack:
        made = Brokers(stack, tmp_path_factory)
        yield made
        made.check_logs()


# --- The golden conversations ---


@pytest.fixture(scope="module")
def carried_on(brokers: Brokers) -> dict[str, list[str]]:
    """The lines of all conversations, held at the same time: some wait for seconds."""

    def carry(name: str) -> list[str]:
        broker = brokers.named("penstock") if name in ENDLESS else brokers.golden()
        with LoginWire(broker) as wire:
            return held(wire, name)

    brokers.named("penstock"), brokers.golden()
    with ThreadPoolExecutor(THREADS) as threads:
        return dict(zip(CONVERSATIONS, threads.map(carry, CONVERSATIONS), strict=True))


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_penstock_carries_on_as_recorded(
    carried_on: dict[str, list[str]], conversation: str
) -> None:
    golden = read_golden(GOLDEN)[conversation]
    expected = golden.get(PENSTOCK, golden[KAFKA])
    if conversation in OURS:
        assert OURS[conversation] != expected, "no difference any more: remove it from the list"
        expected = OURS[conversation]
    assert carried_on[conversation] == expected


LOGIN = (VERSIONS, HANDSHAKE, AUTHENTICATE, GROUPS)
LOGGED_IN = [(1, 0), (2, 0), (3, 0), (4, 0), OPEN]


def whole_login() -> bytes:
    return versions(1) + handshake(number=2) + authenticate(number=3) + groups(4)


# --- Pieces ---


@ON_BOTH
def test_a_login_may_be_cut_anywhere(brokers: Brokers, name: str) -> None:
    """A sample of all places, two pieces each: what is in the second is sent later."""
    broker, data = brokers.named(name), whole_login()
    pick = random.Random(CUTS_SEED)
    places = sorted(pick.sample(range(1, len(data)), CUTS))

    def login(place: int) -> tuple[int, list[tuple[int, int] | str]]:
        with LoginWire(broker) as wire:
            wire.send_bytes(data, (place,))
            return place, outcome(wire, *LOGIN)

    with ThreadPoolExecutor(THREADS) as threads:
        for place, found in threads.map(login, places):
            assert found == LOGGED_IN, f"cut at {place}"


@ON_BOTH
def test_a_login_may_come_byte_by_byte(brokers: Brokers, name: str) -> None:
    data = whole_login()
    with LoginWire(brokers.named(name)) as wire:
        wire.send_bytes(data, range(1, len(data)))
        assert outcome(wire, *LOGIN) == LOGGED_IN


@ON_BOTH
def test_a_scram_login_may_be_cut_anywhere(brokers: Brokers, name: str) -> None:
    """Each frame in three pieces, at seeded places."""
    pick = random.Random(CUTS_SEED)

    class Cutting(LoginWire):
        def send(self, frame: bytes) -> None:
            data = struct.pack(">i", len(frame)) + frame
            self.send_bytes(data, pick.sample(range(1, len(data)), 2))

    for _ in range(10):
        with Cutting(brokers.named(name)) as wire:
            talk = Talk(wire)
            talk.login(SCRAM_512)
            talk.groups()
            assert talk.lines[-1] == "ListGroups v4 -> 0"


@ON_BOTH
def test_a_login_may_end_anywhere(brokers: Brokers, name: str) -> None:
    """With and without a farewell; afterwards the broker serves as before."""
    broker, data = brokers.named(name), whole_login()
    pick = random.Random(CUTS_SEED)
    for number, place in enumerate(sorted(pick.sample(range(len(data)), CUTS))):
        wire = LoginWire(broker)
        wire.send_bytes(data[:place])
        (wire.reset if number % 2 else wire.close)()
    with LoginWire(broker) as wire:
        wire.send_bytes(data)
        assert outcome(wire, *LOGIN) == LOGGED_IN


# --- Frames before their turn ---


@ON_BOTH
@pytest.mark.parametrize(
    ("sent", "answers", "expected"),
    [
        pytest.param(whole_login, LOGIN, LOGGED_IN, id="a whole login at once"),
        pytest.param(
            lambda: handshake(number=1) + authenticate(number=2) + groups(3) * 20,
            (HANDSHAKE, AUTHENTICATE, *[GROUPS] * 20),
            [(1, 0), (2, 0), *[(3, 0)] * 20, OPEN],
            id="requests behind the last token",
        ),
        pytest.param(
            lambda: handshake(number=1) + groups(2) + authenticate(number=3) + groups(4),
            (HANDSHAKE, GROUPS, AUTHENTICATE),
            [(1, 0), (2, 34), CLOSED],
            id="a request behind the handshake",
        ),
        pytest.param(
            lambda: groups(1) + handshake(number=2),
            (GROUPS,),
            [CLOSED],
            id="a request before the handshake",
        ),
        pytest.param(
            lambda: versions(1) + versions(2) + handshake(number=3),
            (VERSIONS, VERSIONS),
            [(1, 0), CLOSED],
            id="versions twice",
        ),
        pytest.param(
            lambda: handshake("GSSAPI", 1) + handshake(number=2),
            (HANDSHAKE, HANDSHAKE),
            [(1, 33), CLOSED],
            id="another mechanism behind an unknown one",
        ),
        pytest.param(
            lambda: handshake(number=1) + handshake(number=2) + authenticate(number=3),
            (HANDSHAKE, HANDSHAKE, AUTHENTICATE),
            [(1, 0), (2, 34), CLOSED],
            id="handshake twice",
        ),
        pytest.param(
            lambda: handshake(number=1) + authenticate("wrong", 2) + groups(3) * 5,
            (HANDSHAKE, AUTHENTICATE, GROUPS),
            [(1, 0), (2, 58), CLOSED],
            id="requests behind a wrong password",
        ),
        pytest.param(
            lambda: handshake(number=1) + authenticate("wrong", 2) + authenticate(number=3),
            (HANDSHAKE, AUTHENTICATE, AUTHENTICATE),
            [(1, 0), (2, 58), CLOSED],
            id="a second attempt",
        ),
        pytest.param(
            lambda: (
                handshake(number=1)
                + authenticate(number=2)
                + authenticate(number=3)
                + handshake(number=4)
                + groups(5)
            ),
            (HANDSHAKE, AUTHENTICATE, AUTHENTICATE, HANDSHAKE, GROUPS),
            [(1, 0), (2, 0), (3, 34), (4, 34), (5, 0), OPEN],
            id="a login behind a login",
        ),
    ],
)
def test_frames_before_their_turn(
    brokers: Brokers,
    name: str,
    sent: Callable[[], bytes],
    answers: tuple[Known, ...],
    expected: list[tuple[int, int] | str],
) -> None:
    with LoginWire(brokers.named(name)) as wire:
        wire.send_bytes(sent())
        assert outcome(wire, *answers) == expected


# --- Bytes that are no login ---


@ON_BOTH
@pytest.mark.parametrize("is_chosen", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", -(2**31)),
        struct.pack(">i", LARGEST_BYTES + 1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 0),
        struct.pack(">ib", 1, 0),
        struct.pack(">ihhih", 10, ApiKey.SASL_HANDSHAKE, 2, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.SASL_HANDSHAKE, -1, 1, -1),
        struct.pack(">ihhih", 10, ApiKey.SASL_AUTHENTICATE, 3, 1, -1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, -1, 0, 1, -1),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=lambda data: data.hex(),
)
def test_bytes_that_are_no_login_are_not_answered(
    brokers: Brokers, name: str, data: bytes, is_chosen: bool
) -> None:
    with LoginWire(brokers.named(name)) as wire:
        if is_chosen:
            wire.send_bytes(handshake())
            assert wire.receive() is not None
        wire.send_bytes(data)
        assert wire.receive() is None


def asked(broker: SecuredBroker, api_key: int, version: int, *, is_chosen: bool) -> str:
    """The end of a connection that sends an empty request of this API in the middle of a login."""
    with LoginWire(broker) as wire:
        if is_chosen:
            wire.send_bytes(handshake())
            assert wire.receive() is not None
        head = headers.write_request_head(api_key, version, 9, "conversation")
        wire.send(head + zero_bodies()[api_key, version])
        answer = answered(wire.receive(), api_key, version)
        if answer is None:
            return CLOSED
        codes = sorted({int(code) for code in error_codes(answer[1])})
        assert wire.receive() is None
        return f"{answer[0]}: {codes}"


LOGIN_APIS = (ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE)
SELDOM_ANSWERED = (
    # Kafka reads the enumerations in these, for which zero is no value, and closes.
    ApiKey.DESCRIBE_ACLS,
    ApiKey.DELETE_ACLS,
    # A null list of users is no empty one.
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    # Penstock does not read acks, which say whether there is an answer.
    ApiKey.PRODUCE,
)


@ON_BOTH
@pytest.mark.parametrize("is_chosen", [False, True])
def test_no_other_api_is_served(brokers: Brokers, name: str, is_chosen: bool) -> None:
    """Before the handshake they are not answered; after it they are refused, then closed."""
    broker = brokers.named(name)
    wanted = [one for one in zero_bodies() if one[0] not in LOGIN_APIS]
    if is_chosen:
        wanted = [one for one in wanted if one[0] not in SELDOM_ANSWERED]
    assert len(wanted) > 100

    def ask(one: tuple[int, int]) -> str:
        return asked(broker, *one, is_chosen=is_chosen)

    with ThreadPoolExecutor(THREADS) as threads:
        found = dict(zip(wanted, threads.map(ask, wanted), strict=True))
    if not is_chosen:
        assert set(found.values()) == {CLOSED}
        return
    unusual = {one: text for one, text in found.items() if text != "9: [34]"}
    assert set(unusual.values()) == {"9: []"}, "an API without a code of the whole answer"
    assert ApiKey.HEARTBEAT not in {api_key for api_key, _ in unusual}
    assert (ApiKey.LIST_OFFSETS, 1) in unusual


@ON_BOTH
def test_a_failed_login_is_answered_after_a_delay(brokers: Brokers, name: str) -> None:
    with LoginWire(brokers.named(name)) as wire:
        begun = time.monotonic()
        wire.send_bytes(handshake() + authenticate("wrong"))
        assert outcome(wire, HANDSHAKE, AUTHENTICATE) == [(7, 0), (7, 58), CLOSED]
        assert time.monotonic() - begun >= 0.1
