"""Secured Apache Kafka: clients that may connect, clients that may not, and their errors.

The tests with librdkafka prove the harness (`tests.oracle.secured_kafka`): each listener and
mechanism accepts the right credential and rejects a wrong one, so that a failure of another client
is a failure of that client.
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
from tests.oracle.secured_kafka import (
    HARD_USER,
    OAUTHBEARER,
    PASSWORD_MECHANISMS,
    SASL_PLAINTEXT,
    SASL_PROTOCOLS,
    SASL_SSL,
    SSL,
    USER,
    SecuredKafka,
    secured_kafka,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]

ANSWER_SECONDS = 20.0
"""A loaded machine takes seconds for a Java broker's first handshake."""
WAIT_SECONDS = 0.2

QUICK = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200, "log_level": 0}
REJECTED = "_AUTHENTICATION"

Settings = Mapping[str, Any]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
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


def basic_settings(kafka: SecuredKafka, protocol: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": kafka.bootstrap(protocol),
        "security.protocol": protocol,
    }
    if protocol in (SSL, SASL_SSL):
        settings["ssl.ca.location"] = str(kafka.ca)
    return settings


def password_settings(
    kafka: SecuredKafka, protocol: str, mechanism: str, user: str, password: str
) -> Settings:
    return {
        **basic_settings(kafka, protocol),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def token_settings(kafka: SecuredKafka, protocol: str, token: str) -> Settings:
    now = datetime.datetime.now(datetime.UTC).timestamp()

    def give_token(_configuration: str) -> tuple[str, float]:
        return token, now + 300

    basic = basic_settings(kafka, protocol)
    return {**basic, "sasl.mechanism": OAUTHBEARER, "oauth_cb": give_token}


def endpoint_settings(kafka: SecuredKafka, protocol: str, secret: str) -> Settings:
    return {
        **basic_settings(kafka, protocol),
        "sasl.mechanism": OAUTHBEARER,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": kafka.tokens.client_id,
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.token.endpoint.url": kafka.tokens.token_url,
    }


def certificate_settings(kafka: SecuredKafka, client: Identity) -> Settings:
    return {
        **basic_settings(kafka, SSL),
        "ssl.certificate.location": str(client.chain),
        "ssl.key.location": str(client.encrypted_key),
        "ssl.key.password": client.password,
    }


@pytest.mark.parametrize("user", [USER, HARD_USER])
@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_librdkafka_connects_with_a_password(
    kafka: SecuredKafka, protocol: str, mechanism: str, user: str
) -> None:
    password = kafka.password(mechanism, user)
    outcome = listed(password_settings(kafka, protocol, mechanism, user, password))
    assert outcome.brokers == 1, outcome.text()


@pytest.mark.parametrize("mechanism", PASSWORD_MECHANISMS)
@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_librdkafka_is_rejected_with_a_wrong_password(
    kafka: SecuredKafka, protocol: str, mechanism: str
) -> None:
    settings = password_settings(kafka, protocol, mechanism, USER, "wrong")
    assert_rejected(settings, REJECTED)


@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_librdkafka_connects_with_a_token_of_the_token_server(
    kafka: SecuredKafka, protocol: str
) -> None:
    before = len(kafka.tokens.requests)
    outcome = listed(endpoint_settings(kafka, protocol, kafka.tokens.client_secret))
    assert outcome.brokers == 1, outcome.text()
    request = kafka.tokens.requests[before]
    assert (request.method, request.path) == ("POST", "/token")
    assert request.authorization.startswith("Basic ")
    assert request.form["grant_type"] == "client_credentials"


def test_librdkafka_gets_no_token_with_a_wrong_secret(kafka: SecuredKafka) -> None:
    assert_rejected(endpoint_settings(kafka, SASL_SSL, "wrong"), "invalid_client")


@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_librdkafka_connects_with_a_token(kafka: SecuredKafka, protocol: str) -> None:
    outcome = listed(token_settings(kafka, protocol, kafka.tokens.token()))
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
    kafka: SecuredKafka, protocol: str, reason: str
) -> None:
    tokens = kafka.tokens
    token = {
        "expired": lambda: tokens.token(lifetime_seconds=-3600),
        "forged": lambda: tokens.token(key=rsa_key()),
        "audience": lambda: tokens.token(claims={"aud": "another"}),
        "issuer": lambda: tokens.token(claims={"iss": "https://another.test"}),
    }[reason]()
    assert_rejected(token_settings(kafka, protocol, token), REJECTED)


@pytest.mark.parametrize("kind", ["root", "intermediate", "rsa"])
def test_librdkafka_connects_with_a_client_certificate(kafka: SecuredKafka, kind: str) -> None:
    client = {
        "root": lambda: kafka.client,
        "intermediate": lambda: kafka.authority.intermediate().client(),
        "rsa": lambda: kafka.authority.client(new_key=rsa_key),
    }[kind]()
    outcome = listed(certificate_settings(kafka, client))
    assert outcome.brokers == 1, outcome.text()


@pytest.mark.parametrize("reason", ["none", "expired", "not yet valid", "another authority"])
def test_librdkafka_is_rejected_with_a_wrong_certificate(
    kafka: SecuredKafka, reason: str, tmp_path: Path
) -> None:
    settings = basic_settings(kafka, SSL)
    alert = "alert bad certificate" if reason == "none" else "alert certificate unknown"
    if reason != "none":
        client = {
            "expired": lambda: kafka.authority.client(validity=EXPIRED),
            "not yet valid": lambda: kafka.authority.client(validity=NOT_YET_VALID),
            "another authority": lambda: CertificateAuthority(tmp_path).client(),
        }[reason]()
        settings |= certificate_settings(kafka, client)
    # With TLS 1.3 the alert comes after the client's handshake: not _SSL, but _TRANSPORT.
    assert_rejected(settings, alert)


def test_librdkafka_rejects_a_broker_of_another_authority(
    kafka: SecuredKafka, tmp_path: Path
) -> None:
    another = CertificateAuthority(tmp_path).certificate
    settings = {**certificate_settings(kafka, kafka.client), "ssl.ca.location": str(another)}
    assert_rejected(settings, "certificate verify failed")
