"""Changes of partitions by the brokers that have them: each outcome is known, none is doubled."""

import asyncio
from uuid import UUID

import pytest

from penstock.cluster import elections
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import (
    BrokerState,
    MetadataImage,
    PartitionImage,
    Replica,
    TopicImage,
    WriteMark,
)
from penstock.cluster.link import partition_writer
from penstock.cluster.link.partition_writes import PartitionWrite, marked, transactions
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Compare, Operation
from penstock.testing.memory_store import Fault
from tests.cluster.shared_store import Cluster, run_cluster, until

UNKNOWN_OUTCOMES = [Fault.LOST, Fault.ANSWER_LOST, Fault.LATE]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_writer, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(partition_writer, "PAUSE_SECONDS_MAX", 0.001)


async def topic_on_three(cluster: Cluster, partition_count: int = 1) -> TopicImage:
    """Create a topic whose partitions all have broker 1 as their leader."""
    services = await cluster.three()
    assignments = tuple((index, (1, 2, 3)) for index in range(partition_count))
    (topic,) = await services[0].create_topics([NewTopic(name="t", assignments=assignments)])
    assert isinstance(topic, TopicImage)
    return (await cluster.settle()).topics["t"]


def shrink(topic: TopicImage, index: int = 0, follower: int = 3) -> PartitionWrite:
    before = topic.partitions[index]
    return PartitionWrite(topic.id, index, before, elections.shrunk(before, follower))


def state(service: MetadataService, index: int = 0) -> PartitionImage:
    return service.image.topics["t"].partitions[index]


async def shrunk(cluster: Cluster) -> TopicImage:
    """Let broker 3 leave the in-sync replicas; return the topic."""
    topic = await topic_on_three(cluster)
    assert await cluster.services[1].write_partitions([shrink(topic)]) == [True]
    return cluster.services[1].image.topics["t"]


def join_of(topic: TopicImage, image: MetadataImage) -> PartitionWrite:
    before = topic.partitions[0]
    joined = elections.joined(before, Replica(3, image.brokers[3].epoch))
    return PartitionWrite(topic.id, 0, before, joined, (3,))


def test_a_change_is_in_the_image_when_the_call_returns() -> None:
    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster)
        leader = cluster.services[1]
        assert await leader.write_partitions([shrink(topic)]) == [True]
        assert state(leader).isr == (1, 2)
        mark = state(leader).written_by
        assert mark is not None
        assert (mark.broker_id, mark.epoch) == (1, leader.broker_epoch)
        # The same change again was decided on an old state.
        assert await leader.write_partitions([shrink(topic)]) == [False]
        assert await leader.write_partitions([]) == []

    run_cluster(body)


@pytest.mark.parametrize("faults", [[one] for one in UNKNOWN_OUTCOMES] + [UNKNOWN_OUTCOMES * 2])
@pytest.mark.parametrize("count", [1, 3])
def test_a_lost_answer_does_not_hide_the_outcome(faults: list[Fault], count: int) -> None:
    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster, count)
        leader = cluster.services[1]
        cluster.stores[1].faults.extend(faults)
        writes = [shrink(topic, index) for index in range(count)]
        assert await leader.write_partitions(writes) == [True] * count
        image = await cluster.settle()
        assert [one.isr for one in image.topics["t"].partitions] == [(1, 2)] * count

    run_cluster(body)


@pytest.mark.parametrize("fault", UNKNOWN_OUTCOMES)
def test_a_change_that_lost_the_race_is_not_stored_later(fault: Fault) -> None:
    """Another broker wrote first, and the answer to the first attempt was lost too."""

    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster)
        other = elections.unserved(topic.partitions[0], 2)
        assert other is not None
        write = PartitionWrite(topic.id, 0, topic.partitions[0], other)
        assert await cluster.services[2].write_partitions([write]) == [True]
        cluster.stores[1].faults.append(fault)
        assert await cluster.services[1].write_partitions([shrink(topic)]) == [False]
        # The controller may have removed the broken replica by now.
        assert 3 in (await cluster.settle()).topics["t"].partitions[0].isr
        assert Replica(2, 0) in other.in_sync

    run_cluster(body)


def test_an_outage_is_waited_out() -> None:
    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster)
        cluster.stores[1].is_cut_off = True
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(cluster.services[1].write_partitions([shrink(topic)]))
            await asyncio.sleep(0.01)
            assert not writing.done()
            cluster.stores[1].is_cut_off = False
        assert writing.result() == [True]

    run_cluster(body)


def test_a_stopped_service_cancels_its_writes() -> None:
    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster)
        cluster.stores[1].is_cut_off = True
        writing = asyncio.gather(cluster.services[1].write_partitions([shrink(topic)]))
        await asyncio.sleep(0.01)
        cluster.services[1]._link.partitions.stop()
        with pytest.raises(asyncio.CancelledError):
            await writing

    run_cluster(body)


