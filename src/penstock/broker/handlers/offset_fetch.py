"""OffsetFetch: what groups have committed; from version 8 on for several groups at once.

Each group is asked for by itself, in the form of version 8 and later. From version 10 on topics are
named by their id; offsets of topics that do not exist are not to be had then.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.group_requests import ask_groups
from penstock.broker.pieces import PIECE_PARTITIONS, join_topics, pieces
from penstock.cluster.image import MetadataImage
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
TOP_LEVEL_ERROR_SINCE: Final = 2
"""Before this version an error of the group is the error of each partition."""
NO_OFFSET: Final = -1


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Ask the coordinator of each group."""
    version = context.api_version
    groups = request.groups if version >= GROUPS_SINCE else (_lifted(request),)
    image = context.services.metadata.image if version >= TOPIC_IDS_SINCE else None
    asked = groups if image is None else tuple(_with_names(group, image) for group in groups)
    # Cut where a group has very many partitions.
    questions = [(place, piece) for place, group in enumerate(asked) for piece in _pieces(group)]
    results = await ask_groups(
        context,
        ((piece.group_id, replace(request, groups=(piece,))) for _, piece in questions),
        OffsetFetchResponse,
    )
    answers: dict[int, list[OffsetFetchResponseGroup]] = {}
    for (place, piece), result in zip(questions, results, strict=True):
        if isinstance(result, ErrorCode):
            answer = OffsetFetchResponseGroup(group_id=piece.group_id, topics=(), error_code=result)
        else:
            (answer,) = result.groups
        answers.setdefault(place, []).append(answer)
    found = []
    for place, group in enumerate(groups):
        whole = _joined(answers[place])
        found.append(whole if image is None else _with_ids(group, whole, image))
    if version >= GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(found))
    return _lowered(groups[0], found[0], version)


# --- Very many partitions ---


def _pieces(group: OffsetFetchRequestGroup) -> Iterator[OffsetFetchRequestGroup]:
    """The group itself, or its partitions in several questions."""
    topics = group.topics or ()
    if sum(len(topic.partition_indexes) for topic in topics) <= PIECE_PARTITIONS:
        yield group
        return
    for few in pieces(topics, "partition_indexes", most=PIECE_PARTITIONS // 2):
        yield replace(group, topics=few)


def _joined(answers: list[OffsetFetchResponseGroup]) -> OffsetFetchResponseGroup:
    """One answer of several; an error of one is an error of the group."""
    if len(answers) == 1:
        return answers[0]
    for answer in answers:
        if answer.error_code is not ErrorCode.NONE:
            return answer
    topics = [topic for answer in answers for topic in answer.topics]
    return replace(answers[0], topics=join_topics(topics))


# --- Versions before groups ---


def _lifted(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else tuple(
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in topics
        ),
    )


def _lowered(
    asked: OffsetFetchRequestGroup, found: OffsetFetchResponseGroup, version: int
) -> OffsetFetchResponse:
    code = found.error_code
    topics = found.topics
    if code is not ErrorCode.NONE and version < TOP_LEVEL_ERROR_SINCE:
        topics = tuple(_refused(topic, code) for topic in asked.topics or ())
    return OffsetFetchResponse(
        error_code=code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ),
            )
            for topic in topics
        ),
    )


def _refused(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ),
    )


# --- Topic ids ---


def _with_names(group: OffsetFetchRequestGroup, image: MetadataImage) -> OffsetFetchRequestGroup:
    """The same with names; topics that do not exist are left out."""
    if group.topics is None:
        return group
    known = []
    for topic in group.topics:
        found = None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
        if found is not None:
            known.append(replace(topic, name=found.name))
    return replace(group, topics=tuple(known))


def _with_ids(
    asked: OffsetFetchRequestGroup, found: OffsetFetchResponseGroup, image: MetadataImage
) -> OffsetFetchResponseGroup:
    """The answer with ids, in the order of the request, and a word on each unknown topic."""
    if found.error_code is not ErrorCode.NONE:
        return found
    if asked.topics is None:
        return replace(found, topics=tuple(_known(found, image)))
    by_name = {topic.name: topic for topic in found.topics}
    topics = []
    for topic in asked.topics:
        known = None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
        answer = None if known is None else by_name.get(known.name)
        topics.append(
            _refused(topic, ErrorCode.UNKNOWN_TOPIC_ID)
            if answer is None
            else replace(answer, topic_id=topic.topic_id)
        )
    return replace(found, topics=tuple(topics))


def _known(
    found: OffsetFetchResponseGroup, image: MetadataImage
) -> Iterator[OffsetFetchResponseTopics]:
    for topic in found.topics:
        known = image.topic(topic.name)
        if known is not None:
            yield replace(topic, topic_id=known.id)
