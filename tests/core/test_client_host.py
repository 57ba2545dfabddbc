"""`host_of`: which addresses are one client."""

import pytest

from penstock.core.client_host import host_of


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("64:ff9b::a00:7", "10.0.0.7"),
        ("2001:db8:1:2:3:4:5:6", "20010db800010002/64"),
        ("2001:db8:1:2::1", "20010db800010002/64"),
        ("fe80::1", "fe80000000000000/64"),
        ("fe80::2%eth0", "fe80000000000000/64"),
        ("a.socket", "a.socket"),
        ("", ""),
    ],
)
def test_an_address_is_one_client(address: str, host: str) -> None:
    assert host_of(address) == host


def test_a_text_is_bounded() -> None:
    assert len(host_of("x" * 100_000)) == 256
