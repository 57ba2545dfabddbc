"""`AdminTls`: the TLS of the admin port, by the layer that the listeners use (`broker.tls`).

The connection above the layer speaks HTTP and belongs to `admin`, which knows no TLS. Guarantees,
as for listeners: a connection has a place, and a deadline, before its handshake; records about keys
without content are bounded; a resumed session with an expired client certificate is refused; a
handshake uses the certificate that is in force when it begins. It does NOT decide which connections
exist: `admin.places` does.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.broker.tls.handshake_turns import HandshakeTurns
from penstock.broker.tls.layer import TlsLayer
from penstock.broker.tls.tls_limits import HandshakeLimits
from penstock.broker.tls.tls_listener import TlsListener
from penstock.core.cancellation import Cancellation
from penstock.core.clock import Clock

READ_BYTES: Final = 65_536
"""Bytes that are decrypted at a time; uvicorn's own limit for a body that is not read yet."""
HANDSHAKES_MAX: Final = 32
"""Unfinished handshakes: half of the connections of the port."""
HANDSHAKES_PER_ADDRESS_MAX: Final = 16
HANDSHAKES_WAITING_MAX: Final = 64
HANDSHAKE_SECONDS_MAX: Final = 4.5
"""Below the deadline of a silent connection, so that it is counted as a handshake that failed."""


class HttpConnection(Protocol):
    """The connection above the layer: an `asyncio.Protocol` with one more call."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """A client connected. Its handshake has not begun."""
        ...

    def secured(self, certificate: bytes | None) -> None:
        """The handshake is complete; `certificate` is the client's in DER, if it sent one."""
        ...

    def data_received(self, data: bytes) -> None:
        """Bytes were received."""
        ...

    def eof_received(self) -> bool | None:
        """The client will send no more."""
        ...

    def pause_writing(self) -> None:
        """The client reads slowly."""
        ...

    def resume_writing(self) -> None:
        """The client has caught up."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        ...


class AdminTls:
    """The TLS connections of one admin port."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context_source: Callable[[], ssl.SSLContext],
        failures: HandshakeFailures,
        clock: Clock,
        limits: HandshakeLimits | None = None,
    ) -> None:
        """`context_source` returns the context for a new connection; a reload replaces it."""
        limits = limits or HandshakeLimits(
            handshakes_max=HANDSHAKES_MAX,
            per_address_max=HANDSHAKES_PER_ADDRESS_MAX,
            waiting_max=HANDSHAKES_WAITING_MAX,
            seconds_max=HANDSHAKE_SECONDS_MAX,
        )
        self._handshakes = HandshakeTurns(loop, limits, failures)
        self._shared = TlsListener(
            loop,
            context_source,
            self._handshakes,
            _NoFiles(),
            lambda: False,
            clock,
            TurnBudget(loop.call_soon),
        )
        self._buffer = memoryview(bytearray(READ_BYTES))

    def wrap(self, connection: HttpConnection) -> asyncio.BufferedProtocol:
        """Return the layer for one connection."""
        return TlsLayer(self._shared, _Above(connection, self._buffer))

    def stop(self) -> None:
        """Use the loop no more."""
        self._handshakes.stop()


class _NoFiles:
    """`broker.tls.tls_listener.Loader` of connections whose answers are all in memory."""

    def load_cold(
        self,
        load: Callable[[], None],
        done: Callable[[Exception | None], None],
        client: Cancellation,
    ) -> None:
        """Raise: an answer over HTTP has no records of a file."""
        raise AssertionError((load, done, client))


class _Above:
    """`broker.tls.tls_listener.SecuredProtocol` around a connection that wants its bytes copied.

    The buffer is shared: the layer fills it and calls `buffer_updated` without a pause.
    """

    __slots__ = ("_buffer", "_connection")

    def __init__(self, connection: HttpConnection, buffer: memoryview) -> None:
        self._connection = connection
        self._buffer = buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._connection.connection_made(transport)

    def secured(self, certificate: bytes | None) -> None:
        self._connection.secured(certificate)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        connection = self._connection
        # The connection holds its transport, which holds this object: no cycle is left.
        del self._connection
        connection.connection_lost(exc)
