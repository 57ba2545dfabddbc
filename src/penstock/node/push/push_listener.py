"""The addresses for push clients: TCP with the security of a listener, and a unix socket.

A unix socket carries no TLS and belongs to the user of the broker (mode 600). A broker whose
listener identifies clients by certificates alone has none: its clients would have no identity.
"""

import asyncio
import errno
import os
import socket
import stat
from collections.abc import Callable
from typing import Final

from penstock.broker.connections.binding import bind
from penstock.broker.connections.entrance import Entrance
from penstock.core.errors import ConfigError
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import Settings

BACKLOG: Final = 4_096
Accept = Callable[[], asyncio.BaseProtocol]


def push_listener(settings: Settings) -> NamedListener:
    """Return the listener whose security push uses; raise `ConfigError` if it cannot."""
    name = settings.edge.listener
    found = [one for one in settings.all_listeners if name in (None, one.name)]
    if not found:
        names = ", ".join(one.name for one in settings.all_listeners)
        raise ConfigError(
            f"edge.listener is {name}, which is not a listener of this broker.",
            hint=f"Set it to one of {names}, or remove it.",
        )
    listener = found[0]
    if listener.has_sasl and not {"PLAIN", "OAUTHBEARER"} & set(listener.mechanisms):
        raise ConfigError(
            f"push uses the listener {listener.name}, which has only the mechanisms "
            f"{', '.join(listener.mechanisms)}: push clients can log in with PLAIN or OAUTHBEARER.",
            hint="Add PLAIN or OAUTHBEARER to its mechanisms, or name another in edge.listener.",
        )
    has_certificates = listener.tls is not None and listener.tls.client_auth == "required"
    if settings.edge.socket_path is not None and has_certificates and not listener.has_sasl:
        raise ConfigError(
            f"edge.socket_path is set, and the listener {listener.name} identifies clients by "
            "certificates, which a unix socket cannot carry.",
            hint="Name a listener with SASL in edge.listener, or remove edge.socket_path.",
        )
    return listener


def bind_tcp(entrance: Entrance) -> socket.socket:
    """Return a socket for push clients, and set the port of the entrance."""
    try:
        bound = bind(entrance.host, entrance.port)
    except OSError as error:
        hint = "Choose an address of this machine with edge.host."
        if error.errno == errno.EADDRINUSE:
            hint = "Stop the process that uses it, or choose another port with edge.push_port."
        raise ConfigError(
            f"cannot listen on {entrance.host}:{entrance.port} for push: {error.strerror}",
            hint=hint,
        ) from error
    entrance.port = bound.getsockname()[1]
    return bound


def bind_unix(path: str) -> socket.socket:
    """Return a unix socket that only the user of this process may connect to."""
    _remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)
        try:
            bound.bind(path)
        finally:
            os.umask(before)
        bound.setblocking(False)  # noqa: FBT003 (positional only)
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"cannot create the unix socket {path}: {error.strerror}",
            hint="Choose a path in an existing directory with edge.socket_path.",
        ) from error
    return bound


def _remove_stale(path: str) -> None:
    """Remove the socket of a process that is gone."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    in_use = ConfigError(
        f"edge.socket_path {path} is in use.",
        hint="Stop the process that uses it, or choose another path.",
    )
    if not stat.S_ISSOCK(mode):
        raise in_use
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError:
            raise in_use from None
    raise in_use


async def serve(bound: socket.socket, accept: Accept) -> asyncio.AbstractServer:
    """Accept connections from a bound socket."""
    loop = asyncio.get_running_loop()
    if bound.family == socket.AF_UNIX:
        return await loop.create_unix_server(accept, sock=bound, backlog=BACKLOG)
    return await loop.create_server(accept, sock=bound, backlog=BACKLOG)
