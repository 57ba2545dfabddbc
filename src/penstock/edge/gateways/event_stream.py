"""`EventStream`: a push session as server-sent events: it is the transport of a `PushConnection`.

    id: 0:41,1:7
    data: {"partition":0,"offset":41,"timestamp":1700000000000,"key":"a","value":"1"}

The id of each event has the last offset of each partition, so a client that sends it as
`Last-Event-ID` gets the records behind it: none twice, none missing. Guarantees:

- records wait in the log, not here: a client that reads slowly pauses the session;
- an event without data has the positions of the start, so a client that is cut off before the
  first record resumes at the same place;
- a comment is sent every 15 s of silence;
- the end of the session is an event `end` with the reason, and the time of the next try.
"""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.types import Send

from penstock.edge.gateways import web_limits as bounds
from penstock.edge.gateways.encoding_turns import EncodingTurns
from penstock.edge.gateways.gateway_problems import GatewayRefusedError, problem_of
from penstock.edge.gateways.json_frames import cut
from penstock.edge.gateways.json_records import json_of
from penstock.edge.gateways.stream_positions import write_positions
from penstock.edge.gateways.websocket_gateway import no_room
from penstock.edge.push.ports import PushDoor
from penstock.edge.push.server import PushServer
from penstock.protocol.push.data import decode_data
from penstock.protocol.push.frames import Frame, FrameType, encode_frame
from penstock.protocol.push.payloads import Refusal, SubscribeRequest, load_object, write_subscribe

RETRY_MS: Final = 1_000
"""When a client of a broken connection comes back, unless the broker says another time."""
_SUBSCRIBE_ID: Final = 1


