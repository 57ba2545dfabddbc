"""CreatePartitions: topics get more partitions, which are served when the answer leaves."""

from collections import Counter
from typing import Final

from penstock.broker.context import RequestContext
from penstock.broker.error_mapping import code_of, message_of
from penstock.broker.mutations import Mutations
from penstock.cluster.topic_changes import MorePartitions
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

STRICT_VERSION: Final = 3
"""From here on a client knows THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


async def handle(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Each topic is changed or refused by itself; one that is named twice is refused once."""
    times = Counter(topic.name for topic in request.topics)
    repeated = [name for name, count in times.items() if count > 1]
    wanted = [_wanted(topic) for topic in request.topics if times[topic.name] == 1]
    refusal = context.services.accepts_produce()
    outcomes: list[PenstockError | None] = [refusal] * len(wanted)
    if refusal is None:
        outcomes = await Mutations(context, STRICT_VERSION).add_partitions(
            wanted, validate_only=request.validate_only
        )
    twice = InvalidRequestError("Duplicate topic name.")
    results = [_result(name, twice) for name in repeated]
    results += (_result(one.name, out) for one, out in zip(wanted, outcomes, strict=True))
    return CreatePartitionsResponse(results=tuple(results))


def _wanted(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = topic.assignments
    return MorePartitions(
        topic.name,
        topic.count,
        None if assignments is None else tuple(one.broker_ids for one in assignments),
    )


def _result(name: str, outcome: PenstockError | None) -> CreatePartitionsTopicResult:
    if outcome is None:
        return CreatePartitionsTopicResult(name=name, error_code=ErrorCode.NONE)
    return CreatePartitionsTopicResult(
        name=name, error_code=code_of(outcome), error_message=message_of(outcome)
    )
