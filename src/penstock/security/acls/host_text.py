"""Addresses of clients as access rules name them: the text that Apache Kafka compares (pure).

Kafka compares the host of a rule with the text that Java prints for the client's address. For IPv6
that text has all eight groups (`0:0:0:0:0:0:0:1`), while Python's is the short form (`::1`). An
IPv4 address that a dual-stack socket reports as IPv6 (`::ffff:10.0.0.1`) is `10.0.0.1`.

Rules have no host names and no networks: such a host never equals an address.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address

from penstock.security.acls.values import WILDCARD


def kafka_host(address: str) -> str:
    """Return an address as Kafka writes it; a text that is not an address is returned as it is."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    return _java_text(parsed)


def read_host(text: str) -> str | None:
    """Return the host of a rule as Kafka writes it, or None if no client can have it."""
    if text == WILDCARD:
        return text
    try:
        parsed = ip_address(text)
    except ValueError:
        return None
    return str(parsed) if isinstance(parsed, IPv4Address) else _java_text(parsed)


def can_equal_an_address(host: str) -> bool:
    """Whether some client can match the host of this rule."""
    return read_host(host) == host


def _java_text(address: IPv6Address) -> str:
    mapped = address.ipv4_mapped
    if mapped is not None:
        return str(mapped)
    packed = address.packed
    text = ":".join(f"{packed[at] << 8 | packed[at + 1]:x}" for at in range(0, 16, 2))
    return f"{text}%{address.scope_id}" if address.scope_id else text
