"""librdkafka on secured brokers: it may connect, or it may not, and then its errors.

Each test runs on Apache Kafka and on Penstock. On Kafka they prove the harness
(`tests.oracle.secured_kafka`): each listener and mechanism accepts the right credential and rejects
a wrong one, so that a failure of another client is a failure of that client.
"""

import dataclasses
import datetime
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.oracle.certificates import (
    EXPIRED,
    NOT_YET_VALID,
    CertificateAuthority,
    Identity,
    rsa_key,
)
from tests.oracle.secured_brokers import BROKERS, secured_broker
from tests.oracle.secured_kafka import (
    HARD_USER,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    SASL_PLAINTEXT,
    SASL_PROTOCOLS,
    SASL_SSL,
    SSL,
    USER,
)
from tests.oracle.secured_penstock import SecuredBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

ANSWER_SECONDS = 20.0
"""A loaded machine takes seconds for a Java broker's first handshake."""
WAIT_SECONDS = 0.2

QUICK = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}
REJECTED = "_AUTHENTICATION"

ALERTS = {
    "kafka": {
        "none": "alert bad certificate",
        "expired": "alert certificate unknown",
        "not yet valid": "alert certificate unknown",
        "another authority": "alert certificate unknown",
    },
    "penstock": {
        "none": "alert certificate required",
        "expired": "alert certificate expired",
        "not yet valid": "alert bad certificate",
        "another authority": "alert unknown ca",
    },
}
"""Java's TLS has two alerts for a wrong certificate; OpenSSL's say what is wrong."""

Settings = Mapping[str, Any]


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with secured_broker(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@dataclasses.dataclass
class Outcome:
    """The answer of a broker to librdkafka: a number of brokers, or the errors it reported."""

    brokers: int
    errors: list[KafkaError]

    def text(self) -> str:
        """One line for each error: its name and what librdkafka says."""
        return "\n".join(f"{error.name()}: {error.str()}" for error in self.errors)


def listed(settings: Settings, expected_error: str | None = None) -> Outcome:
    """Ask for the metadata until there is an answer, or until an error has this text."""
    outcome = Outcome(0, [])
    configuration: dict[str, Any] = {**QUICK, **settings, "error_cb": outcome.errors.append}
    client = AdminClient(configuration)
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        try:
            outcome.brokers = len(client.list_topics(timeout=WAIT_SECONDS).brokers)
        except KafkaException as raised:
            outcome.errors.append(raised.args[0])
        client.poll(0)
        if outcome.brokers or (expected_error is not None and expected_error in outcome.text()):
            break
    return outcome


def assert_rejected(settings: Settings, expected_error: str) -> None:
    outcome = listed(settings, expected_error)
    assert outcome.brokers == 0
    assert expected_error in outcome.text()


def basic_settings(broker: SecuredBroker, protocol: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap(protocol),
        "security.protocol": protocol,
    }
    if protocol in (SSL, SASL_SSL):
        settings["ssl.ca.location"] = str(broker.ca)
    return settings


def password_settings(
    broker: SecuredBroker, protocol: str, mechanism: str, user: str, password: str
) -> Settings:
    return {
        **basic_settings(broker, protocol),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def token_settings(broker: SecuredBroker, protocol: str, token: str) -> Settings:
    now = datetime.datetime.now(datetime.UTC).timestamp()

    def give_token(_configuration: str) -> tuple[str, float]:
        return token, now + 300

    basic = basic_settings(broker, protocol)
    return {**basic, "sasl.mechanism": OAUTHBEARER, "oauth_cb": give_token}


def endpoint_settings(broker: SecuredBroker, protocol: str, secret: str) -> Settings:
    return {
        **basic_settings(broker, protocol),
        "sasl.mechanism": OAUTHBEARER,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": broker.tokens.client_id,
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.token.endpoint.url": broker.tokens.token_url,
    }


def certificate_settings(broker: SecuredBroker, client: Identity) -> Settings:
    return {
        **basic_settings(broker, SSL),
        "ssl.certificate.location": str(client.chain),
        "ssl.key.location": str(client.encrypted_key),
        "ssl.key.password": client.password,
    }


@pytest.mark.parametrize("user", [USER, HARD_USER])
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_librdkafka_connects_with_a_password(
    broker: SecuredBroker, protocol: str, mechanism: str, user: str
) -> None:
    password = broker.password(mechanism, user)
    outcome = listed(password_settings(broker, protocol, mechanism, user, password))
    assert outcome.brokers == 1, outcome.text()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_librdkafka_is_rejected_with_a_wrong_password(
    broker: SecuredBroker, protocol: str, mechanism: str
) -> None:
    settings = password_settings(broker, protocol, mechanism, USER, "wrong")
    assert_rejected(settings, REJECTED)


@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_librdkafka_connects_with_a_token_of_the_token_server(
    broker: SecuredBroker, protocol: str
) -> None:
    before = len(broker.tokens.requests)
    outcome = listed(endpoint_settings(broker, protocol, broker.tokens.client_secret))
    assert outcome.brokers == 1, outcome.text()
    request = broker.tokens.requests[before]
    assert (request.method, request.path) == ("POST", "/token")
    assert request.authorization.startswith("Basic ")
    assert request.form["grant_type"] == "client_credentials"


def test_librdkafka_gets_no_token_with_a_wrong_secret(broker: SecuredBroker) -> None:
    assert_rejected(endpoint_settings(broker, SASL_SSL, "wrong"), "invalid_client")


@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_librdkafka_connects_with_a_token(broker: SecuredBroker, protocol: str) -> None:
    outcome = listed(token_settings(broker, protocol, broker.tokens.token()))
    assert outcome.brokers == 1, outcome.text()


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        (SASL_PLAINTEXT, "expired"),
        (SASL_PLAINTEXT, "audience"),
        (SASL_SSL, "forged"),
        (SASL_SSL, "issuer"),
    ],
)
def test_librdkafka_is_rejected_with_a_wrong_token(
    broker: SecuredBroker, protocol: str, reason: str
) -> None:
    tokens = broker.tokens
    token = {
        "expired": lambda: tokens.token(lifetime_seconds=-3600),
        "forged": lambda: tokens.token(key=rsa_key()),
        "audience": lambda: tokens.token(claims={"aud": "another"}),
        "issuer": lambda: tokens.token(claims={"iss": "https://another.test"}),
    }[reason]()
    assert_rejected(token_settings(broker, protocol, token), REJECTED)


