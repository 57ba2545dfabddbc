"""`log_ends_of`: asks another broker for the ends of logs that it leads (ListOffsets).

The end is the high watermark. A failure is returned as a value, and nothing is retried here.
"""

from collections.abc import Sequence
from typing import Final

from penstock.client.transport.call import Call
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.node.peers.peer_connections import PeerConnections
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
LANE: Final = "log-ends"

Ends = dict[TopicPartition, int | ErrorCode]


async def log_ends_of(
    connections: PeerConnections, broker_id: int, names: Sequence[TopicPartition]
) -> Ends | PenstockError:
    """Return the end of each log, or the error code of a partition."""
    by_topic: dict[str, list[int]] = {}
    for name in names:
        by_topic.setdefault(name.topic, []).append(name.partition)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=tuple(
            ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    ListOffsetsPartition(partition_index=number, timestamp=LATEST)
                    for number in numbers
                ),
            )
            for topic, numbers in by_topic.items()
        ),
    )
    try:
        return await connections.call(broker_id, Call(request, ListOffsetsResponse, _ends), LANE)
    except PenstockError as error:
        return error


def _ends(answer: ListOffsetsResponse) -> Ends:
    return {
        TopicPartition(topic.name, one.partition_index): (
            one.offset if one.error_code is ErrorCode.NONE else one.error_code
        )
        for topic in answer.topics
        for one in topic.partitions
    }
