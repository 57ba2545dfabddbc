"""CreatePartitions: adds partitions to topics; they are served when the answer is sent."""

from collections import Counter
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import outcome_of
from penstock.broker.mutations import Mutations
from penstock.broker.pacing.slices import in_slices, map_in_slices
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from penstock.security.acls.values import Operation, ResourceType

STRICT_VERSION: Final = 3
"""Starting at this version clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Each topic is changed or refused by itself; one that is named twice is refused once.

    A client without ALTER on a topic learns nothing else about it.
    """
    services = context.services
    times: Counter[str] = Counter()
    async for few in in_slices(request.topics, services.turns, services.clock):
        times.update(topic.name for topic in few)
    repeated: dict[str, None] = {}
    denied: list[str] = []
    wanted: list[MorePartitions] = []
    async for few in in_slices(request.topics, services.turns, services.clock):
        for topic in few:
            if times[topic.name] > 1:
                continue
            if context.allows(Operation.ALTER, ResourceType.TOPIC, topic.name):
                wanted.append(_wanted(topic))
            else:
                denied.append(topic.name)
        repeated |= {topic.name: None for topic in few if times[topic.name] > 1}
    refusal = services.accepts_produce()
    outcomes: list[PenstockError | None] = [refusal] * len(wanted)
    if refusal is None and wanted:
        outcomes = await Mutations(context, STRICT_VERSION).add_partitions(
            wanted, validate_only=request.validate_only
        )
    twice = InvalidRequestError("Duplicate topic name.")
    pairs: list[tuple[str, PenstockError | None]] = [(name, twice) for name in repeated]
    pairs += ((one.name, outcome) for one, outcome in zip(wanted, outcomes, strict=True))
    results = await map_in_slices(_denied, denied, services.turns, services.clock)
    results += await map_in_slices(_result, pairs, services.turns, services.clock)
    return CreatePartitionsResponse(results=tuple(results))


def _wanted(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic.name,
        topic.count,
        None if assignments is None else tuple(one.broker_ids for one in assignments),
    )


def _denied(name: str) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message=None
    )


def _result(answered: tuple[str, PenstockError | None]) -> CreatePartitionsTopicResult:
    name, error = answered
    outcome = outcome_of(error)
    return CreatePartitionsTopicResult(
        name=name, error_code=outcome.code, error_message=outcome.message
    )
