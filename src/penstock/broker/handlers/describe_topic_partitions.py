"""DescribeTopicPartitions: topics page by page, so that a large cluster fits into bounded answers.

Topics are sorted by name. An answer holds at most as many partitions as the client asks for and the
broker allows; the cursor in it names the next partition, and the client sends it back. A cursor
outside of the requested topics is refused, as in Kafka.
"""

from typing import Final

from penstock.broker.authorized_operations import TOPIC_OPERATIONS
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import missing_topic_code
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.partition_states import partition_states
from penstock.cluster.image import TopicImage
from penstock.core.types import INTERNAL_TOPICS
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

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
            return _page([_refused(name, ErrorCode.INVALID_REQUEST) for name in names], None)
    left = max(1, min(request.response_partition_limit, PARTITIONS_PER_ANSWER_MAX))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    turn = NextTurn(context.services.turns, context.services.clock)
    for name in sorted(name for name in names if name >= first_name):
        await turn.wait_if_due()
        begin = first_partition if name == first_name else 0
        if left == 0:
            return _page(topics, ResponseCursor(topic_name=name, partition_index=begin))
        topic = image.topic(name)
        if topic is None:
            topics.append(_refused(name, missing_topic_code(name)))
            continue
        end = min(len(topic.partitions), begin + left)
        topics.append(_described(topic, begin, end, context))
        left -= max(0, end - begin)
        if end < len(topic.partitions):
            return _page(topics, ResponseCursor(topic_name=name, partition_index=end))
    return _page(topics, None)


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], cursor: ResponseCursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code, name=name, topic_id=None, partitions=()
    )


def _described(
    topic: TopicImage, begin: int, end: int, context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    numbers = range(begin, end)
    states = partition_states(topic, numbers, context)
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
                eligible_leader_replicas=(),
                last_known_elr=(),
                offline_replicas=state.offline_replicas,
            )
            for index, state in zip(numbers, states, strict=True)
        ),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
