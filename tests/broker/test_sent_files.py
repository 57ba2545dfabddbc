"""Fetches from a real disk, on both event loops: sendfile changes nothing for clients.

The units are in test_file_sender.py; here a whole broker answers over TCP.
"""

import asyncio
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

import pytest
import uvloop

from penstock.broker.connections.entrance import Entrance
from penstock.broker.connections.listener import ConnectionProtocol
from penstock.broker.connections.listener_state import ListenerState
from penstock.broker.dispatch import Dispatcher
from penstock.broker.handlers import HANDLERS
from penstock.core.limits import SENDFILE_BYTES_MIN
from penstock.core.metrics import Registry
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import ListenerSettings, Settings
from penstock.node.server import BrokerServer
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.produce import ProduceResponse
from penstock.storage.disk.filesystem import DiskFileSystem
from penstock.testing.broker_run import BrokerRun
from tests.broker.handlers.asker import (
    NAMED,
    Asker,
    batch_of,
    fetch_request,
    fresh_name,
    produce_request,
    values_in,
)
from tests.broker.handlers.fakes import FakeServices

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sendfile to sockets is Linux's")

BATCHES = 16
BATCH_BYTES = 500_000
ALL_BYTES = BATCHES * BATCH_BYTES + 100_000
SECONDS_MAX = 20.0
UNREAD = 'connections_timed_out_total{reason="unread_answers"}'


class Broker:
    """A broker on a thread, as `penstock serve` runs it: no network that can be broken between."""

    def __init__(self, config: BrokerConfig) -> None:
        self.uses_uvloop = config.node.uvloop
        self._server = BrokerServer(config)
        self._run = BrokerRun(self._server, use_uvloop=config.node.uvloop)

    @property
    def port(self) -> int:
        return self._server.port

    def metrics(self) -> Mapping[str, float]:
        return self._server.metrics()

    def stop(self) -> None:
        self._run.end()

    def __enter__(self) -> Self:
        self._run.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


def settings(folder: Path, *, uvloop: bool, **listener: float) -> BrokerConfig:
    tree = Settings.model_validate({"node": {"uvloop": uvloop}, "listener": listener})
    return BrokerConfig(port=0, data_dir=folder / "data", settings=tree)


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    with Broker(settings(tmp_path, uvloop=request.param)) as running:
        yield running


