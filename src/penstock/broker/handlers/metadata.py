"""Metadata: brokers, topics, partitions and their leaders; creates missing topics on request.

A topic that is created here is served when the answer is sent, so the client need not retry. In
version 0 an empty list means all topics; since version 1 that is null, and empty means none.

Topics that the client may not describe are left out of a list of all topics. A client that names
one gets an error without the id, whether the topic exists or not; for an id, without the name.
Creating a topic needs CREATE, on the cluster or on the topic.

An answer shows one image of the metadata: every leader in it is one of its brokers.
"""

from collections.abc import Container, Sequence

from penstock.broker.advertised import controller_id, reachable_brokers
from penstock.broker.authorized_operations import (
    NOT_ASKED,
    cluster_operations,
    topic_operations,
)
from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, missing_topic_code
from penstock.broker.mutations import ALWAYS_STRICT, Mutations
from penstock.broker.pacing.slices import in_slices
from penstock.broker.partition_states import partition_states
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import MetadataImage, TopicImage
from penstock.cluster.topic_rules import CLUSTER_METADATA_TOPIC
from penstock.coordinator.kinds import KINDS_BY_TOPIC
from penstock.core.errors import PenstockError, ThrottledError, TopicExistsError
from penstock.core.settings.pipe_declarations import is_mirrored
from penstock.core.types import INTERNAL_TOPICS
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.security.acls.values import Operation, ResourceType


