"""A broker with the gateways in the event loop of a test, and bare clients of them."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from penstock import BrokerServer
from penstock.protocol.push.data import encode_data, encode_tail
from penstock.protocol.push.frames import Frame, FrameType, encode_frame
from penstock.protocol.push.payloads import write_object
from tests.node.push.push_stage import WAIT_SECONDS, settings_from

PLAIN_TEXT = """
[node]
storage = "memory"
[listener]
port = 0
[edge]
http_port = 0
"""


@asynccontextmanager
async def gateway_broker(
    text: str = PLAIN_TEXT, topics: dict[str, int] | None = None
) -> AsyncIterator[BrokerServer]:
    """Run a broker with topics and their numbers of partitions."""
    async with asyncio.timeout(WAIT_SECONDS), BrokerServer(settings_from(text)) as broker:
        for name, count in (topics or {"t": 1}).items():
            await broker.create_topic(name, partitions=count)
        yield broker


class Answer(NamedTuple):
    """An answer of HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        """Return the object in the body."""
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Return status and headers of an answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in head[1:] if line)
    return int(head[0].split()[1]), {name.lower(): value for name, value in pairs}


async def call(
    broker: BrokerServer,
    method: str,
    path: str,
    body: bytes | Mapping[str, object] = b"",
    **headers: str,
) -> Answer:
    """Return the answer to one request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers = {"content_type": "application/json", **headers}
    named = {"host": f"127.0.0.1:{broker.http_port}", "connection": "close", **headers}
    if body:
        named["content-length"] = str(len(body))
    lines = [f"{method} {path} HTTP/1.1"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in named.items()]
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        status, found = await read_head(reader)
        content = await reader.read()
    finally:
        writer.close()
    return Answer(status, found, content)


def basic(user: str, password: str) -> str:
    """Return a header `Authorization`."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


_sockets: list["BareSocket"] = []


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run the body of a test, and cut the connections that it leaves."""

    async def main() -> None:
        try:
            await test()
        finally:
            while _sockets:
                _sockets.pop().close()
            await asyncio.sleep(0.01)

    asyncio.run(main())


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition, within the time of the test."""
    while not condition():  # noqa: ASYNC110 (any state of the broker)
        await asyncio.sleep(0.001)


async def is_ended(reader: asyncio.StreamReader) -> bool:
    """Whether the broker ends a connection without another byte."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


class BareSocket:
    """A WebSocket client that can send anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.ping_count = 0
        _sockets.append(self)

    def send(self, opcode: int, payload: bytes, *, is_final: bool = True) -> None:
        """Send one masked frame."""
        first = opcode | (0x80 if is_final else 0)
        size = len(payload)
        if size < 126:
            head = bytes([first, 0x80 | size])
        elif size < 65_536:
            head = bytes([first, 0x80 | 126]) + size.to_bytes(2, "big")
        else:
            head = bytes([first, 0x80 | 127]) + size.to_bytes(8, "big")
        # A mask of zeros is a mask.
        self.writer.write(head + bytes(4) + payload)

    async def receive(self) -> tuple[int, bytes]:
        """Return opcode and payload of the next frame; pings are counted and left out."""
        while True:
            first, second = await self.reader.readexactly(2)
            size = second & 0x7F
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2), "big")
            elif size == 127:
                size = int.from_bytes(await self.reader.readexactly(8), "big")
            payload = await self.reader.readexactly(size)
            if first & 0x0F != 9:
                return first & 0x0F, payload
            self.ping_count += 1

    async def receive_frames(self) -> list[Frame]:
        """Return the frames of the next message."""
        opcode, payload = await self.receive()
        assert opcode == 2, (opcode, payload)
        found, place = [], 0
        while place < len(payload):
            length = int.from_bytes(payload[place + 9 : place + 13], "big")
            message_id = int.from_bytes(payload[place + 1 : place + 9], "big")
            content = payload[place + 13 : place + 13 + length]
            found.append(Frame(FrameType(payload[place]), message_id, content))
            place += 13 + length
        assert place == len(payload)
        return found

    def close(self) -> None:
        """Cut the connection."""
        self.writer.transport.abort()


async def upgrade(
    broker: BrokerServer,
    subprotocol: str = "penstock.push.v1",
    path: str = "/v1/push",
    **headers: str,
) -> BareSocket | Answer:
    """Return a WebSocket, or the answer that refuses it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port)
    named = {
        "host": f"127.0.0.1:{broker.http_port}",
        "upgrade": "websocket",
        "connection": "Upgrade",
        "sec-websocket-version": "13",
        "sec-websocket-key": base64.b64encode(os.urandom(16)).decode(),
        "sec-websocket-protocol": subprotocol,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    status, found = await read_head(reader)
    if status == 101:
        assert found["sec-websocket-protocol"] in subprotocol
        return BareSocket(reader, writer)
    content = await reader.read()
    writer.close()
    return Answer(status, found, content)


async def opened(broker: BrokerServer, subprotocol: str = "penstock.push.v1") -> BareSocket:
    """Return a WebSocket."""
    found = await upgrade(broker, subprotocol)
    assert isinstance(found, BareSocket), found
    return found


async def refused(broker: BrokerServer, **headers: str) -> Answer:
    """Return the answer that refuses a WebSocket."""
    found = await upgrade(broker, **headers)
    assert isinstance(found, Answer)
    return found


def subscribe(message_id: int = 1, start: str | None = None, **fields: object) -> bytes:
    """Return a SUBSCRIBE frame."""
    found = {"topic": "t", **fields}
    if start is not None:
        found["from"] = start
    return encode_frame(FrameType.SUBSCRIBE, message_id, write_object(found))


def data(message_id: int, value: bytes, subscription: int = 1) -> bytes:
    """Return a DATA frame that publishes."""
    return encode_data(subscription, message_id, encode_tail(-1, -1, -1, -1, 0, None, value))


def text_frames(payload: bytes) -> list[dict[str, object]]:
    """Return the frames of a text message."""
    found = json.loads(payload)
    return found if isinstance(found, list) else [found]
