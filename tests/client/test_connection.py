"""The asyncio transport: many calls at once, and the same two kinds of failure as the blocking one.

The broker is a server in the same event loop that answers when the test lets it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from penstock.client.calls import describe_brokers, send_batches
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.client.transport.connection import AsyncConnection, connect
from penstock.core.errors import (
    AnswerLostError,
    BrokerAnswerError,
    BrokerUnreachableError,
    FrameError,
    MalformedResponseError,
)
from penstock.core.limits import REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
from penstock.core.types import TopicPartition
from penstock.protocol import codec, headers
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from penstock.protocol.messages.metadata import MetadataResponse
from penstock.protocol.messages.produce import ProduceResponse

SERVED = {ApiKey.API_VERSIONS: (0, 4), ApiKey.METADATA: (0, 12), ApiKey.PRODUCE: (0, 12)}
LARGE = 20_000_000
"""More than the buffers of a socket take while nobody reads."""

Scenario = Callable[["Peer"], Awaitable[None]]


class Peer:
    """The broker's end of the one connection of a test."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> tuple[int, int, int]:
        """API key, version and correlation id of the next request, which is read whole."""
        frame = await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))
        return int.from_bytes(frame[:2]), int.from_bytes(frame[2:4]), int.from_bytes(frame[4:8])

    def answer(self, request: tuple[int, int, int], message: codec.Message) -> None:
        api_key, version, correlation_id = request
        body = codec.encode_response(message, version)
        head = headers.write_response_frame_head(api_key, version, correlation_id, len(body))
        self.writer.write(head + body)

    async def answer_versions(self) -> None:
        keys = tuple(
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in SERVED.items()
        )
        self.answer(await self.request(), ApiVersionsResponse(api_keys=keys))

    async def answer_metadata(self, cluster_id: str) -> None:
        message = MetadataResponse(brokers=(), topics=(), cluster_id=cluster_id)
        self.answer(await self.request(), message)


