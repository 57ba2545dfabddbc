"""`GatewayConnection`: one connection of the HTTP port, which may become a WebSocket.

Guarantees: an upgrade is decided before anything is written, within `UPGRADE_SECONDS_MAX`, and one
that is refused gets a problem document. A WebSocket, and a connection with a stream of events, keep
their place and have no deadline of HTTP: the push session has its own.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11

from penstock.admin.server import HttpConnection
from penstock.core.errors import PenstockError
from penstock.edge.gateways.gateway_app import proof_of
from penstock.edge.gateways.gateway_problems import GatewayRefusedError
from penstock.edge.gateways.web_ports import STREAMS
from penstock.edge.gateways.websocket_gateway import WebSocketGateway

if TYPE_CHECKING:
    from penstock.edge.gateways.websocket_link import WebSocketLink

UPGRADE_SECONDS_MAX: Final = 20.0
"""For the check of the credentials, which may be delayed after failures."""
_SPENT: Final = h11.Connection(h11.SERVER)
"""The HTTP of every connection that became a WebSocket."""
_SPENT.send_failed()


class GatewayConnection(HttpConnection):
    """A connection of the gateways of one broker; its subclass has these gateways."""

    gateway: WebSocketGateway
    limits: Callable[[], tuple[int, int]]
    challenge: str | None = None
    _link: "WebSocketLink | None" = None
    _is_upgrading = False
    _early = b""
    """Bytes that the client sent before its WebSocket was accepted."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self.app_state[STREAMS] = self._begin_stream

    def connection_limits(self) -> tuple[int, int]:
        """Return the limit of all connections, and that of one address."""
        return type(self).limits()

    def data_received(self, data: bytes) -> None:
        """Bytes were received."""
        if self._link is not None:
            self._link.data_received(data)
        elif self._is_upgrading:
            self._early += data
        else:
            super().data_received(data)

    def eof_received(self) -> None:
        """The client will send no more."""

    def pause_writing(self) -> None:
        """The client reads slowly."""
        if self._link is None:
            super().pause_writing()
        else:
            self._link.pause_writing()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._link is None:
            super().resume_writing()
        else:
            self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        super().connection_lost(exc)
        self.app_state.pop(STREAMS, None)
        if self.cycle is not None:
            self.cycle.scope["state"].pop(STREAMS, None)
        link, self._link = self._link, None
        if link is not None:
            link.connection_lost(exc)

    @property
    def has_unsent(self) -> bool:
        """Whether the last frames of a WebSocket are not sent yet."""
        return self._link is not None and self.transport.get_write_buffer_size() > 0

    def shutdown(self) -> None:
        """End an idle connection; a WebSocket ends with its session."""
        if self._link is None and not self._is_upgrading:
            super().shutdown()

    # --- Streams of events ---

    def _begin_stream(self) -> Callable[[], None]:
        """Wait for the stream without a deadline; return the call that cuts the connection."""
        if self._deadline is not None:
            self._deadline.cancel()
        return self.transport.abort

    # --- WebSockets ---

    def _should_upgrade_to_ws(self) -> bool:
        return True

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Decide about a WebSocket; the client waits."""
        self._is_upgrading = True
        self._is_receiving = False
        self._early = self.conn.trailing_data[0]
        self.flow.pause_reading()
        self._end_after(UPGRADE_SECONDS_MAX)
        if event.method != b"GET":
            self._refuse(
                GatewayRefusedError(405, "Method not allowed", "A WebSocket begins with GET.")
            )
            return
        task = self.loop.create_task(self._upgrade())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _upgrade(self) -> None:
        headers = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in self.headers
        ]
        path = self.scope["raw_path"].decode("ascii")
        try:
            link, answer = await type(self).gateway.open(
                path, headers, proof_of(dict(self.scope)), self.transport
            )
        except GatewayRefusedError as error:
            self._refuse(error)
            return
        except PenstockError as error:
            self._refuse(GatewayRefusedError(503, "Not now", str(error), "Connect again later."))
            return
        if self.transport.is_closing():
            link.connection_lost(None)
            return
        self._link = link
        if self._deadline is not None:
            self._deadline.cancel()
        self._places.work(self)
        self._forget_http()
        self.transport.write(answer)
        early, self._early = self._early, b""
        self._is_upgrading = False
        self.flow.resume_reading()
        if early:
            link.data_received(early)

    def _forget_http(self) -> None:
        """Keep no memory of HTTP: thousands of WebSockets may be idle."""
        self.conn = _SPENT
        del self._buffer, self.scope, self.headers

    def _refuse(self, error: GatewayRefusedError) -> None:
        if self.transport.is_closing():
            return
        body = error.document()
        headers = {**error.headers(), "content-length": str(len(body)), "connection": "close"}
        if error.status == HTTPStatus.UNAUTHORIZED and self.challenge is not None:
            headers["www-authenticate"] = self.challenge
        lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.transport.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        self.transport.close()

    def _end(self) -> None:
        if self._is_upgrading:
            self.transport.abort()
        else:
            super()._end()
