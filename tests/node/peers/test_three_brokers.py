"""Transactions, groups and listeners of a cluster of three brokers in one process."""

import asyncio
from functools import partial
from uuid import UUID

import pytest

from penstock.client.transport.call import Call
from penstock.core.errors import ClientError
from penstock.core.types import CLUSTER_LISTENER, OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from penstock.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from penstock.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from penstock.records.batch import iterate_headers
from penstock.records.builder import BatchBuilder
from penstock.records.control import read_marker
from penstock.records.record import Record
from tests.node.peers.three_brokers import ThreeBrokers, run, until

TOPIC = "orders"
GROUP, TRANSACTION = 0, 1


class Producer:
    """A transactional producer of transaction version 2."""

    def __init__(self, brokers: ThreeBrokers, name: str) -> None:
        self._brokers = brokers
        self.name = name
        self.producer_id = self.epoch = -1

    @property
    def coordinator(self) -> int:
        return self._brokers.coordinator(TRANSACTIONS_TOPIC, self.name)

    async def init(self) -> None:
        await find(self._brokers, self.name, TRANSACTION)
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=60_000, producer_id=-1
        )
        answer = await self._brokers.ask(self.coordinator, request, InitProducerIdResponse)
        assert answer.error_code is ErrorCode.NONE, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    async def produce(self, partition: int) -> ErrorCode:
        """Produce one record, which begins the transaction in the partition."""
        builder = BatchBuilder()
        builder.append(Record(None, b"value", (), 0))
        batch = builder.build(
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=(TopicProduceData(name=TOPIC, partition_data=(data,)),),
        )
        leader = self._brokers.leader(TOPIC, partition)
        answer = await self._brokers.ask(leader, request, ProduceResponse, 12)
        return answer.responses[0].partition_responses[0].error_code

    async def end(self, *, commits: bool) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        answer = await self._brokers.ask(self.coordinator, request, EndTxnResponse, 5)
        return answer.error_code


