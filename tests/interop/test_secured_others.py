"""Six clients of others on secured brokers: credentials that are right, wrong or past.

A client with the right credential writes and reads 100 records; one with another gets its own error
of a failed login, and writes nothing. Each test runs on Apache Kafka and on Penstock, with one list
of errors for both: equal outcomes are the pass. `REFUSALS` is that list; where a client does not
report a failed login as one, it says so. Sessions that end are in `test_secured_sessions`.

A Penstock serves one client only: a broker delays the answers to an address that fails often.
"""

import dataclasses
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from tests.interop.client_drivers import CLIENTS, DriverError, DriverProcess
from tests.interop.driver_protocol import Fetch, Produce, Record, Security
from tests.interop.secured_settings import driver_security
from tests.oracle.certificates import EXPIRED, CertificateAuthority, Identity, rsa_key
from tests.oracle.secured_brokers import BROKERS, secured_broker
from tests.oracle.secured_kafka import (
    MECHANISMS,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    PLAIN,
    PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    SCRAM_512,
    SSL,
    USER,
)
from tests.oracle.secured_penstock import SecuredBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

RECORDS = tuple(Record(partition=0, value=b"%d" % number) for number in range(100))
ANSWER_SECONDS = 20.0
MUTUAL_TLS = "mTLS"
WAYS = (*MECHANISMS, MUTUAL_TLS)
"""Every client has all of them: no cell is left out."""
CREDENTIALS = ("right", "wrong", "past")
"""A past one has expired: a token or a certificate; a password is that of a removed user."""

CASES = [
    (name, client, way, credential)
    for name in BROKERS
    for client in CLIENTS
    for way in WAYS
    for credential in CREDENTIALS
]


@dataclasses.dataclass(frozen=True)
class Refusals:
    """The kinds of errors of one client, by what was wrong."""

    password: tuple[str, ...]
    token: tuple[str, ...]
    certificate: tuple[str, ...]
    ways_with_text: tuple[str, ...] = ()
    """Mechanisms whose error has the broker's text."""

    def of(self, way: str) -> tuple[str, ...]:
        """The kinds that this client has for a failed login of this kind."""
        return {OAUTHBEARER: self.token, MUTUAL_TLS: self.certificate}.get(way, self.password)


REFUSALS = {
    "confluent-kafka": Refusals(
        ("_AUTHENTICATION",),
        ("_AUTHENTICATION",),
        # With TLS 1.3 the alert comes after the client's handshake.
        ("_TRANSPORT",),
        MECHANISMS,
    ),
    "java": Refusals(
        ("SaslAuthenticationException",),
        ("SaslAuthenticationException",),
        ("SslAuthenticationException",),
        MECHANISMS,
    ),
    "franz-go": Refusals(
        ("SASL_AUTHENTICATION_FAILED",),
        # It ends at the refusal in JSON, before the broker's error.
        ("*errors.errorString",),
        ("*tls.permanentError",),
        PASSWORD_MECHANISMS,
    ),
    "kafkajs": Refusals(
        ("KafkaJSSASLAuthenticationError",),
        # It takes the refusal in JSON for success, and its first request ends the connection.
        ("KafkaJSConnectionClosedError",),
        ("KafkaJSConnectionError",),
        PASSWORD_MECHANISMS,
    ),
    "aiokafka": Refusals(
        ("SaslAuthenticationFailed",),
        # It takes the refusal in JSON for success, and then waits for brokers without an end.
        ("TimeoutError",),
        ("KafkaConnectionError",),
    ),
    # It discards an answer that arrives together with the end of the connection.
    "kafka-python": Refusals(
        ("SaslAuthenticationFailedError", "KafkaConnectionError"),
        ("SaslAuthenticationFailedError", "KafkaConnectionError"),
        ("KafkaConnectionError",),
    ),
}

