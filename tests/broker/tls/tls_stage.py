"""A TLS connection without a socket: a client of Python's `ssl`, the layer, and a loop by hand.

Nothing here sleeps or waits: the test moves bytes, turns of the loop and the clock. After each step
the stage checks that the buffers that all connections share are empty.
"""

import asyncio
import atexit
import contextlib
import functools
import shutil
import ssl
import tempfile
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.tls.contexts import build_server_tls
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.broker.tls.handshake_turns import HandshakeTurns
from penstock.broker.tls.layer import TlsLayer
from penstock.broker.tls.tls_files import ClientAuth, TlsFiles, read_files
from penstock.broker.tls.tls_limits import HandshakeLimits
from penstock.broker.tls.tls_listener import TlsListener
from penstock.core.cancellation import Cancellation
from penstock.core.clock import SystemClock
from tests.oracle.certificates import CertificateAuthority, Identity

HIGH_BYTES: Final = 65_536
ADDRESS: Final = "192.0.2.1"


class Identities:
    """The certificates of the tests, created once for each process."""

    def __init__(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="penstock-tls-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        self.authority = CertificateAuthority(folder / "authority")
        self.other_authority = CertificateAuthority(folder / "other", name="Another authority")
        self.server = self.authority.server()
        self.client = self.authority.client()
        self.stranger = self.other_authority.client()


@functools.cache
def identities() -> Identities:
    return Identities()


def server_files(client_auth: ClientAuth = "none", server: Identity | None = None) -> TlsFiles:
    own = identities().server if server is None else server
    authority = str(identities().authority.certificate)
    return TlsFiles(str(own.chain), str(own.key), None, authority, client_auth)


def now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now_ms() / 1_000, UTC)


@functools.cache
def server_context(client_auth: ClientAuth = "none") -> ssl.SSLContext:
    files = server_files(client_auth)
    return build_server_tls(files, read_files(files), now()).context


@functools.cache
def client_context(
    identity: Identity | None = None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(identities().authority.certificate))
    context.minimum_version = context.maximum_version = version
    if identity is not None:
        context.load_cert_chain(identity.chain, identity.key)
    return context


class Timer:
    """A timer of `ManualLoop`."""

    def __init__(self, moment: float, call: Callable[[], None]) -> None:
        self.moment = moment
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True

    def when(self) -> float:
        return self.moment


class ManualLoop:
    """As much of an event loop as the layer uses."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.ready: deque[Callable[[], None]] = deque()
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[[], None]) -> None:
        self.ready.append(call)

    def call_at(self, moment: float, call: Callable[[], None]) -> Timer:
        timer = Timer(moment, call)
        self.timers.append(timer)
        return timer

    def turn(self) -> None:
        """Run what was scheduled before this turn."""
        for _ in range(len(self.ready)):
            self.ready.popleft()()

    def settle(self) -> None:
        """Run turns until nothing is scheduled."""
        for _ in range(10_000):
            if not self.ready:
                return
            self.turn()
        raise AssertionError("the loop has no end")

    def advance(self, seconds: float) -> None:
        """Move the clock; timers run at their times."""
        end = self.now + seconds
        while True:
            due = [one for one in self.timers if not one.is_cancelled and one.moment <= end]
            self.timers = [one for one in self.timers if not one.is_cancelled]
            if not due:
                break
            first = min(due, key=Timer.when)
            self.timers.remove(first)
            self.now = max(self.now, first.moment)
            first.call()
        self.now = end


class Raw(asyncio.Transport):
    """The socket's transport: the test decides what the peer accepts."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 5)})
        self.protocol: asyncio.BufferedProtocol | None = None
        self.accepts = True
        """Whether written bytes leave at once."""
        self.sent = bytearray()
        self.waiting = bytearray()
        self.high = HIGH_BYTES
        self.is_write_paused = False
        self.is_read_paused = False
        self.is_closed = False
        self.is_aborted = False
        self.largest_write = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert data, "an empty write"
        self.largest_write = max(self.largest_write, len(data))
        if self.is_closed:
            return
        if self.accepts and not self.waiting:
            self.sent += data
            return
        self.waiting += data
        if len(self.waiting) > self.high and not self.is_write_paused:
            self.is_write_paused = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def drain(self) -> None:
        """The peer reads what waits."""
        self.sent += self.waiting
        self.waiting.clear()
        if self.is_write_paused:
            self.is_write_paused = False
            assert self.protocol is not None
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high = high

    def pause_reading(self) -> None:
        self.is_read_paused = True

    def resume_reading(self) -> None:
        self.is_read_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True
        self.waiting.clear()


class Inner(asyncio.BufferedProtocol):
    """The connection above the layer: keeps what it gets."""

    def __init__(self, buffer_bytes: int = 262_144) -> None:
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.received = bytearray()
        self.calls: list[str] = []
        self.certificate: bytes | None = None
        self.transport: asyncio.Transport | None = None
        self.on_bytes: Callable[[], None] = lambda: None
        self.stays_open = True

    @property
    def out(self) -> asyncio.Transport:
        assert self.transport is not None
        return self.transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.calls.append("made")

    def secured(self, certificate: bytes | None) -> None:
        self.certificate = certificate
        self.calls.append("secured")

    def get_buffer(self, sizehint: int) -> memoryview:
        assert "secured" in self.calls, "bytes before the end of the handshake"
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        assert nbytes > 0
        self.received += self.buffer[:nbytes]
        self.on_bytes()

    def eof_received(self) -> bool:
        self.calls.append("end")
        return self.stays_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.transport = None


