"""Levels of features: registered by each broker, raised only if every registered one can."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from penstock.cluster.features.levels import (
    CLUSTER_FEATURE,
    SUPPORTED,
    FeatureRange,
    Ranges,
    highest_levels,
    read_ranges,
    unsupported_level,
)
from penstock.cluster.keys import Keys
from penstock.cluster.link.feature_changes import LevelRefusedError, raise_levels
from penstock.cluster.link.membership import Membership
from penstock.cluster.stores.port import Operation, Put
from penstock.cluster.values import write_features
from penstock.core.errors import StoreError
from penstock.testing.memory_store import Fault, MemoryMetadataStore
from tests.cluster.shared_store import CLUSTER, Cluster, broker, run_cluster, until

OLD: Ranges = (FeatureRange(CLUSTER_FEATURE, 1, 1),)
NEW: Ranges = (FeatureRange(CLUSTER_FEATURE, 1, 2), FeatureRange("other", 0, 3))


async def join(cluster: Cluster, broker_id: int, features: Ranges) -> None:
    await cluster.join(broker_id, rules=replace(CLUSTER, features=features))


async def level(cluster: Cluster, name: str = CLUSTER_FEATURE) -> int:
    return (await cluster.settle()).features.levels.get(name, 0)


def test_the_ranges_of_this_version() -> None:
    assert SUPPORTED == OLD
    assert highest_levels(NEW) == {CLUSTER_FEATURE: 2, "other": 3}


@pytest.mark.parametrize(
    ("levels", "text"),
    [
        ({}, None),
        ({CLUSTER_FEATURE: 1}, None),
        ({CLUSTER_FEATURE: 0}, None),
        ({"unknown": 0}, None),
        ({CLUSTER_FEATURE: 2}, "at level 2; this version supports 1 to 1: install a newer"),
        ({"unknown": 1}, "at level 1; this version supports no level of it: install a newer"),
    ],
)
def test_a_level_that_is_not_supported(levels: dict[str, int], text: str | None) -> None:
    problem = unsupported_level(levels, OLD)
    assert (problem is None) == (text is None)
    assert text is None or text in (problem or "")


def test_a_level_that_is_no_longer_supported() -> None:
    problem = unsupported_level({"f": 1}, (FeatureRange("f", 3, 4),))
    assert "raise the level with an older Penstock" in (problem or "")


@pytest.mark.parametrize("listed", [[], {"f": 1}, {"f": [1]}, {"f": [1, "2"]}, {"f": [1, True]}])
def test_damaged_ranges_are_refused(listed: object) -> None:
    with pytest.raises(StoreError):
        read_ranges(listed)


def test_a_new_cluster_has_the_highest_levels() -> None:
    async def body(cluster: Cluster) -> None:
        await join(cluster, 1, NEW)
        image = await cluster.settle()
        assert image.features.levels == {CLUSTER_FEATURE: 2, "other": 3}
        assert image.brokers[1].features == NEW

    run_cluster(body)


def test_a_broker_alone_has_no_levels() -> None:
    async def body(cluster: Cluster) -> None:
        await cluster.start(1)
        assert not (await cluster.settle()).features.levels

    run_cluster(body)


def test_brokers_of_a_newer_version_do_not_raise_it_by_themselves() -> None:
    async def body(cluster: Cluster) -> None:
        for broker_id, features in ((1, OLD), (2, NEW), (3, NEW)):
            await join(cluster, broker_id, features)
        assert await level(cluster) == 1
        for service in cluster.services.values():
            with pytest.raises(LevelRefusedError, match="Broker 1 only supports versions 1-1"):
                await raise_levels(service, {CLUSTER_FEATURE: 2})
        with pytest.raises(LevelRefusedError, match="Broker 1 does not support this feature"):
            await raise_levels(cluster.services[2], {"other": 1})
        await cluster.stop_broker(1)
        await join(cluster, 1, NEW)
        await raise_levels(cluster.services[2], {CLUSTER_FEATURE: 2}, validate_only=True)
        assert await level(cluster) == 1
        await raise_levels(cluster.services[2], {CLUSTER_FEATURE: 2, "other": 1})
        assert (await level(cluster), await level(cluster, "other")) == (2, 1)
        revision = (await cluster.settle()).features.revision
        await raise_levels(cluster.services[3], {CLUSTER_FEATURE: 2})
        assert (await cluster.settle()).features.revision == revision
        with pytest.raises(LevelRefusedError, match="uses level 2, and levels are not lowered"):
            await raise_levels(cluster.services[3], {CLUSTER_FEATURE: 1})

    run_cluster(body)


def test_an_older_broker_does_not_register_after_a_raise() -> None:
    async def body(cluster: Cluster) -> None:
        await join(cluster, 1, NEW)
        with pytest.raises(StoreError, match=r"penstock.cluster at level 2.*newer Penstock"):
            await join(cluster, 2, OLD)
        assert set((await cluster.settle()).brokers) == {1}

    run_cluster(body)


def test_a_broker_that_registers_in_between_is_not_overlooked() -> None:
    """It is in no image of the broker that raises the level: its registration must be compared."""

    async def body(cluster: Cluster) -> None:
        await join(cluster, 1, OLD)
        await cluster.stop_broker(1)
        await join(cluster, 2, NEW)
        store = cluster.stores[2]

        async def meanwhile(operations: Sequence[Operation]) -> None:
            if not any(isinstance(one, Put) and "features" in one.key for one in operations):
                return
            store.before_transaction = None
            # The change arrives at the other broker after its transaction.
            store.delay_watch()
            await join(cluster, 3, OLD)
            asyncio.get_running_loop().call_later(0.01, store.deliver)

        store.before_transaction = meanwhile
        with pytest.raises(LevelRefusedError, match="Broker 3 only supports"):
            await raise_levels(cluster.services[2], {CLUSTER_FEATURE: 2})
        assert await level(cluster) == 1

    run_cluster(body)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
def test_a_lost_answer_of_a_raise(fault: Fault) -> None:
    async def body(cluster: Cluster) -> None:
        await join(cluster, 1, OLD)
        await cluster.stop_broker(1)
        await join(cluster, 2, NEW)
        cluster.stores[2].faults.append(fault)
        await raise_levels(cluster.services[2], {CLUSTER_FEATURE: 2})
        assert await level(cluster) == 2

    run_cluster(body)


def test_a_level_of_a_restored_backup_is_noticed() -> None:
    """No broker raises such a level, but an operator may write one."""

    async def body(cluster: Cluster) -> None:
        await join(cluster, 1, OLD)
        assert not cluster.services[1].problems
        put = Put(cluster.keys.features(), write_features({CLUSTER_FEATURE: 2}))
        await cluster.shared.transact((), (put,))
        await until(lambda: bool(cluster.services[1].problems))
        assert "level 2" in cluster.services[1].problems[0]
        put = Put(cluster.keys.features(), write_features({CLUSTER_FEATURE: 1}))
        await cluster.shared.transact((), (put,))
        await until(lambda: not cluster.services[1].problems)

    run_cluster(body)


def test_a_registration_is_refused_during_an_export() -> None:
    async def main() -> None:
        store, keys = MemoryMetadataStore(), Keys()
        mark = b'{"v":1,"to":"directory","broker":7,"directory_id":"d","cluster_id":"c","nonce":""}'
        await store.transact((), (Put(keys.transfer(), mark),))
        with pytest.raises(StoreError, match="data directory of broker 7"):
            await Membership(store, keys, broker(1)).join()
        assert not (await store.read(keys.broker(1))).values

    asyncio.run(main())
