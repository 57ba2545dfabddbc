"""`BrokerServer`: a broker as an async context manager; starts and stops its parts in order.

    async with BrokerServer(BrokerConfig(port=0, data_dir="data")) as server:
        print(server.host, server.port)

When entering returns, the broker answers. When leaving returns, all accepted requests are answered
and on disk, and the data directory has the clean-stop marker. If a part fails, the whole broker
stops with the part's exception: half a broker is worse than none.
"""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from penstock.core.errors import PenstockError
from penstock.core.limit_use import LimitUse
from penstock.core.metrics import Collected
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import Settings
from penstock.node.settings.settings_reload import SettingsSource
from penstock.node.stand_ins import StandIns
from penstock.node.wiring import Parts, start_parts
from penstock.storage.disk.filesystem import FileSystem

if TYPE_CHECKING:
    from penstock.client.push import PublishedRecord, PushSubscription
    from penstock.node.gateways.gateway_node import NodeGateways
    from penstock.node.grpc_gateway.grpc_node import NodeGrpc
    from penstock.node.push.inside_clients import InsideClients
    from penstock.node.push.push_node import NodePush
    from penstock.protocol.push.data import Headers
    from penstock.protocol.push.payloads import Mode, Start, Vector

logger = logging.getLogger(__name__)


@contextmanager
def _one_error() -> Iterator[None]:
    """Raise an error of ours in a task group as itself, so that the caller can handle it."""
    try:
        yield
    except BaseExceptionGroup as group:
        ours = group.subgroup(PenstockError)
        if ours is not None:
            # One failing disk may end several tasks; the first error has the cause.
            first = ours.exceptions[0]
            raise first from first.__cause__
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from group.exceptions[0].__cause__
        raise


