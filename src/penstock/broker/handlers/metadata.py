"""Metadata: brokers, topics, partitions and their leaders; creates missing topics on request.

A topic that is created here is served when the answer is sent, so the client need not retry. In
version 0 an empty list means all topics; since version 1 that is null, and empty means none.
"""

from collections.abc import Sequence

from penstock.broker.advertised import reachable_brokers
from penstock.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
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


async def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the cluster and the topics asked for."""
    services = context.services
    topics: list[MetadataResponseTopic] = []
    if request.topics is None or (context.api_version == 0 and not request.topics):
        image = services.metadata.image
        images = sorted(image.topics.values(), key=lambda topic: topic.name)
        async for few in in_slices(images, services.turns, services.clock):
            topics += [await _described(topic, request, context) for topic in few]
    else:
        created = await _create_missing(request, context)
        image = services.metadata.image
        # Each once, as in Kafka: a short name may stand for thousands of partitions.
        answered: set[MetadataRequestTopic] = set()
        async for named in in_slices(request.topics, services.turns, services.clock):
            once = [asked for asked in dict.fromkeys(named) if asked not in answered]
            answered.update(once)
            topics += [await _answer(asked, image, created, request, context) for asked in once]
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(node_id=broker.id, host=at.host, port=at.port, rack=broker.rack)
            for broker, at in reachable_brokers(image, context.peer)
        ),
        cluster_id=image.cluster_id,
        controller_id=services.node_id,
        topics=tuple(topics),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


async def _create_missing(
    request: MetadataRequest, context: RequestContext
) -> dict[str, PenstockError]:
    """Create the named topics that do not exist, where that is allowed; returns the errors."""
    services = context.services
    is_allowed = request.allow_auto_topic_creation and services.settings.topic_defaults.auto_create
    if not is_allowed or services.accepts_produce() is not None:
        return {}
    image = services.metadata.image
    missing = {
        asked.name: None
        for asked in request.topics or ()
        if asked.name is not None
        and asked.topic_id is None
        and asked.name != CLUSTER_METADATA_TOPIC
        and image.topic(asked.name) is None
    }
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
        return await _described(by_id, request, context)
    name = asked.name or ""
    topic = image.topic(name)
    if topic is not None:
        return await _described(topic, request, context)
    return MetadataResponseTopic(
        error_code=_missing_code(name, failed.get(name)), name=name, partitions=()
    )


def _missing_code(name: str, failure: PenstockError | None) -> ErrorCode:
    code = missing_topic_code(name)
    if isinstance(failure, ThrottledError):
        # As in Kafka: the topic does not exist yet, and the answer has a throttle time.
        return code
    is_possible = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code_of(failure) if failure is not None and is_possible else code


async def _described(
    topic: TopicImage, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    services = context.services
    partitions: list[MetadataResponsePartition] = []
    numbered = range(len(topic.partitions))
    async for few in in_slices(numbered, services.turns, services.clock):
        partitions += _partitions(topic, few, context)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(partitions),
        topic_authorized_operations=TOPIC_OPERATIONS
        if request.include_topic_authorized_operations
        else NOT_ASKED,
    )


def _partitions(
    topic: TopicImage, numbers: Sequence[int], context: RequestContext
) -> list[MetadataResponsePartition]:
    states = partition_states(topic, numbers, context)
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
