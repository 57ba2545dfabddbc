"""The gateways: processor time of a record over WebSocket, HTTP and server-sent events.

    python -m benchmarks.gateways [--records 20000] [--json FILE]

Both ends run in this process, over loopback sockets on uvloop, and one broker in memory; processor
time is that of the process, so it includes the client.

- websocket_alone, websocket_hundreds: frames of records of 100 bytes in messages of 1 and of 100,
  through a `WebSocketLink` to the parser of the package `websockets`. The log is not read. The same
  frames over TCP are `tcp_alone` and `tcp_hundreds`.
- delivery: records of the log to one consumer, as fast as it reads: `push_tcp`, `websocket`,
  `websocket_json`, `events` (server-sent events).
- http: POST of one record and of a hundred, GET of a hundred, on one connection.
- idle_bytes: memory of one idle WebSocket with a subscription.

A figure depends on the machine: compare two runs of the same one. Exit code 1: a bound was missed.
"""

import argparse
import asyncio
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, cast

import uvloop
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from penstock import BrokerServer
from penstock.core.settings.config import load_settings
from penstock.edge.gateways.websocket_link import WebSocketLink
from penstock.protocol.push.data import encode_data, encode_tail
from penstock.protocol.push.frames import HEAD, HEAD_BYTES, FrameReader, FrameType, encode_frame
from penstock.records.builder import build_batch
from penstock.records.record import Record

SETTINGS: Final = """
[node]
storage = "memory"
[listener]
port = 0
[edge]
push_port = 0
http_port = 0
"""
BOUNDS: Final = (("websocket_alone", 13.0), ("websocket_hundreds", 0.4), ("idle_bytes", 20_000.0))
"""Microseconds of a record, or bytes of a session: the highest accepted values."""
IDLE_SESSIONS: Final = 1_000
TAIL: Final = encode_tail(0, 1, 2, 3, 0, b"key", b"x" * 97)


class _Session:
    """In place of a push session: it counts."""

    held_bytes = 0

    def __init__(self) -> None:
        self.session = self
        self.is_authenticated = True

    def connection_made(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=65_536)

    def connection_lost(self, error: Exception | None) -> None:
        del error

    def pause_writing(self) -> None:
        raise AssertionError("the client reads everything")


class _Counters:
    def __init__(self) -> None:
        self.received_bytes = self
        self.value = 0


class _Server:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.counters = _Counters()

    def connection(self, door: object) -> _Session:
        del door
        return _Session()


class _Client(asyncio.Protocol):
    """Counts the bytes of frames, over TCP or a WebSocket."""

    def __init__(self, *, is_websocket: bool) -> None:
        self._socket = ClientProtocol(parse_uri("ws://localhost/"), max_size=None)
        self._socket.state = State.OPEN
        # The parser of a client begins with the answer to its handshake.
        self._socket.parser = super(ClientProtocol, self._socket).parse()
        next(self._socket.parser)
        self._is_websocket = is_websocket
        self.count = 0
        self.wanted = 0
        self.done = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        if self._is_websocket:
            self._socket.receive_data(data)
            for event in self._socket.events_received():
                if isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                    self.count += len(event.data)
        else:
            self.count += len(data)
        if self.count >= self.wanted:
            self.done.set()


async def of_frames(count: int, together: int, *, is_websocket: bool) -> float:
    """Return microseconds of processor time for one frame, of both ends."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[asyncio.Transport] = loop.create_future()

    class _Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.set_result(cast("asyncio.Transport", transport))

    server = await loop.create_server(_Accepted, "127.0.0.1", 0)
    client = _Client(is_websocket=is_websocket)
    port = server.sockets[0].getsockname()[1]
    transport, _ = await loop.create_connection(lambda: client, "127.0.0.1", port)
    raw = await accepted
    target: asyncio.Transport = raw
    if is_websocket:
        protocol = ServerProtocol(state=State.OPEN)
        fake = cast("object", _Server())
        link = WebSocketLink(fake, None, raw, protocol, is_json=False)  # type: ignore[arg-type]
        assert link.begin()
        target = link
    # A session joins the frames of its turn.
    frame = encode_data(1, 1, TAIL)
    run = frame * together
    client.wanted = count * len(frame)
    turns = count // together
    before = time.process_time()
    for _ in range(turns):
        await asyncio.sleep(0)
    middle = time.process_time()
    for _ in range(turns):
        # One turn of the event loop is one message; the client reads in between.
        target.write(run)
        await asyncio.sleep(0)
    await client.done.wait()
    # Without the empty turns of this loop.
    spent = (time.process_time() - middle) - (middle - before)
    transport.abort()
    raw.abort()
    server.close()
    return spent / count * 1e6


async def measured(count: int, work: Awaitable[None]) -> float:
    """Return microseconds of processor time for one record."""
    before = time.process_time()
    await work
    return (time.process_time() - before) / count * 1e6


async def fill(broker: BrokerServer, count: int) -> None:
    """Publish records in stored batches of a hundred."""
    assert broker._push is not None
    client = broker._push.open_client()
    batch = bytes(build_batch([Record(b"key", b"x" * 97, (), 0)] * 100))
    for _ in range(count // 100):
        await client.publish_batch("t", batch)
    await client.close()


def _subscribe() -> bytes:
    request = {"topic": "t", "from": "earliest", "credit": 100_000, "auto_ack": True}
    return encode_frame(FrameType.SUBSCRIBE, 1, json.dumps(request).encode())


async def over_tcp(broker: BrokerServer, count: int) -> None:
    """Count deliveries of the push port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.push_port)
    writer.write(_subscribe())
    frames, got = FrameReader(1 << 20), -1
    while got < count:
        frames.feed(await reader.read(1 << 18))
        while frames.next_frame() is not None:
            got += 1
    writer.close()


