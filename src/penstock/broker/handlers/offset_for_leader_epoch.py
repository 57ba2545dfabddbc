"""OffsetForLeaderEpoch: where an epoch ends in this log, so that a client can detect truncation.

The answer is for the largest epoch that is not above the asked one (KIP-279).
"""

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.partition_states import hosted_partition
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from penstock.security.acls.values import Operation, ResourceType


async def handle(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Answer for each partition."""
    services = context.services
    # Followers ask too, and need no permission for each topic.
    is_broker = context.allows_cluster(Operation.CLUSTER_ACTION, is_logged=False)
    topics: list[OffsetForLeaderTopicResult] = []
    turn = NextTurn(services.turns, services.clock)
    for topic in request.topics:
        found: list[EpochEndOffset] = []
        is_allowed = is_broker or context.allows(
            Operation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
        for asked in topic.partitions:
            await turn.wait_if_due()
            found.append(_end_offset(topic.topic, asked, context) if is_allowed else _denied(asked))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(found)))
    return OffsetForLeaderEpochResponse(topics=tuple(topics))


def _denied(asked: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=asked.partition
    )


def _end_offset(
    topic: str, asked: OffsetForLeaderPartition, context: RequestContext
) -> EpochEndOffset:
    try:
        partition = hosted_partition(TopicPartition(topic, asked.partition), context)
        partition.state.require_leader(asked.current_leader_epoch)
        epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    except PenstockError as error:
        return EpochEndOffset(error_code=code_of(error), partition=asked.partition)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )
