"""Two processes with one data directory id: a restart takes over, a copy is refused."""

import asyncio

import pytest

from penstock.cluster.image import BrokerImage, Endpoint
from penstock.cluster.keys import Keys
from penstock.cluster.link.membership import Membership
from penstock.core.errors import DuplicateBrokerError
from penstock.core.limits import BROKER_SESSION_SECONDS
from penstock.core.types import CLUSTER_LISTENER, PLAINTEXT
from penstock.testing.memory_store import MemoryMetadataStore


class HandClock:
    """A clock that sleeps move."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.kept: Membership | None = None

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float, _lost: asyncio.Event) -> None:
        self.seconds += seconds
        if self.kept is not None:
            await self.kept.ensure()


def broker(port: int, *, client_port: int | None = None, is_clustered: bool = True) -> BrokerImage:
    endpoints = [Endpoint(PLAINTEXT, "localhost", client_port or port)]
    if is_clustered:
        endpoints.append(Endpoint(CLUSTER_LISTENER, "localhost", port + 1))
    return BrokerImage(1, tuple(endpoints), None, "directory-1", 0)


class Scene:
    """A registered broker, and another process with the same directory id."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.store = MemoryMetadataStore(clock=self.clock)

    def member(self, broker: BrokerImage) -> Membership:
        return Membership(self.store, Keys(), broker, clock=self.clock, sleep=self.clock.sleep)


def test_a_copy_of_a_running_brokers_directory_is_refused() -> None:
    """Guards `_wait_gone`: the copy ended the session of the original."""

    async def act() -> None:
        scene = Scene()
        original = scene.member(broker(9192))
        epoch = await original.join()
        scene.clock.kept = original
        with pytest.raises(DuplicateBrokerError, match="is a copy") as refused:
            await scene.member(broker(9293)).join()
        assert "another node.id" in refused.value.hint
        assert scene.clock.seconds > BROKER_SESSION_SECONDS
        assert await original.ensure() == epoch, "the original keeps its registration"

    asyncio.run(act())


def test_a_directory_that_moved_takes_over_when_the_session_has_ended() -> None:
    async def act() -> None:
        scene = Scene()
        first = await scene.member(broker(9192)).join()
        assert await scene.member(broker(9293)).join() > first
        assert scene.clock.seconds <= BROKER_SESSION_SECONDS + 1

    asyncio.run(act())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (broker(9192), broker(9192)),
        (broker(9192), broker(9292, client_port=9192)),
        (broker(9192, is_clustered=False), broker(9292, is_clustered=False)),
    ],
)
def test_a_restart_takes_over_at_once(before: BrokerImage, after: BrokerImage) -> None:
    """Also if the system has chosen another port for brokers; a broker alone with any ports."""

    async def act() -> None:
        scene = Scene()
        first = await scene.member(before).join()
        assert await scene.member(after).join() > first
        assert scene.clock.seconds == 0

    asyncio.run(act())
