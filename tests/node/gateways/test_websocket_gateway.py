"""WebSockets over real sockets: frames, batching, limits, ends, other clients."""

import asyncio
import json
import sys

import pytest
import websockets
from websockets.typing import Subprotocol

from penstock.edge.gateways import web_limits, websocket_link
from penstock.edge.push import limits
from penstock.protocol.push.data import decode_data
from penstock.protocol.push.frames import FrameType, encode_frame
from tests.node.gateways.gateway_stage import (
    PLAIN_TEXT,
    BareSocket,
    call,
    data,
    gateway_broker,
    is_ended,
    opened,
    refused,
    run,
    subscribe,
    text_frames,
    until,
    upgrade,
)

BINARY, TEXT, CONTINUED, CLOSE, PING, PONG = 2, 1, 0, 8, 9, 10


async def take(socket: BareSocket, count: int) -> list[bytes]:
    """Return the next payloads of DATA."""
    found: list[bytes] = []
    while len(found) < count:
        frames = await socket.receive_frames()
        found += [one.payload for one in frames if one.type is FrameType.DATA]
    return found


def test_frames_of_one_turn_are_one_message() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            for number in range(100):
                await broker.publish("t", b"%d" % number)
            socket = await opened(broker)
            socket.send(BINARY, subscribe(start="earliest"))
            (answer,) = await socket.receive_frames()
            assert answer.type is FrameType.ACK
            frames = await socket.receive_frames()
            assert len(frames) == 100
            assert [decode_data(one.payload).value for one in frames] == [
                b"%d" % number for number in range(100)
            ]
            socket.close()

    run(test)


def test_many_frames_in_one_message_and_in_pieces() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            socket = await opened(broker)
            message = subscribe(publish=True)
            socket.send(BINARY, message)
            await socket.receive_frames()
            message = b"".join(data(number, b"%d" % number) for number in range(2, 52))
            for place in range(0, len(message), 7):
                is_last = place + 7 >= len(message)
                opcode = BINARY if place == 0 else CONTINUED
                socket.send(opcode, message[place : place + 7], is_final=is_last)
            found: list[int] = []
            while len(found) < 50:
                found += [one.message_id for one in await socket.receive_frames()]
            assert sorted(found) == list(range(2, 52))
            socket.close()

    run(test)


@pytest.mark.parametrize(
    ("opcode", "message", "reason", "code"),
    [
        (BINARY, subscribe()[:-1], "whole frame", 1007),
        (BINARY, subscribe() + b"\x03", "whole frame", 1007),
        (BINARY, b"\x09" + bytes(12), "frame type 9 is unknown", 1000),
        (TEXT, b"{}", "not binary", 1003),
    ],
)
def test_messages_that_are_not_whole_frames_end_the_session(
    opcode: int, message: bytes, reason: str, code: int
) -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            socket = await opened(broker)
            socket.send(opcode, message)
            (end,) = await socket.receive_frames()
            assert end.type is FrameType.DISCONNECT
            assert reason in json.loads(end.payload)["reason"]
            closed, payload = await socket.receive()
            assert (closed, int.from_bytes(payload[:2], "big")) == (CLOSE, code)
            socket.send(CLOSE, payload)
            assert await is_ended(socket.reader)
            assert broker.metrics()["push_sessions"] == 0

    run(test)


def test_a_client_that_does_not_answer_the_close_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_limits, "CLOSE_SECONDS_MAX", 0.05)

    async def test() -> None:
        async with gateway_broker() as broker:
            socket = await opened(broker)
            socket.send(BINARY, encode_frame(FrameType.DISCONNECT, 0))
            await socket.receive_frames()
            await socket.receive()
            async with asyncio.timeout(2):
                assert await is_ended(socket.reader)
            assert broker.metrics()["push_sessions"] == 0

    run(test)


def test_message_sizes_are_bounded_before_they_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_limits, "MESSAGE_BYTES_MAX", 200_000)
    monkeypatch.setattr(web_limits, "CLOSE_SECONDS_MAX", 0.05)

    async def test() -> None:
        async with gateway_broker() as broker:
            socket = await opened(broker)
            socket.send(BINARY, subscribe(publish=True))
            await socket.receive_frames()
            # Only the head of a message that is too large: the answer does not wait for the rest.
            socket.writer.write(bytes([0x82, 0xFF]) + (200_001).to_bytes(8, "big") + bytes(4))
            closed, payload = await socket.receive()
            assert (closed, int.from_bytes(payload[:2], "big")) == (CLOSE, 1009)
            await until(lambda: not broker.metrics()["push_sessions"])
            async with asyncio.timeout(2):
                assert await is_ended(socket.reader)

    run(test)


