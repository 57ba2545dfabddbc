"""Lists of brokers as people write them."""

import pytest

from penstock.client.transport.addresses import Address, parse_addresses
from penstock.core.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("broker", [("broker", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses_are_read(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == tuple(Address(*one) for one in addresses)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        ":9092",
        "a:x",
        "a:0",
        "a:65536",
        "::1",
        "a:-1",
        "a..b:9092",
        f"{'a' * 64}:9092",
        f"a:{'9' * 5000}",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_addresses(text)
    said = f"{caught.value} {caught.value.hint}"
    assert "host:port" in said or "localhost:9092" in said
    assert ":9092" in said


@pytest.mark.parametrize(
    ("text", "part", "wanted"),
    [
        ("http://localhost:9092", "the scheme http://", "localhost:9092"),
        ("https://broker", "the scheme https://", "broker:9092"),
        ("kafka://broker:9093/orders", "the scheme kafka://", "broker:9093"),
        ("PLAINTEXT://[::1]:9094", "the scheme PLAINTEXT://", "[::1]:9094"),
        ("SASL_SSL://broker:", "the scheme SASL_SSL://", "broker:9092"),
        ("localhost:9092/", "a path", "localhost:9092"),
        ("http://", "the scheme http://", "localhost:9092"),
    ],
)
def test_a_url_gets_the_address_that_is_meant(text: str, part: str, wanted: str) -> None:
    """`http://localhost:9092` was told to put an IPv6 address in brackets."""
    with pytest.raises(InvalidRequestError) as caught:
        parse_addresses(text)
    assert str(caught.value) == f"{text!r} is a URL with {part}; a broker's address is host:port."
    assert caught.value.hint == f"Use {wanted}, the port of the Kafka listener."


@pytest.mark.parametrize("text", ["broker:", "broker:abc", "broker:0"])
def test_a_missing_port_is_named(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="has no port from 1 to 65535") as caught:
        parse_addresses(text)
    assert "broker:9092" in caught.value.hint


def test_an_address_is_written_as_it_is_read() -> None:
    for text in ("localhost:9092", "[::1]:9093"):
        assert str(parse_addresses(text)[0]) == text
