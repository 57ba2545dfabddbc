"""Replicas of three brokers in one process: copies, changed leaders, restarts, too few replicas."""

import asyncio

from penstock.cluster.elections import NO_LEADER
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.records.builder import BatchBuilder
from penstock.records.record import Record
from tests.node.peers.three_brokers import IDS, ThreeBrokers, run, until
from tests.storage.logs import read_all

TOPIC = "orders"


async def produce(
    brokers: ThreeBrokers,
    value: bytes,
    *,
    partition: int = 0,
    acks: int = -1,
    at: int | None = None,
) -> ErrorCode:
    """Produce one record at the leader, or at another broker."""
    builder = BatchBuilder()
    builder.append(Record(None, value, (), 0))
    data = PartitionProduceData(index=partition, records=builder.build())
    request = ProduceRequest(
        acks=acks,
        timeout_ms=2_000,
        topic_data=(TopicProduceData(name=TOPIC, partition_data=(data,)),),
    )
    leader = brokers.leader(TOPIC, partition) if at is None else at
    answer = await brokers.ask(leader, request, ProduceResponse, 12)
    return answer.responses[0].partition_responses[0].error_code


def logs(brokers: ThreeBrokers, partition: int = 0) -> list[bytes]:
    """The contents of all replicas."""
    return [read_all(brokers.replica(one, TOPIC, partition).log) for one in brokers.servers]


def isr(brokers: ThreeBrokers, partition: int = 0) -> set[int]:
    return set(brokers.topic(TOPIC).partitions[partition].isr)


def test_an_acknowledged_record_is_on_each_disk() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 3)
        for number in range(10):
            for partition in range(3):
                assert not await produce(brokers, b"%d" % number, partition=partition)
        for partition in range(3):
            for one in IDS:
                log = brokers.replica(one, TOPIC, partition).log
                assert log.synced_offset == 10
            contents = logs(brokers, partition)
            assert len(contents[0]) > 0
            assert contents == contents[:1] * 3

    run(act)


def test_another_broker_refuses_and_a_stopped_leader_is_replaced() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1)
        assert not await produce(brokers, b"first")
        leader = brokers.leader(TOPIC, 0)
        other = next(one for one in IDS if one != leader)
        refused = await produce(brokers, b"astray", at=other)
        assert refused is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await brokers.stop(leader)
        await until(lambda: brokers.leader(TOPIC, 0) not in (leader, NO_LEADER))
        await brokers.until_served(TOPIC)
        assert not await produce(brokers, b"second")
        contents = logs(brokers)
        assert contents[0] == contents[1]
        await brokers.start_one(leader)
        await until(lambda: isr(brokers) == set(IDS))
        contents = logs(brokers)
        assert contents == contents[:1] * 3

    run(act)


def test_with_too_few_replicas_nothing_is_acknowledged_to_all() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1)
        first, second = (one for one in IDS if one != brokers.leader(TOPIC, 0))
        await brokers.stop(first)
        await until(lambda: len(isr(brokers)) == 2)
        assert not await produce(brokers, b"with two")
        await brokers.stop(second)
        await until(lambda: len(isr(brokers)) == 1)
        refused = await produce(brokers, b"alone")
        assert refused is ErrorCode.NOT_ENOUGH_REPLICAS
        assert not await produce(brokers, b"alone", acks=1), "the leader's disk is enough"
        state = brokers.topic(TOPIC).partitions[0]
        assert [one.broker_id for one in state.elr] == [second]
        await brokers.start_one(second)
        await until(lambda: len(isr(brokers)) == 2)
        assert not await produce(brokers, b"with two again")

    run(act)


def test_an_isolated_leader_acknowledges_only_to_all() -> None:
    """Another broker may lead by then: `acks=1` would acknowledge records that are cut later."""

    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1)
        replicas = brokers.served(brokers.leader(TOPIC, 0)).replicas
        replicas.is_isolated = lambda: True
        refused = await produce(brokers, b"alone", acks=1)
        assert refused is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not await produce(brokers, b"confirmed by the followers")
        replicas.is_isolated = lambda: False
        assert not await produce(brokers, b"alone", acks=1)

    run(act)


def test_all_brokers_stop_and_start() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 3)
        for partition in range(3):
            assert not await produce(brokers, b"kept", partition=partition)
        await brokers.stop_all()
        await asyncio.gather(*(brokers.start_one(one) for one in IDS))
        await until(
            lambda: all(
                state.leader != NO_LEADER
                and (at := brokers.image.brokers.get(state.leader)) is not None
                and at.epoch == state.broker_epoch
                and len(state.isr) == 3
                for state in brokers.topic(TOPIC).partitions
            )
        )
        await brokers.until_served(TOPIC)
        for partition in range(3):
            assert not await produce(brokers, b"more", partition=partition)
            asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
            answer = await brokers.ask(
                brokers.leader(TOPIC, partition),
                ListOffsetsRequest(
                    replica_id=-1,
                    topics=(ListOffsetsTopic(name=TOPIC, partitions=(asked,)),),
                ),
                ListOffsetsResponse,
            )
            assert answer.topics[0].partitions[0].offset == 2

    run(act)
