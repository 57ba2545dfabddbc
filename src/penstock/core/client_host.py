"""`host_of`: the client that an address is counted for, in every limit by address.

An IPv4 address is one client, also in the forms in which IPv6 carries it. An IPv6 address counts by
its first 64 bits, because one client can choose all addresses below them. That is true of
link-local addresses too: the clients of a link are counted together.

It does NOT resolve names: a text that is no address is its own key.
"""

import ipaddress
from typing import Final

_HOST_BITS: Final = 64
_TEXT_CHARACTERS_MAX: Final = 256
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses of a NAT64 gateway: the last 32 bits are the IPv4 address (RFC 6052)."""


def host_of(address: str) -> str:
    """Return the key of the client that has this address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:_TEXT_CHARACTERS_MAX]
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    if parsed in _TRANSLATED:
        return str(ipaddress.IPv4Address(int(parsed) & 0xFFFF_FFFF))
    return f"{int(parsed) >> _HOST_BITS:x}/{_HOST_BITS}"
