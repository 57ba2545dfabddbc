"""`WebSocketLink`: a push session over a WebSocket: it is the transport of a `PushConnection`.

One binary message is one or more whole frames, both ways (`penstock.push.v1`), or one text message
is their JSON (`penstock.json.v1`). Guarantees:

- frames of one turn of the event loop leave in one message, so records in hundreds cost as little
  as over TCP;
- it buffers one turn of frames: a client that reads slowly pauses the session, as a socket does;
- a message is bounded before its bytes arrive, and bytes of incomplete messages count for the
  bound of all sessions. Compression is off: a message has the size that it has on the wire;
- a message that is not whole frames ends the session with the reason;
- the end of a session sends the close frame, and cuts the connection if no answer follows.

It is NOT a session: `edge.push.connection` is. `websockets` parses the bytes of the client.
"""

import asyncio
import logging
from struct import Struct
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from penstock.core.errors import PenstockError
from penstock.edge.gateways import web_limits as bounds
from penstock.edge.gateways.json_frames import JsonFrameError, check_whole, frames_of, text_of
from penstock.edge.push.limits import RETRY_AFTER_MS_MIN
from penstock.edge.push.ports import PushDoor
from penstock.edge.push.server import PushServer
from penstock.protocol.push.frames import PushFrameError

logger = logging.getLogger(__name__)

_BINARY: Final = 0x82
_TEXT: Final = 0x81
_PING: Final = b"\x89\x00"
_SHORT: Final = Struct(">BB")
_MIDDLE: Final = Struct(">BBH")
_LONG: Final = Struct(">BBQ")


def head_of(first: int, length: int) -> bytes:
    """Return the head of an unmasked message, as a server sends it."""
    if length < 126:
        return _SHORT.pack(first, length)
    if length < 65_536:
        return _MIDDLE.pack(first, 126, length)
    return _LONG.pack(first, 127, length)


