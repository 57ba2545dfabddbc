"""Lists of brokers as people write them."""

import pytest

from penstock.client.addresses import Address, parse_addresses
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
    with pytest.raises(InvalidRequestError, match=r"localhost:9092|\[::1\]:9092"):
        parse_addresses(text)


def test_an_address_is_written_as_it_is_read() -> None:
    for text in ("localhost:9092", "[::1]:9093"):
        assert str(parse_addresses(text)[0]) == text
