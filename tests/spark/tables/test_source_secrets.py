"""Secrets of a pipeline's source: references in the definition, values only where it connects.

It does NOT log in anywhere: `test_secured_tables` does.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.spark.source.options import Mode
from penstock.spark.tables.definition.errors import DefinitionError
from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.definition.references import SecretError
from penstock.spark.tables.definition.source_reading import read_resolved_options
from penstock.spark.tables.run.source import PipelineReader
from penstock.spark.tables.run.stateful.state_source import StateReader

CANARY = "canary-3b7e90"
LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "alice",
}
IN_PLAIN = "in plain text, and a definition is copied"


def definition(options: Mapping[str, str], **source: object) -> PipelineDefinition:
    return read_definition(
        {
            "pipeline": {"name": "orders", "bootstrap_servers": "b:9092", "checkpoint": "/c"},
            "source": {**(source or {"topics": ["orders"]}), "options": dict(options)},
            "table": {"format": "delta", "name": "shop.orders", "catalog": {"warehouse": "/w"}},
        },
        "orders.toml",
    )


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


def test_other_options_stay_as_they_are() -> None:
    options = definition({}, pattern="^${env:NONE}$").source_options()
    assert read_resolved_options(options, Mode.STREAM).subscription.pattern == "^${env:NONE}$"


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
