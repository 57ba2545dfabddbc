"""OffsetCommit: stores the offsets of a group. Partitions that do not exist are refused one by one.

So are topics that the client may not read. Starting at version 10 topics are named by their id. The
other partitions go to the group's coordinator, a large commit in pieces (`broker.pieces`), each of
which is stored whole; the answer has all partitions in the order of the request. A commit of more
than `OFFSETS_PER_COMMIT_MAX` partitions is refused whole.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.broker.answers import Answer
from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_group
from penstock.broker.pacing.slices import NextTurn
from penstock.broker.pieces import PIECE_PARTITIONS, join_topics, pieces, promise, settled
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.core.deferred import Deferred
from penstock.core.limits import OFFSETS_PER_COMMIT_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from penstock.security.acls.values import Operation, ResourceType

TOPIC_IDS_SINCE: Final = 10


def handle(request: OffsetCommitRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    """Send the existing partitions to the group's coordinator."""
    count = sum(len(topic.partitions) for topic in request.topics)
    code = ErrorCode.NONE
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif count > OFFSETS_PER_COMMIT_MAX:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    if count > PIECE_PARTITIONS:
        return promise(_commit_pieces(request, code, context), context)
    if code is not ErrorCode.NONE:
        return _refused(request, code)
    return _commit(request, context)


async def _commit_pieces(
    request: OffsetCommitRequest, code: ErrorCode, context: RequestContext
) -> Answer:
    """Commit many partitions piece by piece, or refuse all of them with a code."""
    topics: list[OffsetCommitResponseTopic] = []
    turn = NextTurn(context.services.turns, context.services.clock)
    for few in pieces(request.topics):
        piece = replace(request, topics=few)
        if code is not ErrorCode.NONE:
            found: Answer = _refused(piece, code)
        else:
            found = await settled(_commit(piece, context))
        if not isinstance(found, OffsetCommitResponse):
            return found
        topics += found.topics
        await turn.wait_if_due()
    return OffsetCommitResponse(topics=join_topics(topics))


def _commit(request: OffsetCommitRequest, context: RequestContext) -> Answer | Deferred[Answer]:
    image = context.services.metadata.image
    by_id = context.api_version >= TOPIC_IDS_SINCE
    found = [_find(topic, image, by_id=by_id) for topic in request.topics]
    denied = _denied(request.topics, found, context, by_id=by_id)
    if denied:
        found = [None if place in denied else topic for place, topic in enumerate(found)]
    if not by_id and request.topics and all(map(_has_all, request.topics, found)):
        # The usual case: request and answer pass unchanged. An empty commit is not passed: it must
        # not create a group.
        refused = partial(_refused, request)
        return ask_group(context, request.group_id, request, OffsetCommitResponse, refused)
    known = tuple(
        _existing(topic, image_of)
        for topic, image_of in zip(request.topics, found, strict=True)
        if image_of is not None
    )
    known = tuple(topic for topic in known if topic.partitions)
    names = [None if topic is None else topic.name for topic in found]
    missing = [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED if place in denied else _missing(name, by_id=by_id)
        for place, name in enumerate(names)
    ]

    def finish(response: OffsetCommitResponse) -> OffsetCommitResponse:
        codes = {
            (topic.name, partition.partition_index): partition.error_code
            for topic in response.topics
            for partition in topic.partitions
        }
        return _merged(request, names, codes, missing)

    def refuse(code: ErrorCode) -> OffsetCommitResponse:
        codes = {
            (topic.name, partition.partition_index): code
            for topic in known
            for partition in topic.partitions
        }
        return _merged(request, names, codes, missing)

    if not known:
        return _merged(request, names, {}, missing)
    asked = replace(request, topics=known)
    if len(known) == len(request.topics) and all(
        len(mine.partitions) == len(theirs.partitions)
        for mine, theirs in zip(known, request.topics, strict=True)
    ):
        # The usual case, no partition is missing: the coordinator's answer is the answer.
        return ask_group(context, request.group_id, asked, OffsetCommitResponse, refuse)
    return ask_group(context, request.group_id, asked, OffsetCommitResponse, refuse, finish)


def _denied(
    topics: Sequence[OffsetCommitRequestTopic],
    found: Sequence[TopicImage | None],
    context: RequestContext,
    *,
    by_id: bool,
) -> frozenset[int]:
    """The places of topics that the client may not read, whether they exist or not."""
    if context.services.access is None:
        return frozenset()
    names = [
        (None if image_of is None else image_of.name) if by_id else topic.name
        for topic, image_of in zip(topics, found, strict=True)
    ]
    return frozenset(
        place
        for place, name in enumerate(names)
        # An unknown id has no name, and gets its own error.
        if name is not None and not context.allows(Operation.READ, ResourceType.TOPIC, name)
    )


def _has_all(topic: OffsetCommitRequestTopic, found: TopicImage | None) -> bool:
    """Whether there are partitions, and all of them exist."""
    if found is None or not topic.partitions:
        return False
    count = len(found.partitions)
    return all(0 <= partition.partition_index < count for partition in topic.partitions)


def _refused(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """The same code for all partitions."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _find(
    topic: OffsetCommitRequestTopic, image: MetadataImage, *, by_id: bool
) -> TopicImage | None:
    if by_id:
        return None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
    return image.topic(topic.name)


def _existing(topic: OffsetCommitRequestTopic, found: TopicImage) -> OffsetCommitRequestTopic:
    """Return the topic with its name, and only with partitions that it has."""
    count = len(found.partitions)
    partitions = tuple(p for p in topic.partitions if 0 <= p.partition_index < count)
    return replace(topic, name=found.name, partitions=partitions)


def _merged(
    request: OffsetCommitRequest,
    names: list[str | None],
    codes: dict[tuple[str, int], ErrorCode],
    missing: list[ErrorCode],
) -> OffsetCommitResponse:
    """An answer for every partition; those without a code get the `missing` one of their topic."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=codes.get((name or "", partition.partition_index), code),
                    )
                    for partition in topic.partitions
                ),
            )
            for topic, name, code in zip(request.topics, names, missing, strict=True)
        )
    )


def _missing(name: str | None, *, by_id: bool) -> ErrorCode:
    is_topic_unknown = name is None
    if by_id and is_topic_unknown:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
