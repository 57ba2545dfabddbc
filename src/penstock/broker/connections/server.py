"""`Listener`: the sockets of one broker; accepts connections and, at a stop, finishes them.

`localhost` means both 127.0.0.1 and ::1, because clients resolve it to either. With port 0 the
first address gets a free port and the second one the same.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from penstock.broker.connections.limits_in_use import listener_limits
from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.listener_state import ListenerState
from penstock.broker.dispatch import Dispatcher
from penstock.core.errors import ConfigError
from penstock.core.limit_use import LimitUse
from penstock.core.metrics import Registry
from penstock.core.settings.tree import ListenerSettings, Settings
from penstock.core.stopping import STOP_DRAIN_SECONDS_MAX

logger = logging.getLogger(__name__)

BACKLOG = 4_096
"""Connections that wait to be accepted; ten thousand clients may come at once after a restart."""
FREE_PORT_TRIES = 8
"""Ports to try when any will do, before giving up."""
ACCEPT_TURNS = 5
"""Turns of the loop until a connection that was accepted last is known; uvloop needs two. One that
became known later would use parts that are already closed."""

WrapConnection = Callable[[asyncio.BufferedProtocol], asyncio.BufferedProtocol]
"""Puts something between a socket and its connection, for tests of a bad network."""


class Listener:
    """Accepts Kafka clients on one host and port."""

    def __init__(
        self,
        settings: ListenerSettings,
        dispatcher: Dispatcher,
        metrics: Registry,
        wrap_connection: WrapConnection | None = None,
    ) -> None:
        self._settings = settings
        self._wrap_connection = wrap_connection
        self._state = ListenerState(settings, dispatcher, metrics)
        if wrap_connection is not None:
            self._state.sends_files = False
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self.port = settings.port

    def bind(self) -> None:
        """Bind the address, so that it is known before any client is served."""
        for tries_left in reversed(range(FREE_PORT_TRIES)):
            try:
                return self._bind_all()
            except ConfigError:
                if self._settings.port or not tries_left:
                    raise
                # The port that is free on one address is in use on the other: try another one.
                self.port = 0
        return None

    def _bind_all(self) -> None:
        hosts = (
            ["127.0.0.1", "::1"] if self._settings.host == "localhost" else [self._settings.host]
        )
        for number, host in enumerate(hosts):
            try:
                bound = _bind(host, self.port)
            except OSError as error:
                if number > 0 and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    continue
                self.close_sockets()
                raise _cannot_listen(host, self.port, error) from error
            self._sockets.append(bound)
            self.port = bound.getsockname()[1]

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        for bound in self._sockets:
            server = await loop.create_server(self._connection, sock=bound, backlog=BACKLOG)
            self._servers.append(server)
        self._sockets = []

    def _connection(self) -> asyncio.BufferedProtocol:
        connection = ConnectionProtocol(self._state)
        return connection if self._wrap_connection is None else self._wrap_connection(connection)

    def follow(self, settings: Settings) -> None:
        """Use other limits from now on; the address is unchanged."""
        self._state.follow(settings.listener)

    async def stop(self) -> None:
        """Refuse new connections and requests; answer accepted requests; then close."""
        for server in self._servers:
            server.close()
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)
        for connection in tuple(self._state.connections):
            connection.finish()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_DRAIN_SECONDS_MAX
        while self._state.connections and loop.time() < deadline:  # noqa: ASYNC110 (has a deadline)
            await asyncio.sleep(0.005)
        for connection in tuple(self._state.connections):
            connection.abort()
        self._state.stop()
        for server in self._servers:
            await server.wait_closed()

    def limits(self) -> list[LimitUse]:
        """Every limit on connections and requests, with its use."""
        return listener_limits(self._state)

    def close_sockets(self) -> None:
        """Close sockets that have not served any client."""
        for bound in self._sockets:
            bound.close()
        self._sockets = []


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    """The error for an address that cannot be bound."""
    hint = "Choose an address of this machine with --host (listener.host)."
    if error.errno == errno.EADDRINUSE:
        hint = "Stop the process that uses it, or choose another port with --port (listener.port)."
    elif error.errno == errno.EACCES:
        hint = "Choose a port of 1024 or more with --port (listener.port)."
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}", hint=hint)


def _bind(host: str, port: int) -> socket.socket:
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
