"""Faults in a cluster: a failed disk, a topic that grows during a change, a start that fails."""

import asyncio
import errno
import socket

import pytest

from penstock.cluster.elections import joined, shrunk
from penstock.cluster.image import PartitionImage, Replica
from penstock.cluster.link.leader_elections import LeaderElections
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import ConfigError, QuarantinedLogError
from penstock.core.settings.tree import FlushSettings, Settings
from penstock.node.foundation import MEMORY_PATH
from penstock.node.server import BrokerServer
from penstock.node.stand_ins import StandIns
from penstock.replication.isr import IsrChange
from penstock.storage.disk.data_directory import CLEAN_FILE
from penstock.storage.disk.memory_disk import MemoryDisk
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_store import MemoryMetadataStore
from tests.node.peers.test_replication import produce
from tests.node.peers.three_brokers import IDS, ThreeBrokers, run, settings, until

TOPIC = "orders"


def test_other_brokers_lead_the_partitions_of_a_failed_disk() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 3)
        await brokers.stop(3)
        disk = FaultyDisk(MemoryDisk())
        stand_ins = StandIns(filesystem=disk, metadata_store=brokers.store)
        async with BrokerServer(settings(3), stand_ins=stand_ins) as failing:

            def states() -> tuple[PartitionImage, ...]:
                return brokers.topic(TOPIC).partitions

            await until(lambda: all(len(state.isr) == 3 for state in states()))
            parts = brokers.servers[1]._parts
            assert parts is not None
            led = next(index for index, state in enumerate(states()) if state.replicas[0] == 3)
            await LeaderElections(parts.metadata).elect([(TOPIC, led)], is_unclean=False)
            await until(lambda: states()[led].leader == 3)
            brokers.servers[3] = failing
            disk.failures["sync"] = [errno.EIO] * 100
            assert await produce(brokers, b"refused", partition=led, acks=1)
            del brokers.servers[3]
            await until(lambda: states()[led].leader in (1, 2))
            await until(
                lambda: (
                    not any(
                        one.epoch
                        for state in states()
                        for one in state.in_sync
                        if one.broker_id == 3
                    )
                )
            )
            await brokers.until_served(TOPIC)
            assert not await produce(brokers, b"served", partition=led)
            disk.failures.clear()

    run(act)


def test_a_topic_that_grows_does_not_end_a_change_that_is_being_written() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1)
        leader = brokers.leader(TOPIC, 0)
        in_sync = brokers.replica(leader, TOPIC, 0).state.in_sync
        assert in_sync is not None
        follower = next(one for one in IDS if one != leader)
        replica = next(one for one in in_sync.state.in_sync if one.broker_id == follower)
        # As if the follower had left before, and joined now.
        without = shrunk(in_sync.state, follower)
        in_sync.adopt(without, 0.0)
        change = IsrChange(without, joined(without, Replica(*replica)), (follower,))
        in_sync.begin(change)
        parts = brokers.servers[leader]._parts
        assert parts is not None
        await parts.metadata.create_partitions(MorePartitions(TOPIC, 2))
        await until(lambda: len(brokers.topic(TOPIC).partitions) == 2)
        assert in_sync.change is change, "it may be stored"
        assert follower in in_sync.isr_max, "records that it lacks are not committed"

    run(act)


def test_a_start_that_fails_after_an_unclean_stop_does_not_hide_it() -> None:
    """Guards `withholds_clean_marker`: entries of a disk that may lack records stayed valid."""
    store, disk = MemoryMetadataStore(), MemoryDisk()
    given = settings(1).model_copy(update={"flush": FlushSettings(mode="interval")})

    async def since(changed: Settings) -> int:
        """Start, stop, and return the revision since which the disk has kept everything."""
        stand_ins = StandIns(filesystem=disk, metadata_store=store)
        async with BrokerServer(changed, stand_ins=stand_ins) as server:
            assert server._parts is not None
            return server._parts.metadata.image.nodes[1].revision

    async def act() -> None:
        first = await since(given)
        assert await since(given) == first, "a clean stop keeps everything"
        disk.remove_file(f"{MEMORY_PATH}/{CLEAN_FILE}")
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            listener = given.listener.model_copy(update={"port": other.getsockname()[1]})
            with pytest.raises(ConfigError):
                await since(given.model_copy(update={"listener": listener}))
        assert await since(given) > first

    asyncio.run(act())


def test_other_brokers_lead_a_partition_whose_log_is_damaged() -> None:
    """Guards `storage.on_damage`: the leader refused its clients, and went on leading."""

    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1)
        assert not await produce(brokers, b"damaged later")
        leader = brokers.leader(TOPIC, 0)
        await until(lambda: len(brokers.topic(TOPIC).partitions[0].isr) == 3)
        log = brokers.replica(leader, TOPIC, 0).log
        segment = brokers._disks[leader].find(f"{MEMORY_PATH}/{TOPIC}-0/{0:020}.log")
        segment.data[log.active.size - 1] ^= 255
        storage = brokers.served(leader).storage
        with pytest.raises(QuarantinedLogError):
            await storage.read_cold(log, 0, 1_000, offset_limit=1, at_least_one=True)

        def is_disowned() -> bool:
            state = brokers.topic(TOPIC).partitions[0]
            return state.leader not in (leader, -1) and all(
                one.epoch == 0 or one.broker_id != leader for one in state.in_sync
            )

        await until(is_disowned)
        await brokers.until_served(TOPIC)
        assert not await produce(brokers, b"by another leader")
        replica = brokers.replica(leader, TOPIC, 0)
        assert replica.state.leader_id == brokers.leader(TOPIC, 0), "it follows in its role"
        assert replica.log.end_offset == 1, "and copies nothing"
        await until(is_disowned)
        await brokers.stop(leader)

    run(act)
