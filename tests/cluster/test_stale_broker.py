"""A broker whose id another process has registered by now: none of its writes arrives."""

from collections.abc import Awaitable, Callable

import pytest

from penstock.cluster.access.security_service import change_scram, create_acls, delete_acls
from penstock.cluster.configs.group_configs import HEARTBEAT_INTERVAL, group_rules
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.cluster.controller import NewTopic
from penstock.cluster.declaration_memory import DeclarationMemory
from penstock.cluster.link.membership import Membership
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.quota_entities import QuotaEntity
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Snapshot
from penstock.cluster.topic_changes import MorePartitions
from penstock.cluster.values import SetByFile
from penstock.core.errors import DuplicateBrokerError, StoreError
from penstock.core.settings.coordinator_settings import GroupsSettings
from tests.cluster.shared_store import BrokerStore, Cluster, broker, run_cluster, until
from tests.cluster.test_acl_changes import ALL, rule
from tests.cluster.test_scram_changes import upsert

Write = Callable[[MetadataService, Cluster], Awaitable[object]]


def change(name: str, setting: str, value: str) -> SettingsChange:
    return SettingsChange(name, (SettingEdit(setting, EditKind.SET, value),))


async def declare(service: MetadataService, cluster: Cluster) -> None:
    topic = service.image.topics["t"]
    memory = DeclarationMemory(cluster.stores[1], metadata=service)
    await memory.keep({"t": SetByFile(topic.id, {"flush.ms": "1"})})


async def control(service: MetadataService, _cluster: Cluster) -> None:
    async with service._link.changing():
        await service._link.become_controller()
    raise StoreError("not written")


WRITES: dict[str, Write] = {
    "create a topic": lambda s, _: s.create_topics([NewTopic(name="u")]),
    "create a large topic": lambda s, _: s.create_topics([NewTopic(name="u", partition_count=150)]),
    "delete a topic": lambda s, _: s.delete_topics(["t"]),
    "add partitions": lambda s, _: s.create_partitions(MorePartitions("t", 3)),
    "add many partitions": lambda s, _: s.create_partitions(MorePartitions("t", 150)),
    "topic settings": lambda s, _: s.change_settings(change("t", "flush.ms", "5")),
    "group settings": lambda s, _: s.change_group_settings(
        change("g", HEARTBEAT_INTERVAL, "6000"), group_rules(GroupsSettings())
    ),
    "quotas": lambda s, _: s.change_quotas(
        QuotaChange(QuotaEntity((("user", "u"),)), (("producer_byte_rate", 5.0),))
    ),
    "producer ids": lambda s, _: s.allocate_producer_ids(),
    "create access rules": lambda s, _: create_acls(s, [rule("other")]),
    "delete access rules": lambda s, _: delete_acls(s, [ALL]),
    "credentials": lambda s, _: change_scram(s, [upsert()], now_ms=1),
    "declarations": declare,
    "the controller's role": control,
}


async def keys_of(cluster: Cluster) -> Snapshot:
    return await cluster.shared.read_prefix(cluster.keys.root)


@pytest.mark.parametrize("is_noticed", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_of_a_stale_broker_is_refused(write: str, is_noticed: bool) -> None:
    """Also while its image does not show yet that its session has ended."""

    async def body(cluster: Cluster) -> None:
        stale = await cluster.start(1)
        await stale.create_topics([NewTopic(name="t")])
        await create_acls(stale, [rule()])
        # A broker that does not become the controller, so that the role is free.
        cluster.stores[1].delay_watch()
        await cluster.expire(1)
        other = Membership(
            BrokerStore(cluster.shared), cluster.keys, broker(1, directory="another machine")
        )
        await other.join()
        if is_noticed:
            cluster.stores[1].deliver()
            await cluster.settle()
        stale._link.followed.wait_seconds = 0.01
        before = await keys_of(cluster)
        try:
            outcome = await WRITES[write](stale, cluster)
        except (StoreError, DuplicateBrokerError):
            pass
        else:
            assert isinstance(outcome, list)
            assert isinstance(outcome[0], StoreError)
        assert await keys_of(cluster) == before

    run_cluster(body)


def test_a_broker_that_registers_again_writes_again() -> None:
    """Nobody else has registered: its session had only expired."""

    async def body(cluster: Cluster) -> None:
        service = await cluster.start(1)
        await service.create_topics([NewTopic(name="t")])
        for name, write in WRITES.items():
            if name == "the controller's role":
                continue
            cluster.stores[1].delay_watch()
            await cluster.expire(1)
            cluster.stores[1].deliver()
            await write(service, cluster)
            await cluster.settle()
            await until(lambda: 1 in service.image.brokers)
            epoch = (await cluster.settle()).brokers[1].epoch
            assert service._link._membership is not None
            assert service._link._membership.epoch == epoch
            if name == "delete a topic":
                await service.create_topics([NewTopic(name="t")])

    run_cluster(body)
