"""Three metadata services on a real etcd: leaders are elected when a broker or a member dies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from penstock.cluster import elections
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerImage, BrokerState, Endpoint, TopicImage
from penstock.cluster.link.change_values import ClusterRules
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.cluster.service import MetadataService
from penstock.core.types import PLAINTEXT
from tests.cluster_etcd.counter_workload import until
from tests.cluster_etcd.etcd_stores import store_of
from tests.oracle.etcd_server import EtcdCluster

pytestmark = [pytest.mark.etcd, pytest.mark.timeout(120)]

PARTITIONS = 300
SESSION_SECONDS = 3.0


@asynccontextmanager
async def three(etcd: EtcdCluster) -> AsyncIterator[list[MetadataService]]:
    """Yield three running brokers of one cluster."""
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        services = []
        for broker_id in (1, 2, 3):
            store = await stack.enter_async_context(
                store_of(etcd.endpoints, first_member=broker_id % len(etcd.endpoints))
            )
            service = MetadataService(
                store, cluster=ClusterRules(SESSION_SECONDS, rebalance_seconds=None)
            )
            await service.start(tasks)
            endpoint = Endpoint(PLAINTEXT, "localhost", 9092 + broker_id)
            image = BrokerImage(broker_id, (endpoint,), None, f"directory-{broker_id}", 0)
            await service.register_broker(image, tasks)
            await service.change_state(BrokerState.RUNNING)
            services.append(service)
        try:
            yield services
        finally:
            for service in services:
                await service.stop()


async def create(service: MetadataService) -> TopicImage:
    brokers = (1, 2, 3)
    await until(
        lambda: all(
            one in service.image.brokers and service.image.brokers[one].state is BrokerState.RUNNING
            for one in brokers
        )
    )
    assignments = tuple((index, (3, 1, 2)) for index in range(PARTITIONS))
    wanted = NewTopic(name="t", assignments=assignments, settings={"min.insync.replicas": "2"})
    (topic,) = await service.create_topics([wanted])
    assert isinstance(topic, TopicImage), topic
    return topic


async def led(service: MetadataService, leader: int, seconds: float) -> TopicImage:
    def are_led() -> bool:
        return all(one.leader == leader for one in service.image.topics["t"].partitions)

    async with asyncio.timeout(seconds):
        await until(are_led)
    return service.image.topics["t"]


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_broker_that_is_gone_is_replaced(tmp_path: Path, is_silent: bool) -> None:
    """It stops, or it only falls silent, and its session ends."""

    async def main(etcd: EtcdCluster) -> None:
        async with three(etcd) as services:
            await create(services[0])
            if is_silent:
                for task in services[2]._tasks:
                    task.cancel()
            else:
                await services[2].stop()
            topic = await led(services[0], 1, SESSION_SECONDS + 10 if is_silent else 5)
            assert {one.leader_epoch for one in topic.partitions} == {1}
            assert {one.isr for one in topic.partitions} == {(1, 2)}

    with EtcdCluster(tmp_path) as etcd:
        asyncio.run(main(etcd))


def test_changes_go_on_when_etcd_loses_its_leader(tmp_path: Path) -> None:
    async def main(etcd: EtcdCluster) -> None:
        async with three(etcd) as services:
            await create(services[0])
            await until(lambda: "t" in services[2].image.topics)
            topic = services[2].image.topics["t"]
            writes = [
                PartitionWrite(topic.id, index, before, elections.shrunk(before, 2))
                for index, before in enumerate(topic.partitions)
            ]
            leader = await asyncio.to_thread(etcd.leader)
            writing = asyncio.gather(services[2].write_partitions(writes))
            await asyncio.to_thread(leader.kill)
            ((*landed,),) = await writing
            stored = [one.isr for one in services[2].image.topics["t"].partitions]
            # Each outcome is known: a refused write was decided on a state that has changed.
            assert len(landed) == PARTITIONS
            for has_landed, isr in zip(landed, stored, strict=True):
                assert not has_landed or 2 not in isr
            assert any(landed)
            await services[2].stop()
            await led(services[0], 1, 20)

    with EtcdCluster(tmp_path) as etcd:
        asyncio.run(main(etcd))
