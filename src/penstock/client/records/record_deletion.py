"""Delete the records of partitions before an offset: one DeleteRecords for each leader.

What is deleted is gone for everybody. It is not repeated when an answer is lost: to do it twice is
to do it once, but whoever asked for "everything up to now" would lose what came meanwhile.
"""

from collections.abc import Mapping
from typing import Final

from penstock.client.calls import by_topic
from penstock.client.cluster import Cluster
from penstock.client.transport.call import Call, raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.messages import delete_records

ALL_SO_FAR: Final = -1
"""Instead of an offset: everything that is committed when the broker is asked."""


def delete_before(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The first offset that each partition has afterwards."""

    def attempt() -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for address, led in cluster.by_leader(offsets).items():
            of_leader = {at: offsets[at] for at in led}
            found |= cluster.at(address, delete_call(of_leader, cluster.timeout_ms))
        return found

    return cluster.repeat(attempt, repeatable=False)


def delete_call(
    offsets: Mapping[TopicPartition, int], timeout_ms: int
) -> Call[dict[TopicPartition, int]]:
    """The call to one leader; an error of one partition is raised."""
    request = delete_records.DeleteRecordsRequest(
        topics=tuple(
            delete_records.DeleteRecordsTopic(
                name=topic,
                partitions=tuple(
                    delete_records.DeleteRecordsPartition(
                        partition_index=at.partition, offset=offsets[at]
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(offsets).items()
        ),
        timeout_ms=timeout_ms,
    )

    def read(answer: delete_records.DeleteRecordsResponse) -> dict[TopicPartition, int]:
        found = {}
        for topic in answer.topics:
            for part in topic.partitions:
                at = TopicPartition(topic.name, part.partition_index)
                raise_error(part.error_code, None, str(at))
                found[at] = part.low_watermark
        return found

    return Call(request, delete_records.DeleteRecordsResponse, read)
