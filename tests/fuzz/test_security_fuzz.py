"""Parsers of settings, certificates and SASL messages: any input is accepted or refused by name."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.property_file import parse_properties
from penstock.client.security.jaas import parse_jaas
from penstock.client.security.options import parse_security
from penstock.core.errors import AuthenticationError, ConfigError
from penstock.security.certificates.pem import validity
from penstock.security.sasl_client import ScramClient
from penstock.security.secret import Secret

JAAS = (
    b"org.apache.kafka.common.security.scram.ScramLoginModule required "
    b'username="alice" password="a\\"b";'
)
PROPERTIES = (
    b"security.protocol=SASL_SSL\nsasl.mechanism: SCRAM-SHA-512\n# x\nsasl.username=\\u00e9\n"
)
NONCE = "abc"


def fuzz_client_properties(data: bytes) -> None:
    """A file of client settings, then the settings in it."""
    with contextlib.suppress(ConfigError):
        parse_security(parse_properties(data.decode("latin-1")))


def fuzz_jaas(data: bytes) -> None:
    """A login module's text."""
    with contextlib.suppress(ConfigError):
        parse_jaas(Secret(data.decode("latin-1")), "SCRAM-SHA-256", "sasl.jaas.config")


def fuzz_scram(data: bytes) -> None:
    """The two messages of a server, divided at the first zero byte."""
    first, _, second = data.partition(b"\0")
    client = ScramClient("SCRAM-SHA-256", "alice", Secret("x"), NONCE)
    with contextlib.suppress(AuthenticationError):
        client.respond(first)
        client.respond(second)


def fuzz_certificate_dates(data: bytes) -> None:
    """The validity of a certificate, in DER."""
    with contextlib.suppress(ValueError):
        validity(data)


CORPUS: dict[str, list[bytes]] = {
    "fuzz_client_properties": [PROPERTIES, b"security.protocol=SSL\nssl.ca.location=/ca.pem\n"],
    "fuzz_jaas": [JAAS],
    "fuzz_scram": [b"r=abcdef,s=AAAA,i=4096\0v=AAAA", b"r=abcdef,s=AAAA,i=4096\0e=other-error"],
    "fuzz_certificate_dates": [
        bytes.fromhex("301e170d3236303130313030303030305a170d3237303130313030303030305a"),
        bytes.fromhex("3003020101"),
    ],
}
"""Valid inputs by target, and one that is close to valid."""


def test_the_corpus_is_read() -> None:
    assert parse_properties(PROPERTIES.decode())["sasl.username"] == "é"
    assert "password" in parse_jaas(Secret(JAAS.decode()), "SCRAM-SHA-256", "sasl.jaas.config")
    client = ScramClient("SCRAM-SHA-256", "alice", Secret("x"), NONCE)
    assert client.respond(CORPUS["fuzz_scram"][0].partition(b"\0")[0]) is not None


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    fuzz_client_properties(data)
    fuzz_jaas(data)
    fuzz_scram(data)
    fuzz_certificate_dates(data)
