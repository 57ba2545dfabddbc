"""OffsetFetch: the committed offsets of groups; starting at version 8 for several groups at once.

Each group is asked for by itself, in the form of version 8 and later. Since version 10 topics are
named by their id; offsets of topics that do not exist cannot be fetched then.

An answer has each group, topic and partition once: an offset carries up to 4 KiB of its client's
text, and a request of 2 MiB could name it 200,000 times. A group's second mention is refused.

Topics that the client may not describe are refused where it names them, and hidden where it asks
for all topics of a group.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from penstock.broker.context import RequestContext
from penstock.broker.coordinator_requests import ask_groups, visible
from penstock.broker.pacing.slices import SLICE_ITEMS, NextTurn
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
from penstock.security.acls.values import Operation, ResourceType

GROUPS_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
TOP_LEVEL_ERROR_SINCE: Final = 2
"""Before this version an error of the group is the error of each partition."""
NO_OFFSET: Final = -1


async def handle(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Ask the coordinator of each group."""
    version = context.api_version
    turn = NextTurn(context.services.turns, context.services.clock)
    named = request.groups if version >= GROUPS_SINCE else (_lifted(request),)
    groups = [await _named_once(group, turn) for group in named]
    image = context.services.metadata.image if version >= TOPIC_IDS_SINCE else None
    asked = groups if image is None else [await _with_names(one, image, turn) for one in groups]
    denied = await _find_denied(asked, context, turn)
    # Cut where a group has very many partitions.
    questions = [
        (place, piece)
        for place, group in _first_mentions(asked)
        if group.group_id not in denied.groups
        for piece in _pieces(_permitted(group, denied))
    ]
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
        await turn.wait_if_due()
        if place in answers:
            whole = await _shown(asked[place], _joined(answers[place]), denied, context, turn)
        elif group.group_id in denied.groups:
            whole = _refused_group(group, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        else:
            whole = _refused_group(group, ErrorCode.INVALID_REQUEST)
        found.append(whole if image is None else await _with_ids(group, whole, image, turn))
    if version >= GROUPS_SINCE:
        return OffsetFetchResponse(groups=tuple(found))
    return await _lowered(groups[0], found[0], version, turn)


# --- Names that occur more than once ---


async def _named_once(group: OffsetFetchRequestGroup, turn: NextTurn) -> OffsetFetchRequestGroup:
    """The group with each topic once and each of its partitions once, in order."""
    if group.topics is None:
        return group
    topics: dict[tuple[str, UUID | None], OffsetFetchRequestTopics] = {}
    indexes: dict[tuple[str, UUID | None], dict[int, None]] = {}
    for topic in group.topics:
        await turn.wait_if_due()
        key = topic.name, topic.topic_id
        topics.setdefault(key, topic)
        indexes.setdefault(key, {}).update(dict.fromkeys(topic.partition_indexes))
    if len(topics) == len(group.topics) and all(
        len(indexes[key]) == len(topic.partition_indexes) for key, topic in topics.items()
    ):
        return group
    once = []
    for key, topic in topics.items():
        await turn.wait_if_due()
        once.append(replace(topic, partition_indexes=tuple(indexes[key])))
    return replace(group, topics=tuple(once))


def _first_mentions(
    groups: Sequence[OffsetFetchRequestGroup],
) -> Iterator[tuple[int, OffsetFetchRequestGroup]]:
    seen: set[str] = set()
    for place, group in enumerate(groups):
        if group.group_id not in seen:
            seen.add(group.group_id)
            yield place, group


def _refused_group(group: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=(), error_code=code)


# --- Permissions ---


class _Denied(NamedTuple):
    """Names in a request that the client may not describe."""

    groups: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    """Of the other groups."""


async def _find_denied(
    groups: Sequence[OffsetFetchRequestGroup], context: RequestContext, turn: NextTurn
) -> _Denied:
    if context.services.access is None:
        return _Denied()
    allowed: dict[tuple[ResourceType, str], bool] = {}

    def is_allowed(resource_type: ResourceType, name: str) -> bool:
        key = resource_type, name
        if key not in allowed:
            allowed[key] = context.allows(Operation.DESCRIBE, resource_type, name)
        return allowed[key]

    for group in groups:
        await turn.wait_if_due()
        if is_allowed(ResourceType.GROUP, group.group_id):
            for topic in group.topics or ():
                await turn.wait_if_due()
                is_allowed(ResourceType.TOPIC, topic.name)
    denied = [key for key, is_permitted in allowed.items() if not is_permitted]
    return _Denied(
        frozenset(name for resource_type, name in denied if resource_type is ResourceType.GROUP),
        frozenset(name for resource_type, name in denied if resource_type is ResourceType.TOPIC),
    )


def _permitted(group: OffsetFetchRequestGroup, denied: _Denied) -> OffsetFetchRequestGroup:
    """The group without denied topics. It is asked even if none is left, as in Kafka."""
    if group.topics is None or not denied.topics:
        return group
    topics = tuple(topic for topic in group.topics if topic.name not in denied.topics)
    return replace(group, topics=topics)


async def _shown(
    asked: OffsetFetchRequestGroup,
    found: OffsetFetchResponseGroup,
    denied: _Denied,
    context: RequestContext,
    turn: NextTurn,
) -> OffsetFetchResponseGroup:
    """The answer with an error for each denied topic, in the order of the request."""
    if found.error_code is not ErrorCode.NONE:
        return found
    if asked.topics is None:
        topics = await visible(context, ResourceType.TOPIC, found.topics, lambda one: one.name)
        return found if len(topics) == len(found.topics) else replace(found, topics=tuple(topics))
    if not denied.topics:
        return found
    answers = iter(found.topics)
    merged = []
    for topic in asked.topics:
        await turn.wait_if_due()
        is_denied = topic.name in denied.topics
        merged.append(
            _refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) if is_denied else next(answers)
        )
    return replace(found, topics=tuple(merged))


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
    """Join several answers; an error of one is an error of the group."""
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


