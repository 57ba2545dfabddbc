"""`NodePush`: push on one broker: its server, its addresses, and clients within the process.

A broker without `edge.push_port` and `edge.socket_path` creates it at the first call of
`BrokerServer.publish` or `.subscribe`, and has nothing of it before. A stop sends DISCONNECT to all
sessions, commits their acknowledged positions and closes them, before any other part stops.
"""

import asyncio
import contextlib
import os
from functools import partial
from typing import NoReturn, cast

from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.server import Listener
from penstock.broker.context import BrokerServices
from penstock.broker.peer import Peer
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.client.push.push_client import PushClient
from penstock.core.cancellation import Cancellation
from penstock.core.metrics import Registry
from penstock.core.settings.tree import Settings
from penstock.edge.push.connection import PushConnection
from penstock.edge.push.overview import SessionOverview, Wanted, end_all, listed
from penstock.edge.push.refresh_starts import refresh_connection
from penstock.edge.push.server import PushServer
from penstock.node.entrances import entrance_of, handshake_limits
from penstock.node.push.memory_link import link
from penstock.node.push.push_broker import NodePushBroker
from penstock.node.push.push_door import PROCESS_DOOR, ListenerDoor, ProcessDoor
from penstock.node.push.push_listener import bind_tcp, bind_unix, push_listener, serve
from penstock.node.security.node_security import NodeSecurity
from penstock.security.principal import Principal


def _of(principal: Principal | None) -> Wanted:
    """Return whether the sessions of a client are wanted; those of the process never are."""

    def is_wanted(client: object) -> bool:
        peer = cast("Peer", client)
        return peer.door != PROCESS_DOOR and principal in (None, peer.principal)

    return is_wanted


ENTRANCE = "PUSH"
"""The name of the push address in metrics of TLS."""


class _NoFiles:
    """`broker.tls.tls_listener.Loader`: push sends no files."""

    def load_cold(self, load: object, done: object, client: Cancellation) -> NoReturn:  # noqa: ARG002
        raise AssertionError("push sends no files")


class NodePush:
    """Push on one broker."""

    def __init__(self, services: BrokerServices, metrics: Registry) -> None:
        edge = services.settings.edge
        self._services = services
        self._loop = asyncio.get_running_loop()
        self.server = PushServer(
            NodePushBroker(services),
            services.tasks.start,
            metrics,
            sessions_max=edge.sessions_max,
            sessions_per_address_max=edge.sessions_per_address_max,
            sessions_per_principal_max=edge.sessions_per_principal_max,
        )
        self.port: int | None = None
        self._listening: list[asyncio.AbstractServer] = []
        self._tls: Entrance | None = None
        self._process_clients: list[PushClient] = []

    async def listen(self, listener: Listener, security: NodeSecurity) -> None:
        """Accept push clients at the addresses of the settings."""
        settings = self._services.settings
        declared, edge = push_listener(settings), settings.edge
        if edge.push_port is not None:
            at = declared.model_copy(
                update={"host": edge.host, "port": edge.push_port, "connections_max": None}
            )
            entrance = entrance_of(at, security, is_declared=True)
            self._secure(entrance, listener)
            bound = bind_tcp(entrance)
            self.port = entrance.port
            self._listening.append(
                await serve(bound, partial(self._connection, entrance, listener))
            )
        if edge.socket_path is not None:
            entrance = entrance_of(declared, security, is_declared=True)
            bound = bind_unix(edge.socket_path)
            self._listening.append(
                await serve(bound, partial(self._connection, entrance, listener))
            )

    def _secure(self, entrance: Entrance, listener: Listener) -> None:
        """Create the state of TLS, if the listener has it."""
        if entrance.context_source is None:
            return
        from penstock.broker.tls.handshake_turns import HandshakeTurns
        from penstock.broker.tls.tls_listener import TlsListener

        services, failures = self._services, HandshakeFailures(ENTRANCE)
        listener.handshake_failures[ENTRANCE] = failures
        entrance.tls = TlsListener(
            self._loop,
            entrance.context_source,
            HandshakeTurns(self._loop, handshake_limits(services.settings.tls), failures),
            _NoFiles(),
            lambda: False,
            services.clock,
            services.turns,
        )
        self._tls = entrance

    def _connection(self, entrance: Entrance, listener: Listener) -> asyncio.BaseProtocol:
        connection = self.server.connection(ListenerDoor(entrance, listener.check_turns))
        if entrance.tls is None:
            return connection
        from penstock.broker.tls.layer import TlsLayer

        return TlsLayer(entrance.tls, connection)

    def follow(self, settings: Settings) -> None:
        """Use other limits from now on."""
        edge = settings.edge
        self.server.follow(
            edge.sessions_max, edge.sessions_per_address_max, edge.sessions_per_principal_max
        )

    def refresh(self, topic: str, group: str | None) -> int:
        """Refresh the subscribers of a topic, or those of a group; return their number."""
        return sum(
            refresh_connection(one, self.server, topic, group)
            for one in tuple(self.server.connections)
            if isinstance(one, PushConnection)
        )

    def sessions(
        self, principal: Principal | None, after: int, limit: int
    ) -> list[SessionOverview]:
        """Return the sessions with numbers above `after`, for an operator."""
        server = self.server
        return listed(server.connections, server.broker, _of(principal), after, limit)

    def end_sessions(self, principal: Principal | None, number: int | None) -> tuple[int, bool]:
        """End the sessions of a principal, or one; return how many, and whether some are left."""
        return end_all(self.server.connections, _of(principal), number)

    def open_client(self) -> PushClient:
        """Return a client within this process, with all rights and without a socket."""
        client = PushClient()
        connection = self.server.connection(ProcessDoor())
        link(self._loop, connection, connection.receive, client, client.data_received)
        self._process_clients = [one for one in self._process_clients if not one.is_closed]
        self._process_clients.append(client)
        return client

    async def stop(self) -> None:
        """Refuse new connections, and end all sessions in order."""
        for server in self._listening:
            server.close()
        await self.server.stop()
        if self._tls is not None and self._tls.tls is not None:
            self._tls.tls.handshakes.stop()
        for server in self._listening:
            await server.wait_closed()
        path = self._services.settings.edge.socket_path
        if path is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)