@asynccontextmanager
async def talking(
    scenario: Scenario, timeout_seconds: float = 10.0
) -> AsyncIterator[AsyncConnection]:
    """A connection to a broker that answers for versions and then does what the scenario says."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = Peer(reader, writer)
            await peer.answer_versions()
            await scenario(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client went first, as some tests want
        finally:
            writer.close()
            done.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = Address(*server.sockets[0].getsockname()[:2])
        async with await connect(address, timeout_seconds=10.0) as connection:
            connection._timeout_seconds = timeout_seconds
            yield connection
        await done


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    """Runs a test on each kind of event loop."""

    def runner(test: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await test()

        with asyncio.Runner(loop_factory=request.param) as started:
            started.run(main())

    return runner


Run = Callable[[Callable[[], Awaitable[None]]], None]


async def wait_for_the_end(peer: Peer) -> None:
    """The broker reads and says nothing until the client goes."""
    while await peer.reader.read(1_000_000):
        pass


async def cluster_id(connection: AsyncConnection) -> str | None:
    return (await connection.carry(describe_brokers(None))).cluster_id


def produce_large(acks: int = 1) -> Call[object]:
    batches = {TopicPartition("orders", 0): b"x" * LARGE}
    return send_batches(batches, acks=acks, timeout_ms=1)


def test_calls_of_many_tasks_are_under_way_together(run: Run) -> None:
    async def scenario(peer: Peer) -> None:
        requests = [await peer.request() for _ in range(5)]
        for number, request in enumerate(requests):
            message = MetadataResponse(brokers=(), topics=(), cluster_id=str(number))
            peer.answer(request, message)

    async def test() -> None:
        async with talking(scenario) as connection:
            found = await asyncio.gather(*(cluster_id(connection) for _ in range(5)))
            assert found == ["0", "1", "2", "3", "4"]
            assert connection.calls_in_flight == 0

    run(test)


def test_who_comes_when_there_is_no_room_waits(run: Run) -> None:
    bound = REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX
    seen: list[int] = []

    async def scenario(peer: Peer) -> None:
        requests = [await peer.request() for _ in range(bound)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.reader.read(1), 0.05)
        for request in requests:
            peer.answer(request, MetadataResponse(brokers=(), topics=()))
        for _ in range(9):
            await peer.answer_metadata("late")

    async def test() -> None:
        async with talking(scenario) as connection, asyncio.TaskGroup() as group:
            tasks = [group.create_task(cluster_id(connection)) for _ in range(bound + 9)]
            for task in tasks:
                await task
                seen.append(connection.calls_in_flight)
        assert max(seen) <= bound
        assert [task.result() for task in tasks] == [None] * bound + ["late"] * 9

    run(test)


def test_a_large_request_arrives_whole_and_nothing_in_between(run: Run) -> None:
    frames: list[tuple[int, int, int]] = []

    async def scenario(peer: Peer) -> None:
        for _ in range(3):
            request = await peer.request()
            frames.append(request)
            is_metadata = request[0] == ApiKey.METADATA
            peer.answer(
                request,
                MetadataResponse(brokers=(), topics=())
                if is_metadata
                else ProduceResponse(responses=()),
            )

    async def test() -> None:
        async with talking(scenario) as connection:
            results = await asyncio.gather(
                connection.carry(produce_large()),
                cluster_id(connection),
                connection.carry(produce_large()),
            )
            assert list(results) == [{}, None, {}]
        assert [key for key, _, _ in frames] == [ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.PRODUCE]

    run(test)


def test_acks_zero_waits_for_nothing(run: Run) -> None:
    async def scenario(peer: Peer) -> None:
        assert (await peer.request())[0] == ApiKey.PRODUCE
        await peer.answer_metadata("after")

    async def test() -> None:
        async with talking(scenario) as connection:
            assert await connection.carry(produce_large(acks=0)) == {}
            assert await cluster_id(connection) == "after"

    run(test)


def test_closed_before_the_answer_is_ambiguous_for_all(run: Run) -> None:
    async def scenario(peer: Peer) -> None:
        for _ in range(3):
            await peer.request()

    async def test() -> None:
        async with talking(scenario) as connection:
            outcomes = await asyncio.gather(
                *(cluster_id(connection) for _ in range(3)), return_exceptions=True
            )
            assert [type(one) for one in outcomes] == [AnswerLostError] * 3
            assert not connection.is_open
            with pytest.raises(BrokerUnreachableError, match="before the request was sent"):
                await cluster_id(connection)

    run(test)


def test_no_answer_in_time_is_ambiguous_and_the_end(run: Run) -> None:
    async def test() -> None:
        async with talking(wait_for_the_end, timeout_seconds=0.05) as connection:
            with pytest.raises(AnswerLostError, match="timed out"):
                await cluster_id(connection)
            assert not connection.is_open

    run(test)


def test_a_request_that_was_sent_in_part_is_safe(run: Run) -> None:
    """Nobody reads and the buffers are full: without its last byte a request is not a request."""
    until = asyncio.Event()

    async def scenario(peer: Peer) -> None:
        await until.wait()

    async def test() -> None:
        async with talking(scenario, timeout_seconds=0.2) as connection:
            with pytest.raises(BrokerUnreachableError, match="before the request was sent"):
                await connection.carry(produce_large())
            assert not connection.is_open
            until.set()

    run(test)


def test_a_connection_that_breaks_in_the_middle_of_a_request_is_safe(run: Run) -> None:
    async def scenario(peer: Peer) -> None:
        await peer.reader.readexactly(100_000)
        peer.writer.transport.abort()

    async def test() -> None:
        async with talking(scenario) as connection:
            with pytest.raises(BrokerUnreachableError, match="before the request was sent"):
                await connection.carry(produce_large())

    run(test)


def test_who_waits_behind_a_broken_request_is_safe_too(run: Run) -> None:
    async def scenario(peer: Peer) -> None:
        await peer.reader.readexactly(100_000)
        peer.writer.transport.abort()

    async def test() -> None:
        async with talking(scenario) as connection:
            outcomes = await asyncio.gather(
                connection.carry(produce_large()), cluster_id(connection), return_exceptions=True
            )
            assert [type(one) for one in outcomes] == [BrokerUnreachableError] * 2

    run(test)


def test_a_cancelled_call_disturbs_nobody(run: Run) -> None:
    arrived = asyncio.Event()

    async def scenario(peer: Peer) -> None:
        first = await peer.request()
        arrived.set()
        second = await peer.request()
        for name, request in (("first", first), ("second", second)):
            peer.answer(request, MetadataResponse(brokers=(), topics=(), cluster_id=name))

    async def test() -> None:
        async with talking(scenario) as connection, asyncio.TaskGroup() as group:
            task = group.create_task(cluster_id(connection))
            await arrived.wait()
            task.cancel()
            assert await cluster_id(connection) == "second"
            assert connection.calls_in_flight == 0

    run(test)


def test_a_call_that_is_cancelled_in_the_middle_of_its_frame_ends_the_connection(run: Run) -> None:
    arrived, until = asyncio.Event(), asyncio.Event()

    async def scenario(peer: Peer) -> None:
        await peer.reader.readexactly(100)
        arrived.set()
        await until.wait()

    async def test() -> None:
        async with talking(scenario) as connection, asyncio.TaskGroup() as group:
            task = group.create_task(connection.carry(produce_large()))
            await arrived.wait()
            task.cancel()
            with pytest.raises(BrokerUnreachableError):
                await cluster_id(connection)
            until.set()

    run(test)


def test_who_waits_while_it_is_closed_is_told(run: Run) -> None:
    arrived = asyncio.Event()

    async def scenario(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await wait_for_the_end(peer)

    async def test() -> None:
        async with talking(scenario) as connection:

            async def close_twice() -> None:
                await arrived.wait()
                await connection.close()
                await connection.close()

            outcomes = await asyncio.gather(
                cluster_id(connection), close_twice(), return_exceptions=True
            )
            assert isinstance(outcomes[0], AnswerLostError)
            assert "was closed" in str(outcomes[0])
            assert outcomes[1] is None

    run(test)


def test_an_error_in_the_answer_keeps_the_connection(run: Run) -> None:
    async def scenario(peer: Peer) -> None:
        # Version 12 has no code for the whole answer; a topic without readers is as good.
        await peer.answer_metadata("a")
        await peer.answer_metadata("b")

    def refuse(answer: MetadataResponse) -> str:
        raise BrokerAnswerError(ErrorCode.INVALID_REQUEST.value, "INVALID_REQUEST", "no")

    async def test() -> None:
        async with talking(scenario) as connection:
            call = Call(describe_brokers(None).request, MetadataResponse, refuse)
            with pytest.raises(BrokerAnswerError):
                await connection.carry(call)
            assert await cluster_id(connection) == "b"

    run(test)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((2_147_483_647).to_bytes(4), FrameError),
        (b"\xff\xff\xff\xff", FrameError),
        ((8).to_bytes(4) + (77).to_bytes(4) + b"1234", MalformedResponseError),
        ((6).to_bytes(4) + (1).to_bytes(4) + b"\x00\xff", MalformedResponseError),
    ],
    ids=["huge", "negative", "another's", "cut"],
)
def test_hostile_answers_are_for_the_oldest(run: Run, answer: bytes, kind: type[Exception]) -> None:
    async def scenario(peer: Peer) -> None:
        for _ in range(2):
            await peer.request()
        peer.writer.write(answer)
        await wait_for_the_end(peer)

    async def test() -> None:
        async with talking(scenario) as connection:
            outcomes = await asyncio.gather(
                cluster_id(connection), cluster_id(connection), return_exceptions=True
            )
            assert [type(one) for one in outcomes] == [kind, AnswerLostError]
            assert not connection.is_open

    run(test)


def test_nobody_listens(run: Run, unused_address: Address) -> None:
    async def test() -> None:
        with pytest.raises(BrokerUnreachableError, match="connection refused"):
            await connect(unused_address, timeout_seconds=5)

    run(test)


def test_somebody_listens_who_is_no_broker(run: Run) -> None:
    async def test() -> None:
        gone = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.read(1_000):
                pass
            writer.close()
            gone.set()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            address = Address(*server.sockets[0].getsockname()[:2])
            with pytest.raises(BrokerUnreachableError, match="does not answer as a broker"):
                await connect(address, timeout_seconds=0.05)
            await gone.wait()

    run(test)


def test_a_host_that_no_resolver_can_be_asked_for(run: Run) -> None:
    async def test() -> None:
        with pytest.raises(BrokerUnreachableError, match="cannot be looked up"):
            await connect(Address("a..b", 9092), timeout_seconds=5)

    run(test)
