"""DescribeTopicPartitions: topics page by page, so that a large cluster fits into bounded answers.

Topics are sorted by name. An answer holds at most as many partitions as the client asks for and the
broker allows; the cursor in it names the next partition, and the client sends it back. A cursor
outside of the requested topics is refused, as in Kafka.

Topics that the client may not describe are left out. The ones that it names are answered with an
error on each page, in addition to the partitions of the page, as in Kafka.
"""

from typing import Final

from penstock.broker.authorized_operations import topic_operations
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import missing_topic_code
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.partition_states import partition_states
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.core.types import INTERNAL_TOPICS
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)
from penstock.security.acls.values import Operation, ResourceType

PARTITIONS_PER_ANSWER_MAX: Final = 2_000
"""Kafka's max.request.partition.size.limit."""


async def handle(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """One page of topics."""
    image = context.services.metadata.image
    names = {topic.name for topic in request.topics} or set(image.topics)
    first_name, first_partition = "", 0
    if request.cursor is not None:
        first_name = request.cursor.topic_name
        first_partition = request.cursor.partition_index
        if first_partition < 0 or (request.topics and first_name not in names):
            return DescribeTopicPartitionsResponse(
                topics=tuple(_refused(name, ErrorCode.INVALID_REQUEST) for name in names)
            )
    left = max(1, min(request.response_partition_limit, PARTITIONS_PER_ANSWER_MAX))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    turn = NextTurn(context.services.turns, context.services.clock)
    names = {name for name in names if name >= first_name}
    denied = await _denied(names, context, turn) if request.topics else set()
    cursor: ResponseCursor | None = None
    for name in sorted(names - denied):
        await turn.wait_if_due()
        if not (request.topics or _may_describe(name, context, is_logged=False)):
            continue
        begin = first_partition if name == first_name else 0
        if left == 0:
            cursor = ResponseCursor(topic_name=name, partition_index=begin)
            break
        topic = image.topic(name)
        if topic is None:
            topics.append(_missing(name, context))
            continue
        end = min(len(topic.partitions), begin + left)
        topics.append(_described(topic, begin, end, image, context))
        left -= max(0, end - begin)
        if end < len(topic.partitions):
            cursor = ResponseCursor(topic_name=name, partition_index=end)
            break
    topics += (_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in sorted(denied))
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)


def _may_describe(name: str, context: RequestContext, *, is_logged: bool) -> bool:
    return context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, is_logged=is_logged)


async def _denied(names: set[str], context: RequestContext, turn: NextTurn) -> set[str]:
    """Of the names in the request, those of topics that the client may not describe."""
    denied: set[str] = set()
    if context.services.access is None:
        return denied
    for name in names:
        await turn.wait_if_due()
        if not _may_describe(name, context, is_logged=True):
            denied.add(name)
    return denied


def _missing(name: str, context: RequestContext) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=missing_topic_code(name),
        name=name,
        topic_id=None,
        partitions=(),
        topic_authorized_operations=topic_operations(name, context),
    )


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=None, partitions=()
    )


def _described(
    topic: TopicImage, begin: int, end: int, image: MetadataImage, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    numbers = range(begin, end)
    states = partition_states(topic, numbers, image.brokers, context)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            DescribeTopicPartitionsResponsePartition(
                error_code=state.error_code,
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=topic.partitions[index].leader_epoch,
                replica_nodes=topic.partitions[index].replicas,
                isr_nodes=topic.partitions[index].isr,
                eligible_leader_replicas=tuple(
                    one.broker_id for one in topic.partitions[index].elr
                ),
                last_known_elr=(),
                offline_replicas=state.offline_replicas,
            )
            for index, state in zip(numbers, states, strict=True)
        ),
        topic_authorized_operations=topic_operations(topic.name, context),
    )
