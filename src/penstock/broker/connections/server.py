"""`Listener`: the sockets of one broker; accepts connections and, at a stop, finishes them.

A broker has one or more entrances, each with its own address and protocol; their connections share
one `ListenerState`.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib import import_module

from penstock.broker.connections import endings
from penstock.broker.connections.binding import bind_entrance
from penstock.broker.connections.check_turns import CheckTurns
from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.limits_in_use import listener_limits
from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.listener_state import ListenerState, Served
from penstock.broker.dispatch import Dispatcher
from penstock.broker.peer import Peer
from penstock.broker.tls.handshake_failures import HandshakeFailures, show_failures
from penstock.broker.tls.tls_limits import HandshakeLimits
from penstock.core.limit_use import LimitUse
from penstock.core.metrics import Registry
from penstock.core.settings.tree import ListenerSettings, Settings
from penstock.core.stopping import STOP_DRAIN_SECONDS_MAX

logger = logging.getLogger(__name__)

BACKLOG = 4_096
"""Connections that wait to be accepted; ten thousand clients may come at once after a restart."""
ACCEPT_TURNS = 5
"""Turns of the loop until a connection that was accepted last is known; uvloop needs two. One that
became known later would use parts that are already closed."""

WrapConnection = Callable[[asyncio.BufferedProtocol], asyncio.BufferedProtocol]
"""Puts something between a socket and its connection, for tests of a bad network."""


class Listener:
    """Accepts Kafka clients."""

    def __init__(
        self,
        settings: ListenerSettings,
        entrances: Sequence[Entrance],
        dispatcher: Dispatcher,
        metrics: Registry,
        wrap_connection: WrapConnection | None = None,
        handshakes: HandshakeLimits | None = None,
    ) -> None:
        assert entrances
        self._wrap_connection = wrap_connection
        self._state = ListenerState(settings, dispatcher, metrics)
        if wrap_connection is not None:
            self._state.sends_files = False
        self.entrances = tuple(entrances)
        self._inside = Entrance()
        """Of the connections within this process."""
        self._add_tls(handshakes, metrics)
        if any(entrance.logins is not None for entrance in self.entrances):
            import_module("penstock.broker.connections.gate")
        endings.show_entrances(metrics, self.entrances)
        self._servers: list[asyncio.Server] = []
        self._sockets: list[tuple[Entrance, socket.socket]] = []

    def _add_tls(self, limits: HandshakeLimits | None, metrics: Registry) -> None:
        """Create the state of each listener with TLS."""
        state = self._state
        failures = self.handshake_failures = dict[str, HandshakeFailures]()
        for entrance in self.entrances:
            if entrance.context_source is None:
                continue
            # Only a listener with TLS needs these modules; its first connection waits for none.
            from penstock.broker.tls.handshake_turns import HandshakeTurns
            from penstock.broker.tls.tls_listener import TlsListener

            import_module("penstock.broker.tls.layer")
            failures[entrance.name] = own = HandshakeFailures(entrance.name)
            turns = HandshakeTurns(state.loop, limits or HandshakeLimits(), own)
            entrance.tls = TlsListener(
                state.loop,
                entrance.context_source,
                turns,
                state.dispatcher,
                lambda: state.receiving.is_spent,
                state.dispatcher.clock,
                state.turns,
            )
        show_failures(metrics, failures)

    @property
    def port(self) -> int:
        """The port of the first entrance."""
        return self.entrances[0].port

    def bind(self) -> None:
        """Bind the addresses, so that they are known before any client is served."""
        try:
            for entrance in self.entrances:
                bound = bind_entrance(entrance)
                self._sockets += ((entrance, one) for one in (*bound, *entrance.shared_sockets))
        except BaseException:
            self.close_sockets()
            raise

    async def start(self) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        for entrance, bound in self._sockets:
            accept = partial(self._connection, entrance)
            server = await loop.create_server(accept, sock=bound, backlog=BACKLOG)
            self._servers.append(server)
        self._sockets = []

    def _connection(self, entrance: Entrance) -> asyncio.BufferedProtocol:
        connection = ConnectionProtocol(self._state, entrance)
        outer: asyncio.BufferedProtocol = connection
        if entrance.tls is not None:
            from penstock.broker.tls.layer import TlsLayer

            outer = TlsLayer(entrance.tls, connection)
        return outer if self._wrap_connection is None else self._wrap_connection(outer)

    @property
    def check_turns(self) -> CheckTurns:
        """The turns of password checks, for doors that are not listeners too."""
        return self._state.check_turns

    @property
    def connections(self) -> Collection[Served]:
        """The open connections; a snapshot."""
        return tuple(self._state.connections)

    async def adopt(self, connected: socket.socket, peer: Peer) -> None:
        """Serve a socket of this process, whose client has this identity.

        The limits on connections are not for it: its owner has a bound of its own.
        """
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(
            lambda: ConnectionProtocol(self._state, self._inside, peer), connected
        )

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
        for entrance in self.entrances:
            if entrance.tls is not None:
                entrance.tls.handshakes.stop()
        for server in self._servers:
            await server.wait_closed()

    def limits(self) -> list[LimitUse]:
        """Every limit on connections and requests, with its use."""
        return listener_limits(self._state)

    def close_sockets(self) -> None:
        """Close sockets that have not served any client."""
        for _, bound in self._sockets:
            bound.close()
        self._sockets = []
