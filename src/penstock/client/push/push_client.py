"""`PushClient`: one session of the push protocol, for asyncio.

    async with await open_push("127.0.0.1", 9095) as client:
        await client.publish("prices", b"42", key=b"apple")
        subscription = await client.subscribe("prices", group="shelf")
        async for record in subscription:
            subscription.acknowledge(record)

A request that is refused raises `PushRequestError`; the end of the session raises
`PushClosedError` in every waiting call, with the reason of the broker. It does NOT connect again:
the caller does, after `retry_after_ms`.
"""

import asyncio
from functools import partial
from types import TracebackType
from typing import Final, Self, cast

from penstock.client.push.push_subscription import REJECT, PushSubscription, describe
from penstock.client.push.push_values import (
    PublishedRecord,
    PushClosedError,
    PushRequestError,
    record_of,
    refresh_event,
)
from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.core.limits import STORED_BATCH_BYTES_MAX
from penstock.protocol.push.data import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_PARTITION,
    NO_TIMESTAMP,
    Headers,
    decode_data,
    encode_batch_tail,
    encode_data,
    encode_tail,
)
from penstock.protocol.push.frames import Frame, FrameReader, FrameType, encode_frame
from penstock.protocol.push.payloads import (
    CREDIT_DEFAULT,
    Credentials,
    Format,
    Mode,
    Refusal,
    Reset,
    Start,
    SubscribeRequest,
    Vector,
    load_object,
    vector_json,
    write_object,
    write_subscribe,
)

HEARTBEAT_SECONDS: Final = 15.0
SILENCE_SECONDS_MAX: Final = 45.0
CLOSE_SECONDS_MAX: Final = 6.0
"""How long `close` waits for the broker's last commits."""
REQUEST_SECONDS_MAX: Final = 60.0