INVALID = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism"
)
TEXTS = {
    PLAIN: "Authentication failed: Invalid username or password",
    SCRAM_256: f"{INVALID} {SCRAM_256}",
    SCRAM_512: f"{INVALID} {SCRAM_512}",
    OAUTHBEARER: '{"status":"invalid_token"}',
}
"""What a broker answers; it does not say whether there is such a user."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A broker, and one client's driver that was started on its PLAINTEXT listener."""

    broker: SecuredBroker
    driver: DriverProcess
    stranger: Identity
    """A certificate of an authority that the broker does not know."""
    admin: AdminClient

    def security(self, way: str, credential: str) -> Security:
        """The settings of a client."""
        if way == MUTUAL_TLS:
            return driver_security(self.broker, SSL, identity=self._identity(credential))
        if way == OAUTHBEARER:
            return driver_security(self.broker, SASL_SSL, way, token=self._token(credential))
        user, password = self._user(way, credential)
        return driver_security(self.broker, SASL_SSL, way, user=user, password=password)

    def _identity(self, credential: str) -> Identity:
        if credential == "past":
            return self.broker.authority.client(validity=EXPIRED)
        return self.broker.client if credential == "right" else self.stranger

    def _token(self, credential: str) -> str:
        if credential == "past":
            return self.broker.tokens.token(lifetime_seconds=-3600)
        return self.broker.tokens.token(key=None if credential == "right" else rsa_key())

    def _user(self, mechanism: str, credential: str) -> tuple[str, str]:
        if credential == "past":
            return self.broker.removed_user(mechanism)
        return USER, self.broker.password(mechanism) if credential == "right" else "wrong"

    def create_topic(self, topic: str) -> None:
        """Create it on the listener without a login, and wait until the broker knows it.

        Kafka's broker learns of a topic a moment after its controller has created it.
        """
        self.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(ANSWER_SECONDS)
        deadline = time.monotonic() + ANSWER_SECONDS
        while not self.admin.list_topics(topic, ANSWER_SECONDS).topics[topic].partitions:
            assert time.monotonic() < deadline, f"the broker does not know the topic {topic}"
            time.sleep(0.02)

    def end_offset(self, topic: str) -> int:
        """How many records the topic has."""
        place = TopicPartition(topic, 0)
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        found = self.admin.list_offsets({place: newest})[place]
        return int(found.result(ANSWER_SECONDS).offset)


class Stages:
    """The stage of the last broker and client; one Kafka for all clients, a Penstock for each."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._stack = ExitStack()
        self._client_stack = ExitStack()
        self._kafka: SecuredBroker | None = None
        self._key = ("", "")
        self._stage: Stage | None = None

    def of(self, name: str, client: str) -> Stage:
        """The stage of this broker and this client; another one is ended."""
        if self._stage is None or self._key != (name, client):
            self._client_stack.close()
            self._key = (name, client)
            self._stage = self._open(name, client)
        return self._stage

    def _open(self, name: str, client: str) -> Stage:
        broker = self._broker(name)
        driver = DriverProcess(client, broker.bootstrap(PLAINTEXT))
        self._client_stack.callback(driver.close)
        stranger = CertificateAuthority(self._folder("others")).client()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap(PLAINTEXT), "log_level": 0})
        return Stage(broker, driver, stranger, admin)

    def _broker(self, name: str) -> SecuredBroker:
        if name == "penstock":
            started = self._client_stack.enter_context(self._secured(name))
            self._client_stack.callback(check_log, started)
            return started
        if self._kafka is None:
            self._kafka = self._stack.enter_context(self._secured(name))
        return self._kafka

    def _secured(self, name: str) -> AbstractContextManager[SecuredBroker]:
        return secured_broker(name, self._folder(name))

    def _folder(self, name: str) -> Path:
        return self._factory.mktemp(name)

    def close(self) -> None:
        """End all of them."""
        self._client_stack.close()
        self._stack.close()


def check_log(broker: SecuredBroker) -> None:
    """The broker met no unexpected error."""
    text = broker.broker.log_text()
    assert " ERROR " not in text
    assert "Traceback" not in text


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    made = Stages(tmp_path_factory)
    yield made
    made.close()


@pytest.mark.parametrize(("name", "client", "way", "credential"), CASES)
def test_a_client_logs_in_or_says_why_not(
    stages: Stages, name: str, client: str, way: str, credential: str
) -> None:
    stage = stages.of(name, client)
    topic = f"{client}-{way}-{credential}"
    stage.create_topic(topic)
    stage.driver.secure(stage.security(way, credential))
    if credential == "right":
        assert len(stage.driver.produce(Produce(topic, RECORDS))) == len(RECORDS)
        found = stage.driver.fetch(Fetch(topic, 0, "earliest", len(RECORDS)))
        assert [record.value for record in found] == [record.value for record in RECORDS]
        return
    with pytest.raises(DriverError) as raised:
        stage.driver.produce(Produce(topic, RECORDS))
    refusals, error = REFUSALS[client], raised.value.error
    assert error.kind in refusals.of(way)
    if way in refusals.ways_with_text:
        assert TEXTS[way] in error.message
    assert stage.end_offset(topic) == 0


def test_every_client_has_its_errors() -> None:
    assert set(REFUSALS) == set(CLIENTS)
