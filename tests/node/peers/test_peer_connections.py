"""Connections to other brokers: by the newest image, shared by lane, ended with a registration."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from penstock.client.transport.call import Call
from penstock.cluster.changes import BrokerRegistered, BrokerRemoved, Change
from penstock.cluster.image import MetadataImage
from penstock.core.errors import (
    AnswerLostError,
    BrokerUnreachableError,
    ClientError,
    MalformedResponseError,
)
from penstock.node.peers.peer_connections import PeerConnections
from penstock.node.peers.peer_limits import CALLS_MAX
from penstock.protocol.codec import Message
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.node.peers.peers import Network, broker, image_of


def question(text: str = "q") -> Call[str]:
    return Call(cast("Message", text), str, str)


class Stage:
    """Connections of broker 1 to brokers 2 and 3."""

    def __init__(self) -> None:
        self.image = image_of(broker(1), broker(2), broker(3))
        self.network = Network(lambda request: cast("Message", f"answer to {request}"))
        self.refused: list[int] = []
        self.connections = PeerConnections(
            lambda: self.image,
            1,
            on_refused=self.refused.append,
            open_connection=cast("Any", self.network),
        )

    def publish(self, image: MetadataImage, *changes: Change) -> None:
        before, self.image = self.image, image
        self.connections.follow(before, image, changes)


def run(scene: Callable[[Stage], Awaitable[None]]) -> None:
    async def begin() -> None:
        stage = Stage()
        await scene(stage)
        await stage.connections.close()

    asyncio.run(begin())


def test_calls_of_a_lane_share_one_connection() -> None:
    async def scene(stage: Stage) -> None:
        answers = await asyncio.gather(
            *(stage.connections.call(2, question(str(one)), "a") for one in range(3)),
            stage.connections.call(2, question("b"), "b"),
            stage.connections.call(3, question("c"), "a"),
        )
        assert answers == [f"answer to {one}" for one in (0, 1, 2, "b", "c")]
        assert [str(one.address) for one in stage.network.opened] == [
            "127.0.0.1:7002",
            "127.0.0.1:7002",
            "127.0.0.1:7003",
        ]

    run(scene)


def test_a_fetcher_has_a_connection_of_its_own() -> None:
    async def scene(stage: Stage) -> None:
        response = FetchResponse(responses=())
        stage.network._respond = lambda _: response
        one, other = await stage.connections.open(2), await stage.connections.open(2)
        request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=())
        assert await one.fetch(request) is response
        assert await other.fetch(request) is response
        assert len(stage.network.opened) == 2
        await one.close()
        assert [connection.is_open for connection in stage.network.opened] == [False, True]

    run(scene)


def test_a_broken_connection_is_opened_again() -> None:
    async def scene(stage: Stage) -> None:
        await stage.connections.call(2, question())
        stage.network.opened[0].is_open = False
        assert await stage.connections.call(2, question()) == "answer to q"
        assert len(stage.network.opened) == 2

    run(scene)


def test_an_answer_that_cannot_be_read_ends_the_connection() -> None:
    def broken(_: Message) -> Message:
        raise MalformedResponseError("no answer")

    async def scene(stage: Stage) -> None:
        stage.network._respond = broken
        with pytest.raises(ClientError):
            await stage.connections.call(2, question())
        assert not stage.network.opened[0].is_open

    run(scene)


def test_a_broker_that_is_not_registered_fails_at_once() -> None:
    async def scene(stage: Stage) -> None:
        with pytest.raises(BrokerUnreachableError, match="broker 9 is not registered"):
            await stage.connections.call(9, question())
        with pytest.raises(BrokerUnreachableError, match="broker 9 is not registered"):
            await stage.connections.open(9)
        assert stage.network.opened == []

    run(scene)


def test_a_call_does_not_wait_for_a_broker_whose_session_has_ended() -> None:
    async def scene(stage: Stage) -> None:
        stage.network.holds = asyncio.Event()
        waiting = asyncio.get_running_loop().create_task(stage.connections.call(2, question()))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        stage.publish(image_of(broker(1), broker(3)), BrokerRemoved(2))
        with pytest.raises(AnswerLostError):
            async with asyncio.timeout(1):
                await waiting

    run(scene)


def test_the_next_registration_gets_a_connection_of_its_own() -> None:
    async def scene(stage: Stage) -> None:
        await stage.connections.call(2, question())
        again = broker(2, epoch=9, port=8000)
        stage.publish(image_of(broker(1), again), BrokerRegistered(again))
        await stage.connections.call(2, question())
        former, present = stage.network.opened
        assert (former.is_open, present.is_open) == (False, True)
        assert present.address.port == 8002

    run(scene)


def test_a_changed_state_of_a_registration_ends_no_connection() -> None:
    async def scene(stage: Stage) -> None:
        await stage.connections.call(2, question())
        stage.publish(image_of(broker(1), broker(2)), BrokerRegistered(broker(2)))
        await asyncio.sleep(0)
        assert stage.network.opened[0].is_open

    run(scene)


def test_a_connection_that_opens_while_its_registration_ends_carries_nothing() -> None:
    async def scene(stage: Stage) -> None:
        calling = asyncio.get_running_loop().create_task(stage.connections.call(2, question()))
        await asyncio.sleep(0)
        again = broker(2, epoch=9)
        stage.publish(image_of(broker(1), again), BrokerRegistered(again))
        with pytest.raises(BrokerUnreachableError):
            await calling
        (opened,) = stage.network.opened
        assert (opened.is_open, opened.requests) == (False, [])

    run(scene)


def test_a_call_gives_up_a_connection_to_a_broker_that_is_gone() -> None:
    """A machine without power answers nothing: opening takes seconds."""

    async def scene(stage: Stage) -> None:
        stage.network.opens = asyncio.Event()
        calls = [
            asyncio.get_running_loop().create_task(stage.connections.call(2, question()))
            for _ in range(2)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        stage.publish(image_of(broker(1), broker(3)), BrokerRemoved(2))
        async with asyncio.timeout(1):
            for call in calls:
                with pytest.raises(BrokerUnreachableError, match="has stopped"):
                    await call
        assert not stage.network.opened

    run(scene)


def test_the_number_of_calls_in_flight_is_bounded() -> None:
    async def scene(stage: Stage) -> None:
        stage.network.holds = asyncio.Event()
        loop = asyncio.get_running_loop()
        calls = [loop.create_task(stage.connections.call(2, question())) for _ in range(CALLS_MAX)]
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(BrokerUnreachableError, match=f"at most {CALLS_MAX}"):
            await stage.connections.call(2, question())
        stage.network.holds.set()
        await asyncio.gather(*calls)
        assert await stage.connections.call(2, question()) == "answer to q"

    run(scene)


def refusal() -> BrokerUnreachableError:
    error = BrokerUnreachableError("cannot reach a broker")
    error.__cause__ = ConnectionRefusedError(111, "Connection refused")
    return error


def test_two_refusals_are_reported() -> None:
    async def scene(stage: Stage) -> None:
        await (await stage.connections.open(2)).close()
        stage.network.error = refusal()
        for _ in range(2):
            assert stage.refused == []
            with pytest.raises(BrokerUnreachableError):
                await stage.connections.open(2)
        assert stage.refused == [2]

    run(scene)


def test_a_timeout_is_not_a_refusal() -> None:
    async def scene(stage: Stage) -> None:
        await (await stage.connections.open(2)).close()
        stage.network.error = BrokerUnreachableError("timed out")
        for _ in range(3):
            with pytest.raises(BrokerUnreachableError):
                await stage.connections.open(2)
        assert stage.refused == []

    run(scene)


def test_a_broker_that_stops_calls_no_other() -> None:
    async def scene(stage: Stage) -> None:
        await stage.connections.call(2, question())
        await stage.connections.close()
        assert not stage.network.opened[0].is_open
        with pytest.raises(BrokerUnreachableError):
            await stage.connections.call(2, question())

    run(scene)