class PushClient(asyncio.Protocol):
    """One session; create it with `open_push`."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._credentials = credentials
        self._reader = FrameReader(STORED_BATCH_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._next_id = 1
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._subscriptions: dict[int, PushSubscription] = {}
        self._opening: dict[int, SubscribeRequest] = {}
        """SUBSCRIBE frames without an answer, by message id."""
        self._publish_numbers: dict[str, int] = {}
        self._publish_lock = asyncio.Lock()
        self._output: list[bytes] = []
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._closed: asyncio.Future[PushClosedError] = self._loop.create_future()
        self._reason: PushClosedError | None = None
        self._lost = asyncio.Event()
        """The connection is gone."""
        self._timer: asyncio.TimerHandle | None = None
        self._last_received_at = self._loop.time()

    # --- Requests ---

    async def subscribe(
        self,
        topic: str,
        *,
        group: str | None = None,
        mode: Mode | None = None,
        start: Start | Vector | None = None,
        credit: int = CREDIT_DEFAULT,
        format: Format = "record",  # noqa: A002 (the name on the wire)
        auto_ack: bool = False,
        reset: Reset | None = None,
        accepts_refresh: bool = False,
    ) -> PushSubscription:
        """Receive a topic; with `accepts_refresh` also whole data sets again (`events`).

        `reset` is the start of a group without a committed offset: latest, or earliest.
        """
        request = SubscribeRequest(
            topic=topic,
            group=group,
            mode=mode,
            start=start,
            credit=credit,
            format=format,
            auto_ack=auto_ack,
            reset=reset,
            credentials=self._take_credentials(),
        )
        number, _ = await self._open(request)
        subscription = self._subscriptions[number]
        subscription.accepts_refresh = accepts_refresh
        return subscription

    async def refresh(self, topic: str, *, group: str | None = None) -> str:
        """Ask for a refresh of a subscription of this session; return the id of the refresh."""
        wanted = write_object({"topic": topic} | ({"group": group} if group else {}))
        return str(load_object(await self._ask(FrameType.RESET, wanted), "ACK").get("id", ""))

    async def open_topic(self, topic: str) -> None:
        """Prepare to publish to a topic; raise `PushRequestError` if that is refused."""
        await self._publish_number(topic)

    async def unsubscribe(self, topic: str) -> None:
        """End the subscriptions of a topic; acknowledged positions are committed."""
        request = SubscribeRequest(topic=topic, is_unsubscribe=True)
        await self._ask(FrameType.SUBSCRIBE, write_subscribe(request))
        self._publish_numbers.pop(topic, None)
        for number, one in tuple(self._subscriptions.items()):
            if one.topic == topic:
                del self._subscriptions[number]
                one.end(None)

    async def publish(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> PublishedRecord:
        """Publish a record, and wait until it is on disk."""
        tail = encode_tail(
            NO_PARTITION if partition is None else partition,
            NO_OFFSET,
            NO_TIMESTAMP if timestamp_ms is None else timestamp_ms,
            NO_LEADER_EPOCH,
            0,
            key,
            value,
            headers,
        )
        return await self._publish(topic, tail)

    async def publish_batch(
        self, topic: str, batch: bytes, *, partition: int | None = None
    ) -> PublishedRecord:
        """Publish a record batch of Kafka; the offset is that of its first record."""
        chosen = NO_PARTITION if partition is None else partition
        tail = encode_batch_tail(chosen, NO_OFFSET, NO_TIMESTAMP, NO_LEADER_EPOCH, batch)
        return await self._publish(topic, tail)

    async def _publish(self, topic: str, tail: bytes) -> PublishedRecord:
        number = await self._publish_number(topic)
        message_id = self._take_id()
        answer = load_object(
            await self._answer(message_id, encode_data(number, message_id, tail)), "ACK"
        )
        return PublishedRecord(topic, _number(answer, "partition"), _number(answer, "offset"))

    async def commit(self, offsets: dict[str, Vector]) -> None:
        """Commit offsets of subscriptions with a group; the client keeps its own positions."""
        named = {topic: vector_json(vector) for topic, vector in offsets.items()}
        await self._ask(FrameType.COMMIT_OFFSET, write_object(named))

    async def close(self) -> None:
        """End the session in order: acknowledged positions are committed when it returns."""
        if self._reason is None:
            self._send(encode_frame(FrameType.DISCONNECT, self._take_id()))
            await asyncio.wait([self._closed], timeout=CLOSE_SECONDS_MAX)
        if self._transport is not None:
            self._transport.abort()
        self._end(PushClosedError("this client closed the session"))
        await self._lost.wait()

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self._reason is not None

    async def wait_closed(self) -> PushClosedError:
        """Wait for the end of the session; return its reason."""
        return await asyncio.shield(self._closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- Conversation ---

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _take_credentials(self) -> Credentials | None:
        """Return the credentials for the first SUBSCRIBE."""
        taken, self._credentials = self._credentials, None
        return taken

    async def _open(self, request: SubscribeRequest) -> tuple[int, dict[str, object]]:
        message_id = self._take_id()
        self._opening[message_id] = request
        try:
            frame = encode_frame(FrameType.SUBSCRIBE, message_id, write_subscribe(request))
            answer = load_object(await self._answer(message_id, frame), "ACK")
        finally:
            self._opening.pop(message_id, None)
        return _number(answer, "subscription"), answer

    async def _publish_number(self, topic: str) -> int:
        """Return the subscription that publishes to a topic; the first call opens it."""
        number = self._publish_numbers.get(topic)
        if number is None:
            async with self._publish_lock:
                number = self._publish_numbers.get(topic)
                if number is None:
                    request = SubscribeRequest(
                        topic=topic, publish=True, credentials=self._take_credentials()
                    )
                    number, _ = await self._open(request)
                    self._publish_numbers[topic] = number
        return number

    async def _ask(self, frame_type: FrameType, payload: bytes) -> bytes:
        message_id = self._take_id()
        return await self._answer(message_id, encode_frame(frame_type, message_id, payload))

    async def _answer(self, message_id: int, frame: bytes) -> bytes:
        if self._reason is not None:
            raise self._reason.again()
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._waiting[message_id] = answer
        try:
            self._send(frame)
            async with asyncio.timeout(REQUEST_SECONDS_MAX):
                await self._has_room.wait()
                return await answer
        except TimeoutError:
            raise BrokerUnreachableError(
                f"the broker did not answer within {REQUEST_SECONDS_MAX:.0f} s"
            ) from None
        finally:
            self._waiting.pop(message_id, None)

    def _send(self, frame: bytes) -> None:
        """Send a frame at the end of this turn of the event loop, together with others."""
        if self._reason is not None or self._transport is None:
            return
        if not self._output:
            self._loop.call_soon(self._flush)
        self._output.append(frame)

    def _flush(self) -> None:
        output, self._output = self._output, []
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(output))

    def _send_ack(self, message_id: int, payload: bytes) -> None:
        self._send(encode_frame(FrameType.ACK, message_id, payload))

    # --- Called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The broker accepted the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._loop.call_later(HEARTBEAT_SECONDS, self._beat)

    def data_received(self, data: bytes) -> None:
        """Bytes of the broker came."""
        self._last_received_at = self._loop.time()
        self._reader.feed(data)
        try:
            while self._reason is None:
                frame = self._reader.next_frame()
                if frame is None:
                    break
                self._handle(frame)
        except PenstockError as error:
            self._break(f"the broker sent a wrong frame: {error}")

    def pause_writing(self) -> None:
        """The broker reads slowly."""
        self._has_room.clear()

    def resume_writing(self) -> None:
        """The broker has caught up."""
        self._has_room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None
        self._lost.set()
        self._end(PushClosedError(f"the connection to the broker was lost: {exc or 'end'}"))

    def _handle(self, frame: Frame) -> None:
        match frame.type:
            case FrameType.DATA:
                data = decode_data(frame.payload)
                subscription = self._subscriptions.get(data.subscription)
                if subscription is not None:
                    subscription.put(record_of(subscription.topic, frame.message_id, data))
            case FrameType.ACK:
                self._answered(frame)
            case FrameType.DISCONNECT:
                found = load_object(frame.payload, "DISCONNECT") if frame.payload else {}
                wait_ms = found.get("retry_after_ms")
                self._end(
                    PushClosedError(
                        str(found.get("reason", "the broker ended the session")),
                        str(found.get("code", "")),
                        wait_ms if isinstance(wait_ms, int) else None,
                    )
                )
            case FrameType.RESET | FrameType.READY:
                self._refreshed(frame)
            case _:
                pass  # HEARTBEAT

    def _refreshed(self, frame: Frame) -> None:
        """Pass a refresh on in the order of records, or reject it."""
        found = load_object(frame.payload, frame.type.name)
        subscription = self._subscriptions.get(_number(found, "subscription"))
        if subscription is None or not subscription.accepts_refresh:
            self._send_ack(frame.message_id, REJECT)
            return
        is_reset, offsets = frame.type is FrameType.RESET, _vector(found.get("V"))
        subscription.put(refresh_event(found, offsets, frame.message_id, is_reset=is_reset))

    def _answered(self, frame: Frame) -> None:
        request = self._opening.pop(frame.message_id, None)
        found = load_object(frame.payload, "ACK") if frame.payload else {}
        if "error" not in found and request is not None and not request.publish:
            # Now: records may be in the next frame.
            number = _number(found, "subscription")
            subscription = PushSubscription(
                request.topic,
                number,
                _vector(found.get("partitions")),
                _vector(found.get("elsewhere")),
                self._send_ack,
                partial(self.unsubscribe, request.topic),
            )
            describe(subscription, found)
            self._subscriptions[number] = subscription
        waiting = self._waiting.get(frame.message_id)
        if waiting is None or waiting.done():
            return
        if "error" in found:
            refusal = Refusal(
                error=str(found["error"]),
                code=str(found.get("code", "")),
                retriable=found.get("retriable") is True,
            )
            waiting.set_exception(PushRequestError(refusal))
        else:
            waiting.set_result(frame.payload)

    # --- Time and the end ---

    def _beat(self) -> None:
        now = self._loop.time()
        if now - self._last_received_at > SILENCE_SECONDS_MAX:
            self._break(f"nothing came from the broker for {SILENCE_SECONDS_MAX:.0f} s")
            return
        self._send(encode_frame(FrameType.HEARTBEAT, 0))
        self._timer = self._loop.call_later(HEARTBEAT_SECONDS, self._beat)

    def _break(self, reason: str) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(PushClosedError(reason))

    def _end(self, reason: PushClosedError) -> None:
        if self._reason is not None:
            return
        self._reason = reason
        if self._timer is not None:
            self._timer.cancel()
        self._has_room.set()
        for waiting in tuple(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(reason.again())
        for subscription in self._subscriptions.values():
            subscription.end(reason)
        if not self._closed.done():
            self._closed.set_result(reason)
        if self._transport is not None:
            self._transport.close()


def _number(found: dict[str, object], name: str) -> int:
    value = found.get(name)
    if not isinstance(value, int):
        raise PushClosedError(f"the answer of the broker has no number {name!r}")
    return value


def _vector(found: object) -> Vector:
    if not isinstance(found, dict):
        return {}
    return {int(name): int(offset) for name, offset in found.items()}
