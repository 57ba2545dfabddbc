"""CreateTopics: each topic is created or refused by itself, and served when the answer is sent.

A client needs CREATE on the cluster or on the topic. With DESCRIBE_CONFIGS the answer has also the
settings of a new topic. Topics that are named twice are refused first, as in Kafka.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, message_of
from penstock.broker.mutations import Mutations
from penstock.broker.pacing.slices import in_slices, map_in_slices
from penstock.cluster.configs.described_configs import describe_topic
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.cluster.topic_rules import CLUSTER_METADATA_TOPIC
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.security.acls.values import Operation, ResourceType

STRICT_VERSION: Final = 6
"""Starting at this version clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create the valid topics; duplicates in one request are all refused."""
    services = context.services
    topics: Sequence[CreatableTopic] = request.topics
    results: dict[str, CreatableTopicResult] = {}
    if services.access is not None or services.records_all_changes:
        results = await _denied(topics, context)
        topics = [topic for topic in topics if topic.name not in results]
    refusal = services.accepts_produce()
    outcomes: Sequence[TopicImage | PenstockError]
    if refusal is not None:
        outcomes = [refusal] * len(topics)
    elif topics:
        new = await map_in_slices(_new_topic, topics, services.turns, services.clock)
        outcomes = await Mutations(context, STRICT_VERSION).create(
            new, validate_only=request.validate_only
        )
    else:
        outcomes = ()
    pairs = tuple(zip(topics, outcomes, strict=True))
    async for few in in_slices(pairs, services.turns, services.clock):
        results |= {topic.name: _result(topic.name, outcome, context) for topic, outcome in few}
    return CreateTopicsResponse(topics=tuple(results.values()))


async def _denied(
    topics: Sequence[CreatableTopic], context: RequestContext
) -> dict[str, CreatableTopicResult]:
    """The answers for topics that the client may not create."""
    services = context.services
    is_over_all = context.allows_cluster(Operation.CREATE, is_logged=False)
    times = Counter(topic.name for topic in topics)
    denied: dict[str, CreatableTopicResult] = {}
    async for few in in_slices(tuple(times), services.turns, services.clock):
        for name in few:
            # The controller refuses duplicates and the name of Kafka's metadata for every client.
            if times[name] > 1 or name == CLUSTER_METADATA_TOPIC:
                continue
            if is_over_all:
                context.record_change(Operation.CREATE, ResourceType.TOPIC, name)
            elif not context.allows(Operation.CREATE, ResourceType.TOPIC, name):
                denied[name] = CreatableTopicResult(
                    name=name,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    error_message="Authorization failed.",
                    configs=(),
                )
    return denied


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            (assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments
        ),
        settings={config.name: config.value for config in topic.configs},
    )


def _result(
    name: str, outcome: TopicImage | PenstockError, context: RequestContext
) -> CreatableTopicResult:
    if isinstance(outcome, PenstockError):
        return CreatableTopicResult(
            name=name, error_code=code_of(outcome), error_message=message_of(outcome), configs=()
        )
    if not context.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, is_logged=False):
        return CreatableTopicResult(
            name=name,
            topic_id=outcome.id,
            error_code=ErrorCode.NONE,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=(),
        )
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.id,
        error_code=ErrorCode.NONE,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=tuple(
            CreatableTopicConfigs(
                name=described.config.name,
                value=described.value,
                read_only=False,
                config_source=described.source,
                is_sensitive=described.config.sensitive,
            )
            for described in describe_topic(outcome.settings, context.services.brokers.layers)
        ),
    )
