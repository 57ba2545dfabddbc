"""ListOffsets: the first, the last, the newest, or the first record at or after a time.

Latest is the high watermark, never the end of the log: an offset that a client learns here is one
that it can read. For consumers with `read_committed` it is the last stable offset. A new leader may
have a high watermark below offsets that its predecessor has shown: until it has committed the log
that it began with, it answers OFFSET_NOT_AVAILABLE instead of an offset that goes back (KIP-207). A
lookup by time may read cold data, so it runs on a thread.
"""

from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.partition_states import hosted_partition
from penstock.core.errors import OffsetNotAvailableError, PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.replication.hosted_partition import HostedPartition
from penstock.security.acls.values import Operation, ResourceType

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_LOWEST_VERSION: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED: Final = 1
LEADER_EPOCH_VERSION: Final = 4
"""Starting at this version the answer has the leader epoch (KIP-320)."""
UNAVAILABLE_VERSION: Final = 5
"""The first version whose clients know OFFSET_NOT_AVAILABLE."""
_NOTHING: Final = (-1, -1, -1)

Found = tuple[int, int, int]
"""Timestamp, offset, leader epoch."""


async def handle(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Answer for each partition."""
    seen: set[TopicPartition] = set()
    duplicates: set[TopicPartition] = set()
    for topic in request.topics:
        for asked in topic.partitions:
            name = TopicPartition(topic.name, asked.partition_index)
            (duplicates if name in seen else seen).add(name)
    reads_committed = request.isolation_level == READ_COMMITTED
    turn = NextTurn(context.services.turns, context.services.clock)
    topics = []
    for topic in request.topics:
        partitions = []
        is_allowed = context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for asked in topic.partitions:
            await turn.wait_if_due()
            if not is_allowed:
                partitions.append(_refused(asked, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            elif TopicPartition(topic.name, asked.partition_index) in duplicates:
                partitions.append(_refused(asked, ErrorCode.INVALID_REQUEST))
            else:
                partitions.append(
                    await _answer(topic.name, asked, context, reads_committed=reads_committed)
                )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return ListOffsetsResponse(topics=tuple(topics))


async def _answer(
    topic: str, asked: ListOffsetsPartition, context: RequestContext, *, reads_committed: bool
) -> ListOffsetsPartitionResponse:
    lowest_version = _LOWEST_VERSION.get(asked.timestamp, 0)
    if context.api_version < lowest_version or asked.timestamp < EARLIEST_PENDING_UPLOAD:
        return _refused(asked, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = hosted_partition(TopicPartition(topic, asked.partition_index), context)
        partition.state.require_leader(asked.current_leader_epoch)
        timestamp, offset, epoch = await _find(
            partition, asked.timestamp, context, reads_committed=reads_committed
        )
    except PenstockError as error:
        code = code_of(error)
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < UNAVAILABLE_VERSION:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _refused(asked, code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch if context.api_version >= LEADER_EPOCH_VERSION else -1,
    )


async def _find(
    partition: HostedPartition, asked: int, context: RequestContext, *, reads_committed: bool
) -> Found:
    log, state = partition.log, partition.state
    partition.require_readable()
    if asked == LATEST:
        _require_committed_start(partition)
        return -1, _limit(partition, reads_committed=reads_committed), state.leader_epoch
    if asked in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        # A log without records begins with the next record of this leader.
        is_empty = start == log.end_offset
        return -1, start, state.leader_epoch if is_empty else log.epochs.epoch_at(start)
    if asked in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOTHING
    found = await context.services.cold_reader.find_by_time(
        partition, None if asked == MAX_TIMESTAMP else asked, context.client
    )
    if found is None:
        return _NOTHING
    if found.offset >= _limit(partition, reads_committed=reads_committed):
        _require_committed_start(partition)
        return _NOTHING
    return found.timestamp_ms, found.offset, found.leader_epoch


def _require_committed_start(partition: HostedPartition) -> None:
    """Raise `OffsetNotAvailableError` while a leader has not committed the log it began with."""
    state = partition.state
    if state.in_sync is not None and state.high_watermark < state.in_sync.epoch_start:
        raise OffsetNotAvailableError(
            f"the high watermark {state.high_watermark} of {partition.name} is below "
            f"{state.in_sync.epoch_start}, where leader epoch {state.leader_epoch} began"
        )


def _limit(partition: HostedPartition, *, reads_committed: bool) -> int:
    """The offset below which this client can read now."""
    return partition.last_stable_offset if reads_committed else partition.state.high_watermark


def _refused(asked: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=code)
