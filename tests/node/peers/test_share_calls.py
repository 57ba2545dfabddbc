"""Share state on other brokers: one message for many requests of a group, in their order."""

import asyncio
from typing import Any, cast
from uuid import UUID

from penstock.coordinator.shares import share_messages as messages
from penstock.coordinator.shares.ports import ShareChange, ShareKey, ShareState
from penstock.core.errors import BrokerUnreachableError, ClientError
from penstock.node.peers.peer_calls import PeerCalls
from penstock.node.peers.peer_connections import PeerConnections
from penstock.protocol.codec import Message
from penstock.protocol.messages import read_share_group_state as read
from penstock.protocol.messages import write_share_group_state as write
from tests.node.peers.peers import Network, broker, image_of

TOPIC_ID = UUID(int=5)


def key(group: str = "g", partition: int = 0) -> ShareKey:
    return ShareKey(group, TOPIC_ID, partition)


def change(start_offset: int) -> ShareChange:
    return ShareChange(1, 0, start_offset, ())


def calls_over(network: Network) -> PeerCalls:
    connections = PeerConnections(
        lambda: image_of(broker(1), broker(2)), 1, open_connection=cast("Any", network)
    )
    return PeerCalls(connections, 1)


def states(request: Message) -> Message:
    """Answer each read with a start offset that names its group and partition."""
    assert isinstance(request, read.ReadShareGroupStateRequest)
    return read.ReadShareGroupStateResponse(
        results=tuple(
            messages.found(
                ShareKey(request.group_id, TOPIC_ID, topic.partitions[0].partition),
                ShareState(0, topic.partitions[0].partition + 100 * int(request.group_id), ()),
            ).results[0]
            for topic in request.topics
        )
    )


def written(request: Message) -> Message:
    assert isinstance(request, write.WriteShareGroupStateRequest)
    return write.WriteShareGroupStateResponse(
        results=tuple(messages.written(key(), None).results[0] for _ in request.topics)
    )


def test_each_request_gets_its_own_answer() -> None:
    async def run() -> None:
        network = Network(states)
        calls = calls_over(network)
        keys = [key("1", 0), key("2", 1), key("1", 2), key("1", 0)]
        found = await asyncio.gather(
            *(calls.share_state(2, messages.read_request(one, 0)) for one in keys)
        )
        starts = [cast("ShareState", messages.state_of(cast("Any", one))) for one in found]
        assert [one.start_offset for one in starts] == [100, 201, 102, 100]
        assert [one.group_id for one in cast("Any", network.opened[0].requests)] == ["1", "2"]
        await calls.stop()

    asyncio.run(run())


def test_changes_wait_for_the_changes_before_them() -> None:
    async def run() -> None:
        network = Network(written)
        network.holds = asyncio.Event()
        calls = calls_over(network)
        tasks = []
        for start_offset in range(5):
            sent = calls.share_state(2, messages.write_request(key(), change(start_offset)))
            tasks.append(asyncio.get_running_loop().create_task(sent))
            for _ in range(8):
                await asyncio.sleep(0)
        network.holds.set()
        await asyncio.gather(*tasks)
        sent_starts = [
            topic.partitions[0].start_offset
            for connection in network.opened
            for request in cast("Any", connection.requests)
            for topic in request.topics
        ]
        assert sent_starts == [0, 1, 2, 3, 4]
        # One message at a time: a broken connection cannot let a later change pass an earlier one.
        (connection,) = network.opened
        assert [len(one.topics) for one in cast("Any", connection.requests)] == [1, 4]
        await calls.stop()

    asyncio.run(run())


def test_failures_are_values() -> None:
    async def run() -> None:
        short = write.WriteShareGroupStateResponse(results=())
        calls = calls_over(Network(lambda _: short))
        request = messages.write_request(key(), change(0))
        assert isinstance(await calls.share_state(2, request), ClientError)
        assert isinstance(await calls.share_state(9, request), BrokerUnreachableError)
        await calls.stop()

    asyncio.run(run())
