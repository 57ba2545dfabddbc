"""Kafka's names in a settings file lead to the settings of Penstock."""

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import load_settings
from penstock.core.settings.kafka_names import kafka_remedy
from penstock.core.settings.listener_declarations import NamedListener, TlsFileSettings
from penstock.core.settings.setting_names import extra_text, kafka_name
from penstock.core.settings.tree import FIELDS

LISTENER = '[[listeners]]\nname = "A"\nport = 1\nprotocol = "PLAINTEXT"\n'


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_settings(text, {}, {}, "penstock.toml")
    return str(raised.value).splitlines()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('ssl.keystore.location = "a.jks"', "certificate"),
        ('ssl.keystore.type = "PKCS12"', "openssl pkcs12"),
        ('ssl.keystore.password = "s3cret"', "key_password_file"),
        ('ssl.truststore.location = "a.jks"', "client_ca"),
        ('ssl.client.auth = "required"', "Set client_auth in tls of a listener in [[listeners]]."),
        ('ssl.principal.mapping.rules = "DEFAULT"', "principal_mapping_rules in tls"),
        ('ssl.enabled.protocols = "TLSv1.3"', "Remove it"),
        ('sasl.enabled.mechanisms = "PLAIN"', "Set mechanisms of a listener in [[listeners]]."),
        ('sasl.kerberos.service.name = "kafka"', "Kerberos"),
        ('authorizer.class.name = "x"', 'Set security.authorizer = "acl".'),
        ('super.users = "User:a"', "Set security.super_users."),
        ('allow.everyone.if.no.acl.found = "true"', "security.allow_everyone_if_no_acl_found"),
        ('listener.security.protocol.map = "A:SSL"', "Set protocol of a listener"),
        ('advertised.listeners = "SSL://a:1"', "advertised_host"),
        ('inter.broker.listener.name = "A"', "Set cluster.listen_host"),
        ('security.inter.broker.protocol = "SSL"', "cluster.tls_certificate"),
        ("log.retention.ms = 1000", "Set topic_defaults.retention_ms."),
        ('"log.retention.ms" = 1000', "Set topic_defaults.retention_ms."),
        ('listener.name.clients.ssl.client.auth = "none"', "Set client_auth in tls"),
        ('listener.name.clients.plain.sasl.jaas.config = "s3cret"', "penstock user add"),
        ('listener.name.a.scram-sha-512.sasl.jaas.config = "s3cret"', "penstock user add"),
    ],
)
def test_a_name_of_kafka_in_a_file(line: str, words: str) -> None:
    (problem,) = problems_of(f"\n{line}\n")
    name = line.partition(" =")[0].strip('"')
    assert problem.startswith(f"{name} (penstock.toml line 2) is a name of Kafka. ")
    assert words in problem
    assert "s3cret" not in problem


def test_several_names_of_one_table() -> None:
    first, second = problems_of('ssl.keystore.location = "a"\nssl.client.auth = "none"\n')
    assert first.startswith("ssl.keystore.location (penstock.toml line 1)")
    assert second.startswith("ssl.client.auth (penstock.toml line 2)")


@pytest.mark.parametrize("line", ['ssl.client.auth = "none"', '"ssl.client.auth" = "none"'])
def test_a_name_of_kafka_in_a_listener(line: str) -> None:
    (problem,) = problems_of(LISTENER + line)
    assert problem == (
        "penstock.toml line 5: 'ssl.client.auth' is a name of Kafka. Set client_auth in tls of a "
        "listener in [[listeners]]."
    )


def test_another_name_is_suggested_as_before() -> None:
    (problem,) = problems_of("[listener]\nprot = 1\n")
    assert "is not a setting. Did you mean listener.port" in problem
    (problem,) = problems_of("zebra.crossing.at.night = 1\n")
    assert "zebra.crossing.at.night (penstock.toml line 1) is not a setting." in problem


def test_each_declared_name_of_kafka_is_known() -> None:
    declared = {kafka_name(key) for key in FIELDS}
    for model in (NamedListener, TlsFileSettings):
        declared |= {extra_text(field, "kafka") for field in model.model_fields.values()}
    unknown = {name for name in declared - {""} if kafka_remedy(name) is None}
    assert not unknown


def test_no_key_of_penstock_is_a_name_of_kafka_without_a_setting() -> None:
    assert kafka_remedy("listener.port") is None
    assert kafka_remedy("") is None
