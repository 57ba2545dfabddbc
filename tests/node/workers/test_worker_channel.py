"""The channel between a supervisor and a worker, and the store over it, when one of them ends."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from penstock.cluster.stores.port import (
    CompactedError,
    Compare,
    EventBatch,
    Put,
    SessionLostError,
    Snapshot,
)
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.node.workers import channel_store, store_messages
from penstock.node.workers.channel_store import ChannelStore
from penstock.node.workers.store_server import StoreServer
from penstock.node.workers.worker_channel import MESSAGE_BYTES_MAX, Channel, packed, receive_now
from penstock.testing.memory_store import MemoryMetadataStore


class Line:
    """A worker's store, its supervisor's, and the tasks between them."""

    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.others: list[list[object]] = []

    async def open(self) -> None:
        ours, workers = socket.socketpair()
        self.workers_end = await Channel.open(workers)
        self.supervisors_end = await Channel.open(ours)
        self.server = StoreServer(self.store, self.supervisors_end, self.others.append)
        self.served = ChannelStore(self.workers_end, self.others.append)
        loop = asyncio.get_running_loop()
        self.serving = loop.create_task(self.server.run())
        self.reading = loop.create_task(self.served.run())

    async def close(self) -> None:
        await self.supervisors_end.close()
        await self.served.close()
        self.serving.cancel()
        await asyncio.gather(self.serving, self.reading, return_exceptions=True)


async def next_of(batches: AsyncIterator[EventBatch]) -> EventBatch:
    return await anext(batches)


def run(act: Callable[[Line], Awaitable[None]]) -> None:
    async def main() -> None:
        line = Line()
        await line.open()
        try:
            async with asyncio.timeout(10):
                await act(line)
        finally:
            await line.close()

    asyncio.run(main())


def test_the_end_of_a_worker_ends_its_sessions_at_once() -> None:
    """Guards the take-over: without it, others wait for the time to live."""

    async def act(line: Line) -> None:
        session = await line.served.open_session(3600.0)
        await line.served.transact((), (Put("brokers/1", b"x", session), Put("stays", b"y")))
        await line.workers_end.close()
        await line.serving
        left = (await line.store.read_prefix("")).values
        assert [pair.key for pair in left] == ["stays"]

    run(act)


def test_a_session_that_is_being_opened_ends_too() -> None:
    async def act(line: Line) -> None:
        opened = asyncio.Event()
        go_on = asyncio.Event()
        ended: list[int] = []

        async def open_session(time_to_live_seconds: float) -> int:
            assert time_to_live_seconds == 9.0
            opened.set()
            await go_on.wait()
            return 77

        async def end_session(session: int) -> None:
            ended.append(session)

        line.store.open_session = open_session  # type: ignore[method-assign]
        line.store.end_session = end_session  # type: ignore[method-assign]
        calling = asyncio.get_running_loop().create_task(line.served.open_session(9.0))
        await opened.wait()
        await line.workers_end.close()
        # The supervisor has noticed the end by then.
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await line.serving
        assert ended == [77]
        with pytest.raises(StoreError):
            await calling

    run(act)


def test_a_transaction_under_way_is_ambiguous_when_the_supervisor_ends() -> None:
    """Guards the exact errors: the transaction may have been applied."""

    async def act(line: Line) -> None:
        async def never(*_given: object, **_named: object) -> Snapshot:
            await line.supervisors_end.close()
            await asyncio.Event().wait()
            raise AssertionError

        line.store.transact = never  # type: ignore[assignment]
        with pytest.raises(AmbiguousStoreError, match="supervisor"):
            await line.served.transact((), (Put("a", b"1"),))
        with pytest.raises(StoreError, match="supervisor") as raised:
            await line.served.transact((), (Put("a", b"1"),))
        assert not isinstance(raised.value, AmbiguousStoreError)

    run(act)


def test_a_watch_ends_with_an_error_when_the_supervisor_ends() -> None:
    async def act(line: Line) -> None:
        batches = line.served.watch("", from_revision=1)
        await line.served.transact((), (Put("a", b"\x00\xff"),))
        batch = await anext(batches)
        assert batch.events[0].value is not None
        assert batch.events[0].value.value == b"\x00\xff"
        await line.supervisors_end.close()
        with pytest.raises(StoreError, match="supervisor"):
            await anext(batches)

    run(act)


def test_a_slow_reader_of_a_watch_must_load_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_store, "STORE_WATCH_BATCHES_MAX", 2)

    async def act(line: Line) -> None:
        batches = line.served.watch("", from_revision=1)
        first = asyncio.get_running_loop().create_task(next_of(batches))
        await line.served.transact((), (Put("a", b"0"),))
        await first
        for _ in range(4):
            await line.served.transact((), (Put("a", b"1"),))
        await line.served.read("a")
        with pytest.raises(CompactedError):
            [batch async for batch in batches]

    run(act)


def test_an_abandoned_watch_ends_at_the_supervisor() -> None:
    async def act(line: Line) -> None:
        batches = line.served.watch("", from_revision=1)
        reading = asyncio.get_running_loop().create_task(next_of(batches))
        await line.served.read("a")
        assert len(line.server._watches) == 1
        reading.cancel()
        await asyncio.wait([reading])
        await line.served.read("a")
        assert line.server._watches == {}

    run(act)


@pytest.mark.parametrize(
    "kind", [CompactedError, SessionLostError, AmbiguousStoreError, StoreError]
)
def test_an_error_keeps_its_kind(kind: type[StoreError]) -> None:
    found = store_messages.read_error(*store_messages.write_error(kind("why")))
    assert type(found) is kind
    assert str(found) == "why"


def test_compares_of_all_targets_are_carried() -> None:
    async def act(line: Line) -> None:
        await line.served.transact((), (Put("a", b"1"),))
        result = await line.served.transact(
            (Compare.unchanged("a", 7),), (), read_on_failure=("a", "b")
        )
        assert not result.succeeded
        assert [pair.key for pair in result.values] == ["a"]

    run(act)


def test_other_messages_are_passed_on() -> None:
    async def act(line: Line) -> None:
        line.workers_end.send("ready", "127.0.0.1:1", None)
        await line.served.read("a")
        assert line.others == [["ready", "127.0.0.1:1", None]]

    run(act)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x02no",
    ],
)
def test_bytes_that_are_no_message_end_the_channel(data: bytes) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        channel = await Channel.open(ours)
        theirs.sendall(data)
        theirs.close()
        assert await channel.receive() is None
        await channel.close()

    asyncio.run(main())


def test_a_length_above_the_limit_ends_the_channel_at_once() -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        channel = await Channel.open(ours)
        with theirs:
            theirs.sendall((MESSAGE_BYTES_MAX + 1).to_bytes(4, "big") + b"[")
            # Without the limit it would wait for the rest.
            async with asyncio.timeout(5):
                assert await channel.receive() is None
        await channel.close()

    asyncio.run(main())


def test_a_blocking_socket_gets_a_message() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(packed(["hello", {"worker": 1}]))
        assert receive_now(theirs) == ["hello", {"worker": 1}]
        ours.close()
        assert receive_now(theirs) is None
