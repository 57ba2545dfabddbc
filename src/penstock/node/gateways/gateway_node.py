"""`NodeGateways`: HTTP and WebSocket on one broker: the port, its TLS, its identities, its end.

It uses the security of the listener that push uses (`edge.listener`), and the sessions of the push
server. A broker without `edge.http_port` imports nothing of it. A stop closes the port, ends all
sessions in order, answers waiting reads, and then closes the connections.
"""

import asyncio
import errno
import socket
from typing import Final

from starlette.routing import Route

from penstock.admin.server import HttpServer
from penstock.broker.connections.binding import bind
from penstock.broker.connections.server import Listener
from penstock.broker.context import BrokerServices
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.core.errors import ConfigError
from penstock.core.settings.edge_settings import EdgeSettings
from penstock.core.settings.tree import Settings
from penstock.edge.gateways.gateway_app import make_gateway_app
from penstock.edge.gateways.origins import BrowserRules, origin_problem
from penstock.edge.gateways.websocket_gateway import WebSocketGateway
from penstock.edge.push.server import PushServer
from penstock.node.admin_tls import AdminTls
from penstock.node.entrances import entrance_of, handshake_limits
from penstock.node.gateways.gateway_connection import GatewayConnection
from penstock.node.gateways.web_callers import WebCallers
from penstock.node.push.push_listener import push_listener
from penstock.node.security.node_security import NodeSecurity

ENTRANCE: Final = "HTTP"
"""The name of the port in metrics of TLS."""
LAST_FRAMES_SECONDS_MAX: Final = 0.5


def more_routes(services: BrokerServices, stopping: asyncio.Event) -> list[Route]:
    """Return routes of other parts of the edge at the same port."""
    from penstock.edge.pipes.http.http_routes import pipe_routes
    from penstock.node.pipes.pipe_source import NodePipeSource

    return pipe_routes(NodePipeSource(services), stopping)


class NodeGateways:
    """The HTTP port of one broker."""

    def __init__(self, services: BrokerServices, push: PushServer) -> None:
        self._services = services
        self._push = push
        self._settings = services.settings.edge
        self._stopping = asyncio.Event()
        self._server: HttpServer | None = None
        self._tls: AdminTls | None = None
        self._bound: socket.socket | None = None
        self.port: int | None = None

    async def listen(self, listener: Listener, security: NodeSecurity) -> None:
        """Accept clients at the port of the settings."""
        services, settings = self._services, self._services.settings
        rules = browser_rules(settings)
        entrance = entrance_of(push_listener(settings), security, is_declared=True)
        door = WebCallers(entrance, listener.check_turns, security.identities.password_version)
        gateway = WebSocketGateway(self._push, door, rules)
        connection = type(
            "Connection",
            (GatewayConnection,),
            {"gateway": gateway, "limits": self._limits, "challenge": door.challenge},
        )
        more = more_routes(services, self._stopping)
        app = make_gateway_app(self._push, door, rules, self._stopping, more)
        self._server = HttpServer(app, connection)
        if entrance.context_source is not None:
            listener.handshake_failures[ENTRANCE] = failures = HandshakeFailures(ENTRANCE)
            self._tls = AdminTls(
                asyncio.get_running_loop(),
                entrance.context_source,
                failures,
                services.clock,
                handshake_limits(settings.tls),
            )
        self._bound = bind_http(settings.edge)
        self.port = self._bound.getsockname()[1]
        await self._server.start(self._bound, None if self._tls is None else self._tls.wrap)

    def _limits(self) -> tuple[int, int]:
        """Return the limit of all connections, and that of one address."""
        return self._settings.sessions_max, self._settings.sessions_per_address_max

    def follow(self, settings: Settings) -> None:
        """Use other limits from now on."""
        self._settings = settings.edge

    async def stop(self) -> None:
        """Refuse new connections, and end all sessions and requests."""
        if self._bound is not None:
            self._bound.close()
        self._stopping.set()
        await self._push.stop()
        if self._server is not None:
            await self._last_frames(self._server)
            await self._server.stop()
        if self._tls is not None:
            self._tls.stop()

    async def _last_frames(self, server: HttpServer) -> None:
        """Wait until WebSockets have sent why they end, for a moment."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LAST_FRAMES_SECONDS_MAX
        while loop.time() < deadline and any(  # noqa: ASYNC110 (has a deadline)
            one.has_unsent for one in server.connections if isinstance(one, GatewayConnection)
        ):
            await asyncio.sleep(0.005)


def browser_rules(settings: Settings) -> BrowserRules:
    """Return the rules for web pages; raise `ConfigError` for an origin that is none."""
    edge = settings.edge
    for origin in edge.allowed_origins:
        problem = origin_problem(origin)
        if problem is not None:
            raise ConfigError(
                f"edge.allowed_origins has {origin!r}, which {problem}.",
                hint="Write scheme, host and port as the browser sends them, without a path.",
            )
    hosts = {edge.host, *edge.allowed_hosts}
    hosts |= {one.advertised_host for one in settings.all_listeners if one.advertised_host}
    return BrowserRules(edge.allowed_origins, hosts)


def bind_http(edge: EdgeSettings) -> socket.socket:
    """Return a socket for HTTP clients."""
    assert edge.http_port is not None
    try:
        return bind(edge.host, edge.http_port)
    except OSError as error:
        hint = "Choose an address of this machine with edge.host."
        if error.errno == errno.EADDRINUSE:
            hint = "Stop the process that uses it, or choose another port with edge.http_port."
        raise ConfigError(
            f"cannot listen on {edge.host}:{edge.http_port} for HTTP: {error.strerror}", hint=hint
        ) from error
