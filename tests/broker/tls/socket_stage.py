"""The TLS layer on real sockets of the loopback address, on either event loop, on a thread."""

import asyncio
import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self, TypeVar, cast

import uvloop

from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.broker.tls.handshake_turns import HandshakeTurns
from penstock.broker.tls.layer import TlsLayer
from penstock.broker.tls.tls_limits import HandshakeLimits
from penstock.broker.tls.tls_listener import TlsListener
from penstock.core.clock import SystemClock
from tests.broker.tls.tls_stage import Loads, server_context

T = TypeVar("T")
SECONDS_MAX = 20
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
SEND = b"SEND"
"""A message of this and a number of eight digits is answered with that number of bytes."""


class Echo(asyncio.BufferedProtocol):
    """Answers with the same bytes, or with the number of bytes that the client asks for."""

    def __init__(self, server: "TlsServer") -> None:
        self._server = server
        self._buffer = memoryview(bytearray(262_144))
        self.transport: asyncio.Transport | None = None
        self.is_paused = False
        self.certificate: bytes | None = None
        self.unsent_most = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=65_536)
        self._server.connections.append(self)

    def secured(self, certificate: bytes | None) -> None:
        self.certificate = certificate
        self._server.secured += 1

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport is not None
        received = bytes(self._buffer[:nbytes])
        if received.startswith(SEND):
            size = int(received[4:12])
            self.transport.writelines([b"head", memoryview(self._server.content)[:size]])
        else:
            self.transport.write(received)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        # As the listener: a client that does not read its answers is not read from.
        assert self.transport is not None
        self.is_paused = True
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        assert self.transport is not None
        self.is_paused = False
        self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._server.connections.remove(self)


class TlsServer:
    """A listener on a thread of its own."""

    def __init__(
        self,
        loop_name: str,
        *,
        context_source: Callable[[], ssl.SSLContext] = server_context,
        limits: HandshakeLimits | None = None,
        content: bytes = b"",
    ) -> None:
        self._new_loop = LOOPS[loop_name]
        self._context_source = context_source
        self._limits = limits or HandshakeLimits()
        self.content = content
        self.connections: list[Echo] = []
        self.secured = 0
        self.failures = HandshakeFailures("TESTED")
        self.port = 0
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.loop: asyncio.AbstractEventLoop | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(SECONDS_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=self._new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.turns = HandshakeTurns(self.loop, self._limits, self.failures)
        self.shared = TlsListener(
            self.loop,
            self._context_source,
            self.turns,
            Loads(),
            lambda: False,
            SystemClock(),
            TurnBudget(self.loop.call_soon),
        )
        server = await self.loop.create_server(
            lambda: TlsLayer(self.shared, Echo(self)), "127.0.0.1", 0, backlog=4_096
        )
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        server.close()
        for connection in tuple(self.connections):
            if connection.transport is not None:
                connection.transport.abort()
        while self.connections:  # noqa: ASYNC110 (each is being closed)
            await asyncio.sleep(0)
        self.turns.stop()
        await server.wait_closed()

    def ask(self, question: Callable[[], T]) -> T:
        """Call a function on the loop's thread."""
        assert self.loop is not None
        answer: list[T] = []
        done = threading.Event()

        def call() -> None:
            answer.append(question())
            done.set()

        self.loop.call_soon_threadsafe(call)
        assert done.wait(SECONDS_MAX)
        return answer[0]

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """A connection without TLS."""
        return socket.create_connection(
            ("127.0.0.1", self.port), timeout=SECONDS_MAX, source_address=(source, 0)
        )

    def client(self, context: ssl.SSLContext) -> ssl.SSLSocket:
        """A connection with a complete handshake."""
        plain = self.connect()
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(plain, server_hostname="localhost")


def exchange(client: ssl.SSLSocket, data: bytes) -> bytes:
    """Send and receive the same number of bytes at once, on one thread, as OpenSSL requires."""
    rest, received = memoryview(data), bytearray()
    client.setblocking(False)
    try:
        while len(received) < len(data):
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                while rest:
                    rest = rest[client.send(rest) :]
            with contextlib.suppress(ssl.SSLWantReadError):
                while len(received) < len(data):
                    piece = client.recv(1 << 20)
                    assert piece, "the connection ended early"
                    received += piece
                return bytes(received)
            found = select.select([client], [client] if rest else [], [], SECONDS_MAX)
            assert any(found), "nothing comes back"
    finally:
        client.settimeout(SECONDS_MAX)
    return bytes(received)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray(size)
    view = memoryview(received)
    while view:
        count = connection.recv_into(view)
        assert count, f"the connection ended {len(view)} bytes early"
        view = view[count:]
    return bytes(received)