class BrokerServer:
    """One broker in this process. It can be started once."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        filesystem: FileSystem | None = None,
        source: SettingsSource | None = None,
        stand_ins: StandIns | None = None,
    ) -> None:
        """Set up a broker; `filesystem` replaces the disk in fault tests, `stand_ins` other parts.

        A `source` has the settings, and the broker watches its file.
        """
        if settings is None:
            settings = BrokerConfig() if source is None else source.first.settings
        self._settings = settings
        self._stand_ins = stand_ins or StandIns(filesystem)
        self._source = source
        self._stack = AsyncExitStack()
        self._parts: Parts | None = None
        self._push: NodePush | None = None
        self._grpc: NodeGrpc | None = None
        self._gateways: NodeGateways | None = None
        self._inside: InsideClients | None = None

    @property
    def host(self) -> str:
        """The advertised address."""
        return self._running.endpoints[0].host

    @property
    def port(self) -> int:
        """The advertised port; with port 0, the port that the system chose."""
        return self._running.endpoints[0].port

    @property
    def listening_ports(self) -> Mapping[str, int]:
        """The port of each listener by its name, whatever is advertised."""
        return self._running.listening_ports

    @property
    def bootstrap_server(self) -> str:
        """The value for a client's `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def addresses(self) -> str:
        """The advertised address of each listener, for a message."""
        if not self._settings.listeners:
            return self.bootstrap_server
        return ", ".join(
            f"{one} ({one.listener}, {one.protocol})" for one in self._running.endpoints
        )

    @property
    def admin_port(self) -> int | None:
        """The port of metrics, health and the REST API; None when there is none."""
        return self._running.admin.port

    async def wait_for_admin(self) -> None:
        """Wait until the admin port answers, a moment after the broker; return if there is none."""
        await self._running.admin.wait_up()

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, created at the first start on a data directory."""
        return self._running.metadata.image.cluster_id

    def reload_settings(self) -> None:
        """Reload the settings soon; do nothing if they have no source.

        It does nothing during the start either, which has just read the settings.
        """
        if self._parts is not None and self._parts.reload is not None:
            self._parts.reload.ask()

    @property
    def setting_problems(self) -> tuple[str, ...]:
        """Settings that could not be applied: a rejected settings file, declared topics."""
        reload = self._running.reload
        refused = () if reload is None or reload.refusal is None else (reload.refusal,)
        return (*refused, *self._running.declared.problems, *self._running.security.problems)

    def metrics(self) -> Mapping[str, float]:
        """Return every metric now, by name."""
        return self._running.metrics.snapshot()

    def limits(self) -> list[LimitUse]:
        """Return every limit now, with its use and its refusals."""
        return self._running.limits.rows()

    def collect_metrics(self) -> list[Collected]:
        """Return every metric now, with its description for an exporter."""
        return self._running.metrics.collect()

    # --- Publish and subscribe in this process ---

    @property
    def push_port(self) -> int | None:
        """The port for push clients; None when push is not served over TCP."""
        return None if self._push is None else self._push.port

    @property
    def http_port(self) -> int | None:
        """The port for HTTP and WebSocket clients; None when there is none."""
        return None if self._gateways is None else self._gateways.port

    @property
    def grpc_port(self) -> int | None:
        """The port for gRPC clients; None when there is none."""
        return None if self._grpc is None else self._grpc.port

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: "Headers" = (),
        partition: int | None = None,
    ) -> "PublishedRecord":
        """Append a record, and return its place when it is on disk. It uses no socket."""
        client = self._clients.publisher()
        return await client.publish(topic, value, key=key, headers=headers, partition=partition)

    async def subscribe(
        self,
        topic: str,
        *,
        group: str | None = None,
        mode: "Mode | None" = None,
        start: "Start | Vector | None" = None,
        credit: int = 1_000,
        auto_ack: bool = False,
    ) -> "PushSubscription":
        """Return the records of a topic as an async iterator. It uses no socket.

        `mode` "queue" shares the records with the other subscribers of the group; without a mode,
        the routing of the topic decides. A subscription has a session of its own;
        `PushSubscription.close` ends it.
        """
        return await self._clients.subscribe(
            topic, group=group, mode=mode, start=start, credit=credit, auto_ack=auto_ack
        )

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        routing: Literal["fanout", "queue"] = "fanout",
        buffer_size: int | None = None,
    ) -> None:
        """Create a topic with the settings of `[topic_defaults]`; it may exist already.

        `routing` and `buffer_size` are those of a declared topic. They do not change a topic that
        exists.
        """
        await self._clients.create_topic(name, partitions, routing, buffer_size)

    def _open_push(self) -> "NodePush":
        """Return the push part, which the first caller loads."""
        if self._push is None:
            from penstock.node.push.push_node import NodePush

            parts = self._running
            self._push = NodePush(parts.services, parts.metrics)
            parts.live.add_followers(self._push.follow)
            parts.late.add(self._push.stop)
            parts.admin.refreshes.add(self._push.refresh)
            parts.edge_sessions.serve(self._push.sessions, self._push.end_sessions)
        return self._push

    async def _open_gateways(self, parts: Parts) -> None:
        """Accept HTTP and WebSocket clients."""
        from penstock.node.gateways.gateway_node import NodeGateways

        self._gateways = NodeGateways(parts.services, self._open_push().server)
        parts.live.add_followers(self._gateways.follow)
        parts.late.add(self._gateways.stop)
        await self._gateways.listen(parts.listener, parts.security)

    async def _open_grpc(self, parts: Parts) -> None:
        """Accept gRPC clients."""
        from penstock.node.grpc_gateway.grpc_node import NodeGrpc

        self._grpc = NodeGrpc(parts.services, self._open_push().server, parts.metrics)
        parts.late.add(self._grpc.stop)
        await self._grpc.listen(parts.listener, parts.security)

    @property
    def _clients(self) -> "InsideClients":
        if self._inside is None:
            from penstock.node.push.inside_clients import InsideClients

            self._inside = InsideClients(self._open_push(), self._running.services)
        return self._inside

    async def run(self) -> None:
        """Start, serve until cancelled, stop."""
        async with self:
            await asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        assert self._parts is None, "a BrokerServer is started once"
        with _one_error():
            async with AsyncExitStack() as stack:
                self._parts = await start_parts(
                    self._settings, stack, self._stand_ins, self._source
                )
                if self._running.services.settings.edge.has_push:
                    await self._open_push().listen(self._parts.listener, self._parts.security)
                if self._running.services.settings.edge.http_port is not None:
                    await self._open_gateways(self._parts)
                if self._running.services.settings.edge.grpc_port is not None:
                    await self._open_grpc(self._parts)
                self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        with _one_error():
            return await self._stack.__aexit__(exc_type, exc_value, traceback)

    @property
    def _running(self) -> Parts:
        assert self._parts is not None, "the broker is not started"
        return self._parts


def run(work: Coroutine[object, object, None], *, use_uvloop: bool) -> None:
    """Run a coroutine on a new event loop, of uvloop or of Python."""
    if use_uvloop:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)
    else:
        asyncio.run(work)
