"""`is_loopback`: whether only this machine reaches an address (pure).

It does NOT resolve names: of them only `localhost` is known to be this machine.
"""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False
