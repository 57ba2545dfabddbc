"""The admin port of a broker: bound first, served when there is time for it, stopped last.

The port is bound before anything else is started, so that an operator sees at once if it is in use.
Its server is imported on a thread when the broker answers its Kafka clients, because the import
takes longer than the start itself. If logs are still being verified after a crash, it is imported
after a second: without an answer an orchestrator would kill the broker. Until then connections
wait. When the broker stops, the port answers until everything else has stopped.

If the operator set the port and it is in use, the start fails. If the default port is in use, the
broker starts without an admin port and logs it: a second broker on one machine must start.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.connections.check_turns import CheckTurns
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.cluster.link.lasting import last
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.core.metrics import Registry
from penstock.core.settings.admin_settings import ADMIN_PORT_DEFAULT, AdminSettings
from penstock.core.settings.tree import Settings
from penstock.node.admin_parts import Served
from penstock.node.refresh.refresh_hooks import RefreshHooks
from penstock.node.security.certificates_in_use import ADMIN, CertificatesInUse

if TYPE_CHECKING:
    from penstock.admin.server import AdminServer
    from penstock.node.workers.worker_parts import WorkerState

logger = logging.getLogger(__name__)

WorkerStates = Callable[[], "Sequence[WorkerState]"]

PATIENCE_SECONDS: Final = 1.0
"""How long the admin port waits for the Kafka listener before it is served without it."""
BACKLOG: Final = 64
"""Connections that wait to be accepted."""


class AdminPort:
    """The admin port of one broker; `port` is None when it has none."""

    def __init__(
        self,
        settings: Settings,
        metrics: Registry,
        clock: Clock,
        certificates: CertificatesInUse,
        workers: WorkerStates | None = None,
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._certificates = certificates
        self._metrics = metrics
        self._clock = clock
        self._started = (clock.now_ms(), clock.monotonic())
        self._socket: socket.socket | None = None
        self._served: Served | None = None
        self._is_stopping = False
        self._has_time = asyncio.Event()
        self._is_up = asyncio.Event()
        self._handshakes = HandshakeFailures(ADMIN)
        self.port: int | None = None
        self.refreshes = RefreshHooks()

    @classmethod
    def open(
        cls,
        settings: Settings,
        metrics: Registry,
        clock: Clock,
        certificates: CertificatesInUse,
        tasks: asyncio.TaskGroup,
        stack: AsyncExitStack,
        workers: WorkerStates | None = None,
    ) -> "AdminPort":
        """Bind the port; leaving `stack` closes it. `workers`: all workers of the supervisor."""
        admin = cls(settings, metrics, clock, certificates, workers)
        bound = _bind(settings.admin) if settings.admin.enabled else None
        if bound is None:
            admin._is_up.set()
            return admin
        admin._socket, admin.port = bound, bound.getsockname()[1]
        stack.callback(bound.close)
        stack.push_async_callback(_end, last(tasks, admin._run()))
        return admin

    def serve(self, served: Served) -> None:
        """Serve this port, which may query the broker, because the broker answers clients now."""
        self._served = served
        if self._certificates.context_source(ADMIN) is not None:
            served.listener.handshake_failures[ADMIN] = self._handshakes
        self._has_time.set()

    def stop_serving(self) -> None:
        """Report from now on that the broker stops."""
        self._is_stopping = True

    async def wait_up(self) -> None:
        """Wait until the port is served; return at once when there is none."""
        await self._is_up.wait()

    async def _run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._has_time.wait()
        except TimeoutError:
            pass  # logs are being verified: answer probes meanwhile
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        server = await asyncio.to_thread(self._make_server, loop)
        context = self._certificates.context_source(ADMIN)
        tls = None
        if context is not None:
            from penstock.node.admin_tls import AdminTls  # only TLS needs it

            tls = AdminTls(loop, context, self._handshakes, self._clock)
        await server.start(self._socket, None if tls is None else tls.wrap)
        self._is_up.set()
        scheme = "http" if tls is None else "https"
        logger.info("admin port: %s://%s:%d", scheme, self._settings.admin.host, self.port)
        try:
            await loop.create_future()
        finally:
            # The task is cancelled once; the code that stops the server is not.
            await server.stop()
            if tls is not None:
                tls.stop()

    def _make_server(self, loop: asyncio.AbstractEventLoop) -> "AdminServer":
        from penstock.admin.server import AdminServer
        from penstock.node.admin_sessions import NodeSessions
        from penstock.node.admin_view import NodeView
        from penstock.node.inside_door import InsideDoor
        from penstock.node.leases.lease_desk import NodeLeases
        from penstock.node.pipes.admin_pipes import NodePipes
        from penstock.node.refresh.refresh_desk import NodeRefreshes
        from penstock.node.security.admin_callers import AdminCallers

        view = NodeView(
            self._settings,
            self._metrics,
            self._clock,
            self._started,
            lambda: self._served,
            lambda: self._is_stopping,
            self._workers,
        )
        door = InsideDoor(loop, lambda: self._served)

        def check_turns() -> CheckTurns:
            assert self._served is not None
            return self._served.listener.check_turns

        check = AdminCallers(
            self._settings,
            self._clock,
            lambda: None if self._served is None else self._served.security,
            check_turns,
        )
        sessions = NodeSessions(lambda: self._served, self._clock)
        refreshes = NodeRefreshes(lambda: self._served, self._clock, self.refreshes)
        pipes = NodePipes(lambda: self._served, refreshes)
        leases = NodeLeases(lambda: self._served, has_files=self._settings.node.storage != "memory")
        return AdminServer(view, door, check, self._settings.admin, sessions, pipes, leases)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _bind(settings: AdminSettings) -> socket.socket | None:
    """Return the bound socket; None if the default port is in use."""
    port = ADMIN_PORT_DEFAULT if settings.port is None else settings.port
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listen = partial(socket.create_server, family=family, backlog=BACKLOG)
    try:
        bound = listen((settings.host, port))
    except OSError as error:
        if settings.port is None and error.errno == errno.EADDRINUSE:
            logger.warning(
                "no admin port: %s:%d: %s. Metrics, health and the REST API are not served; choose "
                "another port with --admin-port or admin.port.",
                settings.host,
                port,
                error.strerror,
            )
            return None
        hint = "Choose another port with --admin-port (admin.port)"
        if error.errno != errno.EADDRINUSE:
            hint = "Check admin.host and --admin-port (admin.port)"
        # `create_server` adds the address to the text; the message has it already.
        reason = os.strerror(error.errno) if error.errno is not None else error.strerror
        raise ConfigError(
            f"cannot listen on {settings.host}:{port} for administration: {reason}",
            hint=f"{hint}, or run without an admin port: --no-admin (admin.enabled = false).",
        ) from error
    bound.setblocking(False)  # noqa: FBT003 (positional only)
    return bound
