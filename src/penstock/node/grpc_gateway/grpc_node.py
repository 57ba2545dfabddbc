"""`NodeGrpc`: the gRPC gateway of one broker: its port, its TLS files and its end.

It uses the security of the listener that push uses (`edge.listener`), and renewed TLS files for new
connections. Created only if `edge.grpc_port` is set; gRPC is imported then. A stop ends sessions
in order before the push server stops.
"""

import asyncio
import importlib.util
import logging
from datetime import UTC, datetime

from penstock.broker.connections.server import Listener
from penstock.broker.context import BrokerServices
from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry
from penstock.core.settings.listener_declarations import NamedListener
from penstock.edge.grpc_gateway.gateway_calls import GatewayCalls
from penstock.edge.grpc_gateway.gateway_ports import ServerPem
from penstock.edge.push.server import PushServer
from penstock.node.entrances import entrance_of
from penstock.node.grpc_gateway.gateway_broker import NodeGatewayBroker
from penstock.node.grpc_gateway.grpc_door import GrpcDoor
from penstock.node.push.push_listener import push_listener
from penstock.node.security.certificates_in_use import tls_files
from penstock.node.security.node_security import NodeSecurity

logger = logging.getLogger(__name__)


class NodeGrpc:
    """The gateway of one broker."""

    def __init__(self, services: BrokerServices, push: PushServer, metrics: Registry) -> None:
        if importlib.util.find_spec("grpc") is None:
            raise ConfigError(
                "edge.grpc_port needs the package grpcio, which is not installed.",
                hint="pip install 'penstock[grpc]'",
            )
        self._services = services
        self._push = push
        self._metrics = metrics
        self.port: int | None = None

    async def listen(self, listener: Listener, security: NodeSecurity) -> None:
        """Accept clients at the port of the settings."""
        from penstock.edge.grpc_gateway.grpc_server import GrpcServer

        settings = self._services.settings
        declared, edge = push_listener(settings), settings.edge
        assert edge.grpc_port is not None
        pem = await self._server_pem(declared)
        entrance = entrance_of(declared, security, is_declared=True)
        self.server = GrpcServer(
            GatewayCalls(NodeGatewayBroker(self._services)),
            GrpcDoor(
                entrance,
                listener.check_turns,
                self._services.tasks.start,
                security.identities.password_version,
            ),
            self._push,
            self._metrics,
            message_bytes_max=edge.grpc_message_bytes_max,
        )
        self.port = await self.server.listen(edge.host, edge.grpc_port, pem)
        if pem is not None:

            def reloaded(name: str, problem: str | None) -> None:
                if name == declared.name and problem is None:
                    self._services.tasks.start(self._renew(declared))

            security.certificates.followers.append(reloaded)

    async def _server_pem(self, declared: NamedListener) -> ServerPem | None:
        """Return the TLS files; raise `ConfigError` if gRPC cannot use them."""
        tls = declared.tls
        if tls is None:
            return None
        if tls.key_password_file is not None:
            raise ConfigError(
                f"gRPC uses the listener {declared.name}, whose key has a password: gRPC reads "
                "keys without one only.",
                hint="Name another listener in edge.listener, or remove edge.grpc_port.",
            )
        if tls.client_auth == "requested":
            raise ConfigError(
                f"gRPC uses the listener {declared.name} with tls.client_auth = 'requested': gRPC "
                "knows none and required only.",
                hint="Name another listener in edge.listener, or remove edge.grpc_port.",
            )
        return await asyncio.to_thread(self._read_pem, declared)

    def _read_pem(self, declared: NamedListener) -> ServerPem:
        from penstock.broker.tls.contexts import build_server_tls
        from penstock.broker.tls.tls_files import read_files

        files = tls_files(self._services.settings)[declared.name]
        snapshot = read_files(files)
        # The same checks as for the listener: key and certificate belong together.
        build_server_tls(
            files, snapshot, datetime.fromtimestamp(self._services.clock.now_ms() / 1000, UTC)
        )
        return ServerPem(
            snapshot.certificate, snapshot.key.reveal().encode("latin-1"), snapshot.client_ca
        )

    async def _renew(self, declared: NamedListener) -> None:
        try:
            self.server.use_files(await asyncio.to_thread(self._read_pem, declared))
        except ConfigError as error:
            logger.warning("gRPC keeps its TLS files: %s", error)

    async def stop(self) -> None:
        """Refuse new calls, and end all."""
        if self.port is not None:
            await self.server.stop()
