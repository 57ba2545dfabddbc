"""OffsetDelete: deletes offsets of topics that a group does not read any more."""

from dataclasses import replace

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_group
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.pieces import PIECE_PARTITIONS, join_topics, pieces, promise, settled
from penstock.cluster.image import MetadataImage
from penstock.core.deferred import Deferred
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from penstock.security.acls.values import Operation, ResourceType


def handle(request: OffsetDeleteRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Send the existing partitions to the group's coordinator."""
    if not context.allows(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return _refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if sum(len(topic.partitions) for topic in request.topics) > PIECE_PARTITIONS:
        return promise(_delete_pieces(request, context), context)
    return _delete(request, context)


async def _delete_pieces(request: OffsetDeleteRequest, context: RequestContext) -> Answer:
    """Delete many offsets piece by piece; an error of the group ends it."""
    topics: list[OffsetDeleteResponseTopic] = []
    turn = NextTurn(context.services.turns, context.services.clock)
    for few in pieces(request.topics):
        found: Answer = await settled(_delete(replace(request, topics=few), context))
        if not isinstance(found, OffsetDeleteResponse) or found.error_code is not ErrorCode.NONE:
            return found
        topics += found.topics
        await turn.wait_if_due()
    return OffsetDeleteResponse(topics=join_topics(topics))


def _delete(request: OffsetDeleteRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    image = context.services.metadata.image
    denied = frozenset(
        topic.name
        for topic in request.topics
        if not context.allows(Operation.READ, ResourceType.TOPIC, topic.name)
    )
    known = tuple(_existing(topic, image) for topic in request.topics if topic.name not in denied)
    asked = replace(request, topics=tuple(topic for topic in known if topic.partitions))

    def finish(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if response.error_code is not ErrorCode.NONE:
            return response
        codes = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        return _merged(request, codes, denied)

    # Kafka asks the coordinator also when no partition is left: the group may not exist.
    return ask_group(context, request.group_id, asked, OffsetDeleteResponse, _refused, finish)


def _refused(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code, topics=())


def _existing(topic: OffsetDeleteRequestTopic, image: MetadataImage) -> OffsetDeleteRequestTopic:
    partitions = tuple(
        partition
        for partition in topic.partitions
        if image.partition(topic.name, partition.partition_index) is not None
    )
    return replace(topic, partitions=partitions)


def _merged(
    request: OffsetDeleteRequest, codes: dict[tuple[str, int], ErrorCode], denied: frozenset[str]
) -> OffsetDeleteResponse:
    """An answer for every partition; those without a code are denied or do not exist."""
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get(
                            (topic.name, partition.partition_index),
                            ErrorCode.TOPIC_AUTHORIZATION_FAILED
                            if topic.name in denied
                            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
