"""Kafka's own names; unsupported options are rejected by name, with a remedy."""

import pickle

import pytest

from penstock.client.opening import open_cluster
from penstock.client.transport.addresses import Address
from penstock.client.transport.options import ClientOptions, parse_client_options
from penstock.core.errors import BrokerUnreachableError, ConfigError

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
    assert options.security_protocol == "PLAINTEXT"


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
        ("security.protocol", "SASL_SSL", "kafka.security.protocol=SASL_SSL: only PLAINTEXT"),
        ("security.protocol", "SSL", "address of a PLAINTEXT listener"),
        ("ssl.truststore.location", "/a", "kafka.ssl.truststore.location: TLS is not built yet"),
        ("sasl.mechanism", "PLAIN", "kafka.sasl.mechanism: SASL is not built yet"),
        ("sasl.jaas.config", "secret", "Leave it out"),
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