def test_too_many_frames_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.edge.gateways.json_frames.FRAMES_PER_MESSAGE_MAX", 3)

    async def test() -> None:
        async with gateway_broker() as broker:
            beat = encode_frame(FrameType.HEARTBEAT, 0)
            socket = await opened(broker)
            socket.send(BINARY, 3 * beat)
            socket.send(BINARY, 4 * beat)
            (end,) = await socket.receive_frames()
            assert "4 frames, at most 3" in json.loads(end.payload)["reason"]
            socket.close()

    run(test)


def test_a_slow_reader_is_not_buffered() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            for _ in range(40):
                await broker.publish("t", bytes(500_000))
            socket = await opened(broker)
            socket.writer.transport.pause_reading()  # type: ignore[attr-defined]
            socket.send(BINARY, subscribe(start="earliest", credit=100))
            assert broker._push is not None
            server = broker._push.server
            await until(lambda: server._stalled)
            for _ in range(20):
                await asyncio.sleep(0)
            (connection,) = server._stalled
            # One record above the mark of the socket, whatever the credit allows.
            assert connection.unsent_bytes < 2 * (500_000 + limits.WRITE_BUFFER_BYTES_HIGH)
            assert connection.session.unacknowledged_bytes < limits.UNACKNOWLEDGED_BYTES_MAX
            socket.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert len(await take(socket, 32)) == 32
            socket.close()

    run(test)


def test_incomplete_messages_count_for_the_bound_of_all_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HELD_BYTES_MAX", 300_000)

    async def test() -> None:
        async with gateway_broker() as broker:
            sockets = [await opened(broker) for _ in range(4)]
            for socket in sockets:
                socket.send(BINARY, subscribe(publish=True))
                await socket.receive_frames()
                head = bytes([0x82, 0xFF]) + (1_000_000).to_bytes(8, "big") + bytes(4)
                socket.writer.write(head + bytes(100_000))
                await socket.writer.drain()
            (end,) = await sockets[-1].receive_frames()
            assert "incomplete frames" in json.loads(end.payload)["reason"]
            for socket in sockets:
                socket.close()

    run(test)