def _upgrade_request(subprotocol: str) -> bytes:
    return (
        "GET /v1/push HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\n"
        "connection: upgrade\r\nsec-websocket-version: 13\r\n"
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        f"sec-websocket-protocol: {subprotocol}\r\n\r\n"
    ).encode()


async def _upgraded(
    broker: BrokerServer, subprotocol: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port, limit=1 << 22)
    writer.write(_upgrade_request(subprotocol))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def _masked(opcode: int, payload: bytes) -> bytes:
    return bytes([0x80 | opcode, 0x80 | 126]) + len(payload).to_bytes(2, "big") + bytes(4) + payload


async def _message(reader: asyncio.StreamReader) -> bytes:
    size = (await reader.readexactly(2))[1]
    if size == 126:
        size = int.from_bytes(await reader.readexactly(2), "big")
    elif size == 127:
        size = int.from_bytes(await reader.readexactly(8), "big")
    return await reader.readexactly(size)


async def over_websocket(broker: BrokerServer, count: int) -> None:
    """Count deliveries of a WebSocket."""
    reader, writer = await _upgraded(broker, "penstock.push.v1")
    writer.write(_masked(2, _subscribe()))
    got = -1
    while got < count:
        message = await _message(reader)
        place = 0
        while place < len(message):
            place += HEAD_BYTES + HEAD.unpack_from(message, place)[2]
            got += 1
    writer.close()


async def over_json(broker: BrokerServer, count: int) -> None:
    """Count deliveries of a WebSocket with JSON."""
    reader, writer = await _upgraded(broker, "penstock.json.v1")
    request = {"topic": "t", "from": "earliest", "credit": 100_000, "auto_ack": True}
    writer.write(
        _masked(1, json.dumps({"type": "SUBSCRIBE", "id": 1, "payload": request}).encode())
    )
    got = -1
    while got < count:
        found = json.loads(await _message(reader))
        got += len(found) if isinstance(found, list) else 1
    writer.close()


async def over_events(broker: BrokerServer, count: int) -> None:
    """Count server-sent events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port, limit=1 << 22)
    writer.write(b"GET /v1/topics/t/stream?from=earliest HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    got = 0
    while got < count:
        got += (await reader.read(1 << 18)).count(b"data: ")
    writer.close()


async def over_http(broker: BrokerServer, count: int, request: bytes) -> None:
    """Send the same request on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.http_port, limit=1 << 22)
    for _ in range(count):
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in head[:20], head
        await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
    writer.close()


def _post(records: int) -> bytes:
    body = json.dumps({"records": [{"key": "key", "value": "x" * 97}] * records}).encode()
    head = "POST /v1/topics/p/records HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json"
    return f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def idle_bytes(broker: BrokerServer) -> float:
    """Return the memory of one idle WebSocket; its client is a bare socket."""

    def resident() -> int:
        fields = Path("/proc/self/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    loop, sockets, before = asyncio.get_running_loop(), [], resident()
    request = encode_frame(FrameType.SUBSCRIBE, 1, b'{"topic":"t"}')
    for _ in range(IDLE_SESSIONS):
        one = socket.socket()
        one.setblocking(False)  # noqa: FBT003 (positional only)
        await loop.sock_connect(one, ("127.0.0.1", broker.http_port))
        await loop.sock_sendall(one, _upgrade_request("penstock.push.v1"))
        assert b" 101 " in await loop.sock_recv(one, 4_096)
        await loop.sock_sendall(one, _masked(2, request))
        assert b"subscription" in await loop.sock_recv(one, 4_096)
        sockets.append(one)
    used = (resident() - before) / IDLE_SESSIONS
    for one in sockets:
        one.close()
    return used


async def measure(count: int) -> dict[str, float]:
    """Return all figures."""
    found: dict[str, float] = {}
    for name, is_websocket in (("tcp", False), ("websocket", True)):
        found[f"{name}_alone"] = await of_frames(count, 1, is_websocket=is_websocket)
        found[f"{name}_hundreds"] = await of_frames(count, 100, is_websocket=is_websocket)
    settings = load_settings(SETTINGS, {}, {"admin.enabled": False}).settings
    async with BrokerServer(settings) as broker:
        for topic in ("t", "p"):
            await broker.create_topic(topic, partitions=1)
        found["idle_bytes"] = await idle_bytes(broker)
        await fill(broker, count)
        for label, deliver in (
            ("push_tcp", over_tcp),
            ("websocket", over_websocket),
            ("websocket_json", over_json),
            ("events", over_events),
        ):
            await deliver(broker, 100)
            found[f"delivery_{label}"] = await measured(count, deliver(broker, count))
        calls = max(10, count // 100)
        get = b"GET /v1/topics/t/records?from=100&max=100 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        for label, request, records in (
            ("post_one", _post(1), 1),
            ("post_hundred", _post(100), 100),
            ("get_hundred", get, 100),
        ):
            await over_http(broker, 3, request)
            work = over_http(broker, calls, request)
            found[f"http_{label}"] = await measured(calls * records, work)
    return found


def main() -> int:
    """Measure, print, and compare with the bounds."""
    parser = argparse.ArgumentParser(description="Measure the gateways.")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(options.records))
    for name, value in found.items():
        unit = "bytes" if name == "idle_bytes" else "microseconds of a record"
        print(f"{name:24} {value:10.2f} {unit}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2))
    missed = [name for name, bound in BOUNDS if found[name] > bound]
    for name in missed:
        print(f"bound missed: {name} is {found[name]:.2f}, at most {dict(BOUNDS)[name]}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