async def find(brokers: ThreeBrokers, key: str, kind: int) -> FindCoordinatorResponse:
    """Find a coordinator; return when it is served."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
    answer = await brokers.ask(next(iter(brokers.servers)), request, FindCoordinatorResponse)
    await brokers.until_served((OFFSETS_TOPIC, TRANSACTIONS_TOPIC)[kind])
    return answer


def is_decided(brokers: ThreeBrokers, broker_id: int, topic: str, partition: int) -> bool:
    """Whether a replica has records and no open transaction."""
    log = brokers.replica(broker_id, topic, partition).log
    return log.end_offset > 0 and not len(log.producers.transactions)


def markers_of(brokers: ThreeBrokers, broker_id: int, partition: int) -> list[tuple[bool, int]]:
    """The markers in the log of a replica: whether it commits, and the coordinator epoch."""
    log = brokers.replica(broker_id, TOPIC, partition).log
    markers, offset = [], 0
    while offset < log.end_offset:
        found = log.read(
            offset, 1_000_000, offset_limit=log.end_offset, at_least_one=True, nowait=False
        )
        data, offset = bytes(found.records), found.next_offset
        markers += [
            read_marker(memoryview(data), position)
            for position, header in iterate_headers(data)
            if header.is_control
        ]
    return [(one.is_commit, one.coordinator_epoch) for one in markers if one is not None]


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_ends_in_partitions_of_all_brokers(commits: bool) -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 3)
        assert {brokers.leader(TOPIC, index) for index in range(3)} == {1, 2, 3}
        producer = Producer(brokers, "t")
        await producer.init()
        for partition in range(3):
            assert await producer.produce(partition) is ErrorCode.NONE
        assert await producer.end(commits=commits) is ErrorCode.NONE
        for partition in range(3):
            for broker_id in (1, 2, 3):
                await until(partial(is_decided, brokers, broker_id, TOPIC, partition))
                assert markers_of(brokers, broker_id, partition) == [(commits, 0)]

    run(act)


def test_the_next_coordinator_ends_a_transaction_with_its_own_epoch() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 3)
        producer = Producer(brokers, "t")
        await producer.init()
        former = producer.coordinator
        partition = next(index for index in range(3) if brokers.leader(TOPIC, index) != former)
        assert await producer.produce(partition) is ErrorCode.NONE
        await brokers.stop(former)
        await until(lambda: producer.coordinator in brokers.servers)
        await brokers.until_served(TRANSACTIONS_TOPIC)
        async with asyncio.timeout(5):
            while (code := await producer.end(commits=True)) is not ErrorCode.NONE:
                assert code in (
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    ErrorCode.NOT_COORDINATOR,
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                ), code
        leader = brokers.leader(TOPIC, partition)
        await until(lambda: is_decided(brokers, leader, TOPIC, partition))
        ((commits, epoch),) = markers_of(brokers, leader, partition)
        assert commits
        assert epoch > 0

    run(act)


def test_offsets_in_a_transaction_are_committed_by_a_coordinator_on_another_broker() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 3)
        producer = Producer(brokers, "t")
        await producer.init()
        await find(brokers, "g0", GROUP)
        group = next(
            name
            for name in (f"g{number}" for number in range(20))
            if brokers.coordinator(OFFSETS_TOPIC, name) != producer.coordinator
        )
        coordinator = brokers.coordinator(OFFSETS_TOPIC, group)
        added = await brokers.ask(
            producer.coordinator,
            AddOffsetsToTxnRequest(
                transactional_id="t",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                group_id=group,
            ),
            AddOffsetsToTxnResponse,
        )
        assert added.error_code is ErrorCode.NONE
        offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        commit = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=(offset,)),),
        )
        committed = await brokers.ask(coordinator, commit, TxnOffsetCommitResponse)
        assert committed.topics[0].partitions[0].error_code is ErrorCode.NONE
        assert await fetched_offset(brokers, coordinator, group) == -1, "undecided"
        assert await producer.end(commits=True) is ErrorCode.NONE
        async with asyncio.timeout(5):
            while await fetched_offset(brokers, coordinator, group) != 5:  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    run(act)


async def fetched_offset(brokers: ThreeBrokers, coordinator: int, group: str) -> int:
    request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=None),))
    answer = await brokers.ask(coordinator, request, OffsetFetchResponse, 9)
    found = answer.groups[0]
    assert found.error_code is ErrorCode.NONE
    return next((one.partitions[0].committed_offset for one in found.topics), -1)


def test_internal_topics_have_three_replicas_of_which_two_must_be_in_sync() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        answer = await find(brokers, "g", GROUP)
        (coordinator,) = answer.coordinators
        assert coordinator.node_id == brokers.coordinator(OFFSETS_TOPIC, "g")
        topic = brokers.topic(OFFSETS_TOPIC)
        assert {len(one.replicas) for one in topic.partitions} == {3}
        assert {one.min_isr for one in topic.partitions} == {2}
        assert topic.settings["min.insync.replicas"] == "2"

    run(act)


def test_another_broker_is_not_the_coordinator() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await find(brokers, "t", TRANSACTION)
        producer = Producer(brokers, "t")
        other = next(one for one in (1, 2, 3) if one != producer.coordinator)
        request = InitProducerIdRequest(
            transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1
        )
        answer = await brokers.ask(other, request, InitProducerIdResponse)
        assert answer.error_code is ErrorCode.NOT_COORDINATOR

    run(act)


# --- The listener for brokers ---


def test_clients_do_not_learn_the_address_of_the_listener_for_brokers() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        ports = {
            at.port
            for one in brokers.image.brokers.values()
            if (at := one.endpoint(CLUSTER_LISTENER)) is not None
        }
        assert len(ports) == 3
        metadata = await brokers.ask(1, MetadataRequest(topics=()), MetadataResponse)
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)
        cluster = await brokers.ask(1, request, DescribeClusterResponse)
        found = await find(brokers, "g", GROUP)
        partition = RequestPartitionData(partition_index=0)
        quorum = await brokers.ask(
            1,
            DescribeQuorumRequest(
                topics=(RequestTopicData(topic_name="__cluster_metadata", partitions=(partition,)),)
            ),
            DescribeQuorumResponse,
        )
        assert len(metadata.brokers) == len(cluster.brokers) == 3
        shown = {one.port for one in metadata.brokers} | {one.port for one in cluster.brokers}
        shown |= {one.port for one in found.coordinators}
        shown |= {listener.port for node in quorum.nodes for listener in node.listeners}
        assert shown.isdisjoint(ports)

    run(act)


def follower_fetch(cluster_id: str | None) -> FetchRequest:
    return FetchRequest(
        cluster_id=cluster_id,
        replica_state=ReplicaState(replica_id=2, replica_epoch=10_000),
        max_wait_ms=0,
        min_bytes=0,
        topics=(),
    )


def test_only_the_listener_for_brokers_answers_followers_and_only_those_of_this_cluster() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        codes = []
        for listener, cluster_id in (
            (None, brokers.image.cluster_id),
            (CLUSTER_LISTENER, str(UUID(int=1))),
            (CLUSTER_LISTENER, brokers.image.cluster_id),
        ):
            async with await brokers.connect(1, listener) as connection:
                call: Call[FetchResponse] = Call(
                    follower_fetch(cluster_id), FetchResponse, lambda answer: answer, version_max=17
                )
                codes.append((await connection.carry(call)).error_code)
        assert codes == [
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            ErrorCode.NONE,
        ]
        async with await brokers.connect(1, CLUSTER_LISTENER) as connection:
            with pytest.raises(ClientError):
                await connection.carry(
                    Call(MetadataRequest(topics=()), MetadataResponse, lambda answer: answer)
                )

    run(act)
