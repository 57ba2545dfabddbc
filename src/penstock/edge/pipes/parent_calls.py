"""The calls of a pipe to its parent as values; nothing is sent here.

A fetch names topics by their ids (version 13, Kafka 3.1), so that a recreated topic is never taken
for the old one. It names the leader epoch of the parent and the epoch of the last own record: a
parent whose history differs answers with the place instead of records.
"""

from collections.abc import Mapping
from typing import Final

from penstock.client.transport.call import Call, raise_error
from penstock.core.types import TopicPartition
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.ports import FetchAt, Fetched, FetchLimits
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import fetch
from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, read_header

TOPIC_IDS_SINCE: Final = 13


def fetch_mirrors(
    places: Mapping[TopicPartition, FetchAt], limits: FetchLimits
) -> Call[dict[TopicPartition, Fetched]]:
    """Fetch batches of many partitions, without a fetch session."""
    by_topic: dict[str, list[TopicPartition]] = {}
    for at in places:
        by_topic.setdefault(at.topic, []).append(at)
    names = {places[found[0]].topic_id: name for name, found in by_topic.items()}
    request = fetch.FetchRequest(
        max_wait_ms=limits.wait_ms,
        min_bytes=1,
        max_bytes=limits.bytes_max,
        topics=tuple(
            fetch.FetchTopic(
                topic=name,
                topic_id=places[found[0]].topic_id,
                partitions=tuple(
                    fetch.FetchPartition(
                        partition=at.partition,
                        current_leader_epoch=places[at].leader_epoch,
                        fetch_offset=places[at].offset,
                        last_fetched_epoch=places[at].last_epoch,
                        partition_max_bytes=limits.bytes_max,
                    )
                    for at in found
                ),
            )
            for name, found in by_topic.items()
        ),
    )

    def read(answer: fetch.FetchResponse) -> dict[TopicPartition, Fetched]:
        raise_error(answer.error_code, None, "fetch")
        return {
            TopicPartition(names[topic.topic_id], one.partition_index): _fetched(one)
            for topic in answer.responses
            if topic.topic_id in names
            for one in topic.partitions
        }

    return Call(request, fetch.FetchResponse, read, version_min=TOPIC_IDS_SINCE)


def _fetched(answer: fetch.PartitionData) -> Fetched:
    epoch = answer.diverging_epoch
    return Fetched(
        ErrorCode(answer.error_code),
        answer.high_watermark,
        answer.log_start_offset,
        epoch.epoch >= 0 or epoch.end_offset >= 0,
        memoryview(answer.records or b""),
    )


def whole_batches(records: memoryview) -> memoryview:
    """Return the whole batches: a broker may cut the last one at the limit of the answer."""
    position, end = 0, len(records)
    while end - position >= HEADER_BYTES:
        following = position + read_header(records, position).batch_length + LOG_OVERHEAD_BYTES
        if not position < following <= end:
            break
        position = following
    return records[:position]


def first_mark(records: memoryview) -> BatchMark | None:
    """Return the identity of the first batch; None if there is none."""
    if len(records) < HEADER_BYTES:
        return None
    header = read_header(records)
    return BatchMark(header.base_offset, header.last_offset, header.leader_epoch, header.crc)
