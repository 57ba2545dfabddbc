"""The key `nodes/<id>`: since when a broker's disk has kept everything that it reported."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import BrokerState, NodeImage, TopicImage
from penstock.cluster.keys import Keys
from penstock.cluster.link.membership import Membership
from penstock.cluster.stores.port import Compare, Operation, Put, TransactionResult
from penstock.core.errors import StoreError
from penstock.testing.memory_store import Fault, MemoryMetadataStore
from tests.cluster.shared_store import Cluster, broker, run_cluster

KEYS = Keys()


async def node_revision(store: MemoryMetadataStore) -> int:
    (pair,) = (await store.read(KEYS.node(1))).values
    return pair.mod_revision


async def register(
    store: MemoryMetadataStore, directory: str = "first", *, may_have_lost: bool = False
) -> Membership:
    member = Membership(store, KEYS, broker(1, directory=directory), may_have_lost=may_have_lost)
    await member.join()
    return member


@pytest.mark.parametrize(
    ("directory", "may_have_lost", "is_rewritten"),
    [
        ("first", False, False),
        ("first", True, True),
        ("second", False, True),
        ("second", True, True),
    ],
)
def test_a_registration_rewrites_the_key_only_if_something_may_be_gone(
    directory: str, may_have_lost: bool, is_rewritten: bool
) -> None:
    async def main() -> None:
        store = MemoryMetadataStore()
        first = await register(store)
        assert await node_revision(store) == first.epoch
        await first.leave()
        again = await register(store, directory, may_have_lost=may_have_lost)
        assert await node_revision(store) == (again.epoch if is_rewritten else first.epoch)
        # The same process registers again: its disk has lost nothing.
        before = await node_revision(store)
        await store.end_session(again.session)
        assert await again.ensure() > before
        assert await node_revision(store) == before

    asyncio.run(main())


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST])
def test_a_lost_answer_rewrites_it_once(fault: Fault) -> None:
    async def main() -> None:
        store = MemoryMetadataStore()
        await (await register(store)).leave()
        store.faults.append(fault)
        member = await register(store, may_have_lost=True)
        assert await node_revision(store) == member.epoch

    asyncio.run(main())


class RaisedStore(MemoryMetadataStore):
    """The level of a feature is raised between the look and the registration."""

    level_to_write: int | None = None

    async def transact(
        self,
        compares: Sequence[Compare],
        operations: Sequence[Operation],
        *,
        read_on_failure: Sequence[str] = (),
    ) -> TransactionResult:
        level, self.level_to_write = self.level_to_write, None
        if level is not None:
            await super().transact((), (level_put(level),))
        return await super().transact(compares, operations, read_on_failure=read_on_failure)


def level_put(level: int) -> Put:
    return Put(KEYS.features(), b'{"v":1,"levels":{"penstock.cluster":%d}}' % level)


def test_the_features_in_use_are_compared() -> None:
    async def main() -> None:
        store = RaisedStore()
        await store.transact((), (level_put(1),))
        await (await register(store)).leave()
        store.level_to_write = 2
        with pytest.raises(StoreError, match="level 2"):
            await register(store)
        assert not (await store.read(KEYS.broker(1))).values

    asyncio.run(main())


def test_new_partitions_name_the_registrations_of_their_replicas() -> None:
    async def body(cluster: Cluster) -> None:
        service = await cluster.start(1)
        for broker_id in (2, 3):
            await cluster.start(broker_id)
        await cluster.settle()
        new = NewTopic(
            name="t",
            partition_count=3,
            replication_factor=3,
            settings={"min.insync.replicas": "2"},
        )
        (topic,) = await service.create_topics([new])
        assert isinstance(topic, TopicImage)
        brokers = service.image.brokers
        for state in topic.partitions:
            assert state.min_isr == 2
            assert state.broker_epoch == brokers[state.leader].epoch
            assert [one.epoch for one in state.in_sync] == [
                brokers[one.broker_id].epoch for one in state.in_sync
            ]
            assert all(
                one.epoch >= service.image.nodes[one.broker_id].revision for one in state.in_sync
            )

    run_cluster(body)


def test_a_broker_changes_its_state_and_keeps_it() -> None:
    async def body(cluster: Cluster) -> None:
        service = await cluster.start(1)
        await cluster.start(2)
        epoch = service.image.brokers[1].epoch
        await service.change_state(BrokerState.DRAINING)
        found = (await cluster.settle()).brokers[1]
        assert (found.state, found.epoch) == (BrokerState.DRAINING, epoch)
        assert found.revision > epoch
        # Another session, the same state.
        await cluster.expire(1)
        await service.create_topics([NewTopic(name="t")])
        again = (await cluster.settle()).brokers[1]
        assert again.state is BrokerState.DRAINING
        assert again.epoch > epoch
        assert service.image.nodes[1] == NodeImage("directory-1", epoch)
        # The key is still bound to the session.
        await cluster.expire(1)
        assert not (await cluster.shared.read(cluster.keys.broker(1))).values

    run_cluster(body)