def test_one_stale_change_does_not_keep_the_others_from_landing() -> None:
    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster, 5)
        leader = cluster.services[1]
        assert await leader.write_partitions([shrink(topic, 2)]) == [True]
        writes = [shrink(topic, index, 2) for index in range(5)]
        assert await leader.write_partitions(writes) == [True, True, False, True, True]
        shown = [one.isr for one in leader.image.topics["t"].partitions]
        assert shown == [(1, 3), (1, 3), (1, 2), (1, 3), (1, 3)]

    run_cluster(body)


def test_many_changes_are_few_transactions() -> None:
    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster, 250)
        before = cluster.stores[1].transactions
        writes = [shrink(topic, index) for index in range(250)]
        assert await cluster.services[1].write_partitions(writes) == [True] * 250
        assert cluster.stores[1].transactions - before == 3

    run_cluster(body)


def test_a_change_of_an_administrator_is_not_waited_for() -> None:
    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster)
        leader = cluster.services[1]
        async with leader._link.changing():
            assert await leader.write_partitions([shrink(topic)]) == [True]

    run_cluster(body)


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_broker_without_its_session_changes_nothing(is_noticed: bool) -> None:
    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster)
        leader, store = cluster.services[1], cluster.stores[1]
        store.delay_watch()
        await cluster.expire(1)
        if is_noticed:
            assert leader._link.membership is not None
            leader._link.membership.lose()
        leader._link.followed.wait_seconds = 0.01
        assert await leader.write_partitions([shrink(topic)]) == [False]
        store.deliver()
        await until(lambda: leader.broker_epoch > 0)
        assert 3 in (await cluster.settle()).topics["t"].partitions[0].isr

    run_cluster(body)


def test_a_leader_of_an_earlier_registration_does_not_write() -> None:
    """It has registered again, and the controller has not replaced it yet."""

    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster)
        # No elections: the controller hears of nothing.
        cluster.stores[1].delay_watch()
        leader = cluster.services[1]
        await cluster.expire(1)
        assert leader._link.membership is not None
        leader._link.membership.lose()
        await until(lambda: leader.broker_epoch > 0)
        write = shrink(topic)
        assert write.after.broker_epoch < leader.broker_epoch
        before = cluster.stores[1].transactions
        assert await leader.write_partitions([write]) == [False]
        assert cluster.stores[1].transactions == before

    run_cluster(body)


def test_a_follower_joins_with_its_registration() -> None:
    async def body(cluster: Cluster) -> None:
        topic = await shrunk(cluster)
        leader = cluster.services[1]
        assert await leader.write_partitions([join_of(topic, leader.image)]) == [True]
        assert state(leader).isr == (1, 2, 3)

    run_cluster(body)


@pytest.mark.parametrize("change", ["restarts", "drains", "lost its disk", "is gone"])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_follower_that_changed_does_not_join(change: str, is_known: bool) -> None:
    """Also while the leader does not know about it."""

    async def body(cluster: Cluster) -> None:
        topic = await shrunk(cluster)
        leader = cluster.services[1]
        image = await cluster.settle()
        write = join_of(topic, image)
        if not is_known:
            cluster.stores[1].delay_watch()
        if change == "drains":
            await cluster.services[3].change_state(BrokerState.DRAINING)
        else:
            await cluster.stop_broker(3)
            if change != "is gone":
                directory = "another disk" if change == "lost its disk" else None
                await cluster.join(3, directory=directory)
        leader._link.followed.wait_seconds = 0.01
        if is_known:
            await until(lambda: leader.image.brokers.get(3) != image.brokers[3])
        before = (await cluster.shared.read(cluster.keys.partition(topic.id, 0))).values
        assert await leader.write_partitions([write]) == [False]
        # When the call returns, the image shows the reason.
        assert leader.image.brokers.get(3) != image.brokers[3]
        after = (await cluster.shared.read(cluster.keys.partition(topic.id, 0))).values
        assert before == after

    run_cluster(body)


def test_transactions_keep_to_the_limits_of_etcd() -> None:
    """Partitions with many different followers fill the compares first."""

    async def body(cluster: Cluster) -> None:
        topic = await topic_on_three(cluster)
        image = cluster.services[1].image
        ids = range(10, 80)
        brokers = dict.fromkeys(ids, image.brokers[3])
        nodes = dict.fromkeys(ids, image.nodes[3])
        many = MetadataImage(brokers=brokers, nodes=nodes)
        before = topic.partitions[0]
        writes = []
        for number, follower in enumerate(ids):
            after = elections.joined(before, Replica(follower, image.brokers[3].epoch))
            write = PartitionWrite(UUID(int=number), 0, before, after, (follower,))
            mark = elections_mark(cluster)
            found = marked(cluster.keys, many, write, number, mark)
            assert found is not None
            writes.append(found)
        sent = list(transactions(writes, Compare.created_at("g", 1)))
        assert sum(len(few) for _, few in sent) == len(writes)
        assert all(len(one.compares) <= 128 for one, _ in sent)
        assert len(sent) == 2
        operations: list[Operation] = [put for one, _ in sent for put in one.operations]
        assert len(operations) == len(writes)

    run_cluster(body)


def elections_mark(cluster: Cluster) -> WriteMark:
    return WriteMark(1, cluster.services[1].broker_epoch, 1)
