"""Metadata: brokers, topics, partitions and their leaders; creates a topic when it is asked to.

A topic that is created here is served when the answer leaves, so the client need not come back. In
version 0 an empty list means all topics; from version 1 on that is null, and empty means none.
"""

from penstock.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from penstock.broker.context import COORDINATOR_TOPICS, RequestContext
from penstock.broker.error_mapping import code_of, missing_topic_code
from penstock.broker.mutations import ALWAYS_STRICT, Mutations
from penstock.broker.partition_states import partition_states
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.topic_rules import CLUSTER_METADATA_TOPIC
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
    if request.topics is None or (context.api_version == 0 and not request.topics):
        images = sorted(
            context.services.metadata.image.topics.values(), key=lambda topic: topic.name
        )
        topics = [_described(topic, request, context) for topic in images]
    else:
        created = await _create_missing(request, context)
        # Each once, as in Kafka: a short name may stand for thousands of partitions.
        asked_once = dict.fromkeys(request.topics)
        topics = [_answer(asked, created, request, context) for asked in asked_once]
    image = context.services.metadata.image
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(
                node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in image.brokers.values()
        ),
        cluster_id=image.cluster_id,
        controller_id=context.services.node_id,
        topics=tuple(topics),
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


async def _create_missing(
    request: MetadataRequest, context: RequestContext
) -> dict[str, PenstockError]:
    """Create the named topics that do not exist, where that is allowed; returns what failed."""
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
    for name, kind in COORDINATOR_TOPICS.items():
        if name in missing:
            # These have partitions and settings of their own, whoever asks for them.
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


def _answer(
    asked: MetadataRequestTopic,
    failed: dict[str, PenstockError],
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponseTopic:
    image = context.services.metadata.image
    if asked.topic_id is not None:
        by_id = image.topic_by_id(asked.topic_id)
        if by_id is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, topic_id=asked.topic_id, partitions=()
            )
        return _described(by_id, request, context)
    name = asked.name or ""
    topic = image.topic(name)
    if topic is not None:
        return _described(topic, request, context)
    return MetadataResponseTopic(
        error_code=_missing_code(name, failed.get(name)), name=name, partitions=()
    )


def _missing_code(name: str, failure: PenstockError | None) -> ErrorCode:
    code = missing_topic_code(name)
    if isinstance(failure, ThrottledError):
        # As in Kafka: it is not there yet, and the answer says how long to wait.
        return code
    is_possible = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code_of(failure) if failure is not None and is_possible else code


def _described(
    topic: TopicImage, request: MetadataRequest, context: RequestContext
) -> MetadataResponseTopic:
    states = partition_states(topic, context)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            MetadataResponsePartition(
                error_code=state.error_code,
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=state.offline_replicas,
            )
            for index, (partition, state) in enumerate(zip(topic.partitions, states, strict=True))
        ),
        topic_authorized_operations=TOPIC_OPERATIONS
        if request.include_topic_authorized_operations
        else NOT_ASKED,
    )
