"""Penstock's own clients against a secured Apache Kafka: TLS, client certificates, every mechanism.

Both transports and the command line; right and wrong credentials; sessions that are renewed under
load. It is NOT about Penstock's listeners, which have no TLS and no login yet.
"""

import asyncio
import os
import subprocess
import sys
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
from tests.oracle.certificates import CertificateAuthority
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
    USER,
    SecuredKafka,
    secured_kafka,
)

pytestmark = pytest.mark.interop

SESSION_MS = 2_000
SESSIONS = int(os.environ.get("PENSTOCK_SESSIONS", "6"))
"""`make proof` renews 100."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(
        tmp_path_factory.mktemp("kafka"), reauthentication_ms={SASL_PLAINTEXT: SESSION_MS}
    ) as running:
        yield running


def settings(
    kafka: SecuredKafka, protocol: str, mechanism: str = "", user: str = USER
) -> dict[str, str]:
    """Right settings, with the names of Kafka's Java client or of librdkafka."""
    chosen = {"bootstrap.servers": kafka.bootstrap(protocol), "security.protocol": protocol}
    chosen["request.timeout.ms"] = "10000"
    if protocol in (SSL, SASL_SSL):
        chosen["ssl.ca.location"] = str(kafka.ca)
    if protocol == SSL:
        chosen["ssl.certificate.location"] = str(kafka.client.chain)
        chosen["ssl.key.location"] = str(kafka.client.key)
    if mechanism:
        chosen["sasl.mechanism"] = mechanism
    if mechanism == OAUTHBEARER:
        chosen["sasl.oauthbearer.method"] = "oidc"
        chosen["sasl.oauthbearer.token.endpoint.url"] = kafka.tokens.token_url
        chosen["sasl.oauthbearer.client.id"] = kafka.tokens.client_id
        chosen["sasl.oauthbearer.client.secret"] = kafka.tokens.client_secret
    elif mechanism:
        chosen["sasl.username"] = user
        chosen["sasl.password"] = kafka.password(mechanism, user)
    return chosen


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
    kafka: SecuredKafka, protocol: str, mechanism: str, carry: Carry
) -> None:
    options = parse_client_options(settings(kafka, protocol, mechanism))
    assert carry(options) == 1


@CARRIERS
@EVERY_LOGIN
def test_a_wrong_credential_is_refused_at_once(
    kafka: SecuredKafka, protocol: str, mechanism: str, carry: Carry
) -> None:
    wrong = settings(kafka, protocol, mechanism)
    name = "sasl.oauthbearer.client.secret" if mechanism == OAUTHBEARER else "sasl.password"
    wrong[name] = "canary-wrong"
    begun = time.monotonic()
    with pytest.raises(AuthenticationError, match="refused") as raised:
        carry(parse_client_options(wrong))
    assert time.monotonic() - begun < 8, "it was retried"
    assert raised.value.hint
    assert "canary" not in f"{raised.value}{raised.value.hint}"


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
def test_names_and_passwords_with_any_sign(kafka: SecuredKafka, mechanism: str) -> None:
    chosen = settings(kafka, SASL_SSL, mechanism, HARD_USER)
    assert carry_blocking(parse_client_options(chosen)) == 1


@CARRIERS
def test_an_expired_token_is_refused(kafka: SecuredKafka, carry: Carry) -> None:
    kafka.tokens.lifetime_seconds, before = -60, kafka.tokens.lifetime_seconds
    try:
        chosen = settings(kafka, SASL_SSL, OAUTHBEARER)
        chosen["sasl.oauthbearer.scope"] = f"expired-{id(carry)}"
        with pytest.raises(AuthenticationError, match="refused"):
            carry(parse_client_options(chosen))
    finally:
        kafka.tokens.lifetime_seconds = before


def test_a_token_serves_many_connections(kafka: SecuredKafka) -> None:
    chosen = settings(kafka, SASL_SSL, OAUTHBEARER)
    chosen["sasl.oauthbearer.scope"] = "many"
    before = len(kafka.tokens.requests)
    for _ in range(5):
        carry_blocking(parse_client_options(chosen))
    assert len(kafka.tokens.requests) == before + 1


@CARRIERS
def test_a_client_certificate_is_accepted(kafka: SecuredKafka, carry: Carry) -> None:
    assert carry(parse_client_options(settings(kafka, SSL))) == 1


def test_a_java_keystore_in_pkcs12(kafka: SecuredKafka) -> None:
    chosen = settings(kafka, SSL)
    del chosen["ssl.certificate.location"], chosen["ssl.key.location"]
    chosen["ssl.keystore.location"] = str(kafka.client.keystore)
    chosen["ssl.keystore.type"] = "PKCS12"
    chosen["ssl.keystore.password"] = kafka.client.password
    assert carry_blocking(parse_client_options(chosen)) == 1


@CARRIERS
def test_a_missing_client_certificate_is_named(kafka: SecuredKafka, carry: Carry) -> None:
    chosen = settings(kafka, SSL)
    del chosen["ssl.certificate.location"], chosen["ssl.key.location"]
    with pytest.raises(TlsHandshakeError, match="client's certificate") as raised:
        carry(parse_client_options(chosen))
    assert "ssl.certificate.location" in raised.value.hint


