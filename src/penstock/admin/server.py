"""`HttpServer`: an application on a socket, in the broker's loop; `AdminServer`: the broker's own.

uvicorn implements HTTP. Its process, its signals and its periodic timer are not used, because the
broker has its own and an idle broker should sleep. This module adds bounds: the number of
connections (`places`), and the time to send a request and to read its answer. `strict_buffer`
rejects ambiguous framing. A stop answers requests that have begun, for a while.

It knows no TLS: its caller may put a layer between a socket and its connection (`Wrap`), and the
bounds hold from the first byte of the handshake.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import h11
from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from penstock.admin.app import (
    CLIENT_CERTIFICATE,
    IDENTIFIED,
    LOST,
    REQUEST_SECONDS_MAX,
    make_app,
)
from penstock.admin.browser_safety import allowed_names
from penstock.admin.desk import Desk
from penstock.admin.places import Places
from penstock.admin.ports import (
    BrokerView,
    CallerCheck,
    ClusterDoor,
    LeaseDesk,
    PipeDesk,
    SessionBook,
)
from penstock.admin.problems import CONTENT_TYPE, Problem
from penstock.admin.strict_buffer import HEAD_BYTES_MAX, StrictBuffer
from penstock.core.settings.admin_settings import AdminSettings

CONNECTIONS_MAX: Final = 64
"""Scrapers, probes and users; each connection uses a descriptor that Kafka clients then do not
have."""
CONNECTIONS_PER_ADDRESS_MAX: Final = 16
"""Of these, connections of one address."""
RECEIVE_SECONDS_MAX: Final = 5.0
"""For the head of a request: from the connection or the end of its TLS handshake, or from the first
byte of a later request."""
ANSWER_SECONDS_MAX: Final = REQUEST_SECONDS_MAX + 15.0
"""From the head of a request to the end of its answer. The application times out earlier and sends
an error; this deadline is for a peer that does not read the answer."""
IDLE_SECONDS_MAX: Final = 30.0
"""From an answer to the next request, and for the peer to read it; Prometheus scrapes every 15 s by
default."""
STOP_SECONDS_MAX: Final = 5.0
"""For requests that are being answered when the broker stops."""
LAST_WORD_SECONDS_MAX: Final = 1.0
"""To send an error to requests that were not answered."""


class HttpConnection(H11Protocol):
    """uvicorn's protocol, with a bound on connections and one deadline for each.

    The deadline is for the head of a request, then for its answer, then for the next request. For
    any behaviour of a peer, its connection ends after one of them.
    """

    _buffer: StrictBuffer
    _places: "Places[HttpConnection]"
    _lost: asyncio.Event
    _deadline: asyncio.TimerHandle | None = None
    _is_receiving = False
    """Whether the deadline is for the head of a request: more bytes of it do not extend it."""
    _is_identified = False
    """Whether the caller of the present request has proven its identity, if it has to."""

    def begin_with(self, places: "Places[HttpConnection]") -> None:
        """Share these places with the other connections; called before the first event."""
        self._places = places

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected; above a limit, a connection ends."""
        super().connection_made(transport)
        self._lost = asyncio.Event()
        self.app_state = {IDENTIFIED: self._identified, LOST: self._lost}
        self._buffer = self.conn._receive_buffer = StrictBuffer()
        self._is_receiving = True
        places_max, per_address_max = self.connection_limits()
        ended = self._places.take(
            self,
            self.client[0] if self.client else "",
            places_max=places_max,
            per_address_max=per_address_max,
        )
        if ended is not None:
            ended.transport.abort()
        if ended is not self:
            self._end_after(RECEIVE_SECONDS_MAX)

    def connection_limits(self) -> tuple[int, int]:
        """Return the limit of all connections, and that of one address."""
        return CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX

    def secured(self, certificate: bytes | None) -> None:
        """The TLS handshake is complete; `certificate` is the caller's in DER, if it sent one."""
        self.scheme = "https"
        self.app_state[CLIENT_CERTIFICATE] = certificate
        self._end_after(RECEIVE_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._places.leave(self)
        super().connection_lost(exc)
        self._lost.set()
        # The state holds a method of this connection: it would wait for the garbage collector.
        self.app_state.pop(IDENTIFIED, None)
        if self.cycle is not None:
            self.cycle.scope["state"].pop(IDENTIFIED, None)

    def data_received(self, data: bytes) -> None:
        """Bytes were received."""
        # uvicorn declares the cycle as always set, and sets it with a request.
        if not self._is_receiving and self.cycle.response_complete:
            self._is_receiving = True
            self._end_after(RECEIVE_SECONDS_MAX)
        super().data_received(data)

    def handle_events(self) -> None:
        """Handle what was received; a request begins when its head is complete."""
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._is_receiving = False
            self._is_identified = False
            self._end_after(ANSWER_SECONDS_MAX)
        self._keep_place()

    def on_response_complete(self) -> None:
        """A request is answered: the next one may come."""
        self._is_receiving = False
        self._places.rest(self)
        self._end_after(IDLE_SECONDS_MAX)
        super().on_response_complete()
        self._unset_keepalive_if_required()  # the deadline replaces it

    def _identified(self) -> None:
        self._is_identified = True
        self._keep_place()

    def _keep_place(self) -> None:
        """Keep the place for a request that is complete, of a caller with an identity."""
        cycle = self.cycle
        if self._is_identified and not (cycle.more_body or cycle.response_complete):
            self._places.work(self)

    def send_400_response(self, msg: str) -> None:
        """Send the reason of a rejection, or close the connection if the answer has begun."""
        # uvicorn calls this for an error of h11, whose traceback has a frame with the error itself
        # and one with this connection: it would wait for the garbage collector.
        if (error := sys.exception()) is not None:
            error.__traceback__ = None
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        reason = self._buffer.problem
        problem = Problem(
            title="Not a valid HTTP request",
            status=400,
            detail=f"Invalid HTTP request: {reason}." if reason else msg,
            remedy="Send each request as RFC 9112 describes it, with a shorter URL if it is long.",
        )
        body = problem.model_dump_json(exclude_none=True).encode()
        headers = [
            ("Content-Type", CONTENT_TYPE),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def _end_after(self, seconds: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        is_idle = not self._is_receiving and self.cycle.response_complete
        if is_idle and not self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            # A close would wait for a peer that does not read.
            self.transport.abort()


Wrap = Callable[[HttpConnection], asyncio.BaseProtocol]
"""Puts a layer, such as TLS, between a socket and its connection. The layer calls `secured`."""


class HttpServer:
    """Serves one application on a socket that is bound already."""

    def __init__(self, app: ASGIApp, connection: type[HttpConnection] = HttpConnection) -> None:
        self._connection = connection
        self._config = _config(app)
        self._state = ServerState()
        self._places: Places[HttpConnection] = Places()
        self._servers: list[asyncio.Server] = []

    async def start(self, bound: socket.socket, wrap: Wrap | None = None) -> None:
        """Accept connections, through a layer if there is one. The socket stays the caller's."""
        loop = asyncio.get_running_loop()
        app_state: dict[str, Any] = {}

        def accept() -> asyncio.BaseProtocol:
            connection = self._connection(self._config, self._state, app_state, loop)
            connection.begin_with(self._places)
            return connection if wrap is None else wrap(connection)

        server = await loop.create_server(accept, sock=bound.dup(), backlog=CONNECTIONS_MAX)
        self._servers.append(server)

    @property
    def connections(self) -> Iterable[object]:
        """The open connections."""
        return tuple(self._state.connections)

    async def stop(self) -> None:
        """Close idle connections immediately, and the others after their answers."""
        for server in self._servers:
            server.close()
        self._refuse_work()
        for connection in tuple(self._state.connections):
            connection.shutdown()
        await self._tasks_end(STOP_SECONDS_MAX)
        for task in tuple(self._state.tasks):
            task.cancel()
        await self._tasks_end(LAST_WORD_SECONDS_MAX)
        for connection in tuple(self._state.connections):
            connection.transport.abort()

    async def _tasks_end(self, seconds_max: float) -> None:
        if self._state.tasks:
            await asyncio.wait(tuple(self._state.tasks), timeout=seconds_max)

    def _refuse_work(self) -> None:
        """Begin no more work, because the server stops."""


class AdminServer(HttpServer):
    """Serves the application of one broker."""

    def __init__(
        self,
        view: BrokerView,
        door: ClusterDoor,
        check: CallerCheck,
        settings: AdminSettings,
        sessions: SessionBook | None = None,
        pipes: PipeDesk | None = None,
        leases: LeaseDesk | None = None,
    ) -> None:
        self._desk = Desk(door, sessions, pipes, leases)
        names = allowed_names(settings.allowed_hosts, settings.host)
        super().__init__(make_app(view, self._desk, check, allowed_names=names))

    def _refuse_work(self) -> None:
        self._desk.stop()


def _config(app: ASGIApp) -> Config:
    config = Config(
        app,
        http=HttpConnection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
    )
    config.load()
    return config
