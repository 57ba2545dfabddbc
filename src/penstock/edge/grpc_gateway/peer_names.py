"""gRPC's names of the other end of a connection, such as `ipv4:192.0.2.1:4711`. Pure."""

from ipaddress import ip_address
from urllib.parse import unquote


def address_of(peer: str) -> str:
    """Return the address without its port, in the form that access rules use; empty if unknown.

    A client with IPv4 at a socket for both versions has its IPv4 address.
    """
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return ""
    host = rest.rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        found = ip_address(host)
    except ValueError:
        return ""
    mapped = getattr(found, "ipv4_mapped", None)
    return str(found if mapped is None else mapped)
