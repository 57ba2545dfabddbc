"""Two brokers that write the same keys: no whole load for a failed compare, no endless wait."""

import asyncio

import pytest

from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import GuardedWrites, NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.stores.port import Delete, Put
from penstock.core.errors import StoreError, TopicExistsError, UnknownTopicOrPartitionError
from tests.cluster.shared_store import Cluster, run_cluster, until

WRITES = 40


def setting(name: str, value: int) -> SettingsChange:
    edit = SettingEdit("retention.ms", EditKind.SET, str(value))
    return SettingsChange(name, (edit,))


def test_contended_writes_load_nothing() -> None:
    async def body(cluster: Cluster) -> None:
        first, second = await cluster.start(1), await cluster.start(2)
        await first.create_topics([NewTopic(name="t")])
        await cluster.settle()
        stores = cluster.stores.values()
        before = [store.loads for store in stores]
        sent = sum(store.transactions for store in stores)
        blocks = await asyncio.gather(
            *(one.allocate_producer_ids() for one in (first, second) for _ in range(WRITES // 4))
        )
        await asyncio.gather(
            *(
                one.change_settings(setting("t", number))
                for number in range(WRITES // 4)
                for one in (first, second)
            )
        )
        assert len({block.start for block in blocks}) == WRITES // 2
        assert [store.loads for store in stores] == before
        # Compares did fail.
        assert sum(store.transactions for store in stores) > sent + WRITES + 10
        await cluster.settle()

    run_cluster(body)


def test_a_write_whose_watch_is_late_waits_for_it() -> None:
    async def body(cluster: Cluster) -> None:
        first, second = await cluster.start(1), await cluster.start(2)
        await first.create_topics([NewTopic(name="t")])
        await cluster.settle()
        store = cluster.stores[2]
        loads, transactions = store.loads, store.transactions
        store.delay_watch()
        await first.change_settings(setting("t", 5))
        await first.delete_topics(["t"])
        changing = cluster.tasks.create_task(second.create_topics([NewTopic(name="u")]))
        await until(lambda: store.transactions > transactions)
        assert not changing.done()
        store.deliver()
        (made,) = await changing
        assert isinstance(made, TopicImage)
        assert store.loads == loads
        # Of a deleted topic, the watch alone shows the deletion.
        (outcome,) = await second.delete_topics(["t"])
        assert isinstance(outcome, UnknownTopicOrPartitionError)

    run_cluster(body)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_failed_compare_waits_for_the_change_that_failed_it(is_deleted: bool) -> None:
    async def body(cluster: Cluster) -> None:
        first, second = await cluster.start(1), await cluster.start(2)
        await first.create_topics([NewTopic(name="t")])
        await cluster.settle()
        store = cluster.stores[2]
        loads, transactions = store.loads, store.transactions
        store.delay_watch()
        if is_deleted:
            await first.delete_topics(["t"])
        else:
            await first.change_settings(setting("t", 5))
        changing = asyncio.gather(second.change_settings(setting("t", 6)), return_exceptions=True)
        await until(lambda: store.transactions > transactions)
        for _ in range(10):
            await asyncio.sleep(0)
        # One attempt, and not one after the other on the old image.
        assert store.transactions == transactions + 1
        store.deliver()
        (outcome,) = await changing
        if is_deleted:
            assert isinstance(outcome, UnknownTopicOrPartitionError)
        else:
            assert isinstance(outcome, TopicImage)
            assert outcome.settings == {"retention.ms": "6"}
        assert store.loads == loads

    run_cluster(body)


def test_a_watch_that_is_stuck_is_replaced_by_a_load() -> None:
    async def body(cluster: Cluster) -> None:
        first, second = await cluster.start(1), await cluster.start(2)
        await cluster.settle()
        second._link.followed.wait_seconds = 0.01
        cluster.stores[2].delay_watch()
        (made,) = await first.create_topics([NewTopic(name="t")])
        assert isinstance(made, TopicImage)
        # Its own write, and the failed compare of another.
        (outcome,) = await second.create_topics([NewTopic(name="u")])
        assert isinstance(outcome, TopicImage)
        (outcome,) = await second.create_topics([NewTopic(name="t")])
        assert isinstance(outcome, TopicExistsError)

    run_cluster(body)


def test_a_store_that_is_stuck_ends_the_wait_with_an_error() -> None:
    async def body(cluster: Cluster) -> None:
        first = await cluster.start(1)
        first._link.followed.wait_seconds = 0.01
        store = cluster.stores[1]
        store.delay_watch()

        async def cut_off_after(_operations: object) -> None:
            store.before_transaction = None
            asyncio.get_running_loop().call_soon(cut)

        def cut() -> None:
            store.is_cut_off = True

        store.before_transaction = cut_off_after
        (outcome,) = await first.create_topics([NewTopic(name="t")])
        assert isinstance(outcome, StoreError)
        store.is_cut_off = False
        store.deliver()
        await until(lambda: first.image.topic("t") is not None)

    run_cluster(body)


def test_a_transaction_that_changes_nothing_waits_for_nothing() -> None:
    """The store's revision may be that of keys that this cluster does not watch."""

    async def body(cluster: Cluster) -> None:
        first = await cluster.start(1)
        await cluster.shared.transact((), (Put("/elsewhere", b"1"),))
        loads = cluster.stores[1].loads
        first._link.followed.wait_seconds = 0.01
        nothing = GuardedWrites((), (Delete(cluster.keys.topic("none")),))
        assert await first._link.write((nothing,))
        assert cluster.stores[1].loads == loads

    run_cluster(body)
