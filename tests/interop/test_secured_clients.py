"""Penstock's own clients on a secured broker: TLS, client certificates, every mechanism.

Both transports; right and wrong credentials; sessions that are renewed under load. Each test runs
on Apache Kafka and on Penstock. Commands are in `test_secured_commands`.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.async_cluster import AsyncCluster
from penstock.client.calls import NewTopic
from penstock.client.opening import open_cluster
from penstock.client.records.positions import parse_start
from penstock.client.records.topic_reader import TopicReader
from penstock.client.records.topic_writer import TopicWriter
from penstock.client.transport import blocking, connection
from penstock.client.transport.addresses import Address
from penstock.client.transport.options import ClientOptions, parse_client_options
from penstock.core.errors import (
    AnswerLostError,
    AuthenticationError,
    BrokerUnreachableError,
    ClientError,
    TlsHandshakeError,
)
from tests.interop.secured_settings import own_settings
from tests.oracle.certificates import CertificateAuthority
from tests.oracle.secured_brokers import BROKERS, secured_broker
from tests.oracle.secured_kafka import (
    HARD_USER,
    MECHANISMS,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    PLAIN,
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_PROTOCOLS,
    SASL_SSL,
    SCRAM_256,
    SCRAM_512,
    SSL,
)
from tests.oracle.secured_penstock import SecuredBroker

pytestmark = pytest.mark.interop

SESSION_MS = 2_000
SESSIONS = int(os.environ.get("PENSTOCK_SESSIONS", "6"))
"""`make proof` renews 100."""


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with secured_broker(
        request.param,
        tmp_path_factory.mktemp(request.param),
        reauthentication_ms={SASL_PLAINTEXT: SESSION_MS},
    ) as running:
        yield running


def carry_blocking(options: ClientOptions) -> int:
    with open_cluster(options, repeats_first_contact=False) as cluster:
        return len(cluster.brokers())


def carry_async(options: ClientOptions) -> int:
    async def scenario() -> int:
        async def connect(address: Address) -> connection.AsyncConnection:
            return await connection.connect(address, timeout_seconds=10, security=options.security)

        async with AsyncCluster(options.bootstrap, connect, timeout_seconds=10) as cluster:
            await cluster.describe(None)
            return 1

    return asyncio.run(scenario())


Carry = Callable[[ClientOptions], int]
CARRIERS = pytest.mark.parametrize("carry", [carry_blocking, carry_async])
EVERY_LOGIN = pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [(protocol, mechanism) for protocol in SASL_PROTOCOLS for mechanism in MECHANISMS],
)


@CARRIERS
@EVERY_LOGIN
def test_the_right_credential_is_accepted(
    broker: SecuredBroker, protocol: str, mechanism: str, carry: Carry
) -> None:
    options = parse_client_options(own_settings(broker, protocol, mechanism))
    assert carry(options) == 1


@CARRIERS
@EVERY_LOGIN
def test_a_wrong_credential_is_refused_at_once(
    broker: SecuredBroker, protocol: str, mechanism: str, carry: Carry
) -> None:
    wrong = own_settings(broker, protocol, mechanism)
    name = "sasl.oauthbearer.client.secret" if mechanism == OAUTHBEARER else "sasl.password"
    wrong[name] = "canary-wrong"
    begun = time.monotonic()
    with pytest.raises(AuthenticationError, match="refused") as raised:
        carry(parse_client_options(wrong))
    assert time.monotonic() - begun < 8, "it was retried"
    assert raised.value.hint
    assert "canary" not in f"{raised.value}{raised.value.hint}"


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_names_and_passwords_with_any_sign(broker: SecuredBroker, mechanism: str) -> None:
    chosen = own_settings(broker, SASL_SSL, mechanism, HARD_USER)
    assert carry_blocking(parse_client_options(chosen)) == 1


@CARRIERS
def test_an_expired_token_is_refused(broker: SecuredBroker, carry: Carry) -> None:
    broker.tokens.lifetime_seconds, before = -60, broker.tokens.lifetime_seconds
    try:
        chosen = own_settings(broker, SASL_SSL, OAUTHBEARER)
        chosen["sasl.oauthbearer.scope"] = f"expired-{id(carry)}"
        with pytest.raises(AuthenticationError, match="refused"):
            carry(parse_client_options(chosen))
    finally:
        broker.tokens.lifetime_seconds = before


def test_a_token_serves_many_connections(broker: SecuredBroker) -> None:
    chosen = own_settings(broker, SASL_SSL, OAUTHBEARER)
    chosen["sasl.oauthbearer.scope"] = "many"
    before = len(broker.tokens.requests)
    for _ in range(5):
        carry_blocking(parse_client_options(chosen))
    assert len(broker.tokens.requests) == before + 1


@CARRIERS
def test_a_client_certificate_is_accepted(broker: SecuredBroker, carry: Carry) -> None:
    assert carry(parse_client_options(own_settings(broker, SSL))) == 1


def test_a_java_keystore_in_pkcs12(broker: SecuredBroker) -> None:
    chosen = own_settings(broker, SSL)
    del chosen["ssl.certificate.location"], chosen["ssl.key.location"]
    chosen["ssl.keystore.location"] = str(broker.client.keystore)
    chosen["ssl.keystore.type"] = "PKCS12"
    chosen["ssl.keystore.password"] = broker.client.password
    assert carry_blocking(parse_client_options(chosen)) == 1


@CARRIERS
def test_a_missing_client_certificate_is_named(broker: SecuredBroker, carry: Carry) -> None:
    chosen = own_settings(broker, SSL)
    del chosen["ssl.certificate.location"], chosen["ssl.key.location"]
    with pytest.raises(TlsHandshakeError, match="client's certificate") as raised:
        carry(parse_client_options(chosen))
    assert "ssl.certificate.location" in raised.value.hint


@CARRIERS
def test_a_foreign_authority_is_refused(
    broker: SecuredBroker, carry: Carry, tmp_path: Path
) -> None:
    chosen = own_settings(broker, SASL_SSL, PLAIN)
    chosen["ssl.ca.location"] = str(CertificateAuthority(tmp_path).certificate)
    with pytest.raises(TlsHandshakeError, match="not trusted") as raised:
        carry(parse_client_options(chosen))
    assert "ssl.ca.location" in raised.value.hint


@CARRIERS
@pytest.mark.parametrize(
    ("protocol", "given", "error"),
    [
        (PLAINTEXT, SSL, BrokerUnreachableError),
        (PLAINTEXT, SASL_PLAINTEXT, AnswerLostError),
        (SASL_SSL, PLAINTEXT, BrokerUnreachableError),
        (SASL_PLAINTEXT, PLAINTEXT, AuthenticationError),
    ],
)
def test_a_wrong_protocol_says_what_to_set(
    broker: SecuredBroker,
    carry: Carry,
    protocol: str,
    given: str,
    error: type[ClientError],
) -> None:
    chosen = own_settings(broker, protocol, "" if protocol == PLAINTEXT else PLAIN)
    chosen["bootstrap.servers"] = broker.bootstrap(given)
    chosen["default.api.timeout.ms"] = "3000"
    chosen["request.timeout.ms"] = "3000"
    with pytest.raises(error) as raised:
        carry(parse_client_options(chosen))
    assert "security.protocol" in raised.value.hint


@pytest.mark.parametrize("name", BROKERS)
def test_an_unknown_mechanism_lists_those_of_the_broker(name: str, tmp_path: Path) -> None:
    with secured_broker(name, tmp_path, mechanisms=[SCRAM_512]) as one:
        with pytest.raises(AuthenticationError, match=r"it offers SCRAM-SHA-512") as raised:
            carry_blocking(parse_client_options(own_settings(one, SASL_SSL, SCRAM_256)))
        assert "sasl.mechanism" in raised.value.hint


@pytest.mark.parametrize(("protocol", "mechanism"), [(SASL_SSL, SCRAM_512), (SSL, "")])
def test_large_records_pass_unchanged(broker: SecuredBroker, protocol: str, mechanism: str) -> None:
    options = parse_client_options(own_settings(broker, protocol, mechanism))
    values = [os.urandom(size) for size in (0, 1, 16_384, 65_535, 65_536, 65_537, 300_000)] * 4
    topic = f"large-{protocol}"
    with open_cluster(options) as cluster:
        cluster.create_topic(NewTopic(topic, partitions=1))
        writer = TopicWriter(cluster, topic)
        for value in values:
            writer.append(None, value)
        writer.flush()
        reader = TopicReader(cluster, cluster.partitions_of(topic), parse_start("earliest"))
        assert [record.value for record in reader.records()] == values


def counted(monkeypatch: pytest.MonkeyPatch, name: str, owner: type) -> list[float]:
    """The times of the calls of this method, from now on."""
    calls: list[float] = []
    method = getattr(owner, name)

    def call(self: object) -> None:
        calls.append(time.monotonic())
        method(self)

    monkeypatch.setattr(owner, name, call)
    return calls


def write_for(
    broker: SecuredBroker, mechanism: str, topic: str, is_over: Callable[[], bool]
) -> int:
    """Write numbered records until it is over, and check that each is there once; their count."""
    options = parse_client_options(own_settings(broker, SASL_PLAINTEXT, mechanism))
    with open_cluster(options) as cluster:
        cluster.create_topic(NewTopic(topic, partitions=1))
        writer = TopicWriter(cluster, topic)
        deadline = time.monotonic() + 30 + 2 * SESSIONS * SESSION_MS / 1000
        count = 0
        while not is_over() and time.monotonic() < deadline:
            writer.append(None, str(count).encode())
            count += 1
            if count % 10 == 0:
                writer.flush()
        writer.flush()
        reader = TopicReader(cluster, cluster.partitions_of(topic), parse_start("earliest"))
        assert [int(record.value or b"") for record in reader.records()] == list(range(count))
    return count


@pytest.mark.parametrize("mechanism", [SCRAM_256, OAUTHBEARER])
def test_sessions_are_renewed_under_load(
    broker: SecuredBroker, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection ends when its session is over, so each renewal must be in time."""
    logins = counted(monkeypatch, "authenticate", blocking.BlockingConnection)
    connects = counted(monkeypatch, "negotiate", blocking.BlockingConnection)
    count = write_for(broker, mechanism, f"sessions-{mechanism}", lambda: len(logins) > SESSIONS)
    assert len(logins) > SESSIONS
    # One for the bootstrap address, and one for the broker's own.
    assert len(connects) <= 2
    print(
        f"sessions on {broker.broker.name} with {mechanism}: {len(logins)} logins "
        f"on {len(connects)} connections, {count} records, none lost or doubled"
    )


def test_without_renewals_connections_end(
    broker: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above can fail: the broker does end sessions."""
    monkeypatch.setattr(blocking, "renewal_at", lambda _begun, _lifetime_ms: None)
    connects = counted(monkeypatch, "negotiate", blocking.BlockingConnection)
    write_for(broker, SCRAM_256, "unrenewed", lambda: len(connects) > 3)
    assert len(connects) > 3
    name = broker.broker.name
    print(f"guard renewal of sessions: {name} ended each connection at the end of its session")
