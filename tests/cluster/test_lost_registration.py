"""A broker that was suspended for longer than its session continues as before.

Its registration has expired by then. The first event, a request or the task that keeps the session,
must register it again: no client gets an answer without brokers.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerImage, Endpoint, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.membership import Membership
from penstock.cluster.service import MetadataService
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import StoreError
from penstock.core.limits import BROKER_SESSION_SECONDS, KEEP_ALIVES_PER_SESSION
from penstock.core.types import PLAINTEXT
from penstock.testing.memory_store import Fault, MemoryMetadataStore

BROKER_KEEP_ALIVE_SECONDS = BROKER_SESSION_SECONDS / KEEP_ALIVES_PER_SESSION
BROKER = BrokerImage(1, (Endpoint(PLAINTEXT, "localhost", 9092),), None, "directory-1", 0)


class ManualClock:
    """A clock that moves when the test sets it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class Scene:
    """A registered broker with a topic, and its store."""

    def __init__(self, service: MetadataService, store: MemoryMetadataStore) -> None:
        self.service = service
        self.store = store

    async def create(self, name: str) -> object:
        (outcome,) = await self.service.create_topics([NewTopic(name=name, partition_count=3)])
        return outcome

    @property
    def epoch(self) -> int:
        return self.service.image.brokers[1].epoch


def after_a_pause(body: Callable[[Scene], Awaitable[None]], *, is_noticed: bool = False) -> None:
    """Run `body` when the process was not run for too long; noticed: the image says so already."""

    async def main() -> None:
        clock = ManualClock()
        store = MemoryMetadataStore(clock=clock)
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            service = MetadataService(store)
            await service.start(tasks)
            before = await service.register_broker(BROKER, tasks)
            scene = Scene(service, store)
            assert isinstance(await scene.create("older"), TopicImage)
            clock.seconds += BROKER_SESSION_SECONDS + 1
            if is_noticed:
                await service._link.followed.wait_revision((await store.read("/")).revision)
                assert not service.image.brokers
            await body(scene)
            assert scene.epoch > before
            await service.stop()
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_topic_can_be_created_after_a_pause(is_noticed: bool) -> None:
    async def body(scene: Scene) -> None:
        assert isinstance(await scene.create("newer"), TopicImage)

    after_a_pause(body, is_noticed=is_noticed)


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_topic_can_be_changed_after_a_pause(is_noticed: bool) -> None:
    async def body(scene: Scene) -> None:
        grown = await scene.service.create_partitions(MorePartitions(name="older", count=5))
        assert len(grown.partitions) == 5

    after_a_pause(body, is_noticed=is_noticed)


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_topic_can_be_deleted_after_a_pause(is_noticed: bool) -> None:
    async def body(scene: Scene) -> None:
        (outcome,) = await scene.service.delete_topics(["older"])
        assert isinstance(outcome, TopicImage)

    after_a_pause(body, is_noticed=is_noticed)


@pytest.mark.parametrize("is_noticed", [False, True])
def test_producer_ids_are_given_after_a_pause(is_noticed: bool) -> None:
    async def body(scene: Scene) -> None:
        assert await scene.service.allocate_producer_ids()

    after_a_pause(body, is_noticed=is_noticed)


def test_a_request_and_the_keeper_register_once_between_them() -> None:
    async def body(scene: Scene) -> None:
        membership = scene.service._link._membership
        assert membership is not None
        outcome, epoch = await asyncio.gather(scene.create("newer"), membership.ensure())
        assert isinstance(outcome, TopicImage)
        assert scene.epoch == epoch

    after_a_pause(body)


def test_a_store_that_refuses_is_reported_as_such() -> None:
    async def body(scene: Scene) -> None:
        scene.store.faults.extend([Fault.REFUSED] * 3)
        assert isinstance(await scene.create("newer"), StoreError)
        scene.store.faults.clear()
        assert isinstance(await scene.create("newer"), TopicImage)

    after_a_pause(body)


def test_a_registration_that_failed_half_way_is_finished_later() -> None:
    """The new session was opened, and then the store took no write."""

    async def main() -> None:
        clock = ManualClock()
        store = MemoryMetadataStore(clock=clock)
        steps = [BROKER_SESSION_SECONDS + 1, BROKER_KEEP_ALIVE_SECONDS]

        async def sleep(_seconds: float, _lost: asyncio.Event) -> None:
            if not steps:
                raise asyncio.CancelledError
            clock.seconds += steps.pop(0)

        membership = Membership(store, Keys(), BROKER, sleep=sleep)
        await membership.join()
        store.faults.append(Fault.REFUSED)
        with pytest.raises(asyncio.CancelledError):
            await membership.keep()
        (pair,) = (await store.read(Keys().broker(1))).values
        assert membership.guard().revision == pair.create_revision

    asyncio.run(main())