class EventStream(asyncio.Transport):
    """One stream of events of one topic."""

    def __init__(
        self,
        server: PushServer,
        door: PushDoor,
        turns: EncodingTurns,
        address: str,
        cut_connection: Callable[[], None],
    ) -> None:
        """`cut_connection` ends the connection of a client that does not read."""
        super().__init__()
        self._turns = turns
        self._address = address
        self._cut_connection = cut_connection
        self._pending: list[bytes] = []
        self._pending_bytes = self._sending_bytes = 0
        """Bytes of frames that the connection has not accepted, and the part that is being sent."""
        self._high_bytes = bounds.FLUSH_BYTES
        self._wake = asyncio.Event()
        self._has_begun = self._is_paused = self._is_closing = self._is_lost = False
        self._positions: dict[int, int] = {}
        self._connection = server.connection(door)

    async def run(self, topic: str, start: object, send: Send, lost: asyncio.Event | None) -> None:
        """Send events until the session or the connection ends; raise `GatewayRefusedError`.

        Errors are raised before the answer begins.
        """
        loop = asyncio.get_running_loop()
        watching = None if lost is None else loop.create_task(self._watch(lost))
        connection = self._connection
        connection.connection_made(self)
        try:
            if self._is_closing:
                raise no_room()
            self._has_begun = True
            request = SubscribeRequest(
                topic=topic,
                mode="fanout",
                start=start,  # type: ignore[arg-type]
                credit=bounds.STREAM_CREDIT,
                auto_ack=True,
            )
            connection.receive(
                encode_frame(FrameType.SUBSCRIBE, _SUBSCRIBE_ID, write_subscribe(request))
            )
            frames = await self._next_frames()
            if not frames:
                return
            opening = self._opening(frames[0])
            await send(_ANSWER)
            await self._send(send, opening)
            frames = frames[1:]
            while True:
                await self._send_events(send, frames)
                if not (frames := await self._next_frames()):
                    break
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            if watching is not None:
                watching.cancel()
            self._is_closing = self._is_lost = True
            self._pending.clear()
            connection.connection_lost(None)

    async def _watch(self, lost: asyncio.Event) -> None:
        await lost.wait()
        self._is_lost = self._is_closing = True
        self._wake.set()

    async def _next_frames(self) -> list[Frame]:
        """Return the next frames of the session; an empty list at its end."""
        while not self._pending and not self._is_closing:
            self._wake.clear()
            await self._wake.wait()
        if self._is_lost:
            return []
        data, self._pending = b"".join(self._pending), []
        self._sending_bytes = len(data)
        return list(cut(data))

    async def _send_events(self, send: Send, frames: list[Frame]) -> None:
        """Send events in portions, so that no stream holds up the event loop."""
        for place in range(0, len(frames), bounds.EVENTS_TOGETHER):
            portion = frames[place : place + bounds.EVENTS_TOGETHER]
            await self._send(send, await self._turns.run(partial(self._events, portion)))
        self._accepted()

    async def _send(self, send: Send, text: str) -> None:
        if not self._is_lost:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

    def _accepted(self) -> None:
        """The connection accepted all frames that were taken."""
        self._pending_bytes -= self._sending_bytes
        self._sending_bytes = 0
        if self._is_lost:
            return
        # The socket accepted it: that is the sign of life of a client that sends nothing.
        self._connection.receive(b"")
        if self._is_paused and self._pending_bytes <= self._high_bytes:
            self._is_paused = False
            self._connection.resume_writing()

    # --- Events ---

    def _opening(self, answer: Frame) -> str:
        """Return the first event; raise if the subscription is refused."""
        found = load_object(answer.payload, answer.type.name)
        if answer.type is not FrameType.ACK or "error" in found:
            raise problem_of(
                Refusal(
                    error=str(found.get("error", found.get("reason", ""))),
                    code=str(found.get("code", "")),
                    retriable=bool(found.get("retriable", False)),
                )
            )
        partitions = found["partitions"]
        assert isinstance(partitions, dict)
        if len(partitions) > bounds.STREAM_PARTITIONS_MAX:
            raise GatewayRefusedError(
                422,
                "Too many partitions",
                f"The stream has {len(partitions)} partitions, at most "
                f"{bounds.STREAM_PARTITIONS_MAX} are accepted.",
                "Name partitions and offsets with from=0:5,1:9, or use a WebSocket.",
            )
        self._positions = {int(name): offset - 1 for name, offset in partitions.items()}
        text = f"retry: {RETRY_MS}\nid: {write_positions(self._positions)}\n\n"
        if found.get("elsewhere"):
            text += f"event: elsewhere\ndata: {json.dumps(found['elsewhere'])}\n\n"
        return text

    def _events(self, frames: list[Frame]) -> str:
        return "".join(map(self._event, frames))

    def _event(self, frame: Frame) -> str:
        if frame.type is FrameType.DATA:
            data = decode_data(frame.payload)
            self._positions[data.partition] = data.offset
            text = json.dumps(json_of(data), separators=(",", ":"))
            return f"id: {write_positions(self._positions)}\ndata: {text}\n\n"
        if frame.type is FrameType.DISCONNECT:
            found = load_object(frame.payload, frame.type.name)
            retry_ms = found.get("retry_after_ms", RETRY_MS)
            return f"retry: {retry_ms}\nevent: end\ndata: {json.dumps(found)}\n\n"
        return ": heartbeat\n\n"

    # --- The transport of the session ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send whole frames."""
        if self._is_closing:
            return
        self._pending.append(bytes(data))
        self._pending_bytes += len(data)
        self._wake.set()
        if self._pending_bytes > self._high_bytes and not self._is_paused:
            self._is_paused = True
            self._connection.pause_writing()

    def close(self) -> None:
        """Send what was written, then end."""
        self._is_closing = True
        self._wake.set()

    def abort(self) -> None:
        """End at once."""
        if not self._is_lost:
            self._is_closing = self._is_lost = True
            self._wake.set()
            if self._has_begun:
                self._cut_connection()

    def is_closing(self) -> bool:
        """Whether nothing more is sent."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Do nothing: the client of a stream sends nothing."""

    def resume_reading(self) -> None:
        """Do nothing: the client of a stream sends nothing."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002 (asyncio's)
        """Set the mark above which the session is paused."""
        self._high_bytes = bounds.FLUSH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """Return the bytes that wait for the connection."""
        return self._pending_bytes

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return the address of the client."""
        return (self._address, 0) if name == "peername" else default


_ANSWER: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"x-accel-buffering", b"no"),
    ],
}
