"""`SessionStream`: a push session over messages, with a stream of the test."""

import asyncio

import pytest

from penstock.edge.grpc_gateway.gateway_messages import read_frames, write_frames
from penstock.edge.grpc_gateway.session_stream import SessionStream, StreamEndedError
from tests.node.push.push_stage import run


class Session:
    """Notes the calls of its transport."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_counted = False
        self.received = b""
        self.transport: SessionStream | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SessionStream)
        self.transport = transport

    def secured(self, certificate: bytes | None) -> None:
        assert certificate is None
        self.is_counted = True

    def receive(self, data: bytes) -> None:
        assert self.is_counted
        self.received += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        assert exc is None
        self.events.append("lost")


class Stream:
    """The two functions of a stream; writes wait until the test lets them."""

    def __init__(self) -> None:
        self.input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.reads = 0
        self.sent: list[bytes] = []
        self.has_room = asyncio.Event()
        self.has_room.set()
        self.is_gone = False

    async def read(self) -> bytes | None:
        self.reads += 1
        return await self.input.get()

    async def write(self, message: bytes) -> None:
        await self.has_room.wait()
        if self.is_gone:
            raise StreamEndedError
        self.sent.append(read_frames(message))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_frames_written_together_leave_together_and_a_full_stream_pauses() -> None:
    async def test() -> None:
        session, stream = Session(), Stream()
        transport = SessionStream(session)
        async with asyncio.TaskGroup() as group:
            group.create_task(transport.run(stream.read, stream.write))
            await turns()
            transport.set_write_buffer_limits(high=1_000)
            for part in (b"a", b"b", b"c"):
                transport.write(part)
            await turns()
            assert stream.sent == [b"abc"]
            stream.has_room.clear()
            transport.write(b"x" * 900)
            assert session.events == []
            transport.write(b"y" * 900)
            assert session.events == ["pause"]
            assert transport.get_write_buffer_size() == 1_800
            stream.has_room.set()
            await turns()
            assert session.events == ["pause", "resume"]
            assert b"".join(stream.sent[1:]) == b"x" * 900 + b"y" * 900
            transport.write(b"last")
            transport.close()
            transport.write(b"never")
        assert stream.sent[-1] == b"last"
        assert session.events == ["pause", "resume", "lost"]

    run(test)


def test_a_session_that_pauses_reading_reads_no_message() -> None:
    async def test() -> None:
        session, stream = Session(), Stream()
        transport = SessionStream(session)
        async with asyncio.TaskGroup() as group:
            group.create_task(transport.run(stream.read, stream.write))
            await turns()
            transport.pause_reading()
            stream.input.put_nowait(write_frames(b"1"))
            stream.input.put_nowait(write_frames(b"2"))
            await turns()
            # The read that was under way ends; the next one waits.
            assert (session.received, stream.reads) == (b"1", 1)
            transport.resume_reading()
            await turns()
            assert session.received == b"12"
            stream.input.put_nowait(None)
        assert session.events == ["lost"]

    run(test)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_abort_sends_nothing_more(is_first: bool) -> None:
    async def test() -> None:
        session, stream = Session(), Stream()
        transport = SessionStream(session)
        if is_first:
            session.connection_made = lambda one: transport.abort()  # type: ignore[method-assign,assignment]
        async with asyncio.TaskGroup() as group:
            group.create_task(transport.run(stream.read, stream.write))
            await turns()
            if not is_first:
                stream.has_room.clear()
                transport.write(b"a")
                transport.write(b"b")
                await turns()
                transport.abort()
                stream.has_room.set()
        assert transport.is_aborted
        assert b"b" not in b"".join(stream.sent[1:])
        assert session.events == ["lost"]

    run(test)


def test_a_client_that_is_gone_ends_the_session() -> None:
    async def test() -> None:
        session, stream = Session(), Stream()
        transport = SessionStream(session)
        stream.is_gone = True
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(transport.run(stream.read, stream.write))
            await turns()
            transport.write(b"a")
        assert session.events == ["lost"]

    run(test)
