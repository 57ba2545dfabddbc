"""Secrets of a pipeline's source: references in the definition, values only where it connects.

It does NOT log in anywhere: `test_secured_tables` does.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.client.security.options import SECURITY_SETTINGS
from penstock.core.errors import ConfigError
from penstock.spark.errors import OptionError
from penstock.spark.source.options import Mode
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.definition.references import SecretError
from penstock.spark.tables.definition.source_reading import read_resolved_options
from penstock.spark.tables.definition.source_references import RESOLVED, checkable
from penstock.spark.tables.run.backfill import require_possible
from penstock.spark.tables.run.source import PipelineReader
from penstock.spark.tables.run.stateful.state_source import StateReader

CANARY = "canary-3b7e90"
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "alice",
}
IN_PLAIN = "in plain text, and a definition is copied"


def definition(
    options: Mapping[str, str], brokers: str = "b:9092", **source: object
) -> PipelineDefinition:
    return read_definition(
        {
            "pipeline": {"name": "orders", "bootstrap_servers": brokers, "checkpoint": "/c"},
            "source": {**(source or {"topics": ["orders"]}), "options": dict(options)},
            "table": {"format": "delta", "name": "shop.orders", "catalog": {"warehouse": "/w"}},
        },
        "orders.toml",
    )


TOKENS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    "kafka.sasl.oauthbearer.client.id": "shop",
    "kafka.sasl.oauthbearer.client.secret": "${env:SHOP_SECRET}",
}


def password(options: Mapping[str, str]) -> str:
    """The password with which a process logs in."""
    found = read_resolved_options(options, Mode.STREAM).client.security.sasl
    assert found is not None
    assert found.password is not None
    return found.password.reveal()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kafka.sasl.password", CANARY),
        ("kafka.SASL.Password", CANARY),
        ("kafka.sasl.password", f"${{env:NAME}}{CANARY}"),
        ("kafka.ssl.key.password", CANARY),
        ("kafka.ssl.key.pem", f"-----BEGIN PRIVATE KEY-----{CANARY}"),
        ("kafka.ssl.certificate.pem", f"-----BEGIN PRIVATE KEY-----{CANARY}"),
        ("kafka.sasl.oauthbearer.client.secret", CANARY),
        ("kafka.sasl.oauthbearer.token.endpoint.url", f"https://idp/token?api_key={CANARY}"),
        ("kafka.sasl.password", f"${{env:A}}${{env:B}}{CANARY}"),
    ],
)
def test_a_secret_in_plain_text_is_refused(name: str, text: str) -> None:
    with pytest.raises(DefinitionError, match=IN_PLAIN) as caught:
        definition({name: text})
    assert f"source.options.{name}" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_a_jaas_text_is_refused_with_the_names_to_write_instead() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    with pytest.raises(DefinitionError, match=r'"kafka\.sasl\.username" and ') as caught:
        definition({"kafka.sasl.jaas.config": f'{module} required password="{CANARY}";'})
    assert CANARY not in str(caught.value)


def test_a_public_certificate_is_no_secret() -> None:
    text = "-----BEGIN CERTIFICATE-----"
    found = definition({"kafka.security.protocol": "SSL", "kafka.ssl.ca.pem": text})
    assert dict(found.source.options)["kafka.ssl.ca.pem"] == text


@pytest.mark.parametrize("kind", ["env", "file"])
def test_the_value_is_read_where_the_pipeline_connects(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{CANARY}\n")
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    place = "SHOP_PASSWORD" if kind == "env" else str(file)
    found = definition({**LOGIN, "kafka.sasl.password": f"${{{kind}:{place}}}"})
    options = found.source_options()
    assert CANARY not in str(options)
    assert password(options) == CANARY


def test_the_space_around_a_reference_is_not_part_of_the_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the broker refuses the login."""
    monkeypatch.setenv("SHOP_PASSWORD", f" {CANARY}")
    options = definition({**LOGIN, "kafka.sasl.password": " ${env:SHOP_PASSWORD} "})
    assert password(options.source_options()) == f" {CANARY}"


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("first-password")
    options = {
        **definition({**LOGIN, "kafka.sasl.password": f"${{file:{file}}}"}).source_options(),
    }
    assert password(options) == "first-password"
    file.write_text("other-password")
    assert password(options) == "other-password"


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    options = definition({**LOGIN, "kafka.sasl.password": "${env:SHOP_PASSWORD}"}).source_options()
    with pytest.raises(SecretError, match="the environment variable SHOP_PASSWORD is not set"):
        read_resolved_options(options, Mode.STREAM)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("client.id", "${env:SHOP_TEXT}", "acme"),
        ("client.id", "shop-${env:SHOP_TEXT}", "shop-acme"),
        ("token.endpoint.url", "${env:SHOP_URL}", "https://idp.example/token"),
        ("token.endpoint.url", " ${env:SHOP_URL}?a=b ", "https://idp.example/token?a=b"),
        ("token.endpoint.url", "https://${env:SHOP_TEXT}:8080/token", "https://acme:8080/token"),
        ("token.endpoint.url", "http://${env:SHOP_HOST}/token", "http://127.0.0.1/token"),
        ("token.endpoint.url", "https://idp:${env:SHOP_PORT}/token", "https://idp:8443/token"),
        ("token.endpoint.url", "https://idp:8443${env:SHOP_PATH}", "https://idp:8443/token"),
        (
            "token.endpoint.url",
            "https://${env:SHOP_TEXT}:${env:SHOP_PORT}${env:SHOP_PATH}",
            "https://acme:8443/token",
        ),
        ("extensions", "${env:SHOP_EXTENSIONS}", (("cluster", "lkc-1"),)),
        (
            "extensions",
            "${env:SHOP_EXTENSIONS},${env:SHOP_TEXT}=x",
            (("cluster", "lkc-1"), ("acme", "x")),
        ),
        ("extensions", "a=b,${env:SHOP_EXTENSIONS}", (("a", "b"), ("cluster", "lkc-1"))),
        ("extensions", "pool=${env:SHOP_TEXT}", (("pool", "acme"),)),
        ("scope", "${env:SHOP_TEXT}", "acme"),
    ],
)
def test_a_reference_in_a_text_that_the_definition_checks(
    name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, content in (
        ("SHOP_SECRET", CANARY),
        ("SHOP_TEXT", "acme"),
        ("SHOP_URL", "https://idp.example/token"),
        ("SHOP_HOST", "127.0.0.1"),
        ("SHOP_PORT", "8443"),
        ("SHOP_PATH", "/token"),
        ("SHOP_EXTENSIONS", "cluster=lkc-1"),
    ):
        monkeypatch.setenv(variable, content)
    options = definition({**TOKENS, f"kafka.sasl.oauthbearer.{name}": text}).source_options()
    assert "${env:" in options[f"kafka.sasl.oauthbearer.{name}"]
    login = read_resolved_options(options, Mode.STREAM).client.security.sasl
    assert login is not None
    assert login.tokens is not None
    field = {"token.endpoint.url": "endpoint"}.get(name, name.replace(".", "_"))
    assert getattr(login.tokens, field) == value


@pytest.mark.parametrize(
    "text",
    [
        "${ENV:SHOP_TEXT}",
        "${ env:SHOP_TEXT}",
        "${env: SHOP_TEXT}",
        "${env}",
        "${env:}",
        "a-${File:/x}",
        "${env:SHOP_TEXT",
        "${vault:x}",
        "${SHOP_TEXT}",
    ],
)
@pytest.mark.parametrize("name", ["sasl.oauthbearer.client.id", "sasl.username", "ssl.ca.location"])
def test_a_misspelt_reference_is_refused(name: str, text: str) -> None:
    with pytest.raises(DefinitionError, match="is not a reference") as caught:
        definition({**TOKENS, f"kafka.{name}": f"${{env:SHOP_OTHER}}{text}"})
    assert '"${env:NAME}" for an environment variable' in str(caught.value)


def test_a_backfill_is_checked_without_the_values() -> None:
    """Its arguments are checked before any variable is read."""
    found = definition({**TOKENS, "kafka.sasl.oauthbearer.client.id": "${env:SHOP_TEXT}"})
    require_possible(found, "earliest", "latest")


@pytest.mark.parametrize("text", ["${env:SHOP_URL}", "http://${env:SHOP_HOST}/token"])
def test_a_resolved_text_is_checked_where_the_pipeline_connects(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SECRET", CANARY)
    monkeypatch.setenv("SHOP_URL", "http://idp.example/token")
    monkeypatch.setenv("SHOP_HOST", "idp.example")
    url = {"kafka.sasl.oauthbearer.token.endpoint.url": text}
    options = definition({**TOKENS, **url}).source_options()
    with pytest.raises(ConfigError, match="https"):
        read_resolved_options(options, Mode.STREAM)


@pytest.mark.parametrize(
    "name",
    [
        "kafka.security.protocol",
        "kafka.Security.Protocol",
        "kafka.sasl.mechanism",
        "kafka.sasl.mechanisms",
        "kafka.sasl.oauthbearer.method",
        "kafka.ssl.endpoint.identification.algorithm",
        "kafka.ssl.enabled.protocols",
        "kafka.ssl.cipher.suites",
        "kafka.ssl.keystore.type",
        "kafka.group.id",
        "kafka.client.id",
        "kafka.request.timeout.ms",
        "maxOffsetsPerTrigger",
        "groupIdPrefix",
    ],
)
@pytest.mark.parametrize("text", ["${env:NAME}", "a${file:/run/name}b"])
def test_a_reference_that_is_not_resolved_is_an_error(name: str, text: str) -> None:
    """Each process would have its own value: one machine could connect without encryption."""
    with pytest.raises(DefinitionError) as caught:
        definition({**LOGIN, "kafka.sasl.password": "${env:NAME}", name: text})
    assert f"key 'source.options.{name}': '{text}' has a reference" in str(caught.value)
    assert "Write the value itself" in str(caught.value)


def test_brokers_are_no_reference() -> None:
    with pytest.raises(DefinitionError, match=r"'pipeline\.bootstrap_servers': '\$\{env:B\}' has"):
        definition({}, brokers="${env:B}")


def test_a_wrong_name_of_a_secret_does_not_ask_for_its_value() -> None:
    with pytest.raises(DefinitionError, match=r"Did you mean 'kafka\.sasl\.password'"):
        definition({**LOGIN, "kafka.sasl.pasword": "${env:NAME}"})


@pytest.mark.parametrize("setting", sorted(SECURITY_SETTINGS))
def test_each_setting_resolves_a_reference_or_names_the_remedy(setting: str) -> None:
    """A new setting of the client is in one of both groups."""
    name = f"kafka.{setting}"
    found = {name: "${env:NAME}"}
    if setting in RESOLVED:
        assert checkable(found).keys() == found.keys()
        return
    with pytest.raises(OptionError, match="Write the value itself"):
        checkable(found)


def test_a_reference_in_a_pattern_would_match_no_topic() -> None:
    with pytest.raises(DefinitionError, match=r"source\.pattern.*has a reference"):
        definition({}, pattern="^${env:NONE}$")
    options = definition({}, pattern="^orders-[0-9]{2}$").source_options()
    assert read_resolved_options(options, Mode.STREAM).subscription.pattern == "^orders-[0-9]{2}$"


@pytest.mark.parametrize(
    "name", [" kafka.sasl.password", "kafkasasl.password", "\ufeffkafka.sasl.password"]
)
def test_a_misspelt_name_of_a_secret_is_refused(name: str) -> None:
    with pytest.raises(DefinitionError, match=r"Did you mean 'kafka\.sasl\.password'") as caught:
        definition({name: CANARY})
    assert CANARY not in str(caught.value)


def test_a_misspelt_protocol_does_not_connect_in_plain_text() -> None:
    with pytest.raises(DefinitionError, match=r"Did you mean 'kafka\.security\.protocol'"):
        definition({" kafka.security.protocol": "SSL"})


@pytest.mark.parametrize("kind", [PipelineReader, StateReader])
def test_a_query_has_references_and_its_reader_has_values(
    kind: type[PipelineReader | StateReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    given = definition({**LOGIN, "kafka.sasl.password": "${env:SHOP_PASSWORD}"}).source_options()
    reader = kind({**given, "planFile": "/nowhere"})
    assert CANARY not in str(vars(reader))
    login = reader._read_options().client.security.sasl
    assert login is not None
    assert login.password is not None
    assert login.password.reveal() == CANARY
