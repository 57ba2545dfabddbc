"""`LeaderFetcher` over real logs: answers that come after the role has ended, broken answers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.replication.copies import Round
from penstock.replication.fetcher import Identity, LeaderFetcher
from penstock.replication.follower import PAUSE_SECONDS_MIN
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.log_cuts import LogCuts
from penstock.replication.partition import PartitionState
from penstock.replication.replica_session import FETCH_WAIT_MS
from penstock.storage.log.partition_log import PartitionLog
from tests.replication.replicas import Node
from tests.storage.logs import batch, read_all


class Leader:
    """Connections to a leader whose answers the test sends."""

    def __init__(self) -> None:
        self.requests: list[FetchRequest] = []
        self.answers: list[asyncio.Future[FetchResponse]] = []
        self.accepts = asyncio.Event()
        self.accepts.set()

    async def open(self, broker_id: int) -> "Leader":
        assert broker_id == 1
        await self.accepts.wait()
        return self

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        self.requests.append(request)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    async def close(self) -> None:
        """Close nothing."""


class NoStorage:
    """Storage that must not be used."""

    async def truncate_log(self, topic_partition: TopicPartition, offset: int) -> None:
        raise AssertionError("not used here")

    async def restart_log(self, topic_partition: TopicPartition, offset: int) -> None:
        raise AssertionError("not used here")

    async def advance_starts(
        self, starts: Sequence[tuple[PartitionLog, int]]
    ) -> list[PenstockError | None]:
        raise AssertionError("not used here")


def follow(node: Node, partition: HostedPartition) -> HostedPartition:
    """Let the node follow broker 1 in epoch 1."""
    log = partition.log
    role = PartitionState(
        log.topic_partition,
        leader_epoch=1,
        is_leader=False,
        durable_offset=log.durable_offset,
        leader_id=1,
    )
    return node.replicas.change_role(partition, role)


def answer(
    partition: HostedPartition,
    records: bytes,
    *,
    error_code: ErrorCode = ErrorCode.NONE,
    session_id: int = 7,
) -> FetchResponse:
    data = PartitionData(
        partition_index=partition.name.partition,
        error_code=error_code,
        high_watermark=0,
        records=memoryview(records),
    )
    topic = FetchableTopicResponse(topic_id=partition.topic_id, partitions=(data,))
    return FetchResponse(session_id=session_id, responses=(topic,))


def records_of_leader() -> bytes:
    node = Node()
    node.append(batch(1))
    node.sync()
    return read_all(node.partition.log)


def run(
    act: Callable[[Node, Leader, LeaderFetcher], Awaitable[None]],
) -> None:
    async def begin() -> None:
        node, leader = Node(), Leader()
        fetcher = LeaderFetcher(
            1,
            leader,
            node.replicas,
            NoStorage(),
            lambda: Identity(2, 12),
            LogCuts(node.replicas),
            lambda _name: None,
        )
        task = asyncio.get_running_loop().create_task(fetcher.run())
        try:
            await act(node, leader, fetcher)
        finally:
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(begin())


async def until_asked(leader: Leader, count: int) -> None:
    async with asyncio.timeout(5):
        while len(leader.requests) < count:  # noqa: ASYNC110 (has a deadline)
            await asyncio.sleep(0.001)


def test_records_for_a_partition_that_has_another_role_are_dropped() -> None:
    async def act(node: Node, leader: Leader, fetcher: LeaderFetcher) -> None:
        one, other = follow(node, node.partition), follow(node, node.add("other"))
        fetcher.add(one, is_recovering=False)
        fetcher.add(other, is_recovering=False)
        await until_asked(leader, 1)
        fetcher.remove(one.name)
        leader.answers[0].set_result(answer(one, records_of_leader()))
        await until_asked(leader, 2)
        assert one.log.end_offset == 0, "the log may have a leader's records by now"

    run(act)


def test_records_for_a_followed_partition_are_appended() -> None:
    async def act(node: Node, leader: Leader, fetcher: LeaderFetcher) -> None:
        one = follow(node, node.partition)
        fetcher.add(one, is_recovering=False)
        await until_asked(leader, 1)
        leader.answers[0].set_result(answer(one, records_of_leader()))
        await asyncio.sleep(0.01)
        assert one.log.end_offset == 1
        assert len(leader.requests) == 1, "the next request waits for the sync"
        node.sync()
        fetcher.synced(one.name)
        await until_asked(leader, 2)
        (topic,) = leader.requests[1].topics
        assert topic.partitions[0].fetch_offset == 1

    run(act)


def test_a_fetcher_survives_an_answer_that_no_broker_sends() -> None:
    async def act(node: Node, leader: Leader, fetcher: LeaderFetcher) -> None:
        fetcher.add(follow(node, node.partition), is_recovering=False)
        await until_asked(leader, 1)
        leader.answers[0].set_exception(ValueError("no such code"))
        await until_asked(leader, 2)

    run(act)


def test_a_partition_that_pauses_does_not_wait_for_the_idle_ones() -> None:
    async def act(node: Node, leader: Leader, fetcher: LeaderFetcher) -> None:
        one, other = follow(node, node.partition), follow(node, node.add("other"))
        for partition in (one, other):
            fetcher.add(partition, is_recovering=False)
        await until_asked(leader, 1)
        # A leader that does not know its role yet.
        leader.answers[0].set_result(
            answer(one, b"", error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, session_id=0)
        )
        await until_asked(leader, 2)
        (topic,) = leader.requests[1].topics
        assert topic.topic_id == other.topic_id
        assert leader.requests[1].max_wait_ms <= PAUSE_SECONDS_MIN * 1000

    run(act)


def test_a_partition_that_is_added_while_it_connects_is_in_the_first_request() -> None:
    async def act(node: Node, leader: Leader, fetcher: LeaderFetcher) -> None:
        leader.accepts.clear()
        one, other = follow(node, node.partition), follow(node, node.add("other"))
        fetcher.add(one, is_recovering=False)
        await asyncio.sleep(0.01)
        fetcher.add(other, is_recovering=False)
        leader.accepts.set()
        await until_asked(leader, 1)
        asked = [topic.topic_id for topic in leader.requests[0].topics]
        assert asked == [one.topic_id, other.topic_id]

    run(act)


@pytest.mark.parametrize(
    ("ready", "wait_ms"),
    [
        (Round({}, is_syncing=False, is_cutting=False, wakes_at=None), FETCH_WAIT_MS),
        (Round({}, is_syncing=True, is_cutting=False, wakes_at=None), 100),
        (Round({}, is_syncing=False, is_cutting=True, wakes_at=None), 100),
        (Round({}, is_syncing=False, is_cutting=False, wakes_at=10.7), 700),
        (Round({}, is_syncing=False, is_cutting=False, wakes_at=9.0), 10),
    ],
)
def test_a_leader_keeps_a_request_until_the_partitions_left_out_can_be_asked_for(
    ready: Round, wait_ms: int
) -> None:
    assert ready.wait_ms(10.0) == wait_ms