@pytest.fixture
def sendfile_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each call of sendfile in this process."""
    calls: list[int] = []
    really_send = os.sendfile

    def send(target: int, source: int, offset: int, count: int) -> int:
        sent = really_send(target, source, offset, count)
        calls.append(sent)
        return sent

    monkeypatch.setattr(os, "sendfile", send)
    return calls


def filled(broker: Broker) -> tuple[str, list[bytes | None]]:
    """A topic with a few megabytes; its name and values."""
    name = fresh_name()
    values: list[bytes | None] = [os.urandom(BATCH_BYTES) for _ in range(BATCHES)]
    with Asker(broker.port) as asker:
        asker.create(name)
        for value in values:
            assert value is not None
            assert asker.produce(name, batch_of(value)).error_code == 0
    return name, values


def slow(broker: Broker) -> Asker:
    """A client whose socket holds little, so that the broker must wait for it."""
    asker = Asker(broker.port)
    asker._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    return asker


def fetch_all(name: str) -> tuple[FetchRequest, int]:
    return fetch_request({name: {0: 0}}, partition_max_bytes=ALL_BYTES), NAMED


def records_of(answer: FetchResponse) -> list[bytes | None]:
    return values_in(answer.responses[0].partitions[0])


def settles(broker: Broker, name: str, value: float) -> bool:
    deadline = time.monotonic() + SECONDS_MAX
    while broker.metrics()[name] != value:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def test_a_large_fetch_is_sent_and_is_what_was_written(
    broker: Broker, sendfile_calls: list[int]
) -> None:
    name, values = filled(broker)
    with Asker(broker.port) as asker:
        asker.send(*fetch_all(name))
        assert records_of(asker.receive(FetchResponse)) == values
    # Storage maps nothing for asyncio, whose transports copy in the process.
    assert (sum(sendfile_calls) > BATCHES * BATCH_BYTES) == broker.uses_uvloop
    assert bool(sendfile_calls) == broker.uses_uvloop


def test_answers_behind_a_large_one_keep_their_order(broker: Broker) -> None:
    """Small ones go to the transport otherwise, which would be faster than the file."""
    name, values = filled(broker)
    with slow(broker) as asker:
        produce = produce_request(name, {0: batch_of(b"new")})
        asker.send_together(
            (ApiVersionsRequest(), 0),
            fetch_all(name),
            (ApiVersionsRequest(), 0),
            (produce, NAMED),
            fetch_all(name),
            (ApiVersionsRequest(), 0),
        )
        asker.receive(ApiVersionsResponse)
        assert records_of(asker.receive(FetchResponse)) == values
        asker.receive(ApiVersionsResponse)
        asker.receive(ProduceResponse)
        assert records_of(asker.receive(FetchResponse))[:BATCHES] == values
        asker.receive(ApiVersionsResponse)


def test_who_sends_no_more_gets_a_large_answer_whole(broker: Broker) -> None:
    name, values = filled(broker)
    with slow(broker) as asker:
        asker.send(*fetch_all(name))
        asker.finish_sending()
        assert records_of(asker.receive(FetchResponse)) == values
        assert asker.is_closed()


def test_a_deleted_topic_is_sent_to_the_end(broker: Broker) -> None:
    """The header promised the bytes; the file is gone from the disk when the client has them."""
    name, values = filled(broker)
    with slow(broker) as asker, Asker(broker.port) as other:
        asker.send(*fetch_all(name))
        assert settles_above(broker, "unsent_answer_bytes", BATCHES * BATCH_BYTES)
        other.delete(name)
        assert records_of(asker.receive(FetchResponse)) == values
        assert settles(broker, "unsent_answer_bytes", 0)


def settles_above(broker: Broker, name: str, value: float) -> bool:
    deadline = time.monotonic() + SECONDS_MAX
    while broker.metrics()[name] < value:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def test_a_client_that_goes_away_leaves_no_descriptor(broker: Broker) -> None:
    name, _values = filled(broker)
    before = len(os.listdir("/proc/self/fd"))
    with slow(broker) as asker:
        asker.send(*fetch_all(name))
        assert settles_above(broker, "unsent_answer_bytes", BATCHES * BATCH_BYTES)
        assert len(os.listdir("/proc/self/fd")) > before
        asker.reset()
    assert settles(broker, "unsent_answer_bytes", 0)
    assert settles(broker, "connections", 0)
    deadline = time.monotonic() + SECONDS_MAX
    while len(os.listdir("/proc/self/fd")) > before:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("uvloop", [True, False])
def test_a_client_that_never_reads_is_ended(tmp_path: Path, *, uvloop: bool) -> None:
    """What waits for it counts until then: it must not hold files and memory for ever."""
    with Broker(settings(tmp_path, uvloop=uvloop, slow_reader_seconds_max=0.2)) as broker:
        name, _values = filled(broker)
        with slow(broker) as asker:
            asker.send(*fetch_all(name))
            assert settles_above(broker, "unsent_answer_bytes", BATCHES * BATCH_BYTES)
            assert settles(broker, UNREAD, 1)
        assert settles(broker, "unsent_answer_bytes", 0)


def test_a_stop_finishes_what_is_being_sent(tmp_path: Path) -> None:
    with Broker(settings(tmp_path, uvloop=True)) as broker:
        name, values = filled(broker)
        asker = slow(broker)
        asker.send(*fetch_all(name))
        assert settles_above(broker, "unsent_answer_bytes", BATCHES * BATCH_BYTES)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        assert records_of(asker.receive(FetchResponse)) == values
        stopping.join(SECONDS_MAX)
        assert not stopping.is_alive()
        asker.close()


# --- One connection, without a broker ---


class Ends:
    """Both ends of one connection whose socket takes little, and a file to send."""

    def __init__(self, folder: Path) -> None:
        path = folder / "0.log"
        self.content = os.urandom(SENDFILE_BYTES_MIN * 8)
        path.write_bytes(self.content)
        self.file = DiskFileSystem().open_file(str(path))
        self._ours, self._peer = socket.socketpair()
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        self._peer.setblocking(False)

    async def __aenter__(self) -> Self:
        metrics = Registry()
        dispatcher = Dispatcher(FakeServices().services, HANDLERS, metrics)
        self.state = ListenerState(ListenerSettings(), dispatcher, metrics)
        self._loop = asyncio.get_running_loop()
        self.transport, self.protocol = await self._loop.connect_accepted_socket(
            lambda: ConnectionProtocol(self.state, Entrance()), self._ours
        )
        return self

    def view(self) -> memoryview:
        return self.file.view_nowait(0, len(self.content))

    def write(self, *parts: bytes | memoryview) -> None:
        self.protocol.write(list(parts), sum(map(len, parts)))

    async def receive(self, count: int) -> bytes:
        received = bytearray()
        async with asyncio.timeout(SECONDS_MAX):
            while len(received) < count:
                received += await self._loop.sock_recv(self._peer, count)
        return bytes(received)

    async def __aexit__(self, *_error: object) -> None:
        self.protocol.abort()
        await asyncio.sleep(0)
        self._peer.close()
        self.state.stop()


LOOPS = pytest.mark.parametrize(
    "new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
def test_an_answer_that_comes_meanwhile_waits_for_the_file(
    new_loop: NewLoop, tmp_path: Path
) -> None:
    """The transport has nothing to do and would send it into the middle of the records."""

    async def go() -> None:
        async with Ends(tmp_path) as ends:
            ends.write(b"head", ends.view())
            ends.write(b"answered later")
            expected = b"head" + ends.content + b"answered later"
            assert await ends.receive(len(expected)) == expected

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(go())


@LOOPS
def test_a_file_waits_for_what_the_transport_holds(
    new_loop: NewLoop, tmp_path: Path, sendfile_calls: list[int]
) -> None:
    async def go() -> None:
        async with Ends(tmp_path) as ends:
            earlier = os.urandom(500_000)
            ends.write(earlier)
            ends.write(b"head", ends.view())
            expected = earlier + b"head" + ends.content
            assert await ends.receive(len(expected)) == expected

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(go())
    assert sendfile_calls == []


@LOOPS
def test_a_transport_that_ends_by_itself_leaves_no_descriptor(
    new_loop: NewLoop, tmp_path: Path
) -> None:
    async def go() -> None:
        async with Ends(tmp_path) as ends:
            before = len(os.listdir("/proc/self/fd"))
            ends.write(ends.view())
            assert len(os.listdir("/proc/self/fd")) > before
            ends.transport.abort()
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(os.listdir("/proc/self/fd")) < before

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(go())


@pytest.mark.parametrize("sends_files", [True, False])
def test_a_listener_can_switch_it_off(
    tmp_path: Path, sendfile_calls: list[int], *, sends_files: bool
) -> None:
    """TLS must see every byte: nothing may pass the transport."""

    async def go() -> None:
        async with Ends(tmp_path) as ends:
            ends.state.sends_files = sends_files
            ends.write(b"head", ends.view())
            assert await ends.receive(4 + len(ends.content)) == b"head" + ends.content

    asyncio.run(go())
    assert bool(sendfile_calls) == sends_files