class WebSocketLink(asyncio.Transport):
    """One WebSocket. Its owner passes on the events of the socket."""

    def __init__(
        self,
        server: PushServer,
        door: PushDoor,
        raw: asyncio.Transport,
        protocol: ServerProtocol,
        *,
        is_json: bool,
    ) -> None:
        super().__init__()
        self._server = server
        self._raw = raw
        self._protocol = protocol
        self._is_json = is_json
        self._message_bytes_max = (
            bounds.JSON_MESSAGE_BYTES_MAX if is_json else bounds.MESSAGE_BYTES_MAX
        )
        self._flush_bytes = bounds.JSON_FLUSH_BYTES if is_json else bounds.FLUSH_BYTES
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._is_flushing = False
        self._high_bytes = bounds.FLUSH_BYTES
        self._is_raw_paused = self._is_paused = False
        """Whether the socket, and therefore the session, is paused."""
        self._fragments = bytearray()
        self._fragments_are_text = False
        self._pinged_at = server.loop.time()
        self._has_begun = self._is_closing = self._is_lost = False
        self._has_session = True
        self._close_code: int = CloseCode.NORMAL_CLOSURE
        self._closing: asyncio.TimerHandle | None = None
        self._connection = server.connection(door)

    def begin(self) -> bool:
        """Open the session; return False if the broker has no room for it."""
        self._connection.connection_made(self)
        if self._is_closing:
            self.connection_lost(None)
            return False
        self._has_begun = True
        return True

    # --- Called by the owner of the socket ---

    def data_received(self, data: bytes) -> None:
        """Bytes were received."""
        self._server.counters.received_bytes.value += len(data)
        protocol = self._protocol
        if self._connection.session.is_authenticated:
            protocol.max_message_size = self._message_bytes_max
        protocol.receive_data(data)
        events = protocol.events_received()
        self._send_answers()
        for event in events:
            if self._is_lost:
                return
            assert isinstance(event, Frame)
            self._handle(event)
        if protocol.close_rcvd is not None:
            self._raw.close()
        elif protocol.state is not State.OPEN:
            # Not a WebSocket message, or one that is too large: the close frame is sent.
            self._wait_for_close()
        self._count_held()

    def eof_received(self) -> bool:
        """The client will send no more, so it will acknowledge no more."""
        return False

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._is_raw_paused = True
        self._adapt()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._is_raw_paused = False
        self._adapt()

    def _adapt(self) -> None:
        """Pause the session while the socket is paused, or more waits than its mark allows."""
        pause = self._is_raw_paused or self._pending_bytes > self._high_bytes
        if pause != self._is_paused and self._has_session:
            self._is_paused = pause
            if pause:
                self._connection.pause_writing()
            else:
                self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._is_closing = self._is_lost = True
        self._pending.clear()
        self._pending_bytes = 0
        if self._closing is not None:
            self._closing.cancel()
        self._end_session(exc)

    def _end_session(self, exc: Exception | None = None) -> None:
        """End the session; the WebSocket may still wait for the answer of its client."""
        if self._has_session:
            self._has_session = False
            self._connection.connection_lost(exc)

    # --- Messages of the client ---

    def _handle(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PONG and self._has_session:
            self._connection.receive(b"")
        if self._is_closing or frame.opcode in (Opcode.PING, Opcode.PONG, Opcode.CLOSE):
            return
        if frame.opcode is not Opcode.CONT:
            self._fragments_are_text = frame.opcode is Opcode.TEXT
            if frame.fin:
                self._message(frame.data)
                return
        self._fragments += frame.data
        if frame.fin:
            message, self._fragments = self._fragments, bytearray()
            self._message(message)

    def _message(self, message: bytes | bytearray | memoryview) -> None:
        if self._fragments_are_text is not self._is_json:
            kind = "text" if self._is_json else "binary"
            self._refuse(f"a message is not {kind}", CloseCode.UNSUPPORTED_DATA)
            return
        try:
            content = bytes(message)
            if self._is_json:
                content = frames_of(content)
            else:
                check_whole(content)
        except (PushFrameError, JsonFrameError) as error:
            self._refuse(str(error), CloseCode.INVALID_DATA)
            return
        self._connection.receive(content)

    def _refuse(self, reason: str, code: CloseCode) -> None:
        self._close_code = code
        self._connection.drain(reason, "INVALID_REQUEST", RETRY_AFTER_MS_MIN)

    def _count_held(self) -> None:
        """Count the bytes of incomplete messages for the bound of all sessions."""
        connection = self._connection
        held = len(self._protocol.reader.buffer) + len(self._fragments)
        held += connection.session.held_bytes
        if held != connection.held_bytes and self._has_session:
            self._server.holds(connection, held)

    def _send_answers(self) -> None:
        """Send pongs and close frames."""
        for data in self._protocol.data_to_send():
            if data:
                self._raw.write(data)

    # --- The transport of the session ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send whole frames, with the others of this turn of the event loop."""
        if self._is_closing:
            return
        self._pending.append(bytes(data))
        self._pending_bytes += len(data)
        if self._pending_bytes >= self._flush_bytes:
            self._flush()
        elif not self._is_flushing:
            self._is_flushing = True
            self._server.loop.call_soon(self._flush_later)
        self._adapt()

    def _flush_later(self) -> None:
        self._is_flushing = False
        try:
            self._flush()
            self._adapt()
        except PenstockError:
            logger.exception("frames for the WebSocket client cannot be sent")
            self.abort()

    def _flush(self) -> None:
        if not self._pending or self._is_lost or self._protocol.state is not State.OPEN:
            return
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        self._pending_bytes = 0
        if self._is_json:
            data = text_of(data)
        self._raw.write(head_of(_TEXT if self._is_json else _BINARY, len(data)) + data)
        now = self._server.loop.time()
        if now >= self._pinged_at + bounds.PING_SECONDS:
            self._pinged_at = now
            self._raw.write(_PING)

    def close(self) -> None:
        """Send what was written and the close frame, then end."""
        if self._is_closing:
            return
        self._flush()
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(self._close_code)
            self._send_answers()
        self._wait_for_close()

    def _wait_for_close(self) -> None:
        """End the session, and wait for the close frame of the client for a moment."""
        if self._closing is not None:
            return
        self._is_closing = True
        self._raw.resume_reading()  # the session may have paused it
        self._closing = self._server.loop.call_later(bounds.CLOSE_SECONDS_MAX, self._raw.abort)
        self._server.loop.call_soon(self._end_session)

    def abort(self) -> None:
        """End at once."""
        self._is_closing = True
        if self._has_begun:
            self._raw.abort()

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._is_closing or self._raw.is_closing()

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the mark above which the session is paused."""
        self._high_bytes = bounds.FLUSH_BYTES if high is None else high
        self._raw.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the client has not accepted."""
        return self._pending_bytes + self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return a fact about the socket."""
        return self._raw.get_extra_info(name, default)
