"""The Fetch request of the follower: many partitions of one leader, `read_committed`, by topic id.

A request by topic id cannot be answered with records of a topic that was created again under the
same name. Brokers without topic ids are asked by name. Error codes of partitions are in the
results. Nothing is retried here (pure).
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.client.calls import FETCH_VERSION_MAX, READ_COMMITTED, FetchBounds, by_topic
from penstock.client.transport.call import Call, raise_error
from penstock.core.errors import MalformedResponseError
from penstock.core.types import TopicPartition
from penstock.protocol.messages import fetch


class Place(NamedTuple):
    """Where to read a partition."""

    at: TopicPartition
    topic_id: uuid.UUID | None
    offset: int


def fetch_committed(
    places: Sequence[Place], bounds: FetchBounds
) -> Call[dict[TopicPartition, fetch.PartitionData]]:
    """Return the call that fetches batches of these partitions."""
    offsets = {place.at: place.offset for place in places}
    ids = {place.at.topic: place.topic_id for place in places}
    names = {topic_id: name for name, topic_id in ids.items() if topic_id is not None}
    request = fetch.FetchRequest(
        max_wait_ms=bounds.wait_ms_max,
        min_bytes=bounds.bytes_min,
        max_bytes=bounds.bytes_max,
        isolation_level=READ_COMMITTED,
        topics=tuple(
            fetch.FetchTopic(
                topic_id=ids[topic],
                topic=topic,
                partitions=tuple(
                    fetch.FetchPartition(
                        partition=at.partition,
                        fetch_offset=offsets[at],
                        partition_max_bytes=bounds.partition_bytes_max,
                    )
                    for at in partitions
                ),
            )
            for topic, partitions in by_topic(offsets).items()
        ),
    )

    def read(answer: fetch.FetchResponse) -> dict[TopicPartition, fetch.PartitionData]:
        raise_error(answer.error_code, None, "fetch")
        return {
            at: partition
            for topic in answer.responses
            for partition in topic.partitions
            for at in [_place(topic, partition, names, offsets)]
        }

    return Call(
        request, fetch.FetchResponse, read, FETCH_VERSION_MAX if len(names) < len(ids) else None
    )


def _place(
    topic: fetch.FetchableTopicResponse,
    partition: fetch.PartitionData,
    names: Mapping[uuid.UUID, str],
    offsets: Mapping[TopicPartition, int],
) -> TopicPartition:
    name = topic.topic or (names.get(topic.topic_id) if topic.topic_id else None) or ""
    at = TopicPartition(name, partition.partition_index)
    if at not in offsets:
        raise MalformedResponseError(f"a fetch was answered for {at}, which was not requested.")
    return at
