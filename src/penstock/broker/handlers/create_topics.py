"""CreateTopics: each topic is created or refused by itself, and served when the answer is sent."""

from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, message_of
from penstock.broker.mutations import Mutations
from penstock.broker.pacing.slices import in_slices, map_in_slices
from penstock.cluster.configs.described_configs import describe_topic
from penstock.cluster.controller import NewTopic
from penstock.cluster.image import TopicImage
from penstock.core.errors import PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

STRICT_VERSION: Final = 6
"""Starting at this version clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    """Create the valid topics; duplicates in one request are all refused."""
    refusal = context.services.accepts_produce()
    if refusal is not None:
        return CreateTopicsResponse(
            topics=tuple(_result(topic.name, refusal, context) for topic in request.topics)
        )
    services = context.services
    new = await map_in_slices(_new_topic, request.topics, services.turns, services.clock)
    outcomes = await Mutations(context, STRICT_VERSION).create(
        new, validate_only=request.validate_only
    )
    results: dict[str, CreatableTopicResult] = {}
    pairs = tuple(zip(request.topics, outcomes, strict=True))
    async for few in in_slices(pairs, services.turns, services.clock):
        results |= {topic.name: _result(topic.name, outcome, context) for topic, outcome in few}
    return CreateTopicsResponse(topics=tuple(results.values()))


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
