"""The REST application on a socket: bounds of connections and time, and TLS.

Connections have the bounds and deadlines of the admin port (`penstock.admin.server`), with more
places. With TLS, the number of concurrent handshakes and the time of each are bounded too. A stop
answers requests that have begun, for a while.

It does NOT reload certificates: restart the process after a renewal.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from penstock.admin.server import HttpConnection, HttpServer
from penstock.core.errors import ConfigError
from penstock.materialize.rest_app import EXTEND

CONNECTIONS_MAX: Final = 512
CONNECTIONS_PER_ADDRESS_MAX: Final = 256
"""Requests that wait for an offset keep their connection."""
HANDSHAKES_MAX: Final = 32
HANDSHAKE_SECONDS_MAX: Final = 5.0
ACCEPT_PAUSE_SECONDS: Final = 0.05


class RestConnection(HttpConnection):
    """A connection whose deadline an export may extend."""

    def connection_limits(self) -> tuple[int, int]:
        """Return the limit of all connections, and that of one address."""
        return CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connected."""
        super().connection_made(transport)
        self.app_state[EXTEND] = self._end_after

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone; its methods are not kept in the state of a request."""
        super().connection_lost(exc)
        self.app_state.pop(EXTEND, None)
        if self.cycle is not None:
            self.cycle.scope["state"].pop(EXTEND, None)


class RestServer(HttpServer):
    """Serves one application."""

    def __init__(self, app: ASGIApp, context: ssl.SSLContext | None = None) -> None:
        super().__init__(app, RestConnection)
        self._context = context
        self._handshakes = asyncio.Semaphore(HANDSHAKES_MAX)

    async def run(self, bound: socket.socket, stop: asyncio.Event) -> None:
        """Serve connections of a bound socket until `stop` is set."""
        if self._context is None:
            await self.start(bound)
            await stop.wait()
        else:
            bound.settimeout(0)
            async with asyncio.TaskGroup() as group:
                accepting = group.create_task(self._accept_secured(bound, group))
                await stop.wait()
                accepting.cancel()
        await self.stop()

    async def _accept_secured(self, bound: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._handshakes.acquire()
            try:
                accepted, _ = await loop.sock_accept(bound)
            except OSError:  # the peer left, or descriptors ran out
                self._handshakes.release()
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            group.create_task(self._secure(accepted))

    async def _secure(self, accepted: socket.socket) -> None:
        try:
            with suppress(OSError, ssl.SSLError):
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._new_connection,
                    accepted,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
                )
        finally:
            self._handshakes.release()

    def _new_connection(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        connection = RestConnection(self._config, self._state, {}, loop)
        connection.begin_with(self._places)
        return connection


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on this address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error}.") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(CONNECTIONS_MAX)  # connections wait until the loop accepts them
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}.",
            hint="Choose another --port, or stop the process that uses it.",
        ) from error
    return bound


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the TLS settings of the port: TLS 1.2 or newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot use the certificate {certificate} with the key {key}: {error}.",
            hint="Both are PEM files; the key must belong to the first certificate.",
        ) from error
    return context
