"""Delete the records of partitions before an offset: one DeleteRecords for each leader.

Deleted records are gone for all consumers. The call is not retried when an answer is lost. A second
call with an offset has no further effect, but a second "everything up to now" would also delete
records that arrived meanwhile.
"""

from collections.abc import Mapping
from typing import Final

from penstock.client.calls import by_topic
from penstock.client.cluster import Cluster
from penstock.client.transport.call import Call, raise_error
from penstock.core.types import TopicPartition
from penstock.protocol.messages import delete_records

ALL_SO_FAR: Final = -1
"""In place of an offset: everything that is committed when the broker executes the request."""


def delete_before(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Delete the records; return the first remaining offset of each partition."""

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
    """Return the call to one leader; an error of one partition is raised."""
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
