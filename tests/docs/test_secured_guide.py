"""The guide to secured clusters: its settings are read as it says."""

import re
from pathlib import Path

from penstock.client.property_file import parse_properties
from penstock.client.security.options import Security, parse_security

GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/secured-kafka.md"


def read() -> list[Security]:
    blocks = re.findall(r"```properties\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return [parse_security(parse_properties(block)) for block in blocks]


def test_both_spellings_give_the_same_client() -> None:
    librdkafka, java, *_ = read()
    assert librdkafka == java
    assert librdkafka.sasl is not None
    assert (librdkafka.protocol, librdkafka.sasl.username) == ("SASL_SSL", "alice")


def test_certificates_and_tokens_are_read() -> None:
    *_, certificate, token = read()
    assert certificate.tls is not None
    assert certificate.tls.identity is not None
    assert token.sasl is not None
    assert token.sasl.tokens is not None
    assert token.sasl.tokens.client_id == "orders-service"
