"""Broker addresses and the list of them that a person gives (pure)."""

from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequestError

DEFAULT_PORT: Final = 9092
_PORT_DIGITS_MAX: Final = 5


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """The addresses in `host:port,host:port`; without a port it is 9092; IPv6 is `[::1]:9092`."""
    addresses = tuple(_parse_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise InvalidRequestError(
            f"{text!r} names no broker; give host:port, such as localhost:9092."
        )
    return addresses


def _parse_address(text: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not is_bracketed and ":" in host:
        raise InvalidRequestError(f"{text!r}: put an IPv6 address in brackets, such as [::1]:9092.")
    host = host[1:-1] if is_bracketed else host
    if not host or not _is_port(port):
        raise InvalidRequestError(f"{text!r} is not host:port, such as localhost:9092.")
    if not _is_name(host):
        raise InvalidRequestError(
            f"{text!r} has a host that cannot be looked up: each part between dots has 1 to 63 "
            "characters, as in localhost:9092."
        )
    return Address(host, int(port))


def _is_port(text: str) -> bool:
    return text.isdecimal() and len(text) <= _PORT_DIGITS_MAX and 0 < int(text) <= 65_535


def _is_name(host: str) -> bool:
    """Whether a resolver can be asked for it: sockets encode a name like this before they do."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host