class Loads:
    """Loads from the disk that the test completes."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []
        self.clients: list[Cancellation] = []

    def load_cold(
        self,
        load: Callable[[], None],
        done: Callable[[Exception | None], None],
        client: Cancellation,
    ) -> None:
        self.waiting.append((load, done))
        self.clients.append(client)


class Stage:
    """A listener without sockets."""

    def __init__(
        self,
        client_auth: ClientAuth = "none",
        limits: HandshakeLimits | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.loop = ManualLoop()
        self.loads = Loads()
        self.is_memory_short = False
        self.step_seconds = 0.0
        self.seconds = 0.0
        self.failures = HandshakeFailures("TESTED")
        self.turns = HandshakeTurns(
            self.loop,  # type: ignore[arg-type]
            limits or HandshakeLimits(),
            self.failures,
        )
        self.context = context or server_context(client_auth)
        self.shared = TlsListener(
            self.loop,  # type: ignore[arg-type]
            lambda: self.context,
            self.turns,
            self.loads,
            lambda: self.is_memory_short,
            SystemClock(),
            TurnBudget(self.loop.call_soon),
            self.read_seconds,
        )

    def read_seconds(self) -> float:
        """The layer's clock: each look at it takes `step_seconds`."""
        self.seconds += self.step_seconds
        return self.seconds

    def connect(
        self,
        context: ssl.SSLContext | None = None,
        *,
        address: str = ADDRESS,
        inner: Inner | None = None,
        session: ssl.SSLSession | None = None,
    ) -> "Connection":
        return Connection(self, context or client_context(), address, inner or Inner(), session)

    def secured(
        self, context: ssl.SSLContext | None = None, *, inner: Inner | None = None
    ) -> "Connection":
        """A connection with a complete handshake."""
        connection = self.connect(context, inner=inner)
        connection.shake_hands()
        assert connection.inner.calls == ["made", "secured"]
        return connection

    def check(self) -> None:
        """The shared buffers are empty between two events."""
        assert self.shared.incoming.pending == 0
        assert self.shared.outgoing.pending == 0

    def counts(self) -> tuple[int, int]:
        """Handshakes with a place, and those that wait for one."""
        return self.turns.unfinished_count, self.turns.waiting_count

    def failed(self) -> dict[str, int]:
        return {reason: count for reason, count in self.failures.counts.items() if count}


class Connection:
    """One connection: its client's end and its broker's end."""

    def __init__(
        self,
        stage: Stage,
        context: ssl.SSLContext,
        address: str,
        inner: Inner,
        session: ssl.SSLSession | None,
    ) -> None:
        self.stage = stage
        self.inner = inner
        self.raw = Raw(address)
        self.layer = TlsLayer(stage.shared, inner)
        self.raw.protocol = self.layer
        self._context, self._session = context, session
        self._to_client, self._from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.layer.connection_made(self.raw)

    @functools.cached_property
    def client(self) -> ssl.SSLObject:
        return self._context.wrap_bio(
            self._to_client,
            self._from_client,
            server_hostname="localhost",
            session=self._session,
        )

    def is_open(self) -> bool:
        return not self.raw.is_closed

    # --- Bytes of the client ---

    def deliver(self, data: bytes) -> None:
        """The socket has received these bytes; the loop reads them as long as it may."""
        rest = memoryview(data)
        while rest:
            assert not self.raw.is_read_paused, "the socket is not read"
            if self.raw.is_closed:
                return
            buffer = self.layer.get_buffer(-1)
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            self.layer.buffer_updated(count)
            self.stage.check()
            rest = rest[count:]

    def arrive(self, data: bytes) -> None:
        """As `deliver`, and the loop runs until all is handled."""
        self.deliver(data)
        self.stage.loop.settle()
        self.stage.check()

    def written(self) -> bytes:
        """Take the client's ciphertext."""
        return self._from_client.read()

    def encrypt(self, data: bytes) -> bytes:
        self.client.write(data)
        return self.written()

    def send(self, data: bytes) -> None:
        self.deliver(self.encrypt(data))

    # --- Bytes of the broker ---

    def receive(self) -> bytes:
        """Decrypt all that the broker has sent."""
        self._to_client.write(bytes(self.raw.sent))
        self.raw.sent.clear()
        received = bytearray()
        with contextlib.suppress(ssl.SSLWantReadError):
            while piece := self.client.read(1 << 20):
                received += piece
        return bytes(received)

    # --- Handshakes ---

    def client_step(self) -> bool:
        """The client continues its handshake; return whether it is complete."""
        self._to_client.write(bytes(self.raw.sent))
        self.raw.sent.clear()
        try:
            self.client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def shake_hands(self) -> None:
        """Complete the handshake; raises the client's error."""
        for _ in range(6):
            is_complete = self.client_step()
            if is_complete and "secured" in self.inner.calls:
                return
            self.arrive(self.written())

    def lose(self) -> None:
        self.layer.connection_lost(None)
        self.stage.check()