@pytest.mark.parametrize("kind", ["root", "intermediate", "rsa"])
def test_librdkafka_connects_with_a_client_certificate(broker: SecuredBroker, kind: str) -> None:
    client = {
        "root": lambda: broker.client,
        "intermediate": lambda: broker.authority.intermediate().client(),
        "rsa": lambda: broker.authority.client(new_key=rsa_key),
    }[kind]()
    outcome = listed(certificate_settings(broker, client))
    assert outcome.brokers == 1, outcome.text()


@pytest.mark.parametrize("reason", ALERTS["kafka"])
def test_librdkafka_is_rejected_with_a_wrong_certificate(
    broker: SecuredBroker, reason: str, tmp_path: Path
) -> None:
    settings = basic_settings(broker, SSL)
    if reason != "none":
        client = {
            "expired": lambda: broker.authority.client(validity=EXPIRED),
            "not yet valid": lambda: broker.authority.client(validity=NOT_YET_VALID),
            "another authority": lambda: CertificateAuthority(tmp_path).client(),
        }[reason]()
        settings |= certificate_settings(broker, client)
    # With TLS 1.3 the alert comes after the client's handshake: not _SSL, but _TRANSPORT.
    assert_rejected(settings, ALERTS[broker.broker.name][reason])


def test_librdkafka_rejects_a_broker_of_another_authority(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    another = CertificateAuthority(tmp_path).certificate
    settings = {**certificate_settings(broker, broker.client), "ssl.ca.location": str(another)}
    assert_rejected(settings, "certificate verify failed")
