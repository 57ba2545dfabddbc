"""A topic that one broker is creating is left alone by the others, and swept after its death."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.keys import KeyKind, Keys
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import DeletePrefix, Operation
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import StoreError
from penstock.testing.memory_store import Fault
from tests.cluster.shared_store import BrokerStore, Cluster, run_cluster, until
from tests.cluster.test_service import loaded

LARGE = NewTopic(name="large", partition_count=250)


class Stop:
    """Stops a broker before a transaction that writes partitions."""

    def __init__(self, store: BrokerStore, *, after: int) -> None:
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self._left = after
        store.before_transaction = self._pause

    async def _pause(self, operations: Sequence[Operation]) -> None:
        writes_partitions = any(
            not isinstance(one, DeletePrefix) and Keys().parse(one.key).kind is KeyKind.PARTITION
            for one in operations
        )
        if writes_partitions and not self.reached.is_set():
            self._left -= 1
            if self._left < 0:
                self.reached.set()
                await self.go_on.wait()


def controller_of(service: MetadataService) -> int | None:
    controller = service.image.controller
    return None if controller is None else controller.broker_id


async def partition_keys(cluster: Cluster) -> int:
    return len((await cluster.shared.read_prefix(f"{cluster.keys.root}parts/")).values)


@pytest.mark.parametrize("after", [1, 2])
def test_a_starting_broker_leaves_a_topic_that_another_creates(after: int) -> None:
    async def body(cluster: Cluster) -> None:
        first = await cluster.start(1)
        stop = Stop(cluster.stores[1], after=after)
        creating = cluster.tasks.create_task(first.create_topics([LARGE]))
        await stop.reached.wait()
        await cluster.start(2)
        await cluster.settle()
        assert await partition_keys(cluster) == after * 100
        stop.go_on.set()
        (topic,) = await creating
        assert isinstance(topic, TopicImage)
        assert len((await cluster.settle()).topics["large"].partitions) == 250
        assert not (await cluster.shared.read_prefix(f"{cluster.keys.root}creating/")).values

    run_cluster(body)


def test_a_starting_broker_leaves_partitions_that_another_adds() -> None:
    async def body(cluster: Cluster) -> None:
        first = await cluster.start(1)
        await first.create_topics([NewTopic(name="grown")])
        stop = Stop(cluster.stores[1], after=1)
        growing = cluster.tasks.create_task(first.create_partitions(MorePartitions("grown", 250)))
        await stop.reached.wait()
        second = await cluster.start(2)
        await cluster.settle()
        # The other broker does not add partitions at the same time.
        with pytest.raises(StoreError, match="broker 1 adds partitions"):
            await second.create_partitions(MorePartitions("grown", 300))
        stop.go_on.set()
        assert len((await growing).partitions) == 250
        assert len((await cluster.settle()).topics["grown"].partitions) == 250

    run_cluster(body)


@pytest.mark.parametrize("is_grown", [False, True])
def test_the_controller_sweeps_after_the_death_of_the_creator(is_grown: bool) -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.start(1)
        second = await cluster.start(2)
        if is_grown:
            await second.create_topics([NewTopic(name="large")])
        stop = Stop(cluster.stores[2], after=2)
        work = (
            second.create_partitions(MorePartitions("large", 250))
            if is_grown
            else second.create_topics([LARGE])
        )
        doing = asyncio.gather(work, return_exceptions=True)
        await stop.reached.wait()
        assert await partition_keys(cluster) == 200 + is_grown
        cluster.stores[2].is_cut_off = True
        await cluster.expire(2)
        await until(lambda: not cluster.services[1].image.unpublished)
        assert await partition_keys(cluster) == is_grown
        # The creator wakes up late: nothing of its creation arrives.
        stop.go_on.set()
        await doing
        image = await loaded(cluster.shared)
        assert not image.unpublished
        assert sum(len(topic.partitions) for topic in image.topics.values()) == is_grown

    run_cluster(body)


def test_a_creator_that_comes_back_creates_the_topic_anew() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.start(1)
        second = await cluster.start(2)
        stop = Stop(cluster.stores[2], after=2)
        creating = cluster.tasks.create_task(second.create_topics([LARGE]))
        await stop.reached.wait()
        await cluster.expire(2)
        await until(lambda: not cluster.services[1].image.unpublished)
        stop.go_on.set()
        (topic,) = await creating
        assert isinstance(topic, TopicImage)
        assert len((await cluster.settle()).topics["large"].partitions) == 250

    run_cluster(body)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
@pytest.mark.parametrize("landed", [0, 1, 2, 3])
def test_a_failed_step_of_a_large_creation_leaves_all_or_nothing(fault: Fault, landed: int) -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.start(1)
        second = await cluster.start(2)
        cluster.stores[2].faults.extend([Fault.NONE] * landed + [fault])
        (outcome,) = await second.create_topics([LARGE])
        assert isinstance(outcome, TopicImage) is (fault is not Fault.REFUSED)
        # Applies a late transaction.
        await cluster.shared.transact((), ())
        await until(lambda: not cluster.services[1].image.unpublished)
        image = await cluster.settle()
        assert await partition_keys(cluster) == (250 if isinstance(outcome, TopicImage) else 0)
        assert not image.creating
        assert image == await loaded(cluster.shared)

    run_cluster(body)


@pytest.mark.parametrize("landed", [1, 2, 3])
def test_a_write_of_a_failed_creation_arrives_too_late(landed: int) -> None:
    """It was lost, the creation failed, and its partitions were swept before it arrives."""

    async def body(cluster: Cluster) -> None:
        await cluster.start(1)
        second = await cluster.start(2)
        store = cluster.stores[2]
        # After the lost write, the key is released; the next attempt is refused.
        store.faults.extend([Fault.NONE] * landed + [Fault.LOST, Fault.NONE, Fault.REFUSED])
        (outcome,) = await second.create_topics([LARGE])
        assert isinstance(outcome, StoreError)
        await until(lambda: not cluster.services[1].image.unpublished)
        assert not (await cluster.shared.transact(*store.lost)).succeeded
        assert await partition_keys(cluster) == 0

    run_cluster(body)


def test_one_broker_controls_and_the_next_one_follows_it() -> None:
    async def body(cluster: Cluster) -> None:
        first = await cluster.start(1)
        for broker_id in (2, 3):
            await cluster.start(broker_id)
        image = await cluster.settle()
        assert image.controller is not None
        assert image.controller.broker_id == 1
        assert image.controller.broker_epoch == image.brokers[1].epoch
        before = image.controller.revision
        await first.stop()
        del cluster.services[1]
        await until(lambda: controller_of(cluster.services[2]) in (2, 3))
        controller = (await cluster.settle()).controller
        assert controller is not None
        assert controller.revision > before

    run_cluster(body)


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
def test_becoming_the_controller_survives_faults(fault: Fault) -> None:
    async def body(cluster: Cluster) -> None:
        first = await cluster.start(1)
        await cluster.start(2)
        cluster.stores[2].faults.append(fault)
        await first.stop()
        del cluster.services[1]
        await until(lambda: not cluster.services[2].image.brokers.keys() - {2})
        await cluster.services[2].create_topics([NewTopic(name="any")])
        await until(lambda: cluster.services[2].image.controller is not None)
        controller = cluster.services[2].image.controller
        assert controller is not None
        assert controller.broker_epoch == cluster.services[2].image.brokers[2].epoch

    run_cluster(body)


def test_a_controller_whose_session_was_lost_gets_another_identity() -> None:
    async def body(cluster: Cluster) -> None:
        first = await cluster.start(1)
        before = first.image.controller
        assert before is not None
        await cluster.expire(1)
        await first.create_topics([NewTopic(name="any")])
        await until(lambda: first.image.controller is not None)
        after = first.image.controller
        assert after is not None
        assert after.revision > before.revision
        assert after.broker_epoch > before.broker_epoch

    run_cluster(body)