@CARRIERS
def test_a_foreign_authority_is_refused(kafka: SecuredKafka, carry: Carry, tmp_path: Path) -> None:
    chosen = settings(kafka, SASL_SSL, PLAIN)
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
    kafka: SecuredKafka,
    carry: Carry,
    protocol: str,
    given: str,
    error: type[ClientError],
) -> None:
    chosen = settings(kafka, protocol, "" if protocol == PLAINTEXT else PLAIN)
    chosen["bootstrap.servers"] = kafka.bootstrap(given)
    chosen["default.api.timeout.ms"] = "3000"
    chosen["request.timeout.ms"] = "3000"
    with pytest.raises(error) as raised:
        carry(parse_client_options(chosen))
    assert "security.protocol" in raised.value.hint


def test_an_unknown_mechanism_lists_those_of_the_broker(
    kafka: SecuredKafka, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    with secured_kafka(
        folder, properties={"listener.name.sasl_ssl.sasl.enabled.mechanisms": SCRAM_512}
    ) as one:
        with pytest.raises(AuthenticationError, match=r"it offers SCRAM-SHA-512") as raised:
            carry_blocking(parse_client_options(settings(one, SASL_SSL, SCRAM_256)))
        assert "sasl.mechanism" in raised.value.hint


@pytest.mark.parametrize(("protocol", "mechanism"), [(SASL_SSL, SCRAM_512), (SSL, "")])
def test_large_records_pass_unchanged(kafka: SecuredKafka, protocol: str, mechanism: str) -> None:
    options = parse_client_options(settings(kafka, protocol, mechanism))
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


def write_for(kafka: SecuredKafka, mechanism: str, topic: str, is_over: Callable[[], bool]) -> int:
    """Write numbered records until it is over, and check that each is there once; their count."""
    options = parse_client_options(settings(kafka, SASL_PLAINTEXT, mechanism))
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
    kafka: SecuredKafka, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka ends a connection whose session is over, so each renewal must be in time."""
    logins = counted(monkeypatch, "authenticate", blocking.BlockingConnection)
    connects = counted(monkeypatch, "negotiate", blocking.BlockingConnection)
    count = write_for(kafka, mechanism, f"sessions-{mechanism}", lambda: len(logins) > SESSIONS)
    assert len(logins) > SESSIONS
    # One for the bootstrap address, and one for the broker's own.
    assert len(connects) <= 2
    print(
        f"sessions with {mechanism}: {len(logins)} logins on {len(connects)} connections, "
        f"{count} records, none lost or doubled"
    )


def test_without_renewals_connections_end(
    kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check above can fail: Kafka does end sessions."""
    monkeypatch.setattr(blocking, "renewal_at", lambda _begun, _lifetime_ms: None)
    connects = counted(monkeypatch, "negotiate", blocking.BlockingConnection)
    write_for(kafka, SCRAM_256, "unrenewed", lambda: len(connects) > 3)
    assert len(connects) > 3
    print("guard renewal of sessions: Kafka ended each connection at the end of its session")


def penstock(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | (environment or {}),
    )
    return done.returncode, done.stdout, done.stderr


def test_commands_take_the_file_of_kafkas_tools(kafka: SecuredKafka, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text(
        f"bootstrap.servers={kafka.bootstrap(SASL_SSL)}\n"
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.location={kafka.ca}\nssl.truststore.type=PEM\n"
        f'sasl.jaas.config={module} required \\\n  username="{USER}" '
        f'password="{kafka.password(SCRAM_512)}";\n'
    )
    topic = "from-the-command-line"
    code, _, problem = penstock("topic", "create", topic, "--command-config", str(file))
    assert code == 0, problem
    code, out, problem = penstock(
        "topic", "list", environment={"PENSTOCK_COMMAND_CONFIG": str(file)}
    )
    assert code == 0, problem
    assert topic in out


def test_a_command_reports_a_wrong_password(kafka: SecuredKafka, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.ca.location={kafka.ca}\n"
        f"sasl.username={USER}\nacks=all\n"
    )
    code, out, problem = penstock(
        "topic",
        "list",
        *("--bootstrap-server", kafka.bootstrap(SASL_SSL), "--command-config", str(file)),
        environment={"PENSTOCK_CLIENT_SASL_PASSWORD": "canary-wrong"},
    )
    assert code != 0
    assert "refused the login with PLAIN" in problem
    assert "hint: Check the user" in problem
    assert "note: settings without an effect on a command: acks." in problem
    assert "canary" not in out + problem


def command_file(kafka: SecuredKafka, folder: Path) -> str:
    file = folder / "client.properties"
    chosen = settings(kafka, SASL_SSL, SCRAM_512)
    del chosen["request.timeout.ms"]
    file.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
    return str(file)


def test_bench_and_doctor_take_the_file(kafka: SecuredKafka, tmp_path: Path) -> None:
    file = command_file(kafka, tmp_path)
    for words in (
        ("bench", "produce", "--duration", "1", "--clients", "2"),
        ("bench", "end-to-end", "--duration", "1", "--clients", "1", "--rate", "100"),
    ):
        code, out, problem = penstock(*words, "--command-config", file, "--json", "-")
        assert code == 0, problem
        assert kafka.password(SCRAM_512) not in out + problem
    address = kafka.bootstrap(SASL_SSL)
    doctor = ("doctor", "--bootstrap-server", address)
    code, out, problem = penstock(*doctor, "--command-config", file)
    assert "1 broker" in out, out + problem
    _, without, _ = penstock(*doctor, "--timeout", "2")
    assert "TLS" in without
