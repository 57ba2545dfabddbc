"""Six clients of others whose sessions end: what each of them does, and that it loses nothing.

A session ends when the broker's time for it is over, or when its token expires. A client renews its
session in time, or its connection is ended and it opens another. In both cases it reads each record
once. `AT_THE_END` says which client does what; a client does the same with every mechanism. Each
test runs on Apache Kafka and on Penstock, with one table for both: equal outcomes are the pass.

A connection with a client certificate has no session: it goes on when the certificate expires. The
next connection is refused (`test_secured_others`).

A client with no new token when the old one expires reads no more. The broker accepts an old token
for the tolerated difference of clocks, 30 seconds, but the session of such a login is over at once.
"""

from collections.abc import Iterator

import pytest

from tests.interop.client_drivers import CLIENTS
from tests.interop.session_rounds import (
    ENDING_TOKEN,
    MUTUAL_TLS,
    TICK_SECONDS,
    TOKEN_SECONDS,
    Round,
    Sessions,
    sessions_on,
)
from tests.oracle.secured_brokers import BROKERS
from tests.oracle.secured_kafka import MECHANISMS

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

RENEWS = "renews its session"
CONNECTS_AGAIN = "connects again"

AT_THE_END = {
    "confluent-kafka": RENEWS,
    "java": RENEWS,
    "kafka-python": RENEWS,
    # Ten seconds before the end, unless `reauthenticationThreshold` is less, as in the driver.
    "kafkajs": RENEWS,
    "franz-go": RENEWS,
    # It has no renewals: the broker ends its connection.
    "aiokafka": CONNECTS_AGAIN,
}

RENEWING = [client for client, at_the_end in AT_THE_END.items() if at_the_end == RENEWS]

READS_NO_MORE = ""
"""It tries again for as long as it may, without an error."""

WITHOUT_NEW_TOKEN = {
    # Its second renewal comes within a second of the first one, which a broker refuses.
    "confluent-kafka": ("_AUTHENTICATION",),
    # The same, or the session was over before it: that depends on the part of a second left.
    "kafkajs": ("ILLEGAL_SASL_STATE", "KafkaJSConnectionClosedError"),
    "java": ("IllegalSaslStateException", READS_NO_MORE),
    "kafka-python": (READS_NO_MORE,),
    "aiokafka": (READS_NO_MORE,),
    "franz-go": (READS_NO_MORE,),
}

GRACE_SECONDS = 1.0
"""A request at the end of a session is answered on Kafka, also after a wait."""

EVERY_CLIENT = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture(scope="module", params=BROKERS)
def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sessions]:
    with sessions_on(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started
        if request.param == "penstock":
            text = started.broker.broker.log_text()
            assert " ERROR " not in text
            assert "Traceback" not in text


def is_clear(done: Round) -> bool:
    """Whether the clients that renew their sessions opened no connection."""
    return not any(done.readings[client].opened for client in RENEWING)


def is_quiet(done: Round) -> bool:
    """Whether no client opened a connection."""
    return not any(reading.opened for reading in done.readings.values())


def check_values(rounds: list[Round], client: str) -> list[Round]:
    """It read each record once, in order, and all of each round that was not disturbed.

    Returns those rounds.
    """
    for done in rounds:
        values = done.readings[client].values
        assert values == tuple(range(len(values)))
    undisturbed = [done for done in rounds if not done.is_disturbed]
    assert undisturbed, [f"{done.disturbed_seconds:.1f} s" for done in rounds]
    for done in undisturbed:
        reading = done.readings[client]
        assert reading.error == ""
        assert len(reading.values) == done.count
    return undisturbed


@EVERY_CLIENT
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_reads_on_beyond_its_session(
    sessions: Sessions, mechanism: str, client: str
) -> None:
    rounds = check_values(sessions.of(mechanism, is_clear), client)
    opened = [done.readings[client].opened for done in rounds]
    if AT_THE_END[client] == RENEWS:
        # Sessions are shorter than rounds: without a renewal there is a new connection in each.
        assert min(opened) == 0, opened
    else:
        assert min(opened) > 0, opened


@EVERY_CLIENT
def test_a_certificate_that_expires_ends_no_connection(sessions: Sessions, client: str) -> None:
    rounds = check_values(sessions.of(MUTUAL_TLS, is_quiet), client)
    assert min(done.readings[client].opened for done in rounds) == 0


@EVERY_CLIENT
def test_a_client_without_a_new_token_reads_no_more(sessions: Sessions, client: str) -> None:
    *_, done = sessions.of(ENDING_TOKEN)
    assert not done.is_disturbed, f"{done.disturbed_seconds:.1f} s"
    reading = done.readings[client]
    assert reading.error in WITHOUT_NEW_TOKEN[client]
    # Those before the end, none twice, none left out.
    assert reading.values == tuple(range(len(reading.values)))
    last = round((TOKEN_SECONDS + GRACE_SECONDS) / TICK_SECONDS)
    assert len(reading.values) <= last < done.count
    if reading.error == READS_NO_MORE:
        assert reading.values, "it never read"


def test_every_client_has_its_row() -> None:
    assert set(AT_THE_END) == set(WITHOUT_NEW_TOKEN) == set(CLIENTS)
