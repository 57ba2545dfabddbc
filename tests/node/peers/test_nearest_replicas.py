"""Consumers of three brokers in three racks: each reads from the replica near it (KIP-392)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.core.settings.tree import Settings
from penstock.node.server import BrokerServer
from penstock.node.stand_ins import StandIns
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from penstock.records.batch import read_header
from penstock.records.stored_records import stored_records, unfolded
from tests.node.peers.test_replication import TOPIC, isr, produce
from tests.node.peers.three_brokers import IDS, ThreeBrokers, settings, until

SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class Racks(ThreeBrokers):
    """Three brokers, each in the rack with its number."""

    def __init__(self, selector: str | None) -> None:
        super().__init__()
        self._selector = selector

    def _settings(self, broker_id: int) -> Settings:
        given = settings(broker_id)
        cluster = given.cluster.model_copy(update={"replica_selector_class": self._selector})
        node = given.node.model_copy(update={"rack": f"rack-{broker_id}"})
        return given.model_copy(update={"cluster": cluster, "node": node})

    async def start_one(self, broker_id: int) -> None:
        stand_ins = StandIns(filesystem=self._disks[broker_id], metadata_store=self.store)
        server = BrokerServer(self._settings(broker_id), stand_ins=stand_ins)
        await server.__aenter__()
        self.servers[broker_id] = server


def run(
    act: Callable[[Racks, int, int], Awaitable[None]], *, selector: str | None = SELECTOR
) -> None:
    """Let a test act on brokers with one partition; it gets its leader and a follower."""

    async def begin() -> None:
        brokers = Racks(selector)
        try:
            await brokers.start()
            await brokers.create(TOPIC, 1)
            await until(lambda: isr(brokers) == set(IDS))
            leader = brokers.leader(TOPIC, 0)
            await act(brokers, leader, next(one for one in IDS if one != leader))
        finally:
            await brokers.stop_all()

    asyncio.run(begin())


async def fetch(
    brokers: Racks,
    at: int,
    rack: str,
    *,
    offset: int = 0,
    wait_ms: int = 0,
    version: int = 17,
    epoch: int = -1,
) -> PartitionData:
    """Fetch the partition from a broker, as a consumer in a rack."""
    topic = brokers.topic(TOPIC)
    asked = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1_000_000, current_leader_epoch=epoch
    )
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        rack_id=rack,
        session_epoch=-1,
        topics=(FetchTopic(topic=TOPIC, topic_id=topic.id, partitions=(asked,)),),
    )
    answer = await brokers.ask(at, request, FetchResponse, version)
    return answer.responses[0].partitions[0]


def values(data: PartitionData) -> list[bytes]:
    view, found = memoryview(data.records or b""), []
    position = 0
    while position < len(view):
        header = read_header(view, position)
        section = unfolded(view, position, header)
        records, _ = stored_records(section, 0, header.record_count, header.base_offset)
        found += [bytes(value or b"") for _, _, value in records]
        position += header.size_bytes
    return found


def test_a_leader_sends_a_consumer_to_the_replica_in_its_rack() -> None:
    async def act(brokers: Racks, leader: int, follower: int) -> None:
        assert not await produce(brokers, b"one")
        async with asyncio.timeout(5):
            sent = await fetch(brokers, leader, f"rack-{follower}", offset=1, wait_ms=60_000)
        assert (sent.preferred_read_replica, sent.error_code) == (follower, ErrorCode.NONE)
        assert (sent.high_watermark, sent.log_start_offset, sent.last_stable_offset) == (1, 0, 1)
        assert not sent.records
        for rack in ("", "rack-of-nobody", f"rack-{leader}"):
            kept = await fetch(brokers, leader, rack)
            assert kept.preferred_read_replica == -1
            assert values(kept) == [b"one"]
        old = await fetch(brokers, leader, "", version=10)
        assert values(old) == [b"one"]

    run(act)


def test_without_a_selector_a_consumer_stays_with_the_leader() -> None:
    async def act(brokers: Racks, leader: int, follower: int) -> None:
        assert not await produce(brokers, b"one")
        kept = await fetch(brokers, leader, f"rack-{follower}")
        assert kept.preferred_read_replica == -1
        assert values(kept) == [b"one"]

    run(act, selector=None)


def test_a_follower_serves_a_consumer_and_learns_at_once_what_is_committed() -> None:
    """Guards `has_news`: a follower learned the high watermark with the next record only."""

    async def act(brokers: Racks, leader: int, follower: int) -> None:
        rack = f"rack-{follower}"
        assert not await produce(brokers, b"0")
        assert (await fetch(brokers, leader, rack, offset=1)).preferred_read_replica == follower
        async with asyncio.timeout(2):
            await until(lambda: brokers.replica(follower, TOPIC, 0).state.high_watermark == 1)
        assert values(await fetch(brokers, follower, rack)) == [b"0"]
        for number in range(1, 4):
            waiting = asyncio.get_running_loop().create_task(
                fetch(brokers, follower, rack, offset=number, wait_ms=60_000)
            )
            await asyncio.sleep(0.02)
            assert not await produce(brokers, b"%d" % number)
            async with asyncio.timeout(2):
                found = await waiting
            assert values(found) == [b"%d" % number]
            assert found.high_watermark == number + 1

    run(act)


def test_a_follower_refuses_what_a_follower_of_kafka_refuses() -> None:
    async def act(brokers: Racks, _leader: int, follower: int) -> None:
        assert not await produce(brokers, b"one")
        replica = brokers.replica(follower, TOPIC, 0)
        await until(lambda: replica.log.end_offset == 1)
        epoch = replica.state.leader_epoch
        for asked, expected in (
            ({"version": 10}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ({"offset": 2}, ErrorCode.OFFSET_OUT_OF_RANGE),
            ({"epoch": epoch + 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            answer = await fetch(brokers, follower, "", **asked)
            assert answer.error_code is expected, asked

    run(act)
