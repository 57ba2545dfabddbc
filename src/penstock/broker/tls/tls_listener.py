"""`TlsListener`: the state that all TLS connections of one listener share.

The buffers are shared because an event loop handles one connection at a time. OpenSSL's buffers
never shrink: with buffers of its own, each connection that once received 256 KiB would hold them
until its end. So both are empty whenever no connection is being handled, and a connection that
stops in the middle keeps its own bytes (`layer`).

It is one for each event loop and listener, never for two threads.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.tls.handshake_failures import HandshakeFailures
from penstock.broker.tls.handshake_turns import HandshakeTurns
from penstock.broker.tls.tls_limits import ENCRYPT_BYTES_MAX, RAW_READ_BYTES
from penstock.core.cancellation import Cancellation
from penstock.core.clock import Clock
from penstock.security.certificates.pem import validity


class SecuredProtocol(Protocol):
    """The connection above the layer: an `asyncio.BufferedProtocol` with one more call."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected. Its handshake has not begun; no byte is received before its end."""
        ...

    def secured(self, certificate: bytes | None) -> None:
        """The handshake is complete; `certificate` is the client's in DER, if it sent one."""
        ...

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        ...

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes were received."""
        ...

    def eof_received(self) -> bool | None:
        """The client will send no more; return whether the connection stays open for answers."""
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


class Loader(Protocol):
    """Reads from the disk on a storage thread."""

    def load_cold(
        self,
        load: Callable[[], None],
        done: Callable[[Exception | None], None],
        client: Cancellation,
    ) -> None:
        """Run `load` on a thread, then `done` on the loop with the error, if there was one."""
        ...


class TlsListener:
    """The state that all TLS connections of one listener share."""

    __slots__ = (
        "arena",
        "clock",
        "context_source",
        "failures",
        "handshakes",
        "incoming",
        "is_memory_short",
        "loader",
        "loop",
        "outgoing",
        "read_seconds",
        "scratch",
        "turns",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context_source: Callable[[], ssl.SSLContext],
        handshakes: HandshakeTurns,
        loader: Loader,
        is_memory_short: Callable[[], bool],
        clock: Clock,
        turns: TurnBudget,
        read_seconds: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Create it.

        `context_source` returns the context for a new connection; a reload replaces it.
        `is_memory_short` says that connections must read small pieces only. `turns` bounds the
        work of decrypting, together with that of requests; `read_seconds` measures it.
        """
        self.loop = loop
        self.context_source = context_source
        self.handshakes = handshakes
        self.failures: HandshakeFailures = handshakes.failures
        self.loader = loader
        self.clock = clock
        self.is_memory_short = is_memory_short
        self.turns = turns
        self.read_seconds = read_seconds
        self.arena = memoryview(bytearray(RAW_READ_BYTES))
        """Bytes of the socket, before they are decrypted."""
        self.scratch = memoryview(bytearray(ENCRYPT_BYTES_MAX))
        """Bytes of answers, before they are encrypted."""
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()

    def is_expired(self, certificate: bytes | None) -> bool:
        """Whether a client has a certificate (DER), and it has expired."""
        if certificate is None:
            return False
        now = datetime.fromtimestamp(self.clock.now_ms() / 1_000, UTC)
        return now > validity(certificate)[1]
