"""Markers and questions to other brokers: one request for many, each result to its own caller."""

import asyncio
from typing import Any, cast

from penstock.core.errors import BrokerUnreachableError, ClientError
from penstock.core.types import TopicPartition
from penstock.node.coordination.other_brokers import EndOf
from penstock.node.peers.peer_calls import PeerCalls
from penstock.node.peers.peer_connections import PeerConnections
from penstock.protocol.codec import Message
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from penstock.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.node.peers.peers import Network, broker, image_of

ONE, OTHER = TopicPartition("a", 0), TopicPartition("b", 3)


def end(producer_id: int, *names: TopicPartition, commits: bool = True) -> EndOf:
    return EndOf(producer_id, 4, 7, commits, 2, names)


def transaction(name: str) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name, producer_id=1, producer_epoch=0, topics=()
    )


def written(request: Message) -> Message:
    """Answer each partition; those of topic b are led by another broker."""
    assert isinstance(request, WriteTxnMarkersRequest)
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                                if topic.name == "b"
                                else ErrorCode.NONE,
                            )
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker in request.markers
        )
    )


def answered(request: Message) -> Message:
    assert isinstance(request, AddPartitionsToTxnRequest)
    return AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=())
            for one in request.transactions
        )
    )


def calls_over(network: Network) -> PeerCalls:
    connections = PeerConnections(
        lambda: image_of(broker(1), broker(2)), 1, open_connection=cast("Any", network)
    )
    return PeerCalls(connections, 1)


def test_markers_of_several_transactions_share_a_request() -> None:
    async def run() -> None:
        network = Network(written)
        calls = calls_over(network)
        found = await asyncio.gather(
            calls.write_markers(2, end(1, ONE, OTHER)),
            calls.write_markers(2, end(2, ONE, commits=False)),
        )
        assert list(found) == [
            {ONE: ErrorCode.NONE, OTHER: ErrorCode.NOT_LEADER_OR_FOLLOWER},
            {ONE: ErrorCode.NONE},
        ]
        (request,) = network.opened[0].requests
        assert isinstance(request, WriteTxnMarkersRequest)
        sent = [
            (one.producer_id, one.producer_epoch, one.coordinator_epoch, one.transaction_result)
            for one in request.markers
        ]
        assert sent == [(1, 4, 7, True), (2, 4, 7, False)]
        assert [one.transaction_version for one in request.markers] == [2, 2]
        await calls.stop()

    asyncio.run(run())


def test_two_ends_of_one_producer_are_not_mixed_up() -> None:
    async def run() -> None:
        network = Network(written)
        calls = calls_over(network)
        found = await asyncio.gather(
            calls.write_markers(2, end(1, ONE)), calls.write_markers(2, end(1, OTHER))
        )
        assert list(found) == [{ONE: ErrorCode.NONE}, {OTHER: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
        assert len(network.opened[0].requests) == 2
        await calls.stop()

    asyncio.run(run())


def test_questions_of_several_producers_share_a_request() -> None:
    async def run() -> None:
        network = Network(answered)
        calls = calls_over(network)
        found = await asyncio.gather(*(calls.ask(2, transaction(name)) for name in "xyx"))
        names = [cast("Any", one).results_by_transaction[0].transactional_id for one in found]
        assert names == ["x", "y", "x"]
        assert len(network.opened[0].requests) == 1
        await calls.stop()

    asyncio.run(run())


def test_the_error_of_a_whole_answer_is_the_answer_to_each_question() -> None:
    async def run() -> None:
        refused = AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        calls = calls_over(Network(lambda _: refused))
        found = await calls.ask(2, transaction("x"))
        assert cast("Any", found).error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await calls.stop()

    asyncio.run(run())


def test_an_answer_to_other_questions_is_an_error() -> None:
    async def run() -> None:
        calls = calls_over(Network(lambda _: AddPartitionsToTxnResponse()))
        assert isinstance(await calls.ask(2, transaction("x")), ClientError)
        await calls.stop()

    asyncio.run(run())


def test_a_broker_that_is_away_is_a_value() -> None:
    async def run() -> None:
        calls = calls_over(Network(answered))
        assert isinstance(await calls.ask(9, transaction("x")), BrokerUnreachableError)
        assert isinstance(await calls.write_markers(9, end(1, ONE)), BrokerUnreachableError)
        await calls.stop()

    asyncio.run(run())


def test_markers_do_not_wait_for_questions() -> None:
    async def run() -> None:
        network = Network(answered)
        network.holds = asyncio.Event()
        calls = calls_over(network)
        asking = asyncio.get_running_loop().create_task(calls.ask(2, transaction("x")))
        for _ in range(6):
            await asyncio.sleep(0)
        network.holds, network._respond = None, written
        async with asyncio.timeout(1):
            assert await calls.write_markers(2, end(1, ONE)) == {ONE: ErrorCode.NONE}
        assert not asking.done()
        await calls.stop()

    asyncio.run(run())
