"""Deletions in a cluster of three brokers: each broker removes its replicas, and its records."""

from typing import Any

from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.replication.followers.start_waits import StartWait
from penstock.replication.hosted_partition import HostedPartition
from tests.node.peers.test_replication import TOPIC, produce
from tests.node.peers.three_brokers import IDS, ThreeBrokers, run, until

TOPICS = ("first", "second")


def test_every_broker_removes_the_replicas_of_deleted_topics() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        for topic in TOPICS:
            await brokers.create(topic, 2)
        request = DeleteTopicsRequest(topic_names=TOPICS, timeout_ms=5_000)
        answer = await brokers.ask(1, request, DeleteTopicsResponse, 5)
        assert [one.error_code for one in answer.responses] == [ErrorCode.NONE] * 2
        served = [brokers.served(broker_id).replicas for broker_id in IDS]
        await until(lambda: all(replicas.find("second", 1) is None for replicas in served))
        # A broker that ended could not serve a topic with the same name.
        await brokers.create("first", 2)

    run(body)


async def create_kept(brokers: ThreeBrokers) -> None:
    """Create a topic whose old records are kept: the ones of this test have the time 0."""
    parts = brokers.servers[1]._parts
    assert parts is not None
    settings = {"min.insync.replicas": "2", "retention.ms": "-1"}
    (created,) = await parts.metadata.create_topics(
        [NewTopic(name=TOPIC, partition_count=1, replication_factor=3, settings=settings)]
    )
    assert isinstance(created, TopicImage), created
    await brokers.until_served(TOPIC)


async def delete_records(brokers: ThreeBrokers, offset: int, timeout_ms: int) -> ErrorCode:
    """Delete the records below an offset of partition 0."""
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=TOPIC, partitions=(asked,)),), timeout_ms=timeout_ms
    )
    leader = brokers.leader(TOPIC, 0)
    answer = await brokers.ask(leader, request, DeleteRecordsResponse, 2)
    return answer.topics[0].partitions[0].error_code


def starts(brokers: ThreeBrokers) -> list[int]:
    return [brokers.replica(one, TOPIC, 0).log.log_start_offset for one in brokers.servers]


def test_deleted_records_are_gone_on_each_live_replica_when_the_answer_comes() -> None:
    """Guards `_late`: followers learned the new start seconds later, with the next record."""

    async def body(brokers: ThreeBrokers) -> None:
        await create_kept(brokers)
        for number in range(4):
            assert not await produce(brokers, b"%d" % number)
        assert not await delete_records(brokers, 2, 5_000)
        assert starts(brokers) == [2, 2, 2]
        assert not await delete_records(brokers, 2, 5_000), "once more"
        follower = next(one for one in IDS if one != brokers.leader(TOPIC, 0))
        await brokers.stop(follower)
        assert not await delete_records(brokers, 3, 5_000), "a stopped broker is not waited for"
        assert starts(brokers) == [3, 3]

    run(body)


def test_a_deletion_that_a_follower_does_not_confirm_times_out() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await create_kept(brokers)
        assert not await produce(brokers, b"deleted")
        leader = brokers.leader(TOPIC, 0)
        waits = brokers.served(leader).replicas.start_waits
        # Each report is lost.
        waits._waits = _Deaf()
        assert await delete_records(brokers, 1, 50) is ErrorCode.REQUEST_TIMED_OUT
        assert brokers.replica(leader, TOPIC, 0).log.log_start_offset == 1, "it is deleted here"

    run(body)


class _Deaf(dict[HostedPartition, list[StartWait]]):
    """Finds no wait for a report."""

    def get(self, *_: object) -> Any:  # noqa: ANN401
        return ()
