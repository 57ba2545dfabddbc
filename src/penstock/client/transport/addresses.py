"""Broker addresses and the parser of address lists (pure)."""

from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequestError

DEFAULT_PORT: Final = 9092
_PORT_DIGITS_MAX: Final = 5
_PORT_MAX: Final = 65_535
_EXAMPLE: Final = f"Use localhost:{DEFAULT_PORT} for a broker on this machine."


class Address(NamedTuple):
    """The host and port of a broker's listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse `host:port,host:port`; the default port is 9092; IPv6 is written `[::1]:9092`."""
    addresses = tuple(_parse_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise InvalidRequestError(f"{text!r} names no broker; use host:port.", hint=_EXAMPLE)
    return addresses


def _parse_address(text: str) -> Address:
    _check_no_url(text)
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not is_bracketed and ":" in host:
        raise InvalidRequestError(
            f"{text!r} has several colons; an address is host:port, an IPv6 address [::1]:9092."
        )
    host = host[1:-1] if is_bracketed else host
    if not host:
        raise InvalidRequestError(f"{text!r} has no host; an address is host:port.", hint=_EXAMPLE)
    if not _is_port(port):
        raise InvalidRequestError(
            f"{text!r} has no port from 1 to {_PORT_MAX}; an address is host:port.",
            hint=f"Use {host}:{DEFAULT_PORT}, or the port that the broker listens on.",
        )
    if not _is_name(host):
        raise InvalidRequestError(
            f"{text!r} has a host that cannot be looked up: each part between dots has 1 to 63 "
            "characters, as in localhost:9092."
        )
    return Address(host, int(port))


def _check_no_url(text: str) -> None:
    """Reject a URL: it has a scheme before its host or a path after its port."""
    scheme, is_url, rest = text.partition("://")
    rest = rest if is_url else text
    address, has_path, _ = rest.partition("/")
    if is_url or has_path:
        part = f"the scheme {scheme}://" if is_url else "a path"
        wanted = (
            address
            if _has_port(address)
            else f"{address.rstrip(':') or 'localhost'}:{DEFAULT_PORT}"
        )
        raise InvalidRequestError(
            f"{text!r} is a URL with {part}; a broker's address is host:port.",
            hint=f"Use {wanted}, the port of the Kafka listener.",
        )


def _has_port(address: str) -> bool:
    return _is_port(address.rpartition(":")[2]) and not address.startswith(":")


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= _PORT_DIGITS_MAX and 0 < int(text) <= _PORT_MAX


def _is_name(host: str) -> bool:
    """Whether a resolver accepts the name: sockets encode a name like this before a look-up."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host