async def _lowered(
    asked: OffsetFetchRequestGroup,
    found: OffsetFetchResponseGroup,
    version: int,
    turn: NextTurn,
) -> OffsetFetchResponse:
    code = found.error_code
    topics: Iterable[OffsetFetchResponseTopics] = found.topics
    if code is not ErrorCode.NONE and version < TOP_LEVEL_ERROR_SINCE:
        topics = (_refused(topic, code) for topic in asked.topics or ())
    lowered = []
    for topic in topics:
        partitions: list[OffsetFetchResponsePartition] = []
        for start in range(0, len(topic.partitions), SLICE_ITEMS):
            await turn.wait_if_due()
            partitions += map(_lowered_partition, topic.partitions[start : start + SLICE_ITEMS])
        lowered.append(OffsetFetchResponseTopic(name=topic.name, partitions=tuple(partitions)))
    return OffsetFetchResponse(error_code=code, topics=tuple(lowered))


def _lowered_partition(found: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=found.partition_index,
        committed_offset=found.committed_offset,
        committed_leader_epoch=found.committed_leader_epoch,
        metadata=found.metadata,
        error_code=found.error_code,
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


async def _with_names(
    group: OffsetFetchRequestGroup, image: MetadataImage, turn: NextTurn
) -> OffsetFetchRequestGroup:
    """Return the group with topic names; topics that do not exist are left out."""
    if group.topics is None:
        return group
    known = []
    for topic in group.topics:
        await turn.wait_if_due()
        found = None if topic.topic_id is None else image.topic_by_id(topic.topic_id)
        if found is not None:
            known.append(replace(topic, name=found.name))
    return replace(group, topics=tuple(known))


async def _with_ids(
    asked: OffsetFetchRequestGroup,
    found: OffsetFetchResponseGroup,
    image: MetadataImage,
    turn: NextTurn,
) -> OffsetFetchResponseGroup:
    """The answer with ids, in the order of the request, and an error for each unknown topic."""
    if found.error_code is not ErrorCode.NONE:
        return found
    if asked.topics is None:
        return replace(found, topics=tuple(_known(found, image)))
    by_name = {topic.name: topic for topic in found.topics}
    topics = []
    for topic in asked.topics:
        await turn.wait_if_due()
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
