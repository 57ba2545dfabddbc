"""Session of the gRPC gateway: the push protocol as bytes in messages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from penstock import BrokerServer
from penstock.edge.grpc_gateway.gateway_limits import (
    CALLS_MAX,
    MESSAGES_BYTES_MAX,
    STREAMS_PER_CONNECTION_MAX,
)
from penstock.protocol.push.data import PushData, decode_data, encode_data, encode_tail
from penstock.protocol.push.frames import Frame, FrameReader, FrameType, encode_frame
from penstock.protocol.push.payloads import SubscribeRequest, load_object, write_subscribe
from tests.node.grpc_gateway.grpc_stage import (
    PLAIN_TEXT,
    Stub,
    generated,
    grpc_broker,
    grpc_stub,
    status_of,
)
from tests.node.push.push_stage import run

BYTES_MAX = 2_000_000
SMALL_BYTES = 262_144
"""The largest message with which a thousand sessions are open."""


class Session:
    """A client of one session."""

    def __init__(self, stub: Stub) -> None:
        self.call = stub.Session()
        self._reader = FrameReader(BYTES_MAX)
        self.messages = 0

    async def send(self, *frames: bytes) -> None:
        await self.call.write(generated().Frames(data=b"".join(frames)))

    async def frame(self) -> Frame:
        while True:
            found = self._reader.next_frame()
            if found is not None:
                return found
            message = await self.call.read()
            if message is grpc.aio.EOF:
                raise EOFError
            self.messages += 1
            self._reader.feed(message.data)

    async def ask(self, kind: FrameType, message_id: int, payload: bytes) -> dict[str, object]:
        await self.send(encode_frame(kind, message_id, payload))
        answer = await self.frame()
        assert (answer.type, answer.message_id) == (FrameType.ACK, message_id)
        return load_object(answer.payload, "ACK")

    async def subscribe(
        self,
        message_id: int,
        **fields: Any,  # noqa: ANN401
    ) -> dict[str, object]:
        payload = write_subscribe(SubscribeRequest(**fields))
        return await self.ask(FrameType.SUBSCRIBE, message_id, payload)

    async def data(self) -> tuple[int, PushData]:
        frame = await self.frame()
        assert frame.type is FrameType.DATA
        return frame.message_id, decode_data(frame.payload)


@asynccontextmanager
async def session(broker: BrokerServer, **options: int) -> AsyncIterator[Session]:
    async with grpc_stub(broker, **options) as stub:
        yield Session(stub)


def published(number: int, message_id: int, value: bytes) -> bytes:
    return encode_data(number, message_id, encode_tail(-1, -1, -1, -1, 0, None, value))


def test_publish_and_deliver_with_several_frames_in_a_message() -> None:
    async def test() -> None:
        async with grpc_broker() as broker, session(broker) as client:
            assert (await client.subscribe(1, topic="t", group="g"))["subscription"] == 1
            assert (await client.subscribe(2, topic="t", publish=True))["subscription"] == 2
            await client.send(*(published(2, 10 + i, b"%d" % i) for i in range(100)))
            acks, values, last = [], [], 0
            for _ in range(200):
                frame = await client.frame()
                if frame.type is FrameType.ACK:
                    acks.append(load_object(frame.payload, "ACK")["offset"])
                else:
                    values.append(decode_data(frame.payload).value)
                    last = frame.message_id
            assert acks == list(range(100))
            assert values == [b"%d" % i for i in range(100)]
            assert client.messages < 60
            await client.send(encode_frame(FrameType.ACK, last))
            await client.send(encode_frame(FrameType.DISCONNECT, 999))
            assert (await client.frame()).type is FrameType.DISCONNECT
            with pytest.raises(EOFError):
                await client.frame()
            assert (await client.call.code()).name == "OK"
            async with grpc_stub(broker) as stub:
                found = await stub.Fetch(generated().FetchRequest(topic="t", group="g"))
                assert found.next_offset == 100
                assert not found.records

    run(test)


def test_a_frame_may_span_messages() -> None:
    async def test() -> None:
        text = PLAIN_TEXT + "[topic_defaults]\nmessage_bytes_max = 3000000\n"
        async with grpc_broker(text) as broker, session(broker) as client:
            await client.subscribe(1, topic="t", publish=True)
            frame = published(1, 2, b"x" * 1_900_000)
            for start in range(0, len(frame), 700_000):
                await client.send(frame[start : start + 700_000])
            answer = await client.frame()
            assert load_object(answer.payload, "ACK") == {"partition": 0, "offset": 0}

    run(test)


def test_a_client_that_does_not_read_holds_back_itself_only() -> None:
    async def test() -> None:
        async with (
            grpc_broker() as broker,
            session(broker, **{"grpc.http2.bdp_probe": 0}) as slow,
            session(broker) as fast,
        ):
            for _ in range(60):
                await broker.publish("t", b"x" * 100_000)
            await slow.subscribe(1, topic="t", start="earliest")
            await fast.subscribe(1, topic="t", start="earliest")
            for _ in range(60):
                message_id, _ = await fast.data()
                await fast.send(encode_frame(FrameType.ACK, message_id))
            assert broker._push is not None
            counters = broker._push.server.counters
            assert 60 < counters.delivered.value < 110
            for _ in range(60):
                message_id, _ = await slow.data()
            assert counters.delivered.value == 120

    run(test)


def test_a_wrong_frame_ends_the_session_with_the_reason() -> None:
    async def test() -> None:
        async with grpc_broker() as broker, session(broker) as client:
            await client.send(b"\xff" * 64)
            frame = await client.frame()
            assert frame.type is FrameType.DISCONNECT
            assert "reason" in load_object(frame.payload, "DISCONNECT")
            with pytest.raises(EOFError):
                await client.frame()

    run(test)


def test_sessions_above_the_limit_are_refused() -> None:
    async def test() -> None:
        text = PLAIN_TEXT + "sessions_max = 1\n"
        async with grpc_broker(text) as broker, session(broker) as first:
            await first.subscribe(1, topic="t")
            async with session(broker) as another:
                status, message, metadata = await status_of(_end(another))
            assert status == "RESOURCE_EXHAUSTED"
            assert "edge.sessions_max" in message
            assert metadata["penstock-retriable"] == "true"

    run(test)


async def _end(client: Session) -> None:
    while await client.call.read() is not grpc.aio.EOF:
        pass


def test_a_cancelled_stream_frees_its_session() -> None:
    async def test() -> None:
        async with grpc_broker() as broker, session(broker) as client:
            await client.subscribe(1, topic="t", group="g")
            assert broker._push is not None
            assert broker._grpc is not None
            assert len(broker._push.server.connections) == 1
            client.call.cancel()
            async with asyncio.timeout(5):
                while broker._push.server.connections or broker._grpc.server.admission.count:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            assert not broker._grpc.server._sessions

    run(test)


def test_the_end_of_the_client_ends_the_session() -> None:
    async def test() -> None:
        async with grpc_broker() as broker, session(broker) as client:
            await client.subscribe(1, topic="t")
            await client.call.done_writing()
            with pytest.raises(EOFError):
                await client.frame()
            assert broker._push is not None
            assert not broker._push.server.connections

    run(test)


def test_a_stop_of_the_broker_sends_disconnect() -> None:
    async def test() -> None:
        async with grpc_broker() as broker, session(broker) as client:
            await client.subscribe(1, topic="t")
            assert broker._grpc is not None
            async with asyncio.TaskGroup() as group:
                group.create_task(broker._grpc.stop())
                frame = await client.frame()
            assert frame.type is FrameType.DISCONNECT
            assert load_object(frame.payload, "DISCONNECT")["code"] == "BROKER_NOT_AVAILABLE"

    run(test)


@pytest.mark.parametrize("message", [b"\xff\xff", b"\x0a\x05ab", b"\x0a\x00" * 20_000])
def test_a_message_that_is_not_frames_ends_the_session_and_is_no_defect(
    message: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with (
            grpc_broker() as broker,
            grpc.aio.insecure_channel(f"127.0.0.1:{broker.grpc_port}") as channel,
        ):
            call = channel.stream_stream("/penstock.v1.Penstock/Session")()
            await call.write(message)
            assert (await call.code()).name == "INVALID_ARGUMENT"

    run(test)
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


@pytest.mark.slow
def test_a_thousand_idle_sessions_with_small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of all messages holds, and each session is served."""

    async def test() -> None:
        pb = generated()
        text = PLAIN_TEXT + f"grpc_message_bytes_max = {SMALL_BYTES}\n"
        async with grpc_broker(text) as broker, AsyncExitStack() as stack:
            assert broker._grpc is not None
            server = broker._grpc.server
            monkeypatch.setattr(server.admission, "_per_address_max", CALLS_MAX)
            payload = write_subscribe(SubscribeRequest(topic="t"))
            frames = pb.Frames(data=encode_frame(FrameType.SUBSCRIBE, 1, payload))
            calls: list[Any] = []
            for _ in range(CALLS_MAX // STREAMS_PER_CONNECTION_MAX):
                stub = await stack.enter_async_context(grpc_stub(broker))
                calls += [stub.Session() for _ in range(STREAMS_PER_CONNECTION_MAX)]
            await asyncio.gather(*(call.write(frames) for call in calls))
            answers = await asyncio.gather(*(call.read() for call in calls))
            assert all(b'"subscription"' in one.data for one in answers)
            assert server.admission.count == len(calls) == 1_000
            assert server.room.used_bytes == 1_000 * SMALL_BYTES <= MESSAGES_BYTES_MAX
            above = pb.Frames(data=bytes(SMALL_BYTES))
            await calls[0].write(above)
            assert (await calls[0].code()).name == "RESOURCE_EXHAUSTED"
            for call in calls:
                call.cancel()

    run(test)
