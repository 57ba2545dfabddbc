"""Kafka's own names; unsupported options are rejected by name, with a remedy."""

import pickle

import pytest

from penstock.client.opening import open_cluster
from penstock.client.security.options import SECURITY_SETTINGS, SaslOptions, Security, TlsOptions
from penstock.client.transport.addresses import Address
from penstock.client.transport.options import (
    CLIENT_SETTINGS,
    ClientOptions,
    parse_client_options,
)
from penstock.core.errors import BrokerUnreachableError, ConfigError
from penstock.security.secret import Secret

SERVERS = {"bootstrap.servers": "one:9092, two"}


def test_everything_has_a_default_but_the_address() -> None:
    options = parse_client_options(SERVERS)
    assert options == ClientOptions((Address("one", 9092), Address("two", 9092)))
    assert (options.request_timeout_ms, options.retry_timeout_ms) == (30_000, 60_000)
    assert pickle.loads(pickle.dumps(options)) == options


def test_every_setting_is_taken() -> None:
    given = {
        "client.id": "spark",
        "request.timeout.ms": "1500",
        "default.api.timeout.ms": "2500",
        "security.protocol": "plaintext",
    }
    options = parse_client_options({**SERVERS, **given})
    assert options.client_id == "spark"
    assert (options.request_timeout_ms, options.retry_timeout_ms) == (1_500, 2_500)
    assert options.security == Security()
    assert {*SERVERS, *given, *SECURITY_SETTINGS} == CLIENT_SETTINGS


def test_security_settings_are_taken() -> None:
    given = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "user",
        "sasl.password": "canary",
    }
    options = parse_client_options({**SERVERS, **given})
    login = SaslOptions("PLAIN", "user", Secret("canary"))
    assert options.security == Security("SASL_SSL", TlsOptions(), login)
    assert b"canary" not in pickle.dumps(options)
    assert pickle.loads(pickle.dumps(options)) != options
    assert pickle.loads(pickle.dumps(options.for_task())) == options


def test_a_call_has_time_for_one_request_at_least() -> None:
    options = parse_client_options({**SERVERS, "request.timeout.ms": "90000"})
    assert options.retry_timeout_ms == 90_000


def test_settings_of_others_are_not_looked_at() -> None:
    assert parse_client_options({**SERVERS, "max.poll.records": "7"}) == parse_client_options(
        SERVERS
    )


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("bootstrap.servers", "a:b:c", "kafka.bootstrap.servers: 'a:b:c'"),
        ("bootstrap.servers", " , ", "names no broker"),
        ("request.timeout.ms", "soon", "kafka.request.timeout.ms=soon: give milliseconds"),
        ("request.timeout.ms", "0", "1 to 3600000"),
        ("default.api.timeout.ms", "3600001", "kafka.default.api.timeout.ms=3600001"),
        ("default.api.timeout.ms", "-5", "whole number"),
        ("client.id", "x" * 32_768, "kafka.client.id is longer than 32767 bytes"),
        ("security.protocol", "SASL_SSL", "kafka.sasl.mechanism is missing"),
        ("security.protocol", "TLS", "kafka.security.protocol=TLS is unknown"),
        ("ssl.truststore.location", "/a", "kafka.ssl.truststore.location needs TLS"),
        ("sasl.mechanism", "PLAIN", "kafka.sasl.mechanism needs SASL"),
        ("sasl.jaas.config", "secret", "or remove the setting"),
        ("ssl.unknown", "secret", "kafka.ssl.unknown is unknown or not supported"),
    ],
)
def test_what_is_wrong_is_named(name: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_client_options({**SERVERS, name: value}, prefix="kafka.")
    assert told in str(error.value)
    assert "secret" not in str(error.value)


def test_without_an_address() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers is missing; give host:port"):
        parse_client_options({}, prefix="kafka.")


@pytest.mark.parametrize("repeats", [True, False])
def test_a_job_waits_for_a_broker_that_is_not_there_yet(
    unused_address: Address, *, repeats: bool
) -> None:
    options = ClientOptions((unused_address,), retry_timeout_ms=20)
    with open_cluster(options, repeats_first_contact=repeats) as cluster:
        with pytest.raises(BrokerUnreachableError, match="connection refused"):
            cluster.all_topics()
        assert cluster.timeout_ms == 27_000
