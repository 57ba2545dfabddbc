"""Binds the addresses of a listener.

`localhost` means both 127.0.0.1 and ::1, because clients resolve it to either. With port 0 the
first address gets a free port and the second one the same. It accepts no connection.
"""

import errno
import socket

from penstock.broker.connections.entrance import Entrance
from penstock.core.errors import ConfigError

FREE_PORT_TRIES = 8
"""Ports to try when any will do, before giving up."""


def bind_entrance(entrance: Entrance) -> list[socket.socket]:
    """Return the bound sockets of a listener, and set its port."""
    wanted = entrance.port
    for tries_left in reversed(range(FREE_PORT_TRIES)):
        try:
            return _bind_all(entrance)
        except ConfigError:
            if wanted or not tries_left:
                raise
            # The port that is free on one address is in use on the other: try another one.
            entrance.port = 0
    raise AssertionError("the last try raises")


def _bind_all(entrance: Entrance) -> list[socket.socket]:
    hosts = ["127.0.0.1", "::1"] if entrance.host == "localhost" else [entrance.host]
    sockets: list[socket.socket] = []
    for number, host in enumerate(hosts):
        try:
            bound = bind(host, entrance.port)
        except OSError as error:
            if number > 0 and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue
            for other in sockets:
                other.close()
            raise _cannot_listen(host, entrance, error) from error
        sockets.append(bound)
        entrance.port = bound.getsockname()[1]
    return sockets


def _cannot_listen(host: str, entrance: Entrance, error: OSError) -> ConfigError:
    """The error for an address that cannot be bound."""
    with_host, with_port = "with --host (listener.host)", "with --port (listener.port)"
    if entrance.is_declared:
        with_host = with_port = f"for the listener {entrance.name} in [[listeners]]"
    hint = f"Choose an address of this machine {with_host}."
    if error.errno == errno.EADDRINUSE:
        hint = f"Stop the process that uses it, or choose another port {with_port}."
    elif error.errno == errno.EACCES:
        hint = f"Choose a port of 1024 or more {with_port}."
    return ConfigError(f"cannot listen on {host}:{entrance.port}: {error.strerror}", hint=hint)


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to the first address of a host."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.setblocking(False)  # noqa: FBT003 (positional only)
    except BaseException:
        bound.close()
        raise
    return bound