def test_answers_to_pings_keep_a_session_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_limits, "PING_SECONDS", 0.05)
    monkeypatch.setattr(limits, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(limits, "SILENCE_SECONDS_MAX", 0.3)

    async def test() -> None:
        async with gateway_broker() as broker:
            alive, silent = await opened(broker), await opened(broker)
            for socket in (alive, silent):
                socket.send(BINARY, subscribe())
            ends_at = asyncio.get_running_loop().time() + 0.6
            while asyncio.get_running_loop().time() < ends_at:
                before = alive.ping_count
                for frame in await alive.receive_frames():
                    assert frame.type is not FrameType.DISCONNECT, frame
                if alive.ping_count > before:
                    alive.send(PONG, b"")
            assert alive.ping_count > 3
            last = (await silent.receive_frames())[-1]
            while last.type is not FrameType.DISCONNECT:
                last = (await silent.receive_frames())[-1]
            assert b"nothing came" in last.payload

    run(test)


def test_pings_of_the_client_are_answered() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            socket = await opened(broker)
            socket.send(PING, b"hello")
            assert await socket.receive() == (PONG, b"hello")
            socket.close()

    run(test)


def test_json_for_pages_without_a_library() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            socket = await opened(broker, "penstock.json.v1")

            def send(*frames: dict[str, object]) -> None:
                socket.send(TEXT, json.dumps(frames).encode())

            send({"type": "SUBSCRIBE", "id": 1, "payload": {"topic": "t", "from": "earliest"}})
            (answer,) = text_frames((await socket.receive())[1])
            assert answer["payload"] == {
                "subscription": 1,
                "partitions": {"0": 0},
                "partition_count": 1,
            }
            header = {"name": "h", "value_base64": "/w=="}
            send(
                {
                    "type": "DATA",
                    "id": 2,
                    "subscription": 1,
                    "key": "k",
                    "value": "é",
                    "headers": [header],
                },
                {"type": "DATA", "id": 3, "subscription": 1, "key_base64": "/w==", "value": None},
            )
            found: list[dict[str, object]] = []
            while len(found) < 4:
                found += text_frames((await socket.receive())[1])
            records = [one for one in found if one["type"] == "DATA"]
            assert [one["kind"] for one in records] == ["MESSAGE", "DELETE"]
            assert (records[0]["key"], records[0]["value"]) == ("k", "é")
            assert records[0]["headers"] == [header]
            assert (records[1]["key_base64"], records[1]["value"]) == ("/w==", None)
            send({"type": "ACK", "id": records[1]["id"]}, {"type": "DISCONNECT"})
            (end,) = text_frames((await socket.receive())[1])
            assert end["type"] == "DISCONNECT"
            socket.close()

    run(test)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"no", "not JSON"),
        (b"3", "not a JSON object"),
        (b'{"type": "X"}', "types are DATA"),
        (b'{"type": "SUBSCRIBE", "topic": "t"}', "unknown member 'topic'"),
        (b'{"type": "ACK", "id": -1}', "'id' is not a number"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_texts_that_are_not_frames_end_the_session(message: bytes, reason: str) -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            socket = await opened(broker, "penstock.json.v1")
            socket.send(TEXT, message)
            (end,) = text_frames((await socket.receive())[1])
            payload = end["payload"]
            assert isinstance(payload, dict)
            assert reason in payload["reason"]
            socket.close()

    run(test)


def test_upgrades_that_are_refused() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            answer = await refused(broker, subprotocol="mqtt")
            assert answer.status == 400
            assert "penstock.json.v1" in str(answer.json()["detail"])
            assert (await refused(broker, path="/v1/other")).status == 404
            assert (await refused(broker, sec_websocket_version="12")).status == 400
            assert (await refused(broker, sec_websocket_key="short")).status == 400
            for body in ({"content_length": "5"}, {"transfer_encoding": "chunked"}):
                answer = await refused(broker, **body)
                assert answer.status == 400
                assert "has a body" in str(answer.json()["detail"])
            assert broker.metrics()["push_sessions"] == 0
            assert broker.metrics()["push_sessions_opened_total"] == 0

    run(test)


def test_an_upgrade_that_declares_an_empty_body_is_accepted() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            assert isinstance(await upgrade(broker, content_length="0"), BareSocket)

    run(test)


def test_a_broker_without_the_package_serves_http_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.server", None)

    async def test() -> None:
        async with gateway_broker() as broker:
            answer = await refused(broker)
            assert answer.status == 501
            assert "penstock[gateways]" in str(answer.json()["remedy"])
            assert (await call(broker, "GET", "/v1/topics/t/records")).status == 200

    run(test)


def test_sessions_above_the_bound_of_an_address_are_refused_with_503() -> None:
    async def test() -> None:
        text = PLAIN_TEXT + "sessions_max = 2\n"
        async with gateway_broker(text) as broker:
            assert broker._push is not None
            broker._push.server.sessions_max = 1
            socket = await opened(broker)
            answer = await refused(broker)
            assert answer.status == 503
            assert answer.headers["retry-after"] == "1"
            assert "edge.sessions_max" in str(answer.json()["remedy"])
            assert broker.metrics()["push_sessions"] == 1
            socket.close()

    run(test)


def test_a_third_party_client_publishes_and_consumes() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            url = f"ws://127.0.0.1:{broker.http_port}/v1/push"
            async with websockets.connect(
                url, subprotocols=[Subprotocol("penstock.push.v1")], compression="deflate"
            ) as socket:
                assert socket.subprotocol == "penstock.push.v1"
                assert not socket.protocol.extensions
                await socket.send(subscribe())
                await socket.recv()
                await socket.send(b"".join(data(number, b"v") for number in range(2, 12)))
                count = 0
                while count < 20:
                    message = await socket.recv()
                    assert isinstance(message, bytes)
                    while message:
                        length = int.from_bytes(message[9:13], "big")
                        message = message[13 + length :]
                        count += 1
                await socket.send(encode_frame(FrameType.DISCONNECT, 0))
                assert b"client ended" in await socket.recv()
                await socket.wait_closed()
                assert socket.close_code == 1000

    run(test)


def test_a_stop_sends_the_reason_and_closes() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            socket = await opened(broker)
            socket.send(BINARY, subscribe(group="g"))
            await socket.receive_frames()
        (end,) = await socket.receive_frames()
        assert json.loads(end.payload)["code"] == "BROKER_NOT_AVAILABLE"
        assert (await socket.receive())[0] == CLOSE

    run(test)


def test_a_group_of_a_closed_socket_is_committed() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            await broker.publish("t", b"1")
            socket = await opened(broker)
            socket.send(BINARY, subscribe(start="earliest", group="g"))
            await take(socket, 1)
            socket.send(BINARY, encode_frame(FrameType.ACK, 1))
            socket.send(CLOSE, (1000).to_bytes(2, "big"))
            while await socket.reader.read(4_096):
                pass
            again = await opened(broker)
            again.send(BINARY, subscribe(group="g"))
            (answer,) = await again.receive_frames()
            assert json.loads(answer.payload)["partitions"] == {"0": 1}
            again.close()

    run(test)


def test_auto_ack_goes_on_beyond_its_credit() -> None:
    async def test() -> None:
        async with gateway_broker() as broker:
            for number in range(50):
                await broker.publish("t", b"%d" % number)
            socket = await opened(broker)
            socket.send(BINARY, subscribe(start="earliest", credit=3, auto_ack=True))
            assert len(await take(socket, 50)) == 50
            socket.close()

    run(test)


def test_heads_of_messages() -> None:
    assert websocket_link.head_of(0x82, 125) == b"\x82\x7d"
    assert websocket_link.head_of(0x82, 126) == b"\x82\x7e\x00\x7e"
    assert websocket_link.head_of(0x82, 65_535) == b"\x82\x7e\xff\xff"
    assert websocket_link.head_of(0x81, 65_536) == b"\x81\x7f" + (65_536).to_bytes(8, "big")
