"""DescribeShareGroupOffsets: start offsets and lag of share groups (KIP-932, KIP-1226).

Topics that the client may not describe are refused by name, and left out when all are asked for.
"""

from dataclasses import replace

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_groups, visible
from penstock.broker.pacing.slices import NextTurn
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from penstock.security.acls.values import Operation, ResourceType

_TOPIC_DENIED = "Topic authorization failed."


async def handle(
    request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Ask the coordinator of each group."""
    if context.services.shares is None:
        unsupported = (
            _refused(group.group_id, ErrorCode.UNSUPPORTED_VERSION) for group in request.groups
        )
        return DescribeShareGroupOffsetsResponse(groups=tuple(unsupported))
    asked: list[DescribeShareGroupOffsetsRequestGroup] = []
    hidden: list[tuple[DescribeShareGroupOffsetsResponseTopic, ...]] = []
    turn = NextTurn(context.services.turns, context.services.clock)
    for group in request.groups:
        shown = []
        refused = []
        for topic in group.topics or ():
            await turn.wait_if_due()
            if context.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
                shown.append(topic)
            else:
                refused.append(_denied(topic))
        asked.append(group if group.topics is None else replace(group, topics=tuple(shown)))
        hidden.append(tuple(refused))
    results = await ask_groups(
        context,
        ((group.group_id, DescribeShareGroupOffsetsRequest(groups=(group,))) for group in asked),
        DescribeShareGroupOffsetsResponse,
        needs=Operation.DESCRIBE,
    )
    groups = []
    for group, result, refused_topics in zip(asked, results, hidden, strict=True):
        if isinstance(result, ErrorCode):
            groups.append(_refused(group.group_id, result))
            continue
        (found,) = result.groups
        topics = found.topics
        if group.topics is None:
            all_topics = found.topics
            topics = tuple(
                await visible(context, ResourceType.TOPIC, all_topics, lambda one: one.topic_name)
            )
        if found.error_code is ErrorCode.NONE:
            topics += refused_topics
        groups.append(replace(found, topics=topics))
    return DescribeShareGroupOffsetsResponse(groups=tuple(groups))


def _denied(
    topic: DescribeShareGroupOffsetsRequestTopic,
) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=None,
        partitions=tuple(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number,
                start_offset=-1,
                leader_epoch=0,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message=_TOPIC_DENIED,
            )
            for number in topic.partitions
        ),
    )


def _refused(group_id: str, code: ErrorCode) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=(), error_code=code)
