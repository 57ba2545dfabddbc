"""`SessionStream`: one push session over a stream of messages, in place of a socket.

Guarantees, as a socket has them: bytes arrive in order; frames that are written together leave in
one message; the session is paused while the stream has not accepted `high` bytes, so a client that
does not read holds back its own records only; a session that pauses reading reads no message; the
session learns the end once. After the last message of the client, the session has
`DRAIN_SECONDS_MAX` for its last frames.

It knows nothing of gRPC: the stream is two functions.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.edge.grpc_gateway.gateway_limits import DRAIN_SECONDS_MAX, SEND_BYTES
from penstock.edge.grpc_gateway.gateway_messages import read_frames, write_frames
from penstock.edge.grpc_gateway.proto_fields import MalformedRequestError

Read = Callable[[], Awaitable[bytes | None]]
"""Returns the next message; None at the end. Both raise `StreamEndedError`."""
Write = Callable[[bytes], Awaitable[None]]


class StreamEndedError(Exception):
    """The stream of a client is gone."""


class StreamedSession(Protocol):
    """The connection of a push session."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The stream is open; above a limit it is aborted at once."""
        ...

    def secured(self, certificate: bytes | None) -> None:
        """The identity of the client is proven: sessions of one identity are counted."""
        ...

    def receive(self, data: bytes) -> None:
        """Handle received bytes."""
        ...

    def pause_writing(self) -> None:
        """The client reads slowly."""
        ...

    def resume_writing(self) -> None:
        """The client has caught up."""
        ...

    def connection_lost(self, exc: Exception | None) -> None:
        """The stream is gone."""
        ...


class SessionStream(asyncio.Transport):
    """The transport of one session."""

    def __init__(self, session: StreamedSession, high_bytes: int = SEND_BYTES) -> None:
        super().__init__()
        self._session = session
        self._output: deque[bytes] = deque()
        self._output_bytes = 0
        self._high = high_bytes
        self._is_writing_paused = False
        self._is_closing = False
        self.is_aborted = False
        """Whether the session ended at once, without its last frames."""
        self.malformed: MalformedRequestError | None = None
        """Why the last message of the client cannot be read; it ends the session."""
        self._work = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()

    async def run(self, read: Read, write: Write) -> None:
        """Carry the session until it ends."""
        self._session.connection_made(self)
        try:
            if not self.is_aborted:
                self._session.secured(None)
                async with asyncio.TaskGroup() as group:
                    sending = group.create_task(self._send(write))
                    receiving = group.create_task(self._receive(read))
                    await self._carry(sending, receiving)
        except* StreamEndedError:
            pass  # The client is gone.
        finally:
            self._is_closing = True
            self._session.connection_lost(None)

    async def _carry(self, sending: "asyncio.Task[None]", receiving: "asyncio.Task[None]") -> None:
        try:
            await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                # The client sends no more.
                self.close()
                await asyncio.wait((sending,), timeout=DRAIN_SECONDS_MAX)
        finally:
            sending.cancel()
            receiving.cancel()

    async def _receive(self, read: Read) -> None:
        while not self._is_closing:
            await self._may_read.wait()
            message = await read()
            if message is None:
                return
            try:
                data = read_frames(message)
            except MalformedRequestError as error:
                self.malformed = error
                return
            if data:
                self._session.receive(data)

    async def _send(self, write: Write) -> None:
        while True:
            await self._work.wait()
            while self._output and not self.is_aborted:
                message = self._next_message()
                await write(write_frames(message))
                self._sent(len(message))
            if self._is_closing:
                return
            self._work.clear()

    def _next_message(self) -> bytes:
        parts = [self._output.popleft()]
        size = len(parts[0])
        while self._output and size + len(self._output[0]) <= SEND_BYTES:
            parts.append(self._output.popleft())
            size += len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _sent(self, size: int) -> None:
        self._output_bytes -= size
        if self._is_writing_paused and self._output_bytes <= self._high // 4:
            self._is_writing_paused = False
            self._session.resume_writing()

    # --- Called by the session ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        if self._is_closing or not data:
            return
        self._output.append(bytes(data))
        self._output_bytes += len(data)
        self._work.set()
        if self._output_bytes > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._session.pause_writing()

    def close(self) -> None:
        """Send what was written, then end."""
        self._is_closing = True
        self._work.set()

    def abort(self) -> None:
        """End at once."""
        self.is_aborted = self._is_closing = True
        self._work.set()

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        self._may_read.clear()

    def resume_reading(self) -> None:
        """Receive again."""
        self._may_read.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002 (asyncio's)
        """Set the mark above which the session is paused."""
        self._high = SEND_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the stream has not accepted."""
        return self._output_bytes