async def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the cluster and the topics asked for."""
    services = context.services
    topics: list[MetadataResponseTopic] = []
    if request.topics is None or (context.api_version == 0 and not request.topics):
        image = services.metadata.image
        images = sorted(image.topics.values(), key=lambda topic: topic.name)
        async for few in in_slices(images, services.turns, services.clock):
            topics += [
                await _described(topic, image, request, context)
                for topic in few
                if services.access is None or _may_describe(topic.name, context, is_logged=False)
            ]
    else:
        denied: dict[str, MetadataResponseTopic] = {}
        if services.access is not None or services.records_all_changes:
            denied = await _denied(request, context)
        failed = await _create_missing(request, denied, context)
        image = services.metadata.image
        # Each once, as in Kafka: a short name may stand for thousands of partitions.
        answered: set[MetadataRequestTopic] = set()
        async for named in in_slices(request.topics, services.turns, services.clock):
            once = [asked for asked in dict.fromkeys(named) if asked not in answered]
            answered.update(once)
            for asked in once:
                answer = denied.get(asked.name or "") if asked.topic_id is None else None
                topics.append(answer or await _answer(asked, image, failed, request, context))
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=broker.id, host=at.host, port=at.port, rack=broker.rack)
            for broker, at in reachable_brokers(image, context.peer)
        ),
        cluster_id=image.cluster_id,
        controller_id=controller_id(image, services.node_id),
        topics=tuple(topics),
        cluster_authorized_operations=cluster_operations(context)
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _may_describe(name: str, context: RequestContext, *, is_logged: bool = True) -> bool:
    return context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, is_logged=is_logged)


def _creates_topics(request: MetadataRequest, context: RequestContext) -> bool:
    auto_create = context.services.settings.topic_defaults.auto_create
    return request.allow_auto_topic_creation and auto_create


async def _denied(
    request: MetadataRequest, context: RequestContext
) -> dict[str, MetadataResponseTopic]:
    """The answers for names of topics that the client may not describe, or would have to create."""
    services = context.services
    image = services.metadata.image
    creates = _creates_topics(request, context)
    is_over_all = creates and context.allows_cluster(Operation.CREATE, is_logged=False)
    names = dict.fromkeys(
        asked.name or "" for asked in request.topics or () if asked.topic_id is None
    )
    denied: dict[str, MetadataResponseTopic] = {}
    async for few in in_slices(tuple(names), services.turns, services.clock):
        for name in few:
            if not _may_describe(name, context):
                denied[name] = _refused(name)
            elif not creates or image.topic(name) is not None:
                continue
            elif is_over_all:
                context.record_change(Operation.CREATE, ResourceType.TOPIC, name)
            elif not context.allows(Operation.CREATE, ResourceType.TOPIC, name):
                denied[name] = _refused(name, is_internal=name in INTERNAL_TOPICS)
    return denied


def _refused(name: str, *, is_internal: bool = False) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        is_internal=is_internal,
        partitions=(),
    )


async def _create_missing(
    request: MetadataRequest, denied: Container[str], context: RequestContext
) -> dict[str, PenstockError]:
    """Create the named topics that do not exist, where that is allowed; returns the errors."""
    services = context.services
    if not _creates_topics(request, context) or services.accepts_produce() is not None:
        return {}
    image = services.metadata.image
    missing = {
        asked.name: None
        for asked in request.topics or ()
        if asked.name is not None
        and asked.topic_id is None
        and asked.name != CLUSTER_METADATA_TOPIC
        and asked.name not in denied
        and image.topic(asked.name) is None
    }
    pipes = services.settings.pipes
    if pipes:
        # A pipe creates these with the id of the parent's topic.
        missing = {name: None for name in missing if not is_mirrored(name, pipes)}
    failed: dict[str, PenstockError] = {}
    for name, kind in KINDS_BY_TOPIC.items():
        if name in missing:
            # Internal topics have their own partitions and settings for every client.
            del missing[name]
            error = await services.coordinators.ensure_topic(kind)
            if error is not None:
                failed[name] = error
    if not missing:
        return failed
    outcomes = await Mutations(context, ALWAYS_STRICT).create(
        [NewTopic(name=name) for name in missing], validate_only=False
    )
    return failed | {
        name: outcome
        for name, outcome in zip(missing, outcomes, strict=True)
        if isinstance(outcome, PenstockError) and not isinstance(outcome, TopicExistsError)
    }


async def _answer(
    asked: MetadataRequestTopic,
    image: MetadataImage,
    failed: dict[str, PenstockError],
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponseTopic:
    if asked.topic_id is not None:
        by_id = image.topic_by_id(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=asked.topic_id, partitions=()
            )
        if _may_describe(by_id.name, context):
            return await _described(by_id, image, request, context)
        # Ids are not secret, names are.
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            topic_id=asked.topic_id,
            partitions=(),
        )
    name = asked.name or ""
    topic = image.topic(name)
    if topic is not None:
        return await _described(topic, image, request, context)
    return MetadataResponseTopic(
        error_code=_missing_code(name, failed.get(name)),
        name=name,
        partitions=(),
        topic_authorized_operations=_operations(name, request, context),
    )


def _operations(name: str, request: MetadataRequest, context: RequestContext) -> int:
    is_asked = request.include_topic_authorized_operations
    return topic_operations(name, context) if is_asked else NOT_ASKED


def _missing_code(name: str, failure: PenstockError | None) -> ErrorCode:
    code = missing_topic_code(name)
    if isinstance(failure, ThrottledError):
        # As in Kafka: the topic does not exist yet, and the answer has a throttle time.
        return code
    is_possible = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code_of(failure) if failure is not None and is_possible else code


async def _described(
    topic: TopicImage, image: MetadataImage, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    services = context.services
    partitions: list[MetadataResponsePartition] = []
    numbered = range(len(topic.partitions))
    async for few in in_slices(numbered, services.turns, services.clock):
        partitions += _partitions(topic, few, image, context)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(partitions),
        topic_authorized_operations=_operations(topic.name, request, context),
    )


def _partitions(
    topic: TopicImage, numbers: Sequence[int], image: MetadataImage, context: RequestContext
) -> list[MetadataResponsePartition]:
    states = partition_states(topic, numbers, image.brokers, context)
    return [
        MetadataResponsePartition(
            error_code=state.error_code,
            partition_index=number,
            leader_id=state.leader,
            leader_epoch=topic.partitions[number].leader_epoch,
            replica_nodes=topic.partitions[number].replicas,
            isr_nodes=topic.partitions[number].isr,
            offline_replicas=state.offline_replicas,
        )
        for number, state in zip(numbers, states, strict=True)
    ]
