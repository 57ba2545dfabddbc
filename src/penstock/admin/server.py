"""`AdminServer`: the application on a socket, in the broker's own event loop.

uvicorn speaks HTTP; its process, its signals and its ticking clock are left out, because the broker
has its own and an idle broker should sleep. What is added are bounds: how many connections there
are, and how long one may take to send a request. A stop answers what has begun, for a while.
"""

import asyncio
import logging
import socket
from typing import Any, Final

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from penstock.admin.app import make_app
from penstock.admin.browser_safety import allowed_names
from penstock.admin.desk import Desk
from penstock.admin.ports import BrokerView, ClusterDoor
from penstock.core.admin_settings import AdminSettings

CONNECTIONS_MAX: Final = 64
"""Scrapers, probes, people; each costs a descriptor that Kafka clients then do not have."""
HEAD_BYTES_MAX: Final = 65_536
"""Request line and headers together."""
IDLE_SECONDS_MAX: Final = 30
"""Between two requests of a connection; Prometheus comes every 15 s by default."""
RECEIVE_SECONDS_MAX: Final = 20.0
"""From the connection to its first request."""
STOP_SECONDS_MAX: Final = 5.0
"""For requests that are being answered when the broker stops."""


class _BoundedProtocol(H11Protocol):
    """uvicorn's protocol, with a bound on connections and on the wait for the first request."""

    _first_request: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
            return
        self._first_request = self.loop.call_later(RECEIVE_SECONDS_MAX, self._check_request)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._first_request is not None:
            self._first_request.cancel()
        super().connection_lost(exc)

    def _check_request(self) -> None:
        # uvicorn declares it as always there, and sets it with a request.
        if getattr(self, "cycle", None) is None:
            self.transport.abort()


class AdminServer:
    """Serves one broker's application on sockets that are bound already."""

    def __init__(self, view: BrokerView, door: ClusterDoor, settings: AdminSettings) -> None:
        self._desk = Desk(door)
        names = allowed_names(settings.allowed_hosts, settings.host)
        self._config = _config(make_app(view, self._desk, allowed_names=names))
        self._state = ServerState()
        self._servers: list[asyncio.Server] = []

    async def start(self, sockets: list[socket.socket]) -> None:
        """Accept connections."""
        loop = asyncio.get_running_loop()
        app_state: dict[str, Any] = {}

        def make_protocol() -> _BoundedProtocol:
            return _BoundedProtocol(self._config, self._state, app_state, loop)

        for bound in sockets:
            server = await loop.create_server(make_protocol, sock=bound, backlog=CONNECTIONS_MAX)
            self._servers.append(server)

    async def stop(self) -> None:
        """Close idle connections at once, and the others when they are answered."""
        for server in self._servers:
            server.close()
        self._desk.stop()
        for connection in tuple(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(tuple(self._state.tasks), timeout=STOP_SECONDS_MAX)
        for task in tuple(self._state.tasks):
            task.cancel()
        for connection in tuple(self._state.connections):
            connection.transport.abort()


def _config(app: ASGIApp) -> Config:
    config = Config(
        app,
        http=_BoundedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=IDLE_SECONDS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    config.load()
    return config
